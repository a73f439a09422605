// Random graphs through exact rules and extraction, compared in every bit.
#pragma once

#include "backend/reference/reference.h"
#include "saturate/saturate.h"
#include "support/graph_runner.h"
#include "support/minimize.h"
#include "support/random_graph.h"

#include <gtest/gtest.h>

namespace egret::testing {

/// What the two best graphs compute differently from the graph; empty when nothing.
inline std::string changed_by_rules(const ir::Graph& graph,
                                    const saturate::SaturateOptions& options, std::uint64_t seed) {
  const auto inputs = random_inputs(graph, seed);
  saturate::Saturated saturated(graph, options);
  for (const ir::Graph& after : saturated.extract(2))
    if (std::string found = changed(graph, after, inputs); !found.empty())
      return found;
  return {};
}

/// Random graphs 0 to `graphs` keep every bit through exact rules; `shuffle` not 0: loaded in an
/// order of its own for each.
inline void expect_kept(int graphs, const RandomGraphOptions& shape, std::uint64_t shuffle) {
  for (int i = 0; i < graphs; ++i) {
    const auto seed = static_cast<std::uint64_t>(i);
    const ir::Graph graph = random_graph(seed, shape);
    saturate::SaturateOptions options;
    options.seconds = 5;
    options.rounds = 6;
    options.rows = 30000;
    options.shuffle = shuffle == 0 ? 0 : shuffle + seed;
    if (changed_by_rules(graph, options, seed).empty())
      continue;
    const ir::Graph part = minimized(
        graph, [&](const ir::Graph& g) { return !changed_by_rules(g, options, seed).empty(); });
    FAIL() << "seed " << seed << ": " << changed_by_rules(part, options, seed);
  }
}

/// Many constants, movements and conditions: what the rules are about.
inline const RandomGraphOptions kAlgebra{
    .ops = 24,
    .dtypes = {DType::F32, DType::I32, DType::Bool},
    .allowed = {Op::Constant,   Op::Add,     Op::Mul,     Op::Max,       Op::And,
                Op::Or,         Op::Xor,     Op::Select,  Op::Eq,        Op::Lt,
                Op::Cast,       Op::Div,     Op::Pow,     Op::ReduceSum, Op::ReduceMax,
                Op::ReduceProd, Op::Reshape, Op::Permute, Op::Expand,    Op::Pad,
                Op::Shrink,     Op::Flip,    Op::Floor,   Op::Recip}};

} // namespace egret::testing
