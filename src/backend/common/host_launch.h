// Launches on memory of the host, whatever memory the device works in: for checks and tests.
#pragma once

#include "backend/common/device.h"

namespace egret::backend {

/// Launches with a block whose pointers are the host's and waits. On a device with memory of its
/// own the buffers are copied there and back, at addresses of the same alignment; arguments that
/// are one and the same pointer stay so. `margin` bytes on both sides of each buffer travel too, so
/// that guard zones show what a kernel writes beside its buffers: they must belong to the caller.
void launch_on_host_memory(Device& device, const Artifact& artifact,
                           const kernel::KernelProgram& program, const kernel::ArgBlock& block,
                           int workers = 0, std::size_t margin = 0);

} // namespace egret::backend
