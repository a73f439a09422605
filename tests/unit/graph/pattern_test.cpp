// Finding sub-graphs and replacing them.
#include "egret/pattern.h"

#include "backend/reference/reference.h"

#include <gtest/gtest.h>

namespace egret::pattern {
namespace {

using backend::reference::HostArray;

/// a[m,k] @ b[k,n] as a user would write it by hand: mul [m,n,k], then sum over k.
NodeId matmul_by_hand(Graph& g, NodeId a, NodeId b, Expr m, Expr n, Expr k) {
  NodeId left = g.expand(g.reshape(a, {m, 1, k}), {m, n, k});
  NodeId right = g.expand(g.reshape(g.permute(b, {1, 0}), {1, n, k}), {m, n, k});
  return g.reduce(Op::ReduceSum, g.binary(Op::Mul, left, right), {2});
}

Pattern matmul() {
  Pattern product = node(Op::Mul, {any("a").shape("MNK").broadcast("N").varies("MK"),
                                   any("b").shape("MNK").broadcast("M").varies("NK")})
                        .shape("MNK")
                        .single_use();
  return node(Op::ReduceSum, {product}).over("K").named("c");
}

struct Layer {
  Graph g;
  NodeId a, b, product, c;
};
Layer layer(Expr m = 1, Expr n = 5, Expr k = 4) {
  Layer l;
  l.a = l.g.input("a", DType::F32, {m, k});
  l.b = l.g.input("b", DType::F32, {k, n});
  l.c = matmul_by_hand(l.g, l.a, l.b, m, n, k);
  l.product = l.g[l.c].inputs[0];
  l.g.outputs = {l.c};
  return l;
}

TEST(Pattern, FindsAMatmulThatTheUserWroteByHand) {
  Layer l = layer();
  auto found = find(l.g, matmul());
  ASSERT_EQ(found.size(), 1u);
  const Match& m = found[0];
  EXPECT_EQ(m.root, l.c);
  EXPECT_EQ(m["c"], l.c);
  EXPECT_EQ(m["a"], l.g[l.product].inputs[0]);
  EXPECT_EQ(m["b"], l.g[l.product].inputs[1]);
  EXPECT_EQ(m.dim('M'), Expr(1));
  EXPECT_EQ(m.dim('N'), Expr(5));
  EXPECT_EQ(m.dim('K'), Expr(4));
  EXPECT_EQ(m.covered, (std::vector<NodeId>{l.product, l.c}));
}

TEST(Pattern, FindsAMatmulWithItsOperandsInTheOtherOrder) {
  Layer l = layer(3, 5, 4);
  NodeId left = l.g[l.product].inputs[0], right = l.g[l.product].inputs[1];
  NodeId swapped = l.g.reduce(Op::ReduceSum, l.g.binary(Op::Mul, right, left), {2});
  l.g.outputs = {swapped};
  auto found = find(l.g, matmul());
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0]["a"], left);
  Pattern strict = node(Op::Mul, {any().shape("MNK").broadcast("N").varies("M"), any()}).ordered();
  EXPECT_TRUE(find(l.g, strict).empty());
}

TEST(Pattern, FindsMatmulsOfSymbolicSizes) {
  Expr m = Expr::symbol("batch", 1, 512);
  Layer l = layer(m, 16, 8);
  auto found = find(l.g, matmul());
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].dim('M'), m);
}

TEST(Pattern, ASecondReaderOfTheProductPreventsASingleUseMatch) {
  Layer l = layer(3, 5, 4);
  l.g.outputs.push_back(l.g.unary(Op::Exp, l.product));
  EXPECT_TRUE(find(l.g, matmul()).empty());
  l.g.outputs.back() = l.product;
  EXPECT_TRUE(find(l.g, matmul()).empty()) << "an output is read by the caller";
  l.g.outputs.pop_back();
  EXPECT_EQ(find(l.g, matmul()).size(), 1u) << "a dead reader does not count";
}

