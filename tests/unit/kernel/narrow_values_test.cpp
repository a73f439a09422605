// Values that are numbers of bf16: which of a program are known to be, and what is not rounded
// because its result is one of them.
#include "kernel/narrow_values.h"

#include "egret/functional.h"
#include "egret/graph.h"
#include "kernel/generator.h"
#include "support/program_maker.h"
#include "support/random_graph.h"
#include "support/region_runner.h"

#include <gtest/gtest.h>

namespace egret::kernel {
namespace {

using egret::testing::ProgramMaker;

constexpr Type kFloats{DType::F32, 8};

ValueId wide(ProgramMaker& m, int buffer) {
  return m.apply(Op::Cast, kFloats, {m.load(buffer, 8, Expr(0))});
}

TEST(NarrowValues, FollowFromOperationsThatRoundNothing) {
  ProgramMaker m("narrow");
  const int halves = m.buffer(DType::BF16, 8, true, false),
            floats = m.buffer(DType::F32, 8, true, false),
            bytes = m.buffer(DType::U8, 8, true, false),
            words = m.buffer(DType::I16, 8, true, false);
  const auto number = [&](double x) { return m.constant(Scalar::of(DType::F32, x), 8); };
  const ValueId x = wide(m, halves), f = m.load(floats, 8, Expr(0));
  const ValueId minus = m.apply(Op::Mul, kFloats, {number(-1), x});
  const ValueId larger = m.apply(Op::Max, kFloats, {x, minus});
  const ValueId test = m.apply(Op::Lt, {DType::Bool, 8}, {x, f});
  const ValueId chosen = m.apply(Op::Select, kFloats, {test, larger, number(1.5)});
  const ValueId whole = m.apply(Op::Floor, kFloats, {chosen});
  const ValueId byte = wide(m, bytes);
  const ValueId sum = m.apply(Op::Add, kFloats, {x, x}), third = number(1.0 / 3),
                half = m.apply(Op::Mul, kFloats, {number(0.5), x}),
                mixed = m.apply(Op::Max, kFloats, {x, f}), word = wide(m, words),
                other = m.apply(Op::Select, kFloats, {test, x, third});
  const std::vector<bool> narrow = bf16_values(m.program);
  for (const ValueId v : {x, minus, larger, chosen, whole, byte})
    EXPECT_TRUE(narrow[std::size_t(v)]) << v;
  for (const ValueId v : {f, sum, third, half, mixed, word, other})
    EXPECT_FALSE(narrow[std::size_t(v)]) << v;
}

/// Whether max(state, x) and the state after a loop are, where the state is `first` before it, and
/// with `add` a sum in the end.
std::pair<bool, bool> of_loop(double first, bool add) {
  ProgramMaker m("loop");
  const int halves = m.buffer(DType::BF16, 64, true, false);
  const int state = m.variable(kFloats);
  m.set(state, m.constant(Scalar::of(DType::F32, first), 8));
  ValueId larger = -1;
  m.loop(64, 8, [&](Expr i) {
    const ValueId x = m.apply(Op::Cast, kFloats, {m.load(halves, 8, i)});
    larger = m.apply(Op::Max, kFloats, {m.read(state), x});
    m.set(state, add ? m.apply(Op::Add, kFloats, {larger, x}) : larger);
  });
  const ValueId last = m.let({{DType::F32, 1}, inst::ReduceLanes{m.read(state), Monoid::Max}});
  const std::vector<bool> all = bf16_values(m.program);
  return {all[std::size_t(larger)], all[std::size_t(last)]};
}

TEST(NarrowValues, OfVariablesFollowFromAllAssignments) {
  EXPECT_EQ(of_loop(-2, false), std::pair(true, true));
  EXPECT_EQ(of_loop(-2, true), std::pair(false, false));
  EXPECT_EQ(of_loop(-1e30, false), std::pair(false, false)) << "it has more bits";
}

int roundings(const ir::Graph& g, DType dtype) {
  const auto made = lower_greedily(
      testing::region_cases(g, testing::random_inputs(g, 1, {.special = true})).back().region,
      testing::test_targets()[0]);
  int casts = 0, stores = 0;
  each_statement(made.program.body, [&](const Stmt& s) {
    stores += get_if<Store>(s) != nullptr;
    if (const auto* let = get_if<Let>(s))
      if (const auto* apply = get_if<inst::Apply>(let->inst))
        casts += apply->op == Op::Cast && let->inst.type.dtype == dtype;
  });
  EXPECT_GE(stores, 1);
  return casts - stores;
}

TEST(NarrowValues, NegationsAreNotRounded) {
  for (const DType dtype : {DType::BF16, DType::F16}) {
    const auto magnitude = [&](double factor) {
      ir::Graph g;
      const ir::NodeId x = g.input("x", dtype, {100});
      const ir::NodeId scale = g.broadcast(g.constant(dtype, factor), {100});
      g.outputs = {g.binary(Op::Max, x, g.binary(Op::Mul, x, scale))};
      return g;
    };
    EXPECT_EQ(roundings(magnitude(-1), dtype), 0);
    EXPECT_GT(roundings(magnitude(-2), dtype), 0);
  }
}

} // namespace
} // namespace egret::kernel
