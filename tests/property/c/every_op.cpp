// Every elementwise op of the table and every conversion, for each dtype, as C: on all bit patterns
// of the floats of 16 and 8 bits, and on edges of all other types in all pairs.
#include "support/c_compiler.h"
#include "support/op_cases.h"
#include "support/plan_check.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

namespace egret::testing {
namespace {

using backend::reference::Expected;
using backend::reference::HostArray;
using ir::Graph;
using ir::NodeId;

std::vector<Scalar> edges(DType type) {
  std::vector<Scalar> values;
  if (is_float(type)) {
    const double infinity = std::numeric_limits<double>::infinity();
    for (const double x : {0.0,
                           0.5,
                           1.0,
                           1.5,
                           2.0,
                           2.5,
                           7.0,
                           100.5,
                           127.5,
                           255.5,
                           32767.5,
                           65504.0,
                           65520.0,
                           2147483648.0,
                           4294967296.0,
                           9.2233720368547758e18,
                           1.8446744073709552e19,
                           3.4028234663852886e38,
                           1e-40,
                           6e-8,
                           1e-3,
                           20.0,
                           88.8,
                           104.0,
                           infinity}) {
      values.push_back(Scalar::of(type, x));
      values.push_back(Scalar::of(type, -x));
    }
    values.push_back(Scalar::of(type, std::numeric_limits<double>::quiet_NaN()));
    return values;
  }
  const auto bits = 8 * size_of(type);
  const std::uint64_t top = std::uint64_t{1} << (bits - 1), mask = 2 * (top - 1) + 1;
  for (const std::uint64_t x :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{3}, std::uint64_t{7},
        std::uint64_t{31}, std::uint64_t{64}, top, top - 1, top + 1, top >> 1,
        std::uint64_t{0x12345678abcdef01u}}) {
    values.push_back(Scalar::from_bits(type, type == DType::Bool ? x & 1 : x & mask));
    values.push_back(Scalar::from_bits(type, type == DType::Bool ? x & 1 : (0 - x) & mask));
  }
  return values;
}

bool small_float(DType type) {
  return is_float(type) && size_of(type) <= 2;
}

/// Inputs x and y: all pairs of edges; of small floats x has every pattern.
std::vector<HostArray> operands(DType type) {
  const std::vector<Scalar> values = edges(type);
  const std::size_t n = values.size(),
                    count = small_float(type) ? std::size_t{1} << (8 * size_of(type)) : n * n;
  std::vector<HostArray> both(2, HostArray(type, {static_cast<std::int64_t>(count)}));
  const auto put = [&](HostArray& array, std::size_t i, std::uint64_t bits) {
    std::memcpy(array.bytes.data() + i * size_of(type), &bits, size_of(type));
  };
  for (std::size_t i = 0; i < count; ++i) {
    put(both[0], i, small_float(type) ? i : values[i / n].bits);
    put(both[1], i, values[i % n].bits);
  }
  return both;
}

/// Each op that takes this type, an output each.
Graph all_ops(DType type, std::int64_t count) {
  Graph g;
  const NodeId x = g.input("x", type, {Expr(count)}), y = g.input("y", type, {Expr(count)});
  for (int i = 0; i < kOps; ++i) {
    const Op op = static_cast<Op>(i);
    const OpClass cls = info_of(op).cls;
    if (cls == OpClass::Convert) {
      for (DType to : all_dtypes())
        if (to != type && (op == Op::Cast || size_of(to) == size_of(type)))
          g.outputs.push_back(op == Op::Cast ? g.cast(x, to) : g.bitcast(x, to));
    } else if (!takes(op, type)) {
      continue;
    } else if (cls == OpClass::Unary || cls == OpClass::Marker) {
      g.outputs.push_back(g.unary(op, x));
    } else if (cls == OpClass::Binary) {
      g.outputs.push_back(g.binary(op, x, y));
    }
  }
  g.outputs.push_back(g.select(g.binary(Op::Lt, x, y), y, x));
  return g;
}

class EveryOpInC : public ::testing::TestWithParam<DType> {};

TEST_P(EveryOpInC, GivesWhatTheTableSays) {
  EGRET_NEEDS_C_COMPILER();
  const std::vector<HostArray> inputs = operands(GetParam());
  const Graph g = all_ops(GetParam(), inputs[0].size());
  ASSERT_GT(g.outputs.size(), 14u + 5u);
  std::vector<Expected> expected = backend::reference::expect(g, inputs);
  for (std::size_t o = 0; o < g.outputs.size(); ++o)
    if (g[g.outputs[o]].op == Op::Cast)
      expected[o].error.clear(); // of what is exact there is one right result
  compiler::KernelCache cache;
  const PlanCheck check =
      check_plan(g, inputs, expected, {.compare = {.zero_signs = true}}, *c_device(), cache);
  EXPECT_EQ(check.problem, "") << ir::print(g);
  EXPECT_EQ(check.checked, inputs[0].size() * std::ssize(g.outputs));
}

INSTANTIATE_TEST_SUITE_P(Types, EveryOpInC, ::testing::ValuesIn(all_dtypes()),
                         [](const auto& type) { return std::string(name_of(type.param)); });

} // namespace
} // namespace egret::testing
