// Composition of passes, their reports, and what each of them does.
#include "egret/passes.h"

#include "backend/reference/reference.h"

#include <gtest/gtest.h>

#include <cmath>

namespace egret {
namespace {

using backend::reference::HostArray;
using ir::Graph;
using ir::NodeId;

Graph parsed(const std::string& text) {
  return ir::parse_graph(text);
}

TEST(Pass, RunsInOrderAndReportsWhatEachChanged) {
  Graph g = parsed(R"(
    %x: f32[4] = input "x"
    %unused: f32[4] = exp(%x)
    %minus: f32[] = const -1
    %m1: f32[1] = reshape(%minus)
    %m: f32[4] = expand(%m1)
    %n: f32[4] = mul(%x, %m)
    %y: f32[4] = mul(%n, %m)
    %z: f32[4] = sqrt(%y)
    outputs %z
  )");
  Pass both = passes::dead_code() | passes::simplify();
  EXPECT_EQ(both.name(), "dead_code | simplify");
  std::vector<PassReport> reports;
  Graph after = both(g, &reports);
  EXPECT_EQ(print(after), "%0: f32[4] = input \"x\"\n%1: f32[4] = sqrt(%0)\noutputs %1\n");
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0].nodes_before, 8u);
  EXPECT_EQ(reports[0].nodes_after, 7u);
  EXPECT_EQ(reports[1].text(),
            "simplify: 7 -> 2 nodes\n"
            "  (x * c) * d = x * (c * d) (integers; floats where c or d is 1 or -1): 1\n"
            "  x * 1 = x: 1\n");
  EXPECT_EQ(reports[1].changed, true);
  reports.clear();
  both(after, &reports);
  EXPECT_FALSE(reports[0].changed);
  EXPECT_FALSE(reports[1].changed);
  EXPECT_EQ(reports[1].text(), "simplify: 2 -> 2 nodes, unchanged\n");
}

TEST(Pass, AUsersOwnPassJoins) {
  int calls = 0;
  Pass mine("count_exp", [&calls](const Graph& g, Notes& notes) {
    ++calls;
    int n = 0;
    for (NodeId id = 0; id < g.size(); ++id)
      n += g[id].op == Op::Exp;
    notes.push_back("exp: " + std::to_string(n));
    return g;
  });
  Graph g = parsed("%0: f32[2] = input \"x\"\n%1: f32[2] = exp(%0)\noutputs %1\n");
  std::vector<PassReport> reports;
  (passes::simplify() | mine | passes::dead_code() | mine)(g, &reports);
  EXPECT_EQ(calls, 2);
  ASSERT_EQ(reports.size(), 4u);
  EXPECT_EQ(reports[1].pass, "count_exp");
  EXPECT_EQ(reports[1].notes, Notes{"exp: 1"});
  EXPECT_FALSE(reports[1].changed);
}

TEST(Pass, ARewriteIsAPass) {
  using namespace pattern;
  Pass rule(Rewrite{"exp_of_log", node(Op::Exp, {node(Op::Log, {any("x")})}),
                    [](Graph&, const Match& m) { return m["x"]; }});
  Graph g = parsed("%0: f32[2] = input \"x\"\n%1: f32[2] = log(%0)\n%2: f32[2] = exp(%1)\n"
                   "%3: f32[2] = log(%2)\n%4: f32[2] = exp(%3)\noutputs %4\n");
  std::vector<PassReport> reports;
  Graph after = (rule | passes::dead_code())(g, &reports);
  EXPECT_EQ(after.size(), 1u);
  EXPECT_EQ(reports[0].notes, Notes{"exp_of_log: 2"});
}

TEST(Passes, FoldingGivesTheTablesValues) {
  Graph g = parsed(R"(
    %x: i32[4] = input "x"
    %seven: i32[] = const 7
    %s: i32[1] = reshape(%seven)
    %sevens: i32[4] = expand(%s)
    %zeros: i32[4] = xor(%sevens, %sevens)
    %d: i32[4] = idiv(%sevens, %zeros)
    %sum: i32[] = sum(%sevens) axes=[0]
    %t: i32[1] = reshape(%sum)
    %ts: i32[4] = expand(%t)
    %u: i32[4] = add(%ts, %d)
    %v: i32[4] = mul(%x, %u)
    outputs %v
  )");
  EXPECT_EQ(print(passes::fold_constants()(g)),
            "%0: i32[4] = input \"x\"\n%1: i32[] = const 28\n%2: i32[1] = reshape(%1)\n"
            "%3: i32[4] = expand(%2)\n%4: i32[4] = mul(%0, %3)\noutputs %4\n");
}

TEST(Passes, FoldingSeesThroughMovements) {
  auto folded = [](const std::string& last) {
    return print(passes::fold_constants()(
        parsed("%c: f32[] = const 2\n%r: f32[1,1] = reshape(%c)\n%e: f32[2,3] = expand(%r)\n" +
               last + "\noutputs %y\n")));
  };
  std::string twos = "%0: f32[] = const 2\n%1: f32[1,1] = reshape(%0)\n%2: f32[3,2] = expand(%1)\n"
                     "outputs %2\n";
  EXPECT_EQ(folded("%y: f32[3,2] = permute(%e) axes=[1,0]"), twos);
  EXPECT_EQ(folded("%y: f32[3,2] = reshape(%e)"), twos);
  EXPECT_EQ(folded("%s: f32[2,2] = shrink(%e) begin=[0,1] end=[2,3]\n"
                   "%y: f32[3,2] = pad(%s) before=[1,0] after=[0,0] fill=2"),
            twos);
  EXPECT_NE(folded("%s: f32[2,2] = shrink(%e) begin=[0,1] end=[2,3]\n"
                   "%y: f32[3,2] = pad(%s) before=[1,0] after=[0,0] fill=3"),
            twos);
}

