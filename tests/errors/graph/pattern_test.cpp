// Each message of patterns, rewrites and passes.
#include "egret/passes.h"

#include <gtest/gtest.h>

namespace egret {
namespace {

using namespace pattern;

void expect_pattern_error(ErrorKind kind, const std::string& message,
                          const std::function<void()>& body) {
  try {
    body();
    FAIL() << "no error; expected: " << message;
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), message);
    EXPECT_EQ(error.kind(), kind) << message;
  }
}

TEST(PatternErrors, MistakesInADescriptionAreToldWhenItIsMade) {
  expect_pattern_error(ErrorKind::Value, "pattern: add takes 2 operands, the pattern has 1",
                       [] { node(Op::Add, {any()}); });
  expect_pattern_error(ErrorKind::Value, "pattern: node() needs at least one op",
                       [] { node(std::vector<Op>{}, {}); });
  expect_pattern_error(ErrorKind::Value, "pattern: one_of() needs at least one alternative",
                       [] { one_of({}); });
  expect_pattern_error(
      ErrorKind::Value,
      "pattern: shape(\"M-N\"): `-` is no dim; letters, digits, _ and a leading .. are "
      "known",
      [] { any().shape("M-N"); });
  expect_pattern_error(ErrorKind::Value,
                       "pattern: shape(\"99999999999999999999\"): the size does not fit 64 bits",
                       [] { any().shape("99999999999999999999"); });
  expect_pattern_error(ErrorKind::Value,
                       "pattern: broadcast(\"K\"): shape() has no dim `K`; call shape() first",
                       [] { any().shape("MN").broadcast("K"); });
  expect_pattern_error(ErrorKind::Value,
                       "pattern: varies(\"M\"): shape() has no dim `M`; call shape() first",
                       [] { any().varies("M"); });
  expect_pattern_error(ErrorKind::Value,
                       "pattern: over(\"K\"): shape() has no dim `K`; call shape() first",
                       [] { node(Op::ReduceSum, {any("x")}).over("K"); });
  expect_pattern_error(ErrorKind::Value, "pattern: over(\"K\") is for a node with operands",
                       [] { any().over("K"); });
}

TEST(PatternErrors, AskingAMatchForWhatItHasNot) {
  Match m;
  expect_pattern_error(ErrorKind::Value, "pattern: the match has no node named `x`",
                       [&] { m["x"]; });
  expect_pattern_error(ErrorKind::Value, "pattern: the match has no dim `K`", [&] { m.dim('K'); });
  ir::Graph g;
  expect_pattern_error(ErrorKind::Value, "pattern: %4 does not exist; the graph has 0 nodes",
                       [&] { match_at(g, 4, any()); });
}

ir::Graph exp_graph() {
  ir::Graph g;
  g.outputs = {g.unary(Op::Exp, g.input("x", DType::F32, {2}))};
  return g;
}

TEST(PatternErrors, AReplacementMustHaveTheSameTypeAndExist) {
  auto replace_by = [](std::function<NodeId(Graph&, const Match&)> make) {
    rewrite(exp_graph(), {"bad", node(Op::Exp, {any("x")}), std::move(make)});
  };
  expect_pattern_error(
      ErrorKind::DType, "rewrite bad: the replacement is i32[2], what it replaces is f32[2]",
      [&] { replace_by([](Graph& g, const Match& m) { return g.cast(m["x"], DType::I32); }); });
  expect_pattern_error(
      ErrorKind::Shape, "rewrite bad: the replacement is f32[1,2], what it replaces is f32[2]",
      [&] { replace_by([](Graph& g, const Match& m) {
              return g.reshape(m["x"], {1, 2});
            }); });
  expect_pattern_error(ErrorKind::Value, "rewrite bad: the replacement %77 does not exist",
                       [&] { replace_by([](Graph&, const Match&) { return NodeId{77}; }); });
}

TEST(PassErrors, APassMustKeepInputsAndOutputs) {
  auto run = [](Pass::Transform transform) { Pass("mine", std::move(transform))(exp_graph()); };
  expect_pattern_error(ErrorKind::Value,
                       "pass mine: 1 inputs and 1 outputs became 0 and 0; they must stay",
                       [&] { run([](const ir::Graph&, Notes&) { return ir::Graph(); }); });
  expect_pattern_error(ErrorKind::Value,
                       "pass mine: output 0 was f32[2] and became f32[1,2]; it must stay", [&] {
                         run([](const ir::Graph& graph, Notes&) {
                           ir::Graph g = graph;
                           g.outputs[0] = g.reshape(g.outputs[0], {1, 2});
                           return g;
                         });
                       });
  expect_pattern_error(ErrorKind::Value, "pass mine: input 0 changed; inputs must stay", [&] {
    run([](const ir::Graph&, Notes&) {
      ir::Graph g;
      g.outputs = {g.input("y", DType::F32, {2})};
      return g;
    });
  });
  expect_pattern_error(
      ErrorKind::Value,
      "pass mine: its result is no valid graph: internal error: verify: output %9 does "
      "not exist",
      [&] {
        run([](const ir::Graph& graph, Notes&) {
          ir::Graph g = graph;
          g.outputs = {9};
          return g;
        });
      });
}

TEST(PassErrors, DecompositionIsForIntrinsicsOfFloats) {
  ir::Graph g;
  ir::NodeId x = g.input("x", DType::F32, {2}), i = g.input("i", DType::I32, {2});
  expect_pattern_error(ErrorKind::Value, "decompose: sqrt is no intrinsic",
                       [&] { decompose(g, Op::Sqrt, x); });
  expect_pattern_error(ErrorKind::DType, "exp: takes floats, got i32 (cast it first)",
                       [&] { decompose(g, Op::Exp, i); });
}

} // namespace
} // namespace egret
