// Mechanisms of the lowering of schedule trees: collapsed grid loops, stores behind all loads,
// blocks that are transposed in registers, copies whose rows lie in different banks.
#include "kernel/families.h"
#include "support/random_graph.h"
#include "support/region_runner.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

namespace egret::kernel {
namespace {

using ir::Graph;
using ir::NodeId;

testing::RegionCase only_region(const Graph& g, const Target& target) {
  auto cases = testing::region_cases(g, testing::random_inputs(g, 1, {.special = false}), target);
  EXPECT_EQ(cases.size(), 1u);
  return std::move(cases.at(0));
}

Target cpu() {
  return testing::test_targets()[0];
}

KernelProgram by_tree(const testing::RegionCase& c, const std::string& tree, const Target& target) {
  Schedule schedule;
  schedule.generator = "loops";
  schedule.tree = tree;
  Lowered lowered = loops_generator().lower(c.region, schedule, target);
  EXPECT_TRUE(lowered.ok) << tree << "\n" << lowered.reason << "\n" << print(c.region);
  if (lowered.ok)
    verify(lowered.program);
  return std::move(lowered.program);
}

KernelProgram by_knobs(const testing::RegionCase& c, std::map<std::string, std::int64_t> knobs,
                       const Target& target) {
  Schedule schedule;
  schedule.generator = "elementwise";
  schedule.knobs = std::move(knobs);
  Lowered lowered = elementwise_generator().lower(c.region, schedule, target);
  EXPECT_TRUE(lowered.ok) << lowered.reason << "\n" << print(c.region);
  if (lowered.ok)
    verify(lowered.program);
  return std::move(lowered.program);
}

/// `count` inputs of two rows, one after the other.
Graph concatenation(int count, std::int64_t columns) {
  Graph g;
  const std::int64_t rows = 2 * count;
  const Shape whole{rows, columns};
  const NodeId position = g.expand(g.reshape(g.iota(rows), {rows, 1}), whole);
  NodeId chosen = -1;
  for (int i = count; i-- > 0;) {
    const NodeId part = g.pad(g.input("x" + std::to_string(i), DType::F32, {2, columns}),
                              {2 * i, 0}, {rows - 2 * i - 2, 0}, Scalar::of(DType::F32, 0.0));
    const NodeId end =
        g.broadcast(g.constant(Scalar::of(DType::I64, std::int64_t{2 * i + 2})), whole);
    chosen = i == count - 1 ? part : g.select(g.binary(Op::Lt, position, end), part, chosen);
  }
  g.outputs = {chosen};
  return g;
}

TEST(Lowering, OfManyConcatenatedTensorsAnElementReadsFew) {
  const auto branches = [](int count, const Target& target) {
    const auto c = only_region(concatenation(count, 64), target);
    const std::string text = print(by_knobs(c, {{"vectors", 2}}, target));
    std::size_t found = 0;
    for (std::size_t at = text.find("else"); at != std::string::npos;
         at = text.find("else", at + 1))
      ++found;
    return found;
  };
  EXPECT_EQ(branches(2, cpu()), 0u); // two loads and a choice are cheaper
  EXPECT_GE(branches(12, cpu()), 9u);
  for (const int count : {2, 3, 12})
    for (const std::int64_t columns : {1, 5, 64}) {
      const auto made = only_region(concatenation(count, columns), cpu());
      EXPECT_EQ(testing::run_and_compare(made, by_knobs(made, {{"vectors", 2}}, cpu())), "")
          << count << " of " << columns;
    }
  // Index arithmetic is narrow: a vector has as many lanes as there are floats in one.
  const auto c = only_region(concatenation(12, 64), cpu());
  const std::string lanes = "f32x" + std::to_string(cpu().vector_bytes / 4);
  EXPECT_NE(print(by_knobs(c, {}, cpu())).find(lanes), std::string::npos);
}

// The index of a narrow type wraps: row 256 has number 0 of i8.
TEST(Lowering, ABranchComparesWhatTheIndexWrapsTo) {
  Graph g;
  const Shape box{300, 16};
  const NodeId row = g.expand(g.reshape(g.cast(g.iota(300), DType::I8), {300, 1}), box);
  const NodeId low = g.binary(Op::Lt, row, g.broadcast(g.constant(DType::I8, 100), box));
  std::vector<NodeId> x;
  for (const char* name : {"a", "b", "c", "d"})
    x.push_back(g.input(name, DType::F32, box));
  g.outputs = {g.select(low, g.binary(Op::Add, x[0], x[1]), g.binary(Op::Add, x[2], x[3]))};
  const auto c = only_region(g, cpu());
  EXPECT_EQ(testing::run_and_compare(c, by_knobs(c, {}, cpu())), "");
}

/// x of one column and y of one row, both of all points.
Graph outer_sum(const Expr& m, const Expr& n) {
  Graph g;
  const Shape box{m, n};
  const NodeId x = g.input("x", DType::F32, {m, 1}), y = g.input("y", DType::F32, {1, n});
  g.outputs = {g.binary(Op::Add, g.expand(x, box), g.expand(y, box))};
  return g;
}

Graph transposition(std::int64_t m, std::int64_t n, DType dtype = DType::F32) {
  Graph g;
  g.outputs = {g.unary(Op::Exp, g.permute(g.input("x", dtype, {m, n}), {1, 0}))};
  return g;
}

/// Loads from operands that stand behind a store to an output.
int loads_behind_stores(const KernelProgram& p) {
  int behind = 0;
  bool stored = false;
  each_statement(p.body, [&](const Stmt& s) {
    if (const auto* store = get_if<Store>(s))
      stored = stored || p.buffers[std::size_t(store->to.buffer)].space == Space::Argument;
    const auto* load = made_by<inst::Load>(s);
    behind +=
        int(load && stored && p.buffers[std::size_t(load->from.buffer)].space == Space::Argument);
  });
  return behind;
}

TEST(LoweringTest, MapsOfOnePointAreOneLoopOverTheBlocks) {
  Graph g;
  const NodeId x = g.input("x", DType::F32, {1}), y = g.input("y", DType::F32, {1});
  g.outputs = {g.unary(Op::Exp, g.binary(Op::Add, x, y))};
  for (const Target& target : {cpu(), testing::test_gpu()}) {
    const auto c = only_region(g, target);
    const Chosen chosen = lower_greedily(c.region, target);
    EXPECT_EQ(chosen.schedule.generator, "elementwise") << print(c.region);
    EXPECT_EQ(testing::run_and_compare(c, chosen.program), "");
    if (!target.is_gpu())
      continue;
    ASSERT_FALSE(chosen.program.body.empty());
    const auto* loop = get_if<For>(chosen.program.body.back());
    ASSERT_TRUE(loop) << print(chosen.program);
    EXPECT_EQ(loop->bind, Bind::Grid);
  }
}

TEST(LoweringTest, CollapsedLoopsAreSharedOutByPointsAndNotByRows) {
  for (const auto& [m, n] : {std::pair<std::int64_t, std::int64_t>{5, 23}, {64, 3}, {3, 64}}) {
    const auto c = only_region(outer_sum(m, n), testing::test_gpu());
    const std::string tree =
        fmt::format("collapse(32,2,for(0,{},1,grid,for(1,{},1,grid,body(0))))", m, n);
    const KernelProgram p = by_tree(c, tree, testing::test_gpu());
    EXPECT_EQ(p.launch.threads, 32);
    EXPECT_EQ(p.launch.workers, Expr((m * n + 63) / 64)) << tree;
    EXPECT_EQ(testing::run_and_compare(c, p), "") << tree;
  }
}

TEST(LoweringTest, CollapsedLoopsOfPartialVectorsAndUnknownSizes) {
  const auto c = only_region(outer_sum(7, 22), testing::test_gpu());
  EXPECT_EQ(testing::run_and_compare(
                c, by_tree(c,
                           "collapse(64,3,for(0,7,1,grid,for(1,6,4,grid,for(1,4,1,vector,"
                           "mask(1,body(0))))))",
                           testing::test_gpu())),
            "");
  const auto unknown = only_region(outer_sum(Expr::symbol("N", 1, 50), 9), testing::test_gpu());
  EXPECT_EQ(
      testing::run_and_compare(
          unknown, by_tree(unknown, "collapse(32,4,for(0,ceil(1),1,grid,for(1,9,1,grid,body(0))))",
                           testing::test_gpu())),
      "");
}

TEST(LoweringTest, ACpuHasNoBlocksToCollapseInto) {
  const auto c = only_region(outer_sum(5, 23), cpu());
  Schedule schedule;
  schedule.generator = "loops";
  schedule.tree = "collapse(32,2,for(0,5,1,serial,for(1,23,1,serial,body(0))))";
  const Lowered lowered = loops_generator().lower(c.region, schedule, cpu());
  EXPECT_FALSE(lowered.ok);
  EXPECT_NE(lowered.reason.find("a CPU has no blocks of 32 threads"), std::string::npos)
      << lowered.reason;
}

TEST(LoweringTest, StoresOfAFewVectorsComeBehindAllTheirLoads) {
  Graph g;
  g.outputs = {g.unary(Op::Exp, g.input("x", DType::F32, {4096}))};
  const auto c = only_region(g, cpu());
  EXPECT_EQ(loads_behind_stores(by_knobs(c, {{"vectors", 4}}, cpu())), 0);
  // Sixteen vectors wait in registers on no CPU.
  const KernelProgram many = by_knobs(c, {{"vectors", 16}}, cpu());
  EXPECT_GT(loads_behind_stores(many), 0);
  EXPECT_EQ(testing::run_and_compare(c, many), "");

  const Target gpu = testing::test_gpu();
  const auto on_gpu = testing::aligned_for(only_region(g, gpu), gpu);
  EXPECT_EQ(loads_behind_stores(by_knobs(on_gpu, {{"threads", 128}, {"vectors", 4}}, gpu)), 0);
}

TEST(LoweringTest, OutputsOfAPointAreStoredBehindWhatItsOtherOutputsRead) {
  // Each output takes over the memory of an operand; all but the last one's, the next one reads.
  constexpr std::size_t kOutputs = 12;
  Graph g;
  std::vector<NodeId> x;
  for (std::size_t i = 0; i < kOutputs; ++i)
    x.push_back(g.input(fmt::format("x{}", i), DType::F32, {100}));
  g.outputs.push_back(g.unary(Op::Cos, x[0]));
  for (std::size_t i = 1; i < kOutputs; ++i)
    g.outputs.push_back(g.binary(Op::Add, g.binary(Op::Mul, g.outputs.back(), x[i]), x[i - 1]));
  for (const Target& target : {cpu(), testing::test_gpu()}) {
    auto c = only_region(g, target);
    testing::take_over_operands(c.region);
    EXPECT_TRUE(
        std::ranges::all_of(c.region.outputs, [](const Output& o) { return o.alias >= 0; }));
    for (int vectors : {1, 4}) {
      const KernelProgram p = by_knobs(c, {{"vectors", vectors}}, target);
      EXPECT_TRUE(std::ranges::none_of(p.buffers, [](const Buffer& b) {
        return b.space == Space::Workspace;
      })) << "a result waits in memory";
      EXPECT_EQ(testing::run_and_compare(c, p, {.in_place = true}), "");
    }
  }
}

TEST(LoweringTest, BlocksAreTransposedInRegistersWithPartialBlocksAtTheEnds) {
  for (const Target& target : testing::test_targets())
    for (DType dtype : {DType::F32, DType::BF16})
      for (const auto& [m, n] :
           {std::pair<std::int64_t, std::int64_t>{64, 32}, {37, 53}, {3, 100}}) {
        const auto c = only_region(transposition(m, n, dtype), target);
        const KernelProgram p = by_knobs(c, {{"transpose", 1}}, target);
        int shuffles = 0;
        bool strided = false;
        each_statement(p.body, [&](const Stmt& s) {
          shuffles += int(made_by<inst::Shuffle>(s) != nullptr);
          if (const auto* load = made_by<inst::Load>(s)) {
            const Expr next =
                substitute(load->from.index, [](const Expr& v) -> std::optional<Expr> {
                  return lanes_of(v) ? std::optional(Expr(1)) : std::nullopt;
                });
            const Expr here =
                substitute(load->from.index, [](const Expr& v) -> std::optional<Expr> {
                  return lanes_of(v) ? std::optional(Expr(0)) : std::nullopt;
                });
            strided = strided || !proves_less_equal(next - here, Expr(1));
          }
        });
        EXPECT_GT(shuffles, 0);
        EXPECT_FALSE(strided) << print(p);
        EXPECT_EQ(testing::run_and_compare(c, p), "") << m << " x " << n;
      }
}

/// The value of an index for a thread, its lane and iterations at 0.
std::int64_t index_at(const Expr& index, std::int64_t thread, std::int64_t lane) {
  return substitute(index,
                    [&](const Expr& v) -> std::optional<Expr> {
                      if (threads_of(v))
                        return Expr(thread);
                      return lanes_of(v) ? Expr(lane) : Expr(0);
                    })
      .value();
}

TEST(LoweringTest, OfAnOperandThatIsReadBothWaysTheStridedLoadIsStaged) {
  Graph g;
  const NodeId x = g.input("x", DType::F32, {64, 64});
  g.outputs = {g.binary(Op::Add, x, g.permute(x, {1, 0}))};
  for (const Target& target : {cpu(), testing::test_gpu()}) {
    const auto c = testing::aligned_for(only_region(g, target), target);
    const KernelProgram p = by_knobs(c, {{"transpose", 1}}, target);
    each_statement(p.body, [&](const Stmt& s) {
      const auto* load = made_by<inst::Load>(s);
      if (!load || p.buffers[std::size_t(load->from.buffer)].space != Space::Argument)
        return;
      EXPECT_LE(index_at(load->from.index, 0, 1) - index_at(load->from.index, 0, 0), 1) << print(p);
      EXPECT_LE(index_at(load->from.index, 1, 0) - index_at(load->from.index, 0, 0), 4) << print(p);
    });
    EXPECT_EQ(testing::run_and_compare(c, p), "");
  }
}

TEST(LoweringTest, AWarpReadsAndWritesDifferentBanks) {
  const Target gpu = testing::test_gpu();
  for (DType dtype : {DType::F32, DType::BF16}) {
    const auto c = testing::aligned_for(only_region(transposition(256, 128, dtype), gpu), gpu);
    const KernelProgram p = by_knobs(c, {{"transpose", 1}, {"threads", 256}}, gpu);
    const auto size = std::int64_t(size_of(dtype));
    int accesses = 0;
    const auto check = [&](const Address& a, const char* what) {
      if (p.buffers[std::size_t(a.buffer)].space != Space::Shared)
        return;
      ++accesses;
      std::map<std::int64_t, std::set<std::int64_t>> words; // by bank
      for (std::int64_t thread = 0; thread < 32; ++thread) {
        const std::int64_t word = index_at(a.index, thread, 0) * size / 4;
        words[word % 32].insert(word);
      }
      for (const auto& [bank, asked] : words)
        EXPECT_LE(asked.size(), 4u) << what << ", bank " << bank << "\n" << print(p);
    };
    each_statement(p.body, [&](const Stmt& s) {
      if (const auto* load = made_by<inst::Load>(s))
        check(load->from, "load");
      if (const auto* store = get_if<Store>(s))
        check(store->to, "store");
    });
    EXPECT_GT(accesses, 1);
    EXPECT_EQ(testing::run_and_compare(c, p), "");
  }
}

/// Vectors whose lanes go to every n-th element, n of them side by side, are stored as whole ones.
TEST(Lowering, InterleavesStoresThatFillEachOthersGaps) {
  for (const DType dtype : {DType::F32, DType::BF16, DType::I8})
    for (const std::int64_t step : {2, 3, 4})
      for (const std::int64_t rest : {0, 1, 5}) { // 1: some vectors need no condition
        Graph g;
        const std::int64_t n = 4 * 16 * step - rest;
        const NodeId x = g.input("x", dtype, {n});
        g.outputs = {g.binary(Op::Add, x, x)};
        const testing::RegionCase c = only_region(g, cpu());
        const auto tree = [&](std::int64_t phases) {
          return fmt::format(
              "for(0,4,{},core,for(0,{},1,unroll,for(0,16,{},vector,mask(0,body(0)))))", 16 * step,
              phases, step);
        };
        const KernelProgram p = by_tree(c, tree(step), cpu());
        EXPECT_EQ(testing::run_and_compare(c, p), "") << print(p);
        int apart = 0, whole = 0;
        each_statement(p.body, [&](const Stmt& s) {
          if (const auto* store = get_if<Store>(s)) {
            const auto lane = coefficient_of(store->to.index, lane_variable(16));
            ASSERT_TRUE(lane.has_value());
            (*lane == Expr(1) ? whole : apart) += 1;
          }
        });
        EXPECT_EQ(apart, 0) << print(p);
        EXPECT_GE(whole, step) << print(p);
      }
}

/// Not where another access stands between them.
TEST(Lowering, LeavesStoresThatDoNotFillARow) {
  Graph g;
  const NodeId x = g.input("x", DType::F32, {64});
  g.outputs = {g.binary(Op::Add, x, x)};
  const testing::RegionCase c = only_region(g, cpu());
  const KernelProgram p =
      by_tree(c, "for(0,2,32,core,for(0,2,1,serial,for(0,16,2,vector,body(0))))", cpu());
  EXPECT_EQ(testing::run_and_compare(c, p), "") << print(p);
  each_statement(p.body, [&](const Stmt& s) {
    if (const auto* store = get_if<Store>(s)) {
      EXPECT_EQ(coefficient_of(store->to.index, lane_variable(16)), Expr(2)) << print(p);
    }
  });
}

} // namespace
} // namespace egret::kernel
