// Products of matrices of every size around the tiles' edges, in every layout, with work before and
// after them, through the whole compiler.
#include "backend/cpu/cpu_device.h"
#include "backend/reference/reference.h"
#include "compiler/compile.h"
#include "support/plan_runner.h"
#include "support/random_graph.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

namespace egret {
namespace {

namespace reference = backend::reference;
using ir::Graph;
using ir::NodeId;

struct Product {
  Graph graph;
  std::string what;
};

/// [B,M,K] x [B,K,N] with operands stored in a random order of their dims.
Product random_product(std::uint64_t seed) {
  testing::Rng rng(seed);
  const std::vector<std::int64_t> sizes{1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 48, 64, 65, 96, 130};
  const std::int64_t b = rng.chance(0.6) ? 1 : rng.below(4) + 1;
  const std::int64_t m = rng.pick(sizes), n = rng.pick(sizes), k = rng.pick(sizes);
  const DType type = rng.pick(
      std::vector<DType>{DType::F32, DType::F32, DType::F32, DType::BF16, DType::F64, DType::I32});
  Product p;
  Graph& g = p.graph;
  auto operand = [&](const char* name, std::int64_t rows, std::int64_t columns) {
    const bool turned = rng.chance(0.5), middle = rng.chance(0.3);
    // As heads of a transformer are read: the batch between the two others.
    const Shape stored = middle ? (turned ? Shape{columns, b, rows} : Shape{rows, b, columns})
                                : (turned ? Shape{b, columns, rows} : Shape{b, rows, columns});
    NodeId x = g.input(name, type, stored);
    if (middle)
      x = g.permute(x, turned ? std::vector<std::int64_t>{1, 2, 0}
                              : std::vector<std::int64_t>{1, 0, 2});
    else if (turned)
      x = g.permute(x, {0, 2, 1});
    if (rng.chance(0.3) && type != DType::I32) { // work while packing
      const Shape shape = g[x].shape;            // a copy: adding a node moves the others
      const NodeId zero = g.broadcast(g.constant(type, 0), shape);
      x = g.select(g.binary(Op::Lt, zero, x), x, zero);
    }
    return accumulator_of(type) == type ? x : g.cast(x, accumulator_of(type));
  };
  const NodeId left = operand("a", m, k), right = operand("b", k, n);
  const Shape box{b, m, n, k};
  const NodeId x = g.expand(g.reshape(left, {b, m, 1, k}), box);
  const NodeId y = g.expand(g.reshape(g.permute(right, {0, 2, 1}), {b, 1, n, k}), box);
  NodeId c = g.cast(g.reduce(Op::ReduceSum, g.binary(Op::Mul, x, y), {3}), type);
  g.outputs.push_back(c);
  if (rng.chance(0.6)) {
    const NodeId bias = g.input("bias", type, {n});
    c = g.binary(Op::Add, c, g.broadcast(bias, {b, m, n}));
    if (rng.chance(0.5))
      g.outputs.clear();
    if (type != DType::I32 && rng.chance(0.5))
      c = g.unary(Op::Tanh, c);
    if (rng.chance(0.4))
      c = g.binary(Op::Add, c, g.input("residual", type, {b, m, n}));
    g.outputs.push_back(c);
  }
  p.what = fmt::format("seed {}: {} batch {} m {} n {} k {}", seed, name_of(type), b, m, n, k);
  return p;
}

TEST(Contractions, AgreeWithTheReferenceInEveryLayout) {
  auto device = backend::cpu::make_cpu_device(2);
  compiler::KernelCache cache;
  int contractions = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    const Product p = random_product(seed);
    auto inputs = testing::random_inputs(p.graph, seed, {.special = seed % 5 == 0});
    const auto expected = reference::expect(p.graph, inputs);
    const compiler::Compiled compiled = compiler::compile_graph(p.graph, {}, *device, cache);
    for (const compiler::KernelReport& k : compiled.report.kernels)
      contractions += k.schedule.starts_with("contraction");
    const auto actual = testing::run_plan(compiled, p.graph, inputs, device.get());
    for (std::size_t o = 0; o < actual.size(); ++o) {
      const auto result = reference::compare(actual[o], expected[o], fmt::format("output {}", o));
      EXPECT_TRUE(result.ok) << p.what << ": " << result.message << "\n" << compiled.report.text();
    }
  }
  EXPECT_GT(contractions, 75) << "the family takes what has three real axes";
}

} // namespace
} // namespace egret
