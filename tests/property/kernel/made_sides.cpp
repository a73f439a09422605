// Products of sides that are made of several views of few operands: concatenations, frames,
// reversals and scales of blocks, by every generator's programs against the reference.
#include "support/random_graph.h"
#include "support/region_forms.h"
#include "support/region_runner.h"
#include "support/scale.h"

#include <gtest/gtest.h>

#include <random>

namespace egret {
namespace {

using ir::Graph;
using ir::NodeId;

class Sides {
public:
  Sides(Graph& g, std::uint64_t seed) : g_(g), random_(seed) {}

  std::int64_t one_of(std::initializer_list<std::int64_t> of) {
    return *(of.begin() + std::ptrdiff_t(below(std::int64_t(of.size()))));
  }
  std::int64_t below(std::int64_t n) { return std::int64_t(random_() % std::uint64_t(n)); }

  /// [rows, depth] of `type`, made of an operand of the same shape or one of smaller numbers.
  NodeId side(const char* name, std::int64_t rows, std::int64_t depth, DType type) {
    const DType stored = one_of({0, 1}) == 0 ? type : one_of({0, 1}) == 0 ? DType::I8 : DType::F32;
    const bool turned = below(3) == 0;
    const NodeId given = turned ? g_.permute(g_.input(name, stored, {depth, rows}), {1, 0})
                                : g_.input(name, stored, {rows, depth});
    NodeId sum = g_.cast(view(given, rows, depth), type);
    for (std::int64_t terms = below(3); terms > 0; --terms)
      sum = g_.binary(one_of({0, 1}) == 0 ? Op::Add : Op::Max, sum,
                      g_.cast(view(given, rows, depth), type));
    if (depth % 8 == 0 && depth > 0 && below(2) == 0) {
      const Shape blocks{rows, depth / 8, 8}, few{rows, depth / 8, 1};
      const std::string scales = std::string(name) + "_scale";
      const NodeId scale = g_.expand(g_.input(scales, type, few), blocks);
      sum = g_.reshape(g_.binary(Op::Mul, g_.reshape(sum, blocks), scale), {rows, depth});
    }
    return sum;
  }

private:
  NodeId view(NodeId a, std::int64_t rows, std::int64_t depth) {
    const DType type = g_[a].dtype;
    switch (below(5)) {
    case 0:
      return a;
    case 1:
      return framed(a, 0, rows, below(2));
    case 2:
      return framed(a, 1, depth, below(2));
    case 3:
      return g_.flip(a, {below(2)});
    default: { // the ends change places
      const std::int64_t at = below(depth + 1);
      const NodeId front = g_.pad(g_.shrink(a, {0, at}, {rows, depth}), {0, 0}, {0, at},
                                  Scalar::of(type, 0.0)),
                   back = g_.pad(g_.shrink(a, {0, 0}, {rows, at}), {0, depth - at}, {0, 0},
                                 Scalar::of(type, 0.0));
      const NodeId place = g_.broadcast(g_.iota(depth), {rows, depth});
      const NodeId is_front = g_.binary(
          Op::Lt, place, g_.broadcast(g_.constant(DType::I64, double(depth - at)), {rows, depth}));
      return g_.select(is_front, front, back);
    }
    }
  }
  /// A part along an axis where it is, and a number around it.
  NodeId framed(NodeId a, std::size_t axis, std::int64_t size, std::int64_t number) {
    const std::int64_t begin = below(size + 1), end = begin + below(size - begin + 1);
    std::vector<Expr> from(2, Expr(0)), to{g_[a].shape[0], g_[a].shape[1]}, after(2, Expr(0));
    from[axis] = Expr(begin);
    to[axis] = Expr(end);
    after[axis] = Expr(size - end);
    const NodeId part = g_.shrink(a, from, to);
    return g_.pad(part, from, after, Scalar::of(g_[a].dtype, double(number)));
  }

  Graph& g_;
  std::mt19937_64 random_;
};

/// The sums over k of a[m, k] b[n, k].
Graph product(std::uint64_t seed) {
  Graph g;
  Sides sides(g, seed);
  const DType type = std::array{DType::BF16, DType::F16, DType::F32}[std::size_t(sides.below(3))];
  const std::int64_t m = sides.one_of({1, 5, 16, 33}), n = sides.one_of({1, 7, 24, 40}),
                     k = sides.one_of({1, 8, 16, 24, 48, 72, 37});
  const Shape box{m, n, k};
  const NodeId a = g.expand(g.reshape(sides.side("a", m, k, type), {m, 1, k}), box),
               b = g.expand(g.reshape(sides.side("b", n, k, type), {1, n, k}), box);
  g.outputs = {g.reduce(Op::ReduceSum, g.binary(Op::Mul, a, b), {2})};
  return g;
}

void check_products(std::uint64_t first, const std::vector<kernel::Target>& targets) {
  const std::uint64_t count = 40 * std::uint64_t(test::rounds());
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const Graph g = product(seed);
    const auto inputs = testing::inputs_of(g, seed, seed % 4 == 0);
    for (const auto& c : testing::region_cases(g, inputs)) {
      const kernel::Target& target = targets[seed % targets.size()];
      const std::string wrong = testing::check_generators(testing::aligned_for(c, target), target,
                                                          {.workers = 1 + int(seed % 3)}, 6);
      ASSERT_TRUE(wrong.empty()) << "seed " << seed << ": " << wrong;
    }
  }
}

TEST(MadeSides, OfProductsOnAGpuAgreeWithTheReference) {
  check_products(1, {testing::test_gpu()});
}

TEST(MadeSides, OfProductsOnACpuAgreeWithTheReference) {
  check_products(1000, testing::test_targets());
}

} // namespace
} // namespace egret
