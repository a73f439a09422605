// A device that interprets kernel programs: slow, checks every access, needs no code generator.
#pragma once

#include "backend/common/device.h"

namespace egret::runtime {

std::unique_ptr<backend::Device> make_interpreter_device();

} // namespace egret::runtime
