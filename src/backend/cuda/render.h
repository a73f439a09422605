// Kernel programs as CUDA C++ text.
//
// What the text has to be, so that the device can launch it:
//
//   struct EgretArgs { void* p[NP]; long long d[ND]; unsigned long long s[NS][, settled]; };
//   extern "C" __global__ void NAME(const __grid_constant__ EgretArgs args [, tensor maps])
//
// p holds the pointers of the program's Argument buffers, then of its Workspace buffers, then of
// its Counter buffers, each in the order in which they stand in KernelProgram::buffers; d and s
// hold its dims and scalars; each array has at least one element. A scalar's bits are in the low
// bytes of its word. NAME is clike::kernel_symbol(). Tensor maps follow as `const __grid_constant__
// CUtensorMap map0, map1 ...`, 64-byte aligned. Blocks and grid are one-dimensional: launch.threads
// threads, launch.workers blocks, or as many as are resident if launch.resident says so. Each block
// gets dynamic_shared_bytes() of dynamic shared memory, aligned to 1024 bytes, or
// launch.least_shared if that is more. Where CudaTarget::launches_early(), each kernel waits for
// the one that was launched before it: it can be launched with programmatic stream serialization.
// `settled`, where some buffer is Buffer::settled, is Work::settled.
#pragma once

#include "backend/cuda/target.h"
#include "kernel/program.h"

#include <string>

namespace egret::backend::cuda {

/// Complete text for NVRTC; Error(Unsupported) when the program has something that a GPU lacks.
std::string render_cuda(const kernel::KernelProgram& program, const CudaTarget& target);

/// The dynamic shared memory that the text of render_cuda() expects, in bytes: that of the Shared
/// buffers and of what the renderer needs for itself.
std::int64_t dynamic_shared_bytes(const kernel::KernelProgram& program);

} // namespace egret::backend::cuda
