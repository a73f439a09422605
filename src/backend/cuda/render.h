// Kernel programs as CUDA C++ text.
//
// What the text has to be, so that the device can launch it:
//
//   struct EgretArgs { void* p[NP]; long long d[ND]; unsigned long long s[NS]; };
//   extern "C" __global__ void NAME(const __grid_constant__ EgretArgs args [, tensor maps])
//
// NP is the number of Argument buffers plus that of Workspace buffers, in the order in which each
// stands in KernelProgram::buffers, arguments first; ND and NS are the numbers of dims and scalars;
// each is at least 1. A scalar's bits are in the low bytes of its word. NAME is kernel_symbol().
// Tensor maps follow as `const __grid_constant__ CUtensorMap map0, map1 ...`, 64-byte aligned.
// The device launches min(launch.grid[0], 2^31-1) blocks of launch.block[0] threads,
// one-dimensional, with launch.shared_bytes of dynamic shared memory.
#pragma once

#include "backend/cuda/target.h"
#include "kernel/program.h"

#include <string>

namespace egret::backend::cuda {

/// The name of the program's function in its text: an identifier made from its name and hash.
std::string kernel_symbol(const kernel::KernelProgram& program);

/// Complete text for NVRTC; Error(Unsupported) when the program has something that a GPU lacks.
std::string render_cuda(const kernel::KernelProgram& program, const CudaTarget& target);

} // namespace egret::backend::cuda
