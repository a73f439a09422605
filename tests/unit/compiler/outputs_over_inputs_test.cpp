// Which outputs of a graph may be written over which inputs.
#include "compiler/output_spec.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace egret::compiler {
namespace {

std::vector<std::int64_t> overwritten_inputs(const ir::Graph& graph) {
  std::vector<std::int64_t> inputs;
  for (const OutputSpec& spec : outputs_over_inputs(graph)) {
    EXPECT_EQ(spec.state_input, -1);
    inputs.push_back(spec.over_input);
  }
  return inputs;
}

TEST(OutputsOverInputs, AnUpdateGoesOverTheParameterAndEachMeanOverItself) {
  ir::Graph graph;
  const auto w = graph.input("w", DType::F32, {8, 4});
  const auto m = graph.input("m", DType::F32, {8, 4});
  const auto g = graph.input("g", DType::F32, {8, 4});
  const auto mean = graph.binary(Op::Add, graph.binary(Op::Mul, m, m), g);
  const auto step = graph.unary(Op::Sqrt, graph.unary(Op::Sqrt, mean));
  graph.outputs = {graph.binary(Op::Add, w, step), mean};
  const auto found = overwritten_inputs(graph);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0], 0);
  EXPECT_EQ(found[1], 2) << "the nearest one";
}

TEST(OutputsOverInputs, NoTwoOutputsGoOverOneInput) {
  ir::Graph graph;
  const auto x = graph.input("x", DType::F32, {8});
  graph.outputs = {graph.unary(Op::Sqrt, graph.unary(Op::Exp2, x)), graph.unary(Op::Exp2, x)};
  EXPECT_EQ(overwritten_inputs(graph), (std::vector<std::int64_t>{-1, 0}))
      << "the nearer one has it";
}

TEST(OutputsOverInputs, OtherShapesDTypesAndNumbersAreNotOverwritten) {
  ir::Graph graph;
  const auto x = graph.input("x", DType::F32, {8});
  const auto y = graph.input("y", DType::F32, {1});
  const auto number = graph.input("s", DType::F32, {}, true);
  graph.outputs = {graph.cast(x, DType::F64), graph.broadcast(y, {8}),
                   graph.unary(Op::Sqrt, number), graph.reduce(Op::ReduceSum, x, {0}), x};
  EXPECT_TRUE(overwritten_inputs(graph).empty());
}

} // namespace
} // namespace egret::compiler
