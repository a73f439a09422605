// The CPU as a device: memory, code through LLVM ORC in process, a pool of workers.
#pragma once

#include "backend/common/device.h"
#include "support/object_cache.h"

namespace egret::backend::cpu {

/// A device with `workers` threads (0: the number of cores this process may use), the calling
/// thread being one of them. Machine code is looked for and kept in `objects`, which must live as
/// long; null: it is always made.
std::unique_ptr<Device> make_cpu_device(int workers = 0, ObjectCache* objects = nullptr);

/// The cache for machine code of the CPU in the user's cache folder, bounded by EGRET_OBJECTS_MB;
/// of the whole process.
ObjectCache& user_objects();

} // namespace egret::backend::cpu