TEST(Pattern, TheReducedAxisMustBeTheOneNamed) {
  Layer l = layer(3, 5, 4);
  l.g.outputs = {l.g.reduce(Op::ReduceSum, l.product, {1})};
  EXPECT_TRUE(find(l.g, matmul()).empty());
  l.g.outputs = {l.g.reduce(Op::ReduceSum, l.product, {1, 2})};
  EXPECT_TRUE(find(l.g, matmul()).empty());
}

TEST(Pattern, AnElementwiseProductThatOnlyLooksAlikeIsNoMatmul) {
  Graph g;
  NodeId a = g.input("a", DType::F32, {3, 5, 4}), b = g.input("b", DType::F32, {3, 5, 4});
  g.outputs = {g.reduce(Op::ReduceSum, g.binary(Op::Mul, a, b), {2})};
  EXPECT_TRUE(find(g, matmul()).empty());
}

TEST(Pattern, BroadcastIsSeenThroughChainsOfMovements) {
  Graph g;
  NodeId row = g.input("row", DType::F32, {4});
  NodeId wide = g.expand(g.reshape(row, {1, 4}), {3, 4});
  NodeId turned = g.permute(wide, {1, 0});                          // [4,3], still repeated along 1
  NodeId split = g.reshape(turned, {2, 2, 3});                      // [2,2,3], along 2
  NodeId part = g.flip(g.shrink(split, {0, 0, 1}, {2, 1, 3}), {2}); // [2,1,2]
  g.outputs = {g.unary(Op::Exp, part)};
  auto operand = [](const char* broadcast) {
    return node(Op::Exp, {any("x").shape("ABC").broadcast(broadcast)});
  };
  EXPECT_EQ(find(g, operand("C")).size(), 1u);
  EXPECT_EQ(find(g, operand("BC")).size(), 1u) << "a dim of size 1 varies nowhere";
  EXPECT_TRUE(find(g, operand("A")).empty());
}

TEST(Pattern, PaddingAlongABroadcastDimMakesItVary) {
  Graph g;
  NodeId wide = g.expand(g.input("x", DType::F32, {1, 4}), {3, 4});
  NodeId padded = g.pad(wide, {1, 0}, {0, 0}, Scalar::of(DType::F32, 7.0));
  g.outputs = {g.unary(Op::Exp, padded)};
  EXPECT_TRUE(find(g, node(Op::Exp, {any().shape("AB").broadcast("A")})).empty());
}

TEST(Pattern, LettersStandForEqualDims) {
  Graph g;
  NodeId square = g.input("s", DType::F32, {4, 4}), tall = g.input("t", DType::F32, {5, 4});
  g.outputs = {g.unary(Op::Exp, square), g.unary(Op::Exp, tall)};
  EXPECT_EQ(find(g, node(Op::Exp, {any()}).shape("AA")).size(), 1u);
  EXPECT_EQ(find(g, node(Op::Exp, {any()}).shape("AB")).size(), 2u);
  EXPECT_EQ(find(g, node(Op::Exp, {any()}).shape("A 4")).size(), 2u);
  EXPECT_EQ(find(g, node(Op::Exp, {any()}).shape("5 _")).size(), 1u);
  EXPECT_TRUE(find(g, node(Op::Exp, {any()}).shape("ABC")).empty());
}

TEST(Pattern, LeadingDotsStandForTheSameDimsEverywhere) {
  Graph g;
  NodeId x = g.input("x", DType::F32, {2, 3, 4});
  NodeId best = g.reduce(Op::ReduceMax, x, {2});
  g.outputs = {best};
  Pattern rows = node(Op::ReduceMax, {any("x").shape("..K")}).shape("..").over("K");
  auto found = find(g, rows);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].batch, (Shape{2, 3}));
  EXPECT_TRUE(find(g, node(Op::ReduceMax, {any().shape("..K")}).shape("..K")).empty());
}

