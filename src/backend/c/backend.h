// The row of C in the list of backends.
#pragma once

#include "backend/common/registry.h"

namespace egret::backend::c {

Backend backend();

} // namespace egret::backend::c
