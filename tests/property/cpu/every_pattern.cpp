// Every op of one operand on every bit pattern of the floats of 16 and 8 bits, against the
// reference, at every instruction-set level.
#include "support/cpu_levels.h"
#include "support/op_cases.h"
#include "support/plan_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace egret::testing {
namespace {

using backend::reference::Expected;
using backend::reference::HostArray;
using ir::Graph;
using ir::NodeId;

HostArray every_pattern(DType type) {
  const std::int64_t count = std::int64_t{1} << (8 * size_of(type));
  HostArray array(type, {count});
  for (std::int64_t i = 0; i < count; ++i)
    std::memcpy(array.bytes.data() + static_cast<std::size_t>(i) * size_of(type), &i,
                size_of(type));
  return array;
}

/// All ops that take one value of this type, and its conversions to all others, each an output.
Graph all_ops(DType type) {
  Graph g;
  const NodeId x = g.input("x", type, {Expr(std::int64_t{1} << (8 * size_of(type)))});
  for (int i = 0; i < kOps; ++i) {
    const Op op = static_cast<Op>(i);
    const OpClass cls = info_of(op).cls;
    if (cls == OpClass::Unary || cls == OpClass::Marker)
      g.outputs.push_back(g.unary(op, x));
    if (cls != OpClass::Convert)
      continue;
    for (DType to : all_dtypes())
      if (to != type && (op == Op::Cast || size_of(to) == size_of(type)))
        g.outputs.push_back(op == Op::Cast ? g.cast(x, to) : g.bitcast(x, to));
  }
  return g;
}

class EveryPattern : public ::testing::TestWithParam<DType> {};

TEST_P(EveryPattern, OfALowFloatGivesWhatTheTableSays) {
  const Graph g = all_ops(GetParam());
  ASSERT_GT(g.outputs.size(), 15u + 14u);
  const std::vector<HostArray> inputs{every_pattern(GetParam())};
  std::vector<Expected> expected = backend::reference::expect(g, inputs);
  std::int64_t nans = 0, bits = 0;
  for (const double value : inputs[0].doubles())
    nans += std::isnan(value);
  for (std::size_t o = 0; o < g.outputs.size(); ++o) {
    bits += g[g.outputs[o]].op == Op::Bitcast;
    if (g[g.outputs[o]].op == Op::Cast)
      expected[o].error.clear(); // of what is exact there is one right result
  }
  for (const char* level : cpu_levels()) {
    compiler::KernelCache cache;
    const PlanCheck check =
        check_plan(g, inputs, expected, {.compare = {.zero_signs = true}}, cpu_at(level), cache);
    EXPECT_EQ(check.problem, "") << level << "\n" << ir::print(g);
    EXPECT_EQ(check.checked, inputs[0].size() * std::ssize(g.outputs));
    EXPECT_LE(check.vacuous, nans * bits + 6) << "bits of NaN, and the edge of overflow";
  }
}

INSTANTIATE_TEST_SUITE_P(Types, EveryPattern,
                         ::testing::Values(DType::F16, DType::BF16, DType::F8E4M3, DType::F8E5M2),
                         [](const auto& type) { return std::string(name_of(type.param)); });

} // namespace
} // namespace egret::testing
