// Runs plans: binds pointers, provides outputs and the arena, launches step by step.
#pragma once

#include "runtime/program.h"
#include "runtime/storage.h"

#include <memory>

namespace egret::runtime {

/// Compiles `graph` for `device`; outputs and arenas come from `pool`.
std::shared_ptr<const Program>
make_plan_program(const ir::Graph& graph, const compiler::Options& options, backend::Device& device,
                  compiler::KernelCache& cache, std::shared_ptr<Pool> pool);

} // namespace egret::runtime
