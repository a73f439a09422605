// A graph run operation by operation or kernel by kernel, with a look at every value.
#pragma once

#include "egret/graph.h"
#include "runtime/program.h"
#include "tensor/engine.h"

#include <span>
#include <vector>

namespace egret::detail {

struct DebugRun {
  DebugReport report;
  std::vector<runtime::StoragePtr> outputs; ///< by graph output
};

/// Each operation is a program of its own, with the views of its operands inside. A value leaves
/// memory after its last reader.
DebugRun run_op_by_op(const ir::Graph& graph, std::span<const runtime::RunInput> inputs);

/// The launches of a program, which replaces no input.
DebugRun run_kernel_by_kernel(const runtime::Program& program,
                              std::span<const runtime::RunInput> inputs);

} // namespace egret::detail
