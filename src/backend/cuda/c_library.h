// A plan as a C library that runs on a GPU: the kernels' machine code, the launches, the memory and
// the values that are known beforehand, over nothing but the CUDA driver, which the library opens
// at run time.
#pragma once

#include "backend/c/library.h"
#include "backend/common/device.h"
#include "backend/cuda/cubin_cache.h"
#include "kernel/target.h"

#include <span>
#include <vector>

namespace egret::backend::cuda {

/// The text of the library, with the machine code of each kernel for the target, and its PTX for
/// later GPUs. `steps`: of the plan, over its slots. `cache` may be null. Error(Value) when the
/// name is no C identifier that may be used; Error(Unsupported) naming the kernel that NVRTC
/// refuses or that a library computes.
c::LibraryText render_library(const kernel::Plan& plan, std::span<const LibraryStep> steps,
                              const ir::Graph& graph, const c::LibraryInterface& interface,
                              const kernel::Target& target, const Nvrtc& nvrtc, CubinCache* cache);

} // namespace egret::backend::cuda
