// All backends of this build.
#pragma once

#include "backend/common/registry.h"

namespace egret::backend {

/// The list that runtime, the measuring process of searches and the tools ask. A new backend is one
/// line in backends.cpp.
const BackendRegistry& backends();

} // namespace egret::backend
