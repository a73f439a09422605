// How long a kernel program should take, from its loops and a description of the machine. It ranks
// candidates; what decides is measurement.
#pragma once

#include "backend/reference/host_array.h"
#include "compiler/search/machine.h"
#include "kernel/program.h"
#include "kernel/region.h"
#include "kernel/target.h"

namespace egret::compiler {

/// Seconds of a launch: the slower of arithmetic (instructions of the loop nest, weighted, shared
/// by the workers that the launch uses) and memory (bytes of the region, those of results twice
/// when they pass through caches that do not hold them), plus what launching and barriers cost. Of
/// a GPU's programs, whose instructions say less, the roofline of the region, or the longest thread
/// where that takes longer: what one thread does alone is seen to be slow. `cold`: no cache holds
/// the operands.
double predict(const kernel::KernelProgram& program, const kernel::Region& region,
               const kernel::Target& target, const Machine& machine,
               const backend::reference::Bindings& sizes, bool cold = false);

/// What predict() may give at the least for another program of the region on a CPU that stores past
/// the caches where `program` does, and no more than predict() gives for `program`: the roofline of
/// the region, by the bytes that it moves and the vector instructions that its operations take. 0
/// for a GPU.
double least_seconds(const kernel::KernelProgram& program, const kernel::Region& region,
                     const kernel::Target& target, const Machine& machine,
                     const backend::reference::Bindings& sizes, bool cold = false);

/// The part of a CPU's prediction that is arithmetic, in cycles.
double arithmetic_cycles(const kernel::KernelProgram& program, const kernel::Target& target,
                         const backend::reference::Bindings& sizes);

} // namespace egret::compiler
