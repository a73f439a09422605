// Many short rows, a row a lane: what is read and written of memory, and the values.
#include "kernel/families.h"
#include "support/random_graph.h"
#include "support/region_runner.h"

#include <gtest/gtest.h>

#include <array>

namespace egret::kernel {
namespace {

using ir::Graph;
using ir::NodeId;

NodeId along(Graph& g, NodeId of_rows, const Shape& box) {
  return g.expand(g.reshape(of_rows, {box[0], 1}), box);
}

NodeId minus(Graph& g, NodeId a, NodeId b) {
  const NodeId negative =
      g.binary(Op::Mul, b, g.broadcast(g.constant(g[b].dtype, -1.0), g[b].shape));
  return g.binary(Op::Add, a, negative);
}

Graph softmax_of(const Shape& box, DType dtype) {
  Graph g;
  const NodeId x = g.cast(g.input("x", dtype, box), DType::F32);
  const NodeId e = g.unary(Op::Exp, minus(g, x, along(g, g.reduce(Op::ReduceMax, x, {1}), box)));
  const NodeId total = along(g, g.reduce(Op::ReduceSum, e, {1}), box);
  g.outputs = {g.cast(g.binary(Op::Div, e, total), dtype)};
  return g;
}

/// The mean of each row, what is left of each element, scaled by a weight of its place, and where
/// the largest is.
Graph centred(const Shape& box) {
  Graph g;
  const NodeId x = g.input("x", DType::F32, box), w = g.input("w", DType::F32, {box[1]});
  const NodeId share = g.broadcast(g.constant(DType::F32, 1.0 / double(box[1].value())), {box[0]});
  const NodeId mean = g.binary(Op::Mul, g.reduce(Op::ReduceSum, x, {1}), share);
  const NodeId rest = minus(g, x, along(g, mean, box));
  const NodeId weights = g.expand(g.reshape(w, {1, box[1]}), box);
  g.outputs = {g.binary(Op::Mul, rest, weights), mean, g.reduce(Op::ReduceArgMax, x, {1})};
  return g;
}

testing::RegionCase only_region(const Graph& g) {
  auto cases = testing::region_cases(g, testing::random_inputs(g, 1, {.special = false}));
  EXPECT_EQ(cases.size(), 1u);
  return std::move(cases.at(0));
}

/// Elements between the first two lanes of an address.
std::int64_t between_lanes(const Address& at) {
  const auto lane = [&](std::int64_t n) {
    return substitute(
        at.index, [n](const Expr& v) -> std::optional<Expr> { return Expr(lanes_of(v) ? n : 0); });
  };
  return (lane(1) - lane(0)).value();
}

/// Lanes of arguments that are stored together lie side by side; loaded ones also up to three
/// elements apart, as rows of three are.
void expect_contiguous(const KernelProgram& p) {
  const auto check = [&](const Address& at, const std::string& what) {
    if (p.buffers[std::size_t(at.buffer)].space != Space::Argument)
      return;
    EXPECT_LE(between_lanes(at), what == "load" ? 3 : 1) << what << "\n" << print(p);
  };
  each_statement(p.body, [&](const Stmt& s) {
    if (const auto* load = made_by<inst::Load>(s))
      check(load->from, "load");
    if (const auto* store = get_if<Store>(s))
      check(store->to, "store");
  });
}

int count_of_reduced_lanes(const KernelProgram& p) {
  int n = 0;
  each_statement(p.body, [&](const Stmt& s) { n += made_by<inst::ReduceLanes>(s) != nullptr; });
  return n;
}

const std::pair<std::int64_t, std::int64_t> kBoxes[] = {{64, 32}, {37, 23}, {100, 17},  {29, 5},
                                                        {16, 2},  {21, 3},  {1500, 40}, {17, 64}};

/// By the template's own defaults.
KernelProgram lowered(const Region& region, const Target& target) {
  Schedule s;
  s.generator = "reduction";
  Lowered made = reduction_generator().lower(region, s, target);
  EXPECT_TRUE(made.ok) << made.reason << "\n" << print(region);
  return std::move(made.program);
}

TEST(ShortRows, AreRowsOfLanesThatMemoryIsReadAlong) {
  for (const Target& target : testing::test_targets())
    for (DType dtype : {DType::F32, DType::BF16, DType::F16, DType::F64})
      for (const auto& [m, n] : kBoxes) {
        const KernelProgram p = lowered(only_region(softmax_of({m, n}, dtype)).region, target);
        expect_contiguous(p);
        EXPECT_EQ(count_of_reduced_lanes(p), 0);
      }
}

TEST(ShortRows, AreChosenWhereCombiningLanesWouldTakeLonger) {
  const Target target = testing::test_targets()[0];
  const auto chosen = [&](const Graph& g) {
    return lower_greedily(only_region(g).region, target).schedule.generator;
  };
  for (std::int64_t n : {5, 9, 23})
    EXPECT_EQ(chosen(softmax_of({1000, n}, DType::F32)), "reduction") << n;
  EXPECT_EQ(chosen(softmax_of({1000, 256}, DType::F32)), "rows");
  Graph g;
  g.outputs = {g.reduce(Op::ReduceArgMax, g.input("x", DType::F32, {1000, 128}), {1})};
  EXPECT_EQ(chosen(g), "reduction");
}

TEST(ShortRows, AgreeWithTheReferenceBySchedulesOfAllKinds) {
  for (const Target& target : testing::test_targets())
    for (const auto& [m, n] : kBoxes)
      for (const Graph& g : {softmax_of({m, n}, DType::BF16), centred({m, n})})
        for (const auto& c :
             testing::region_cases(g, testing::random_inputs(g, 1, {.special = false}))) {
          Schedule s;
          s.generator = "reduction";
          for (int unroll : {1, 8, 64})
            for (int keep : {0, 1 << 20})
              for (int scratch : {0, 1}) {
                s.knobs = {{"unroll", unroll}, {"keep", keep}, {"scratch", scratch}};
                EXPECT_EQ(testing::check_schedule(c, reduction_generator(), s, target,
                                                  {.workers = 3}, scratch == 1 && n > 3),
                          "")
                    << m << " x " << n;
              }
        }
}

/// Of the distances between the rows of two matrices, Euclid's or the largest of a coordinate.
Graph distances(std::int64_t m, std::int64_t n, std::int64_t depth, bool largest) {
  Graph g;
  const Shape box{m, n, depth};
  const NodeId a = g.expand(g.reshape(g.input("a", DType::F32, {m, depth}), {m, 1, depth}), box);
  const NodeId b = g.expand(g.reshape(g.input("b", DType::F32, {n, depth}), {1, n, depth}), box);
  const NodeId between = minus(g, a, b);
  const NodeId zero = g.broadcast(g.constant(DType::F32, 0.0), box);
  const NodeId term = largest ? g.binary(Op::Max, between, minus(g, zero, between))
                              : g.binary(Op::Mul, between, between);
  const NodeId result = g.reduce(largest ? Op::ReduceMax : Op::ReduceSum, term, {2});
  g.outputs = {largest ? result : g.unary(Op::Sqrt, result)};
  return g;
}

TEST(ShortRows, AreStagedOnceForThePointsThatShareThem) {
  for (const Target& target : testing::test_targets())
    for (const bool largest : {false, true})
      for (const auto& [m, n, depth] : {std::array{40, 70, 64}, {70, 40, 24}, {64, 65, 100}}) {
        const testing::RegionCase c = only_region(distances(m, n, depth, largest));
        const auto made = lower_greedily(c.region, target);
        EXPECT_EQ(made.schedule.generator, "reduction") << m << " x " << n << " x " << depth;
        EXPECT_EQ(count_of_reduced_lanes(made.program), 0);
        expect_contiguous(made.program);
      }
}

TEST(ShortRows, ThatAreSharedAgreeWithTheReference) {
  for (const Target& target : testing::test_targets())
    for (const auto& [m, n, depth] :
         {std::array{70, 33, 7}, {16, 100, 5}, {129, 40, 18}, {17, 32, 4}, {40, 20, 9}})
      for (const bool largest : {false, true}) {
        const testing::RegionCase c = only_region(distances(m, n, depth, largest));
        Schedule s;
        s.generator = "reduction";
        for (const int tile : {1, 4, 8, 16})
          for (const int unroll : {1, 2, 4}) {
            s.knobs = {{"tile", tile}, {"unroll", unroll}};
            EXPECT_EQ(testing::check_schedule(c, reduction_generator(), s, target, {.workers = 3},
                                              n >= 32),
                      "")
                << m << " x " << n << " x " << depth;
          }
      }
}

TEST(ShortRows, TakeTheMemoryOfWhatTheyReduce) {
  for (const Target& target : testing::test_targets())
    for (const auto& [m, n] : kBoxes) {
      auto c = only_region(softmax_of({m, n}, DType::F32));
      testing::take_over_operands(c.region);
      ASSERT_GE(c.region.outputs[0].alias, 0);
      const KernelProgram p = lowered(c.region, target);
      EXPECT_TRUE(std::ranges::none_of(p.buffers, [](const Buffer& b) {
        return b.space == Space::Workspace;
      })) << "a result waits in memory";
      EXPECT_EQ(testing::run_and_compare(c, p, {.workers = 3, .in_place = true}), "");
    }
}

TEST(ShortRows, OfUnknownNumberAreTaken) {
  Graph g = softmax_of({Expr::symbol("rows", 1, 4096), 24}, DType::F32);
  const Target target = testing::test_targets()[0];
  const auto c = only_region(g);
  const Chosen chosen = lower_greedily(c.region, target);
  EXPECT_EQ(chosen.schedule.generator, "reduction");
  EXPECT_EQ(testing::run_and_compare(c, chosen.program), "");
}

TEST(ShortRows, AreLeftToOthersWhereLanesWouldBeGatheredOrIdle) {
  const Target target = testing::test_targets()[0]; // 16 lanes
  Graph strided, few, wide;
  const NodeId pairs = strided.input("x", DType::F32, {64, 24, 2});
  strided.outputs = {strided.reduce(
      Op::ReduceMax, strided.reshape(strided.shrink(pairs, {0, 0, 1}, {64, 24, 2}), {64, 24}),
      {1})};
  few.outputs = {few.reduce(Op::ReduceMax, few.input("x", DType::F32, {7, 24}), {1})};
  wide.outputs = {wide.reduce(Op::ReduceMax, wide.input("x", DType::F32, {64, 1000}), {1})};
  for (const Graph* g : {&strided, &few, &wide}) {
    const auto region = only_region(*g).region;
    EXPECT_NE(lower_greedily(region, target).schedule.generator, "reduction");
    Schedule s;
    s.generator = "reduction";
    const Lowered lowered = reduction_generator().lower(region, s, target);
    EXPECT_FALSE(lowered.ok);
    EXPECT_FALSE(lowered.reason.empty());
  }
}

} // namespace
} // namespace egret::kernel
