// The reference: executes a graph node by node with plain loops. Slow, obviously right, and the
// oracle for everything else.
#pragma once

#include "backend/reference/compare.h"
#include "backend/reference/host_array.h"
#include "egret/ir.h"

#include <span>
#include <vector>

namespace egret::backend::reference {

/// Values of the symbols of the graph's input shapes, from the arrays given by slot. Throws
/// Error(Value) for a wrong number of inputs, Error(DType) and Error(Shape), naming the input, for
/// arrays that do not fit.
Bindings bind_inputs(const ir::Graph& graph, std::span<const HostArray> inputs);

/// The values of `graph.outputs`. `inputs` by slot; a by-value input is an array of rank 0. Every
/// node is computed in f64 (integers exactly) and rounded once to its dtype; sums and products
/// accumulate in f64.
std::vector<HostArray> execute(const ir::Graph& graph, std::span<const HostArray> inputs);
/// The values of `nodes`.
std::vector<HostArray> execute(const ir::Graph& graph, std::span<const HostArray> inputs,
                               std::span<const ir::NodeId> nodes);

/// As execute, with a tolerance for each element (estimate.h): what compare() takes.
std::vector<Expected> expect(const ir::Graph& graph, std::span<const HostArray> inputs);
std::vector<Expected> expect(const ir::Graph& graph, std::span<const HostArray> inputs,
                             std::span<const ir::NodeId> nodes);

} // namespace egret::backend::reference
