// Passes keep values: random graphs before and after, by the reference executor, to the last bit.
#include "backend/reference/reference.h"
#include "egret/passes.h"
#include "support/graph_runner.h"
#include "support/minimize.h"
#include "support/random_graph.h"

#include <gtest/gtest.h>

namespace egret::testing {
namespace {

using backend::reference::HostArray;

bool has_pow(const ir::Graph& graph) {
  for (ir::NodeId id = 0; id < graph.size(); ++id)
    if (graph[id].op == Op::Pow)
      return true;
  return false;
}

std::string broken_by(const Pass& pass, const ir::Graph& graph, std::uint64_t seed) {
  std::vector<HostArray> inputs = random_inputs(graph, seed);
  ir::Graph after = pass(graph);
  auto got = backend::reference::execute(after, inputs);
  if (has_pow(graph)) { // x*x and pow(x, 2) are both right, and may round differently
    auto expected = backend::reference::expect(graph, inputs);
    for (std::size_t i = 0; i < got.size(); ++i)
      if (auto c = backend::reference::compare(got[i], expected[i], "output"); !c.ok)
        return c.message;
    return {};
  }
  auto wanted = backend::reference::execute(graph, inputs);
  for (std::size_t i = 0; i < got.size(); ++i)
    if (std::string d = difference(wanted[i], got[i]); !d.empty())
      return d;
  return {};
}

void expect_values_kept(const Pass& pass, const RandomGraphOptions& options, int graphs) {
  for (int seed = 0; seed < graphs; ++seed) {
    auto s = static_cast<std::uint64_t>(seed);
    ir::Graph graph = random_graph(s, options);
    std::string broken = broken_by(pass, graph, s);
    if (broken.empty())
      continue;
    ir::Graph part =
        minimized(graph, [&](const ir::Graph& g) { return !broken_by(pass, g, s).empty(); });
    FAIL() << pass.name() << ", seed " << seed << ": " << broken_by(pass, part, s) << "\nbefore\n"
           << print(part) << "after\n"
           << print(pass(part));
  }
}

const RandomGraphOptions kSymbolic{.symbolic = true};
/// Many constants and movements: what the identities are about.
const RandomGraphOptions kAlgebra{
    .ops = 30,
    .allowed = {Op::Constant,  Op::Iota,       Op::Add,         Op::Mul,    Op::Max,
                Op::And,       Op::Or,         Op::Xor,         Op::Select, Op::Eq,
                Op::Lt,        Op::Cast,       Op::Bitcast,     Op::Div,    Op::IDiv,
                Op::Mod,       Op::Pow,        Op::Shl,         Op::Shr,    Op::ReduceSum,
                Op::ReduceMax, Op::ReduceProd, Op::ScanSum,     Op::Gather, Op::Reshape,
                Op::Permute,   Op::Expand,     Op::Pad,         Op::Shrink, Op::Flip,
                Op::Floor,     Op::Trunc,      Op::StopGradient}};

TEST(Passes, DeadCodeKeepsValues) {
  expect_values_kept(passes::dead_code(), {}, 200);
}
TEST(Passes, FoldConstantsKeepsValues) {
  expect_values_kept(passes::fold_constants(), {}, 600);
}
TEST(Passes, FoldConstantsKeepsValuesOfAlgebra) {
  expect_values_kept(passes::fold_constants(), kAlgebra, 600);
}
TEST(Passes, SimplifyKeepsValues) {
  expect_values_kept(passes::simplify(), {}, 600);
}
TEST(Passes, SimplifyKeepsValuesOfAlgebra) {
  expect_values_kept(passes::simplify(), kAlgebra, 1000);
}
TEST(Passes, NormalizeKeepsValues) {
  expect_values_kept(passes::normalize(), {}, 600);
}
TEST(Passes, NormalizeKeepsValuesOfAlgebra) {
  expect_values_kept(passes::normalize(), kAlgebra, 600);
}
TEST(Passes, NormalizeKeepsValuesWithSymbolicDims) {
  expect_values_kept(passes::normalize(), kSymbolic, 600);
}

TEST(Passes, NormalizeTwiceChangesNothingMoreAndNeverGrowsTheGraph) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    ir::Graph graph = ir::without_dead_code(random_graph(seed, kAlgebra));
    ir::Graph once = passes::normalize()(graph), twice = passes::normalize()(once);
    EXPECT_EQ(print(once), print(twice)) << "seed " << seed;
  }
}

TEST(Passes, DeadCodeLeavesTheHashAndGivesOneOrder) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    ir::Graph graph = random_graph(seed);
    ir::Graph once = ir::without_dead_code(graph);
    EXPECT_EQ(canonical_hash(once), canonical_hash(graph));
    EXPECT_EQ(print(ir::without_dead_code(once)), print(once));
  }
}

} // namespace
} // namespace egret::testing
