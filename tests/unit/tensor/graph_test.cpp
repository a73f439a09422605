// The explicit interface: build, compile by composed passes, execute.
#include "egret/graph.h"

#include "egret/counters.h"
#include "egret/functional.h"

#include "support/files.h"

#include <gtest/gtest.h>

#include <cmath>

namespace egret {
namespace {

using Floats = std::vector<float>;

TEST(Graph, BuildCompileExecuteRead) {
  Graph cx;
  auto a = cx.tensor({3, 1}).set({1, 2, 3});
  auto b = cx.tensor({1, 4}).set({1, 2, 3, 4});
  auto c = matmul(a, b).retrieve();
  cx.compile(Generic{} | Fusion{}, &c);
  cx.execute();
  EXPECT_EQ(c.data(), (Floats{1, 2, 3, 4, 2, 4, 6, 8, 3, 6, 9, 12}));
}

TEST(Graph, OnlyWhatIsRetrievedOrKeptSurvives) {
  constexpr std::int64_t n = 1 << 16;
  Graph cx;
  auto a = cx.tensor({n}).set(ones({n})), w = cx.tensor({n}).set(full({n}, 3.0)).keep();
  auto inner = exp(a * w), out = (inner + 1).retrieve();
  cx.execute();
  EXPECT_NEAR(out.data()[7], std::exp(3.0) + 1, 1e-4);
  EXPECT_THROW(inner.data(), Error);
  EXPECT_THROW(a.data(), Error); // used up
  EXPECT_EQ(w.data()[0], 3);
  EXPECT_THROW(cx.execute(), Error);
  a.set(zeros({n}));
  cx.execute();
  EXPECT_EQ(out.data()[7], 2);
}

TEST(Graph, PeakBytesShowThatTheRestIsGone) {
  constexpr std::uint64_t n = 1 << 16, bytes = 4 * n;
  Graph cx;
  auto x = cx.tensor({n});
  auto y = x;
  for (int i = 0; i < 6; ++i) // each step is a reduction, so that it cannot be one kernel
    y = y * y.sum() + 1;
  y.retrieve();
  cx.compile(Generic{} | Fusion{}, &y);
  const std::uint64_t before = counters().bytes_in_use;
  x.set(full({n}, 1e-6).eval());
  reset_peak_bytes();
  cx.execute();
  EXPECT_LE(counters().peak_bytes - before, 3 * bytes); // input, output, one in between at most
  EXPECT_LE(counters().bytes_in_use - before, bytes + 256);
}

TEST(Graph, MarkingMoreCompilesAnew) {
  Graph cx;
  auto a = cx.tensor({2}).set({1, 2}).keep();
  auto b = a + 1, c = b * 2;
  c.retrieve();
  cx.execute();
  EXPECT_EQ(c.data(), (Floats{4, 6}));
  b.retrieve();
  cx.execute();
  EXPECT_EQ(b.data(), (Floats{2, 3}));
  EXPECT_EQ(c.data(), (Floats{4, 6}));
}

TEST(Graph, PassesComposeRunInOrderAndReport) {
  Graph cx;
  auto a = cx.tensor({2}).set({1, 2}).keep();
  auto c = ((a * 1 + 0) * 2 + (a * 1) * 2).retrieve();
  int seen = 0;
  const Pass mine("count_muls", [&](const ir::Graph& graph, Notes& notes) {
    for (ir::NodeId id = 0; id < graph.size(); ++id)
      seen += graph[id].op == Op::Mul;
    notes.push_back("counted");
    return graph;
  });
  cx.compile(mine | Generic{} | mine | Fusion{}, &c);
  cx.execute();
  EXPECT_EQ(c.data(), (Floats{4, 8}));
  const std::string report = cx.report();
  EXPECT_LT(report.find("count_muls"), report.find("simplify"));
  EXPECT_NE(report.find("counted"), std::string::npos);
  EXPECT_GT(report.find("fusion"), report.find("simplify"));
  EXPECT_GT(seen, 0);
}

TEST(Graph, WithoutFusionEachOperationIsAKernel) {
  auto kernels = [](const Pass& passes) {
    Graph cx;
    auto a = cx.tensor({64}).set(ones({64}).eval());
    auto c = tanh(exp(a) + a).retrieve();
    cx.compile(passes, &c);
    const Counters before = counters();
    cx.execute();
    EXPECT_NEAR(c.data()[0], std::tanh(std::exp(1.0) + 1), 1e-5);
    return (counters() - before).kernels_launched;
  };
  EXPECT_EQ(kernels(Generic{} | Fusion{}), 1u);
  EXPECT_EQ(kernels(Generic{}), 3u);
}

TEST(Graph, ExecuteDebugTellsOfEveryOperation) {
  Graph cx;
  auto a = cx.tensor({3}).set({-1, 0, 4});
  auto c = (sqrt(a) * 2).sum().retrieve();
  const DebugReport report = cx.execute_debug();
  ASSERT_EQ(report.ops.size(), 3u);
  EXPECT_EQ(report.ops[0].op, "sqrt"); // in the order of the run
  EXPECT_EQ(report.ops[0].inputs, (std::vector<std::string>{"f32[3]"}));
  EXPECT_EQ(report.ops[0].shape, "f32[3]");
  EXPECT_EQ(report.ops[0].summary, "min 0 mean 1 max 2, 1 nan, 0 inf");
  EXPECT_EQ(report.ops[0].bytes, 24);
  EXPECT_EQ(report.ops[2].op, "sum");
  EXPECT_GT(report.of_ceiling(report.ops[0]), 0);
  const DebugReport sorted = report.slowest_first();
  for (std::size_t i = 1; i < sorted.ops.size(); ++i)
    EXPECT_GE(sorted.ops[i - 1].seconds, sorted.ops[i].seconds);
  EXPECT_TRUE(std::isnan(c.data()[0]));
  EXPECT_NE(report.text().find("total of 3; limits: "), std::string::npos) << report.text();
}

TEST(Graph, ExecuteDebugTellsOfEveryKernel) {
  Graph cx;
  auto a = cx.tensor({3}).set({1, 0, 4});
  auto c = (sqrt(a) * 2).retrieve();
  auto d = (a + 1).retrieve();
  cx.compile(Generic{} | Fusion{}, &c, &d);
  const DebugReport report = cx.execute_debug({.fused = true});
  ASSERT_EQ(report.ops.size(), 1u);
  EXPECT_EQ(report.ops[0].inputs, (std::vector<std::string>{"f32[3]"}));
  EXPECT_EQ(report.ops[0].shape, "f32[3] f32[3]");
  EXPECT_NE(report.ops[0].summary.find("min 0 mean 2 max 4, 0 nan, 0 inf"), std::string::npos)
      << report.ops[0].summary;
  EXPECT_EQ(report.seconds, report.ops[0].seconds);
  EXPECT_EQ(c.data(), (Floats{2, 0, 4}));
}

TEST(Graph, ValuesOfTwoRunsAreSavedAndCompared) {
  test::TempFolder folder;
  const auto run = [&](const char* name, const Pass& passes) {
    Graph cx;
    auto a = cx.tensor({3}, DType::F32, "a").set({1, 2, 3});
    auto c = (exp(a) * 2 + 1).retrieve();
    cx.compile(passes, &c);
    EXPECT_GE(cx.save_values((folder / name).string()), 2u);
    return c.to_vector();
  };
  const auto plain = run("plain", Generic{});
  EXPECT_EQ(run("fused", Generic{} | Fusion{}), plain);
  const auto difference = [&](const char* name) {
    return diff_values((folder / "plain").string(), (folder / name).string());
  };
  EXPECT_EQ(difference("fused").culprit, "none") << difference("fused").text;
  const pattern::Rewrite mistake{"exp_vanishes", pattern::node(Op::Exp, {pattern::any("x")}),
                                 [](ir::Graph&, const pattern::Match& m) { return m["x"]; }};
  EXPECT_NE(run("wrong", Pass(mistake)), plain);
  const ValueDifference found = difference("wrong");
  EXPECT_EQ(found.culprit, "graph") << found.text;
  EXPECT_GE(found.differing, 1u);
}

// The product of two matrices is one operation: its box of products would be a thousand times as
// large as the factors.
TEST(Graph, OpByOpAProductIsSummedAsItIsMade) {
  Graph cx;
  auto a = cx.tensor({96, 512}).set(full({96, 512}, 0.5).eval());
  auto b = cx.tensor({512, 80}).set(full({512, 80}, 2.0).eval());
  auto c = matmul(a, b).retrieve();
  cx.compile(Generic{}, &c);
  reset_peak_bytes();
  const Counters before = counters();
  const DebugReport report = cx.execute_debug();
  const Counters done = counters() - before;
  EXPECT_LE(done.peak_bytes - before.bytes_in_use, 4u * 4 * (96 * 512 + 512 * 80 + 96 * 80));
  EXPECT_LE(done.bytes_written, 2u * 4 * (96 * 512 + 512 * 80 + 96 * 80));
  EXPECT_EQ(c.to_vector(), std::vector<float>(96 * 80, 512.0f));
  for (const OpTrace& op : report.ops)
    EXPECT_NE(op.shape, "f32[96,80,512]") << op.op;
}

TEST(Graph, PlainTensorsJoinAsKeptInputs) {
  const Tensor w = tensor({10.0, 20.0});
  Graph cx;
  auto a = cx.tensor({2}).set({1, 2}).keep();
  auto c = (a * w).retrieve();
  cx.execute();
  cx.execute();
  EXPECT_EQ(c.data(), (Floats{10, 40}));
  EXPECT_NE(cx.text().find("mul"), std::string::npos);
  EXPECT_NE(cx.explain().find("kernels"), std::string::npos);
}

TEST(Graph, ARunNeverRepeatsADropoutMask) {
  Generator g(9), lazy(9);
  Graph cx;
  Tensor a = cx.tensor({64}).set(ones({64})).keep();
  Tensor d = dropout(a, 0.5, g).retrieve();
  std::vector<std::vector<float>> seen;
  for (int i = 0; i < 3; ++i) {
    cx.execute();
    seen.push_back(d.to_vector());
    EXPECT_EQ(seen.back(), dropout(ones({64}), 0.5, lazy).to_vector()) << i; // the generator's next
    EXPECT_EQ(g.counter.item<int>(), 64 * (i + 1));
  }
  EXPECT_NE(seen[0], seen[1]);
  EXPECT_NE(seen[1], seen[2]);
  cx.execute_debug();
  EXPECT_EQ(d.to_vector(), dropout(ones({64}), 0.5, lazy).to_vector());
  EXPECT_EQ(rand({8}, g).to_vector(), rand({8}, lazy).to_vector()); // numbers between the runs
  cx.execute();
  EXPECT_EQ(d.to_vector(), dropout(ones({64}), 0.5, lazy).to_vector());
  Tensor more = (d + 1).retrieve(); // compiled anew
  cx.execute();
  EXPECT_EQ(d.to_vector(), dropout(ones({64}), 0.5, lazy).to_vector());
}

TEST(Graph, SeveralDrawsOfOneRunAreApart) {
  Generator g(9);
  Graph cx;
  Tensor a = cx.tensor({64}).set(ones({64})).keep();
  Tensor one = dropout(a, 0.5, g).retrieve(), two = dropout(a, 0.5, g).retrieve();
  for (int i = 0; i < 3; ++i) {
    cx.execute();
    EXPECT_NE(one.to_vector(), two.to_vector());
    EXPECT_EQ(g.counter.item<int>(), 128 * (i + 1));
  }
}

TEST(Graph, MasksOfSizesThatDiffer) {
  Generator g(9), lazy(9);
  Graph cx;
  const Expr n = Expr::symbol("n", 1, 64);
  Tensor a = cx.tensor({n});
  Tensor d = dropout(a, 0.5, g).retrieve();
  for (std::int64_t size : {8, 64, 8}) {
    a.set(ones({size}));
    cx.execute();
    EXPECT_EQ(d.to_vector(), dropout(ones({size}), 0.5, lazy).to_vector()) << size;
  }
  EXPECT_EQ(g.counter.item<int>(), 80);
}

TEST(Graph, RandomNumbersThatSomebodyHoldsHaveOneValue) {
  Generator g(9);
  Graph cx;
  Tensor a = cx.tensor({16}).set(ones({16})).keep();
  const Tensor noise = rand({16}, g);
  Tensor sum = (a * noise).retrieve();
  for (int i = 0; i < 2; ++i) {
    cx.execute();
    EXPECT_EQ(sum.to_vector(), noise.to_vector());
  }
  EXPECT_EQ(g.counter.item<int>(), 16);
}

} // namespace
} // namespace egret