TEST(Pattern, AConstantIsSeenHoweverBroadcastAndByBits) {
  Graph g;
  NodeId x = g.input("x", DType::BF16, {2, 3});
  auto filled = [&](double v) { return g.broadcast(g.constant(DType::BF16, v), {2, 3}); };
  NodeId doubled = g.binary(Op::Mul, filled(2), x),
         signed_zero = g.binary(Op::Add, x, filled(-0.0));
  g.outputs = {doubled, signed_zero};
  EXPECT_EQ(find(g, node(Op::Mul, {any("x"), constant(2)})).size(), 1u);
  EXPECT_TRUE(find(g, node(Op::Mul, {any("x"), constant(3)})).empty());
  EXPECT_TRUE(find(g, node(Op::Add, {any("x"), constant(0)})).empty()) << "-0 is not 0";
  EXPECT_EQ(find(g, node(Op::Add, {any("x"), constant(-0.0)})).size(), 1u);
  auto found = find(g, node(Op::Mul, {any("x"), any_constant("factor")}));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(g[found[0]["factor"]].op, Op::Constant);
  EXPECT_EQ(found[0]["x"], x);
}

TEST(Pattern, APaddedConstantIsNoConstant) {
  Graph g;
  NodeId two = g.reshape(g.constant(DType::F32, 2), {1});
  NodeId padded = g.pad(two, {0}, {2}, Scalar::of(DType::F32, 0.0));
  g.outputs = {g.binary(Op::Mul, g.input("x", DType::F32, {3}), padded)};
  EXPECT_TRUE(find(g, node(Op::Mul, {any(), constant(2)})).empty());
}

TEST(Pattern, ANameStandsForOneNode) {
  Graph g;
  NodeId a = g.input("a", DType::F32, {2}), b = g.input("b", DType::F32, {2});
  NodeId square = g.binary(Op::Mul, a, a), product = g.binary(Op::Mul, a, b);
  g.outputs = {square, product};
  auto squares = find(g, node(Op::Mul, {any("x"), any("x")}));
  ASSERT_EQ(squares.size(), 1u);
  EXPECT_EQ(squares[0].root, square);
}

TEST(Pattern, BacktracksWhenALaterOperandDoesNotFit) {
  // (x + y) * y with the sum's operands in either order: x may only be what is not the other factor
  Graph g;
  NodeId p = g.input("p", DType::F32, {2}), q = g.input("q", DType::F32, {2});
  g.outputs = {g.binary(Op::Mul, g.binary(Op::Add, p, q), p)};
  auto found = find(g, node(Op::Mul, {node(Op::Add, {any("x"), any("y")}), any("y")}));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0]["y"], p);
  EXPECT_EQ(found[0]["x"], q);
}

TEST(Pattern, ViewedFindsWhatIsBehindMovementsAndTellsTheMap) {
  Layer l = layer(3, 5, 4);
  Pattern p = node(Op::Mul, {viewed(any("a")), viewed(any("b"))});
  auto found = find(l.g, p);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0]["a"], l.a);
  EXPECT_EQ(found[0]["b"], l.b);
  const IndexMap& view = found[0].views.at("b"); // [m,n,k] -> [k,n]
  EXPECT_EQ(view.coords, (std::vector<Expr>{Expr::axis(2, 4), Expr::axis(1, 5)}));
  EXPECT_EQ(found[0].covered.size(), 6u) << "mul, two chains of movements";
}

TEST(Pattern, ViewedTakesTheDeepestNodeThatFits) {
  Graph g;
  NodeId x = g.input("x", DType::F32, {4});
  NodeId reshaped = g.reshape(x, {2, 2}), turned = g.permute(reshaped, {1, 0});
  g.outputs = {g.unary(Op::Exp, turned)};
  auto found = find(g, node(Op::Exp, {viewed(any("x").shape("AB"))}));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0]["x"], reshaped);
}

TEST(Pattern, AlternativesAndSeveralOps) {
  Graph g;
  NodeId x = g.input("x", DType::F32, {4});
  g.outputs = {g.unary(Op::Exp, g.unary(Op::Tanh, x)), g.unary(Op::Exp, g.unary(Op::Sin, x)),
               g.unary(Op::Exp, x)};
  Pattern inner = one_of({node(Op::Tanh, {any("x")}), node(Op::Sin, {any("x")})});
  EXPECT_EQ(find(g, node(Op::Exp, {inner})).size(), 2u);
  EXPECT_EQ(find(g, node({Op::Tanh, Op::Sin}, {any("x")})).size(), 2u);
}

