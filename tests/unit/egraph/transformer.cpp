// A graph as the search compiler will make it: many identical transformer blocks, built and
// extracted from C++.
#include "egret/egraph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace egret::egraph {
namespace {

const char* const kRules = R"(
  (datatype E
    (In String) (MatMul E E :cost 10) (Add E E) (Mul E E) (Silu E) (Square E) (Mean E) (RecipSqrt E) (Softmax E)
    (MatMulAdd E E E :cost 10) (SwiGlu E E E :cost 19) (RmsNorm E E))
  (rewrite (Add (MatMul a b) c) (MatMulAdd a b c) :name "matmul-add")
  (rewrite (Add a b) (Add b a) :name "add-commutes")
  (rewrite (Mul (Silu (MatMul x g)) (MatMul x u)) (SwiGlu x g u) :name "swiglu")
  (rewrite (Mul (Mul x (RecipSqrt (Mean (Square x)))) w) (RmsNorm x w) :name "norm"))";

/// x -> x + attention(norm x), then x + mlp(norm x); about 24 nodes a layer.
struct Model {
  EGraph graph;
  Value out = 0;
  SortId sort{};

  explicit Model(int layers) {
    graph.run_program(kRules);
    sort = graph.sort("E");
    Value x = input("x");
    for (int l = 0; l < layers; ++l) {
      std::string n = std::to_string(l) + ".";
      Value h = norm(x, input(n + "n1"));
      Value q = call("MatMul", {h, input(n + "wq")}), k = call("MatMul", {h, input(n + "wk")});
      Value v = call("MatMul", {h, input(n + "wv")});
      Value a = call("MatMul", {call("Softmax", {call("MatMul", {q, k})}), v});
      x = call("Add", {call("MatMul", {a, input(n + "wo")}), x});
      h = norm(x, input(n + "n2"));
      Value gate = call("Silu", {call("MatMul", {h, input(n + "wg")})});
      Value up = call("MatMul", {h, input(n + "wu")});
      x = call("Add", {call("MatMul", {call("Mul", {gate, up}), input(n + "wd")}), x});
    }
    out = x;
  }
  Value call(const char* name, std::initializer_list<Value> args) {
    return graph.add(graph.function(name), args);
  }
  Value input(const std::string& name) { return call("In", {graph.string(name)}); }
  Value norm(Value x, Value w) {
    return call("Mul",
                {call("Mul", {x, call("RecipSqrt", {call("Mean", {call("Square", {x})})})}), w});
  }
  RunReport saturate() { return graph.run(Plan::saturate({Plan::run(graph.ruleset(""))})); }
};

std::size_t count(const EGraph& g, const TermGraph& term, const char* function) {
  return static_cast<std::size_t>(
      std::count_if(term.nodes.begin(), term.nodes.end(), [&](const TermGraph::Node& n) {
        return !n.is_literal && n.function == g.function(function);
      }));
}

TEST(Transformer, EveryLayerIsFusedAndTheResultIsADag) {
  Model model(100);
  EXPECT_GT(model.graph.size(), 2400u);
  model.saturate();
  TermGraph best = model.graph.extract({model.sort, model.out});
  EXPECT_EQ(count(model.graph, best, "MatMulAdd"), 200u);
  EXPECT_EQ(count(model.graph, best, "SwiGlu"), 100u);
  EXPECT_EQ(count(model.graph, best, "RmsNorm"), 200u);
  EXPECT_EQ(count(model.graph, best, "Add"), 0u);
  EXPECT_EQ(count(model.graph, best, "MatMul"), 500u); // q, k, v, scores, context
  // x is used three times in each half of a layer: as a tree it would have more nodes than there
  // are atoms.
  EXPECT_LT(best.nodes.size(), 4000u);
  EXPECT_LT(model.graph.show(best).size(), 200000u);
}

TEST(Transformer, WorkGrowsInProportionToTheLayers) {
  // Counts rather than times, so that a busy machine changes nothing.
  std::map<int, RunReport> reports;
  for (int layers : {100, 300, 1000}) {
    Model model(layers);
    reports[layers] = model.saturate();
    EXPECT_EQ(reports[layers].stop, StopReason::Done);
  }
  auto matches = [&](int layers) {
    std::uint64_t total = 0;
    for (const RuleReport& rule : reports[layers].rules)
      total += rule.matches;
    return total;
  };
  for (int times : {3, 10}) {
    const RunReport& small = reports[100];
    const RunReport& large = reports[100 * times];
    EXPECT_EQ(large.iterations, small.iterations);
    EXPECT_EQ(matches(100 * times), matches(100) * static_cast<std::uint64_t>(times));
    EXPECT_LE(large.match_steps, small.match_steps * static_cast<std::uint64_t>(times) * 11 / 10);
    EXPECT_LE(large.rows, small.rows * static_cast<std::uint64_t>(times));
  }
}

TEST(Transformer, TheTenBestComeInOrderAndTheFirstIsTheBest) {
  Model model(100);
  model.saturate();
  Root root{model.sort, model.out};
  double best = model.graph.extract(root).cost;
  std::vector<TermGraph> found = model.graph.extract_best(std::span(&root, 1), {.count = 10});
  ASSERT_EQ(found.size(), 10u);
  EXPECT_DOUBLE_EQ(found[0].cost, best);
  for (std::size_t i = 1; i < found.size(); ++i) {
    EXPECT_GE(found[i].cost, found[i - 1].cost);
    for (std::size_t j = 0; j < i; ++j)
      EXPECT_NE(model.graph.show(found[i]), model.graph.show(found[j]));
  }
}

} // namespace
} // namespace egret::egraph
