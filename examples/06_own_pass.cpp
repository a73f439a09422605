// A compiler pass of one's own: a function from a graph to a graph that computes the same.
//
//   by_reciprocal (approximate): 5 -> 10 nodes
//     1 division is a product now
//   fusion: 10 -> 10 nodes, unchanged
//     neighbouring operations share kernels; explain() lists them
//   0.25 0.75 0.25 0.75
//   pass longer: output 0 was f32[2,2] and became f32[2]; it must stay
#include "egret/functional.h"
#include "egret/graph.h"

#include <iostream>

using namespace egret;

namespace {

/// a / expand(b) becomes a * expand(1 / b), which divides once for each element of b. A pass builds
/// a new graph from the old one, node by node.
ir::Graph by_reciprocal(const ir::Graph& graph, Notes& notes) {
  ir::Graph result;
  std::vector<ir::NodeId> place; // of each old node in the new graph
  int replaced = 0;
  for (ir::NodeId id = 0; id < graph.size(); ++id) {
    const ir::Node& node = graph[id];
    std::vector<ir::NodeId> inputs;
    for (const ir::NodeId input : node.inputs)
      inputs.push_back(place[input]);
    if (node.op != Op::Div || graph[node.inputs[1]].op != Op::Expand) {
      place.push_back(result.add(node.op, inputs, node.attrs));
      continue;
    }
    const ir::Node& expand = graph[node.inputs[1]];
    const ir::NodeId divisor = place[expand.inputs[0]];
    const ir::NodeId one =
        result.broadcast(result.constant(node.dtype, 1), graph[expand.inputs[0]].shape);
    const std::vector<ir::NodeId> reciprocal{result.binary(Op::Div, one, divisor)};
    place.push_back(
        result.binary(Op::Mul, inputs[0], result.add(Op::Expand, reciprocal, expand.attrs)));
    ++replaced;
  }
  for (const ir::NodeId output : graph.outputs)
    result.outputs.push_back(place[output]);
  notes.push_back(std::to_string(replaced) + " division is a product now");
  return result;
}

} // namespace

int main() {
  Graph cx;
  auto x = cx.tensor({2, 2}).set({1, 3, 2, 6}).keep();
  auto y = (x / x.sum(-1, true)).retrieve();

  // `true`: results may differ in the last places, and the report says so.
  const Pass mine("by_reciprocal", by_reciprocal, true);
  cx.compile(mine | Fusion{}, &y);
  std::cout << cx.report();
  const bool replaced = cx.report().find("1 division") != std::string::npos;
  cx.execute();
  for (const float value : y.data())
    std::cout << value << " ";
  std::cout << "\n";

  // A pass that is wrong about shapes is found before anything runs.
  const Pass longer("longer", [](const ir::Graph& graph, Notes&) {
    ir::Graph changed = graph;
    changed.outputs[0] = changed.reduce(Op::ReduceSum, graph.outputs[0], {0});
    return changed;
  });
  try {
    cx.compile(longer, &y);
  } catch (const Error& error) {
    std::cout << error.what() << "\n";
    return replaced ? 0 : 1;
  }
  return 1;
}
