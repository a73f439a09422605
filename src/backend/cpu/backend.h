// The CPU's row in the list of backends.
#pragma once

#include "backend/common/registry.h"

namespace egret::backend::cpu {

Backend backend();

} // namespace egret::backend::cpu
