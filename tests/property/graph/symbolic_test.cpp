// Graphs with symbolic dims stand for the graphs of all their sizes.
#include "backend/reference/reference.h"
#include "egret/passes.h"
#include "support/random_graph.h"

#include <gtest/gtest.h>

namespace egret::testing {
namespace {

using backend::reference::HostArray;

TEST(Symbolic, AGraphComputesWhatItsConcreteFormsCompute) {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    ir::Graph graph = random_graph(seed, {.symbolic = true});
    for (std::uint64_t size = 0; size < 3; ++size) {
      auto inputs = random_inputs(graph, seed * 3 + size);
      auto bindings = backend::reference::bind_inputs(graph, inputs);
      ir::Graph concrete =
          with_dims(graph, [&](const Expr& symbol) { return Expr(bindings.value_of(symbol)); });
      ir::verify(concrete);
      EXPECT_TRUE(symbols_of(concrete).empty());
      auto wanted = backend::reference::execute(concrete, inputs);
      auto got = backend::reference::execute(graph, inputs);
      ASSERT_EQ(wanted.size(), got.size());
      for (std::size_t o = 0; o < got.size(); ++o) {
        ASSERT_EQ(wanted[o].dims, got[o].dims) << "seed " << seed;
        for (std::int64_t i = 0; i < got[o].size(); ++i)
          ASSERT_TRUE(backend::reference::same(got[o].dtype, wanted[o].at(i), got[o].at(i)))
              << "seed " << seed << " output " << o;
      }
    }
  }
}

TEST(Symbolic, RenamingASymbolBackGivesTheSameGraph) {
  Expr n = Expr::symbol("N", 1, 9), other = Expr::symbol("N_renamed", 1, 9);
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    ir::Graph graph = ir::without_dead_code(random_graph(seed, {.symbolic = true}));
    auto there = with_dims(
        graph, [&](const Expr& s) { return s == n ? std::optional(other) : std::nullopt; });
    auto back = with_dims(
        there, [&](const Expr& s) { return s == other ? std::optional(n) : std::nullopt; });
    EXPECT_EQ(print(back), print(graph));
    EXPECT_NE(canonical_hash(there), canonical_hash(graph));
  }
}

} // namespace
} // namespace egret::testing
