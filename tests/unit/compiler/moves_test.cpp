// Which other fusion plans a search thinks of.
#include "compiler/search/moves.h"

#include "backend/cpu/cpu_device.h"
#include "compiler/inlining.h"
#include "compiler/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace egret::compiler {
namespace {

using ir::Graph;
using ir::NodeId;

const Shape kSquare{Expr(64), Expr(64)};

/// x -> x / sum over rows of exp(x), several times; `first` shifts all node numbers.
Graph layers(int count, bool first = false) {
  Graph g;
  if (first)
    g.input("unused", DType::F32, kSquare);
  NodeId x = g.input("x", DType::F32, kSquare);
  for (int i = 0; i < count; ++i) {
    const NodeId e = g.unary(Op::Exp, g.unary(Op::Tanh, x));
    const NodeId sum = g.reduce(Op::ReduceSum, e, {0}); // of columns, so that no kernel has both
    x = g.binary(Op::Div, e, g.expand(g.reshape(sum, {Expr(1), Expr(64)}), kSquare));
  }
  g.outputs = {x};
  return g;
}

struct FoundMoves {
  explicit FoundMoves(const Graph& graph) : normal(normal_form(graph)), form(*normal) {
    const auto device = backend::cpu::make_cpu_device(1);
    target = device->target();
    greedy = partition_for(form, {}, target);
    moves = moves_of(form.facts(), greedy.partition);
  }
  const Move* of(std::string_view what) const {
    const auto it = std::ranges::find_if(
        moves, [&](const Move& m) { return m.what.find(what) != std::string::npos; });
    return it == moves.end() ? nullptr : &*it;
  }
  std::size_t kernels(const PartitionChoices& choices) const {
    return with_launches(form, {}, target, choices).regions.size();
  }

  std::shared_ptr<const CandidateGraph> normal;
  const CandidateGraph& form;
  kernel::Target target;
  Partitioned greedy;
  std::vector<Move> moves;
};

TEST(Moves, AValueIsStoredOrComputedAnew) {
  const FoundMoves found(layers(1));
  const Move* turn = found.of("exp[64,64]");
  ASSERT_TRUE(turn);
  ASSERT_EQ(turn->choices.recomputed.size() + turn->choices.stored.size(), 1u);
  const NodeId exp = turn->choices.recomputed.empty() ? *turn->choices.stored.begin()
                                                      : *turn->choices.recomputed.begin();
  const auto stored = choose_stored(found.form.facts(), true);
  const auto changed = choose_stored(found.form.facts(), true, turn->choices);
  EXPECT_NE(stored[exp], changed[exp]);
  EXPECT_EQ(turn->what.find("stored") != std::string::npos, !stored[exp]) << turn->what;
}

TEST(Moves, ValuesOfOneKernelAreTakenApart) {
  Graph g;
  const NodeId x = g.input("x", DType::F32, kSquare);
  const NodeId sum = g.reduce(Op::ReduceSum, x, {1});
  g.outputs = {g.binary(Op::Div, x, g.expand(g.reshape(sum, {Expr(64), Expr(1)}), kSquare))};
  const FoundMoves found(g);
  ASSERT_EQ(found.kernels({}), 1u);
  const Move* apart = found.of("apart");
  ASSERT_TRUE(apart);
  EXPECT_EQ(found.kernels(apart->choices), 2u);
  const Partition partition = partition_for(found.form, {}, found.target, apart->choices).partition;
  ASSERT_EQ(partition.unfused.size(), 1u);
  EXPECT_EQ(partition.unfused[0].why, "the search found them faster apart");
}

TEST(Moves, LayersChangeTogether) {
  const FoundMoves one(layers(1)), many(layers(8));
  EXPECT_LT(many.moves.size(), 5 * one.moves.size());
  std::size_t most = 0;
  for (const Move& move : many.moves)
    most = std::max(most, move.choices.recomputed.size() + move.choices.stored.size() +
                              move.choices.apart.size());
  EXPECT_GE(most, 5u); // all layers but those at the ends
}

TEST(Moves, NumbersOfNodesDoNotMatter) {
  const FoundMoves a(layers(3)), b(layers(3, true));
  ASSERT_EQ(a.moves.size(), b.moves.size());
  for (std::size_t i = 0; i < a.moves.size(); ++i) {
    EXPECT_EQ(a.moves[i].id, b.moves[i].id);
    EXPECT_EQ(a.moves[i].what, b.moves[i].what);
  }
}

TEST(Moves, UnknownOnesChangeNothing) {
  const FoundMoves found(layers(2));
  EXPECT_EQ(together(found.moves, {1, 2, 3}), PartitionChoices{});
}

} // namespace
} // namespace egret::compiler