TEST(Pattern, DTypesAndOwnDemands) {
  Graph g;
  NodeId x = g.input("x", DType::F32, {4}), y = g.input("y", DType::F64, {4});
  g.outputs = {g.unary(Op::Exp, x), g.unary(Op::Exp, y)};
  EXPECT_EQ(find(g, node(Op::Exp, {any().dtype(DType::F64)})).size(), 1u);
  auto named_x = [](const Graph& graph, NodeId id) { return graph[id].attrs.name == "x"; };
  EXPECT_EQ(find(g, node(Op::Exp, {any().where(named_x)})).size(), 1u);
}

TEST(Pattern, MatchAtLooksAtOneNode) {
  Layer l = layer();
  EXPECT_TRUE(match_at(l.g, l.c, matmul()));
  EXPECT_FALSE(match_at(l.g, l.product, matmul()));
}

Rewrite sigmoid_times_x() { // x * sigmoid(x) -> x / (1 + exp(-x))
  return {"silu", node(Op::Mul, {any("x"), node(Op::Sigmoid, {any("x")})}),
          [](Graph& out, const Match& m) {
            NodeId x = m["x"];
            Shape shape = out[x].shape;
            auto number = [&](double v) {
              return out.broadcast(out.constant(out[x].dtype, v), shape);
            };
            NodeId e = out.unary(Op::Exp, out.binary(Op::Mul, x, number(-1)));
            return out.binary(Op::Div, x, out.binary(Op::Add, e, number(1)));
          }};
}

TEST(Rewriting, ReplacesEveryMatchAndKeepsValues) {
  Graph g;
  NodeId a = g.input("a", DType::F32, {3}), b = g.input("b", DType::F32, {3});
  auto silu = [&](NodeId x) { return g.binary(Op::Mul, g.unary(Op::Sigmoid, x), x); };
  g.outputs = {g.binary(Op::Add, silu(a), silu(silu(b)))};
  auto result = rewrite(g, sigmoid_times_x());
  EXPECT_EQ(result.applied, 3u);
  for (NodeId id = 0; id < result.graph.size(); ++id)
    EXPECT_NE(result.graph[id].op, Op::Sigmoid);
  std::vector<HostArray> inputs{HostArray(DType::F32, {3}, {1, -2, 0.5}),
                                HostArray(DType::F32, {3}, {3, 0, -1})};
  auto expected = backend::reference::expect(g, inputs);
  auto got = backend::reference::execute(result.graph, inputs);
  auto c = backend::reference::compare(got[0], expected[0], "silu", {.scale = 8});
  EXPECT_TRUE(c.ok) << c.message;
}

TEST(Rewriting, OverlappingMatchesWaitForTheNextRound) {
  // exp(exp(x)) -> x, on a chain of five: two rounds of the rule leave one exp
  Graph g;
  NodeId x = g.input("x", DType::F32, {2}), y = x;
  for (int i = 0; i < 5; ++i)
    y = g.unary(Op::Exp, y);
  g.outputs = {y};
  Rewrite rule{"halve", node(Op::Exp, {node(Op::Exp, {any("x")})}),
               [](Graph&, const Match& m) { return m["x"]; }};
  auto once = rewrite(g, rule);
  EXPECT_EQ(once.rounds, 1u);
  auto all = rewrite(g, rule, 10);
  EXPECT_EQ(all.graph.size(), 2u);
  EXPECT_EQ(print(all.graph), "%0: f32[2] = input \"x\"\n%1: f32[2] = exp(%0)\noutputs %1\n");
}

TEST(Rewriting, ACallbackMayDecline) {
  Layer l = layer();
  Rewrite rule{"none", matmul(), [](Graph&, const Match&) { return ir::kNoNode; }};
  auto result = rewrite(l.g, rule, 10);
  EXPECT_EQ(result.applied, 0u);
  EXPECT_EQ(result.rounds, 0u);
  EXPECT_EQ(canonical_hash(result.graph), canonical_hash(l.g));
}

} // namespace
} // namespace egret::pattern