TEST(Passes, FoldingLeavesSumsOfFloatsWhoseRoundingDependsOnTheOrder) {
  std::string text = "%0: f32[] = const 0.1\n%1: f32[1] = reshape(%0)\n%2: f32[1000] = expand(%1)\n"
                     "%3: f32[] = sum(%2) axes=[0]\noutputs %3\n";
  EXPECT_EQ(print(passes::fold_constants()(parsed(text))), text);
}

TEST(Passes, FoldingOfEmptyTensorsAndReductions) {
  Graph g = parsed(R"(
    %x: f32[0,3] = input "x"
    %e: f32[0,3] = exp(%x)
    %top: f32[3] = amax(%x) axes=[0]
    outputs %e, %top
  )");
  EXPECT_EQ(print(passes::fold_constants()(g)),
            "%0: f32[0,3] = input \"x\"\n%1: f32[] = const 0\n%2: f32[1,1] = reshape(%1)\n"
            "%3: f32[0,3] = expand(%2)\n%4: f32[] = const -inf\n%5: f32[1] = reshape(%4)\n"
            "%6: f32[3] = expand(%5)\noutputs %3, %6\n");
}

TEST(Passes, AMaxOverASymbolicDimThatMayBeEmptyIsNotFolded) {
  auto text = [](const char* name, const char* low) {
    return std::string("dim ") + name + " in " + low + "..8\n%0: f32[" + name +
           "] = input \"x\"\n%1: f32[] = const 3\n%2: f32[1] = reshape(%1)\n%3: f32[" + name +
           "] = expand(%2)\n%4: f32[] = amax(%3) axes=[0]\noutputs %4\n";
  };
  EXPECT_EQ(passes::fold_constants()(parsed(text("empty_or_not", "0"))).size(), 5u);
  EXPECT_EQ(passes::fold_constants()(parsed(text("never_empty", "1"))).size(), 2u);
}

TEST(Passes, MarkersAreDroppedOnlyByTheirOwnPass) {
  std::string text = "%0: f32[2] = input \"x\"\n%1: f32[2] = stop_gradient(%0)\noutputs %1\n";
  EXPECT_EQ(print(passes::simplify()(parsed(text))), text);
  EXPECT_EQ(passes::drop_markers()(parsed(text)).size(), 1u);
  EXPECT_EQ(passes::normalize()(parsed(text)).size(), 1u);
}

TEST(Passes, NormalizeReportsItsSteps) {
  std::vector<PassReport> reports;
  passes::normalize()(parsed("%0: f32[] = const 2\n%1: f32[] = exp(%0)\noutputs %1\n"), &reports);
  ASSERT_EQ(reports.size(), 3u);
  EXPECT_EQ(reports[0].pass, "drop_markers");
  EXPECT_EQ(reports[1].pass, "fold_and_simplify");
  EXPECT_EQ(reports[1].notes, Notes{"known values: 1"});
  EXPECT_EQ(reports[2].pass, "dead_code");
}

class Decomposition : public ::testing::TestWithParam<Op> {};

TEST_P(Decomposition, UsesPrimitivesOnlyAndIsCloseWhereTheFunctionIsTame) {
  for (DType type : {DType::F32, DType::F64, DType::BF16, DType::F16}) {
    Graph g;
    g.outputs = {g.unary(GetParam(), g.input("x", type, {8}))};
    std::vector<PassReport> reports;
    Graph after = passes::decompose_intrinsics()(g, &reports);
    EXPECT_TRUE(reports[0].approximate);
    EXPECT_EQ(reports[0].notes.size(), 1u);
    for (NodeId id = 0; id < after.size(); ++id)
      EXPECT_FALSE(info_of(after[id].op).intrinsic) << info_of(after[id].op).name;
    std::vector<HostArray> in{HostArray(type, {8}, {0.1, 0.25, 0.5, 1, 1.5, 2, 3, 4})};
    auto wanted = backend::reference::execute(g, in)[0].doubles();
    auto got = backend::reference::execute(after, in)[0].doubles();
    double tolerance = type == DType::F64 ? 5e-7 : type == DType::F32 ? 2e-6 : 1e-2;
    for (std::size_t i = 0; i < wanted.size(); ++i)
      EXPECT_NEAR(got[i], wanted[i], tolerance * std::max(1.0, std::fabs(wanted[i])))
          << info_of(GetParam()).name << " in " << name_of(type);
  }
}

std::vector<Op> intrinsics() {
  std::vector<Op> result;
  for (int i = 0; i < kOps; ++i)
    if (info_of(static_cast<Op>(i)).intrinsic)
      result.push_back(static_cast<Op>(i));
  return result;
}

INSTANTIATE_TEST_SUITE_P(OfTheTable, Decomposition, ::testing::ValuesIn(intrinsics()),
                         [](const auto& info) { return std::string(info_of(info.param).name); });

} // namespace
} // namespace egret
