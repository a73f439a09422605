// Parameter folding: values made only of parameters that keep their values from run to run become
// inputs that are computed once, as constant folding would if the values were known.
#pragma once

#include "egret/ir.h"
#include "kernel/target.h"

#include <optional>
#include <string>
#include <vector>

namespace egret::compiler {

/// A value that a program keeps from run to run until the inputs that it is made of change.
struct FoldedParameter {
  std::string what;                 ///< "concatenation", for people
  std::vector<std::string> sources; ///< names of inputs
  DType dtype = DType::F32;
  Shape shape;
  double bytes = 0; ///< that it takes; 0 with an empty `what`: it is not made
};

/// A graph in which some values have become inputs, and how these are made.
struct ParameterFolding {
  ir::Graph main; ///< the graph's inputs in their slots, then the derived ones; the same outputs
  ir::Graph fill; ///< gives the derived inputs, in order
  std::vector<std::size_t> sources;    ///< by input of `fill`: the graph's input that it is
  std::vector<FoldedParameter> report; ///< by derived input
};

/// Several products of one operand with different parameters, such as those that make queries, keys
/// and values, or the gate and the other half of a gated layer, become one product with the
/// parameters side by side, of which each reader takes its part. `steady[slot]`: the input is a
/// parameter that keeps its value from run to run and that this graph does not replace.
///
/// Products are left alone that are results of the graph, or that a parameter of the same
/// graph's results takes part in; where the parts would be read by elementwise operations, which a
/// product of its own could make before it stores anything, and are too large to be found in the
/// cache; and where the copies would take more than a share of the device's memory. Nothing when
/// there are no such products.
std::optional<ParameterFolding> fold_parameters(const ir::Graph& graph,
                                                const std::vector<bool>& steady,
                                                const kernel::Target& target);

} // namespace egret::compiler
