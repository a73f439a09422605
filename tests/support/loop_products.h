// Products in 16 bits of random sizes, layouts and surroundings: the trees that a search for a GPU
// proposes, tiles of the matrix unit among them, are proved and compute the region.
#pragma once

#include "kernel/families.h"
#include "loops/space.h"
#include "support/loop_options.h"
#include "support/loop_regions.h"
#include "support/random_graph.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace egret::testing {

/// `description` says what was drawn.
inline ir::Graph random_product(Rng& rng, std::string& description) {
  using ir::NodeId;
  ir::Graph g;
  const auto size = [&] {
    return std::int64_t(rng.below(4) == 0 ? 16 + 16 * rng.below(5) : 1 + rng.below(90));
  };
  const std::int64_t batch = rng.below(3) == 0 ? 1 + std::int64_t(rng.below(3)) : 1, m = size(),
                     n = size(),
                     k = rng.below(4) == 0 ? 512 + 8 * std::int64_t(rng.below(60)) : size();
  const DType dtype = rng.below(2) ? DType::BF16 : DType::F16;
  const bool left_turned = rng.below(2), right_turned = rng.below(2), itself = rng.below(6) == 0,
             padded = rng.below(6) == 0;
  const int behind = int(rng.below(4));
  description =
      fmt::format("{} x {} x {} by {}, {}{}{}{}{}, {} behind", batch, m, n, k, name_of(dtype),
                  left_turned ? ", left turned" : "", right_turned ? ", right turned" : "",
                  itself ? ", by itself" : "", padded ? ", padded" : "", behind);
  const auto factor = [&](const char* name, std::int64_t lines, bool turned) {
    return turned ? g.permute(g.input(name, dtype, {batch, k, lines}), {0, 2, 1})
                  : g.input(name, dtype, {batch, lines, k});
  };
  const std::int64_t columns = itself ? m : n;
  const Shape box{batch, m, columns, k};
  NodeId a = factor("a", m, left_turned);
  const NodeId b = itself ? a : factor("b", columns, right_turned);
  if (padded && k > 2)
    a = g.pad(g.shrink(a, {0, 0, 1}, {batch, m, k}), {0, 0, 1}, {0, 0, 0}, Scalar::of(dtype, 0.0));
  const NodeId left = g.cast(g.expand(g.reshape(a, {batch, m, 1, k}), box), DType::F32),
               right = g.cast(g.expand(g.reshape(b, {batch, 1, columns, k}), box), DType::F32);
  NodeId out = g.reduce(Op::ReduceSum, g.binary(Op::Mul, left, right), {3});
  const Shape results{batch, m, columns};
  if (behind == 1)
    out = g.unary(Op::Tanh, out);
  else if (behind == 2)
    out = g.cast(g.binary(Op::Add, out, g.broadcast(g.input("c", DType::F32, {columns}), results)),
                 dtype);
  else if (behind == 3)
    out = g.binary(Op::Mul, g.input("r", DType::F32, results), g.unary(Op::Exp, out));
  g.outputs = {out};
  return g;
}

/// `count` products from seed `first` on.
inline void check_gpu_products(std::uint64_t first, std::uint64_t count) {
  const kernel::Target gpu = test_gpu();
  std::size_t tiles = 0, parts = 0, masked = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    Rng rng(seed);
    std::string description;
    const ir::Graph g = random_product(rng, description);
    for (const RegionCase& made :
         region_cases(g, random_inputs(g, seed, {.special = false}), gpu)) {
      const RegionCase c = aligned_for(made, gpu);
      const loops::LoopSpace space = loops::loop_space(c.region, gpu, unhurried());
      EXPECT_EQ(space.report.unproved, 0u) << description;
      for (const loops::LoopTree& one : space.trees) {
        kernel::Schedule schedule;
        schedule.generator = "loops";
        schedule.tree = kernel::loops::to_text(*one.tree, c.region);
        const auto lowered = kernel::loops_generator().lower(c.region, schedule, gpu);
        ASSERT_TRUE(lowered.ok) << description << "\n" << lowered.reason;
        ASSERT_EQ(run_and_compare(c, lowered.program, {.workers = 3}), "")
            << "seed " << seed << ": " << description << "\n"
            << schedule.tree << "\n"
            << kernel::print(c.region);
        const bool tile = schedule.tree.find("matrix") != std::string::npos;
        tiles += tile ? 1 : 0;
        masked += tile && schedule.tree.find("mask") != std::string::npos ? 1 : 0;
        parts += schedule.tree.starts_with("acc(") ? 1 : 0;
      }
    }
  }
  EXPECT_GT(tiles, count);
  EXPECT_GT(masked, count / 4);
  EXPECT_GT(parts, 0u);
}

} // namespace egret::testing
