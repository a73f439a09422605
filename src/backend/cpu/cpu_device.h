// The CPU as a device: memory, code through LLVM ORC in process, a pool of workers.
#pragma once

#include "backend/common/device.h"

namespace egret::backend::cpu {

/// A device with `workers` threads (0: the number of cores this process may use), the calling thread being one of them.
std::unique_ptr<Device> make_cpu_device(int workers = 0);

} // namespace egret::backend::cpu
