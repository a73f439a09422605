// Loops of alike steps: lazy ones are a few programs that are run again, whatever their length.
#include "egret/compile.h"
#include "egret/counters.h"
#include "egret/functional.h"
#include "egret/graph.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace egret {
namespace {

Tensor stepped_numbers(const Shape& shape, std::uint64_t seed) {
  Generator generator(seed);
  return (rand(shape, generator) - 0.5).eval();
}

Counters used_by(const std::function<void()>& run) {
  const Counters before = counters();
  run();
  return counters() - before;
}

Tensor symmetric(const Tensor& x) {
  return x + transpose(x);
}

// Boxes in two columns, of which neighbours overlap.
KeptBoxes kept(const Tensor& x) {
  const std::int64_t n = x.size(0);
  const Tensor corners = arange(n).to(DType::F32) % 2 * 10 + arange(n).to(DType::F32) * 0.3;
  const Tensor boxes = stack({corners, corners, corners + 1, corners + 1}, 1);
  return nms(boxes, x.select(1, 0), 0.2);
}

struct SteppedLoop {
  const char* name;
  std::function<Tensor(const Tensor&)> run;
  std::uint64_t groups; ///< of a matrix of 20 rows at the least
};
std::vector<SteppedLoop> loops() {
  return {{"eigh", [](const Tensor& x) { return linalg::eigh(symmetric(x)).vectors; }, 18},
          {"eigvalsh", [](const Tensor& x) { return linalg::eigvalsh(symmetric(x)); }, 18},
          {"svd", [](const Tensor& x) { return linalg::svd(x).u; }, 18},
          {"qr", [](const Tensor& x) { return linalg::qr(x).q; }, 4},
          {"nms", [](const Tensor& x) { return kept(x).indices; }, 3}};
}

TEST(Steps, LazyGroupsShareAProgram) {
  for (const SteppedLoop& loop : loops()) {
    const Tensor small = stepped_numbers({20, 20}, 1), large = stepped_numbers({36, 36}, 2);
    const Counters once = used_by([&] { loop.run(small).eval(); });
    EXPECT_GE(once.compiles + once.plan_hits, loop.groups) << loop.name;
    EXPECT_LE(once.compiles, 16u) << loop.name;
    const Counters longer = used_by([&] { loop.run(large).eval(); });
    EXPECT_LE(longer.compiles, once.compiles + 4) << loop.name << ": by groups, not by steps";
    EXPECT_EQ(used_by([&] { loop.run(small).eval(); }).compiles, 0u) << loop.name;
  }
}

TEST(Steps, TracedLoopsAreOneProgram) {
  for (const SteppedLoop& loop : loops()) {
    const Tensor x = stepped_numbers({12, 12}, 3);
    auto traced = compile(loop.run);
    Tensor y;
    EXPECT_EQ(used_by([&] { y = traced(x).eval(); }).compiles, 1u) << loop.name;
    EXPECT_LT(max(abs(y - loop.run(x))).item<double>(), 1e-4) << loop.name;
  }
}

// What is recorded of a graph's inputs has no value yet, so nothing can be computed between the
// steps.
TEST(Steps, GraphsRecordAllSteps) {
  const Tensor x = stepped_numbers({9, 9}, 4);
  Graph graph;
  auto in = graph.tensor({9, 9}).set(x);
  auto q = linalg::qr(in).q.retrieve();
  graph.execute();
  const std::vector<float> found = q.data(), expected = linalg::qr(x).q.to_vector();
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], 1e-5);
}

} // namespace
} // namespace egret
