// Updates of a parameter and its two moments behind gradients of each form: every schedule stays
// right when the new values stand in the memory of the old ones, which later stages read too.
#include "support/cpu_levels.h"
#include "support/random_graph.h"
#include "support/region_forms.h"
#include "support/region_runner.h"
#include "support/update_graphs.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace egret {
namespace {

using ir::Graph;
using ir::NodeId;
using testing::number;

constexpr std::int64_t kRows = 24, kColumns = 40, kDepth = 16;

/// Gives the parameter, made of both moments, before the moments themselves.
void update(Graph& g, NodeId gradient) {
  const Shape shape = g[gradient].shape;
  auto mul = [&](NodeId a, NodeId b) { return g.binary(Op::Mul, a, b); };
  auto add = [&](NodeId a, NodeId b) { return g.binary(Op::Add, a, b); };
  auto scaled = [&](NodeId a, double by) { return mul(a, number(g, by, shape)); };
  const NodeId p = g.input("p", DType::F32, shape), m = g.input("m", DType::F32, shape),
               v = g.input("v", DType::F32, shape);
  const NodeId mean = add(scaled(m, 0.9), scaled(gradient, 0.1));
  const NodeId square = add(scaled(mul(v, v), 0.99), scaled(mul(gradient, gradient), 0.01));
  const NodeId root = add(g.unary(Op::Sqrt, square), number(g, 1e-3, shape));
  g.outputs = {add(scaled(p, 0.999), scaled(g.binary(Op::Div, mean, root), -0.1)), mean, square};
}

NodeId factor(Graph& g, const char* name, std::int64_t rows, std::int64_t columns, bool turned) {
  const Shape box{kRows, kColumns, kDepth};
  const NodeId x = g.input(name, DType::F32, {rows, columns});
  return g.expand(turned ? g.reshape(g.permute(x, {1, 0}), {1, columns, rows})
                         : g.reshape(x, {rows, 1, columns}),
                  box);
}

struct GradientForm {
  const char* name;
  std::function<NodeId(Graph&)> gradient;
};

const GradientForm kForms[] = {
    {"map",
     [](Graph& g) {
       return g.unary(Op::Cos, g.input("x", DType::F32, {kRows, kColumns}));
     }},
    {"turned",
     [](Graph& g) {
       return g.permute(g.input("x", DType::F32, {kColumns, kRows}), {1, 0});
     }},
    {"rows",
     [](Graph& g) {
       return g.reduce(Op::ReduceSum, g.input("x", DType::F32, {kRows, kColumns}), {1});
     }},
    {"columns",
     [](Graph& g) {
       return g.reduce(Op::ReduceSum, g.input("x", DType::F32, {kRows, kColumns}), {0});
     }},
    {"all",
     [](Graph& g) {
       return g.reduce(Op::ReduceSum, g.input("x", DType::F32, {kRows, kColumns}), {0, 1});
     }},
    {"product",
     [](Graph& g) {
       return g.reduce(Op::ReduceSum,
                       g.binary(Op::Mul, factor(g, "a", kRows, kDepth, false),
                                factor(g, "b", kDepth, kColumns, true)),
                       {2});
     }},
};

class UpdatesInPlace : public ::testing::TestWithParam<GradientForm> {
protected:
  /// The region that makes all three, each over its old value.
  testing::RegionCase in_place() const {
    Graph g;
    update(g, GetParam().gradient(g));
    auto cases = testing::region_cases(g, testing::inputs_of(g, 9, false));
    EXPECT_EQ(cases.size(), 1u) << "gradient and update are one kernel";
    testing::take_over_operands(cases.at(0).region);
    for (const kernel::Output& o : cases[0].region.outputs)
      EXPECT_GE(o.alias, 0);
    return cases[0];
  }
};

TEST_P(UpdatesInPlace, ByTheCpusGenerators) {
  const auto c = in_place();
  for (const kernel::Target& target : testing::test_targets())
    EXPECT_EQ(testing::check_generators(c, target, {.workers = 3, .in_place = true}), "");
  for (const char* level : testing::cpu_levels()) {
    backend::Device& device = testing::cpu_at(level);
    EXPECT_EQ(
        testing::check_generators(c, device.target(), {.device = &device, .in_place = true}, 2),
        "");
  }
}

TEST_P(UpdatesInPlace, ByTheGpusGenerators) {
  EXPECT_EQ(
      testing::check_generators(in_place(), testing::test_gpu(), {.workers = 3, .in_place = true}),
      "");
}

/// Rows and numbers of a row that are made of each other at random, several of which are results.
Graph random_rows(testing::Rng& random) {
  Graph g;
  const Shape wide{12, 40}, thin{12, 1};
  std::vector<NodeId> rows, numbers;
  for (const char* name : {"x", "y"})
    rows.push_back(g.input(name, DType::F32, wide));
  for (const char* name : {"u", "v", "w"})
    numbers.push_back(g.input(name, DType::F32, thin));
  const std::size_t inputs = rows.size() + numbers.size();
  for (int i = 0; i < 9; ++i) {
    const NodeId row = random.pick(rows), other = random.pick(rows);
    const NodeId a = random.pick(numbers), b = random.pick(numbers);
    switch (random.below(5)) {
    case 0:
      numbers.push_back(
          g.reshape(g.reduce(random.chance(0.5) ? Op::ReduceSum : Op::ReduceMax, row, {1}), thin));
      break;
    case 1:
      numbers.push_back(g.binary(random.chance(0.5) ? Op::Add : Op::Mul, a, b));
      break;
    case 2:
      rows.push_back(g.binary(random.chance(0.5) ? Op::Add : Op::Max, row, other));
      break;
    default:
      rows.push_back(g.binary(random.chance(0.5) ? Op::Add : Op::Mul, row, g.expand(a, wide)));
    }
  }
  for (const auto* of : {&rows, &numbers})
    for (const NodeId id : *of)
      if (id >= inputs && random.chance(0.4))
        g.outputs.push_back(id);
  return g;
}

// Memory that ends with a kernel is given to one of its results without a word to the kernel.
TEST(ResultsOverOperands, AreStoredBehindAllLoads) {
  int shared = 0;
  for (std::uint64_t seed = 1; seed <= 120; ++seed) {
    testing::Rng random(seed);
    const Graph g = random_rows(random);
    if (g.outputs.size() < 2)
      continue;
    for (testing::RegionCase& c : testing::region_cases(g, testing::inputs_of(g, seed, false))) {
      testing::take_over_operands(c.region, false);
      const auto& outputs = c.region.outputs;
      if (outputs.size() < 2 ||
          std::all_of(outputs.begin(), outputs.end(), [](const auto& o) { return o.alias < 0; }))
        continue;
      ++shared;
      const testing::RunOptions options{.workers = 2, .in_place = true, .undeclared = true};
      EXPECT_EQ(testing::check_generators(c, testing::test_targets()[0], options, 2), "") << seed;
      if (seed % 3 == 0) {
        EXPECT_EQ(testing::check_generators(c, testing::test_gpu(), options, 2), "") << seed;
      }
    }
  }
  EXPECT_GE(shared, 15);
}

INSTANTIATE_TEST_SUITE_P(All, UpdatesInPlace, ::testing::ValuesIn(kForms),
                         [](const auto& info) { return std::string(info.param.name); });

} // namespace
} // namespace egret
