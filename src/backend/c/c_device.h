// This machine's processor by way of C: kernels as C11 text (render.h), compiled by the system's
// compiler, loaded into this process.
#pragma once

#include "backend/common/device.h"
#include "support/object_cache.h"

#include <memory>

namespace egret::backend::c {

/// `workers` workers (0: EGRET_THREADS, or else all cores of this process); `objects` may be null.
/// Error(Device) when there is no compiler.
std::unique_ptr<Device> make_c_device(int workers, ObjectCache* objects = nullptr);

/// A device with the same target, whose kernels are text: compiles without a C compiler and
/// launches nothing (Error(Unsupported)).
std::unique_ptr<Device> make_c_source_device();

ObjectCache& user_objects(); ///< of the whole process

} // namespace egret::backend::c
