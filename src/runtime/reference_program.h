// A graph run by the reference executor: the oracle behind the same interface as compiled plans.
#pragma once

#include "runtime/program.h"

namespace egret::runtime {

std::shared_ptr<const Program> make_reference_program(const ir::Graph& graph,
                                                      const compiler::Options& options,
                                                      std::shared_ptr<Pool> pool);

} // namespace egret::runtime
