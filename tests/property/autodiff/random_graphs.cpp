// Gradients of random graphs: well formed, complete, without dead nodes, and right where
// differences can tell.
#include "support/graph_runner.h"
#include "support/random_graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace egret {
namespace {

using ir::Graph;
using ir::NodeId;

std::vector<NodeId> float_outputs(const Graph& g) {
  std::vector<NodeId> outputs;
  for (NodeId id : g.outputs)
    if (is_float(g[id].dtype))
      outputs.push_back(id);
  return outputs;
}

TEST(RandomGraphs, HaveWellFormedGradientsAndNoDeadNodes) {
  int differentiated = 0;
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    Graph g = testing::random_graph(seed, {.symbolic = seed % 4 == 0});
    const auto outputs = float_outputs(g);
    std::vector<NodeId> seeds;
    for (NodeId output : outputs) {
      const DType type = g[output].dtype;
      const Shape shape = g[output].shape;
      seeds.push_back(g.broadcast(g.constant(type, 1), shape));
    }
    const std::vector<NodeId> wrt = g.inputs();
    Graph before = g;
    before.outputs.insert(before.outputs.end(), seeds.begin(), seeds.end());
    const std::size_t needed_before = without_dead_code(before).size();
    const auto got = gradients(g, outputs, seeds, wrt);
    ASSERT_EQ(got.size(), wrt.size());
    verify(g);
    for (std::size_t i = 0; i < wrt.size(); ++i) {
      EXPECT_EQ(g[got[i]].dtype, g[wrt[i]].dtype) << "seed " << seed;
      EXPECT_EQ(g[got[i]].shape, g[wrt[i]].shape) << "seed " << seed;
    }
    Graph after = g;
    after.outputs = before.outputs;
    after.outputs.insert(after.outputs.end(), got.begin(), got.end());
    const std::size_t added = g.size() - before.size();
    EXPECT_EQ(without_dead_code(after).size(), needed_before + added)
        << "seed " << seed << ": a node that no gradient needs";
    differentiated += !outputs.empty();
  }
  EXPECT_GT(differentiated, 800);
}

bool is_tame(const Graph& g, const std::vector<backend::reference::HostArray>& inputs) {
  std::vector<NodeId> all;
  for (NodeId id = 0; id < g.size(); ++id)
    all.push_back(id);
  for (const auto& array : backend::reference::execute(g, inputs, all))
    if (is_float(array.dtype))
      for (double value : array.doubles())
        if (!(std::fabs(value) < 50))
          return false;
  return true;
}

/// Floats that become integers or bools jump, and a difference across a jump is no derivative.
bool jumps(const Graph& g) {
  for (NodeId id = 0; id < g.size(); ++id)
    for (NodeId operand : g[id].inputs)
      if (is_float(g[operand].dtype) && !is_float(g[id].dtype))
        return true;
  return false;
}

/// A maximum of equal elements has a kink there.
bool may_tie(const Graph& g, const std::vector<std::vector<double>>& values) {
  bool compares = false;
  for (NodeId id = 0; id < g.size(); ++id)
    compares = compares || g[id].op == Op::ScanMax || g[id].op == Op::ReduceMax ||
               g[id].op == Op::Max || g[id].op == Op::ScatterMax;
  std::vector<double> all;
  for (const auto& input : values)
    all.insert(all.end(), input.begin(), input.end());
  std::ranges::sort(all);
  return compares && std::ranges::adjacent_find(all) != all.end();
}

TEST(RandomGraphs, AgreeWithDifferencesWhereTheyAreSmooth) {
  testing::RandomGraphOptions options{
      .ops = 10, .dtypes = {DType::F64, DType::I64}, .max_rank = 3, .max_elements = 24};
  for (int i = 0; i < kOps; ++i) {
    const Op op = static_cast<Op>(i);
    const OpInfo& row = info_of(op);
    const bool steps = op == Op::Floor || op == Op::Trunc || op == Op::Mod || op == Op::Eq ||
                       op == Op::Lt || op == Op::Bitcast || op == Op::Pow ||
                       op == Op::ReduceArgMax || op == Op::ArgSort || op == Op::StopGradient;
    if (!steps && row.op != Op::Input)
      options.allowed.push_back(op);
  }
  options.motifs = false;
  int checked = 0;
  for (std::uint64_t seed = 1; seed <= 3200; ++seed) {
    Graph g = testing::random_graph(seed, options);
    std::erase_if(g.outputs, [&](NodeId id) { return g[id].dtype != DType::F64; });
    const auto inputs = testing::random_inputs(g, seed, {.special = false, .range = 1.5});
    std::int64_t elements = 0;
    std::vector<std::vector<double>> values;
    for (const auto& input : inputs) {
      values.push_back(input.doubles());
      elements += input.size();
    }
    if (g.outputs.empty() || elements > 60 || jumps(g) || may_tie(g, values) || !is_tame(g, inputs))
      continue;
    // One step may straddle a kink or be too coarse for a steep place.
    const GradCheck coarse =
        gradcheck(g, values, testing::by_reference(), {}, {.step = 1e-5, .relative = 1e-3});
    const GradCheck fine = gradcheck(g, values, testing::by_reference(), {},
                                     {.step = 1e-7, .absolute = 1e-5, .relative = 1e-3});
    if (fine.first.ends_with("nan")) // at the edge of a domain, as the square root of 0
      continue;
    EXPECT_TRUE(coarse || fine) << "seed " << seed << ": " << coarse.first << " / " << fine.first
                                << "\n"
                                << print(g);
    ++checked;
  }
  EXPECT_GT(checked, 400);
}

} // namespace
} // namespace egret
