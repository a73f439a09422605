// CUDA's row in the list of backends.
#pragma once

#include "backend/common/registry.h"

namespace egret::backend::cuda {

Backend backend();

} // namespace egret::backend::cuda
