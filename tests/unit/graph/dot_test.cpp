// Graphviz text of graphs.
#include "ir/dot.h"

#include <gtest/gtest.h>

namespace egret::ir {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Graph example() {
  Graph g;
  NodeId a = g.input("a \"quoted\"", DType::F32, {2, 3});
  NodeId b = g.permute(a, {1, 0});
  g.unary(Op::Exp, a); // dead
  g.outputs = {g.reduce(Op::ReduceSum, b, {1})};
  return g;
}

TEST(Dot, DrawsLiveNodesWithTheirTypesAndEdges) {
  std::string dot = to_dot(example());
  EXPECT_TRUE(dot.starts_with("digraph egret {\n"));
  EXPECT_TRUE(
      contains(dot, R"(n0 [label="%0 input \"a \\\"quoted\\\"\"\nf32[2,3]", shape=ellipse)"))
      << dot;
  EXPECT_TRUE(contains(
      dot, R"(n1 [label="%1 permute axes=[1,0]\nf32[3,2]", shape=box, style="filled,dashed")"));
  EXPECT_TRUE(contains(dot, R"(n3 [label="%3 sum axes=[1]\nf32[3]", shape=box, peripheries=2)"));
  EXPECT_TRUE(contains(dot, "n0 -> n1;\n"));
  EXPECT_TRUE(contains(dot, "n1 -> n3;\n"));
  EXPECT_FALSE(contains(dot, "n2")) << "dead nodes are not drawn";
  EXPECT_TRUE(dot.ends_with("}\n"));
}

TEST(Dot, PutsHighlightedNodesIntoTheirBoxOnce) {
  std::string dot = to_dot(example(), {{{1, 3, 99}, "kernel \"sum\"", "#ff0000"}, {{3}, "second"}});
  EXPECT_TRUE(contains(dot, "subgraph cluster_0 {\n    label=\"kernel \\\"sum\\\"\";\n    n1 ["));
  EXPECT_TRUE(contains(dot, "fillcolor=\"#ff0000\""));
  EXPECT_EQ(dot.find("n3 ["), dot.rfind("n3 [")) << "drawn once";
}

} // namespace
} // namespace egret::ir
