// Gradients of graphs: graph to graph, so that gradients can be differentiated again. Conventions
// at ties, zeros and infinities: docs/autodiff.md.
#pragma once

#include "egret/ir.h"

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace egret {

/// Appends to `graph` the nodes that compute, for each node of `wrt`, the gradient of sum(outputs ·
/// seeds), and returns them: each has the shape and dtype of its `wrt` node. `seeds` has one node
/// for each output, of its shape and dtype. Any node may be in `wrt`, inner ones included; one that
/// the outputs do not depend on by floats gets zeros. Only nodes that a result needs are added.
/// Throws Error(Value) when the numbers of outputs and seeds differ or a node does not exist,
/// Error(DType) for an output that is no float or a seed of another dtype, Error(Shape) for a seed
/// of another shape.
std::vector<ir::NodeId> gradients(ir::Graph& graph, std::span<const ir::NodeId> outputs,
                                  std::span<const ir::NodeId> seeds,
                                  std::span<const ir::NodeId> wrt);

/// What gradcheck found.
struct GradCheck {
  bool ok = true;
  double max_error = 0; ///< largest |analytic - numeric| / (absolute + relative · |numeric|)
  std::string first;    ///< "input 0 element 7: analytic 1.5, numeric 2.25", empty when ok
  std::string worst;    ///< the same for the element with the largest error
  explicit operator bool() const noexcept { return ok; }
};

struct GradCheckOptions {
  double step = 1e-6;     ///< of the central differences
  double absolute = 1e-6; ///< tolerance
  double relative = 1e-4;
};

/// Runs a graph on inputs given by slot, each a list of values in row-major order, and returns its
/// outputs in the same form.
using EvaluateGraph = std::function<std::vector<std::vector<double>>(
    const ir::Graph& graph, const std::vector<std::vector<double>>& inputs)>;

/// Compares the gradients of the graph's outputs (f64, any number; each is weighted by fixed random
/// numbers) for its f64 inputs `wrt` (slots; all f64 inputs when empty) with central differences at
/// `inputs`. Other inputs are left alone. Throws Error(DType) for an output or a slot of `wrt` that
/// is not f64.
GradCheck gradcheck(const ir::Graph& graph, const std::vector<std::vector<double>>& inputs,
                    const EvaluateGraph& evaluate, std::vector<std::int64_t> wrt = {},
                    const GradCheckOptions& options = {});

} // namespace egret
