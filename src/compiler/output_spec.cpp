#include "compiler/output_spec.h"

#include "compiler/prepare_outputs.h"

#include <algorithm>
#include <tuple>

namespace egret::compiler {

using ir::NodeId;

namespace {

struct Pair {
  std::size_t distance; ///< operations between both
  std::size_t output;
  std::int64_t input; ///< slot
};

// Inputs of the shape and dtype of an output, behind elementwise operations on that shape.
void find_inputs(const ir::Graph& graph, std::size_t output, std::vector<std::size_t>& met_by,
                 std::vector<Pair>& pairs) {
  constexpr std::size_t kMostLooked = 64;
  const NodeId stored = same_memory(graph, graph.outputs[output]);
  const ir::Node& value = graph[stored];
  std::vector<std::pair<NodeId, std::size_t>> open = {{stored, 0}};
  for (std::size_t at = 0; at < open.size() && at < kMostLooked; ++at) {
    const auto [id, distance] = open[at];
    const ir::Node& node = graph[id];
    if (!is_elementwise(node.op))
      continue;
    for (const NodeId operand : node.inputs) {
      const ir::Node& from = graph[operand];
      if (met_by[operand] == output + 1 || from.shape != value.shape)
        continue;
      met_by[operand] = output + 1;
      if (from.op != Op::Input)
        open.emplace_back(operand, distance + 1);
      else if (from.dtype == value.dtype && !from.attrs.by_value)
        pairs.push_back({distance, output, static_cast<std::int64_t>(from.attrs.slot)});
    }
  }
}

} // namespace

std::vector<OutputSpec> outputs_over_inputs(const ir::Graph& graph) {
  std::vector<Pair> pairs;
  std::vector<std::size_t> met_by(graph.size(), 0); // an output's number + 1
  for (std::size_t output = 0; output < graph.outputs.size(); ++output)
    find_inputs(graph, output, met_by, pairs);
  std::sort(pairs.begin(), pairs.end(), [](const Pair& a, const Pair& b) {
    return std::tie(a.distance, a.output, a.input) < std::tie(b.distance, b.output, b.input);
  });
  std::vector<OutputSpec> specs;
  std::vector<bool> taken(graph.inputs().size(), false);
  for (const Pair& pair : pairs) {
    const auto input = static_cast<std::size_t>(pair.input);
    if (taken[input] || (!specs.empty() && specs[pair.output].over_input >= 0))
      continue;
    specs.resize(graph.outputs.size());
    specs[pair.output].over_input = pair.input;
    taken[input] = true;
  }
  return specs;
}

} // namespace egret::compiler
