// A graph run operation by operation, with a look at every value.
#pragma once

#include "egret/graph.h"
#include "runtime/program.h"
#include "tensor/engine.h"

#include <span>
#include <vector>

namespace egret::detail {

struct OpByOp {
  DebugReport report;
  std::vector<runtime::StoragePtr> outputs; ///< by graph output
};

/// Each operation is a program of its own, with the views of its operands inside. A value leaves
/// memory after its last reader.
OpByOp run_op_by_op(const ir::Graph& graph, std::span<const runtime::RunInput> inputs);

} // namespace egret::detail
