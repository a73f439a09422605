// Scatters of one value that follow each other become one scatter with the same results.
#include "compiler/join_scatters.h"

#include "backend/reference/compare.h"
#include "backend/reference/reference.h"
#include "kernel/scatter_form.h"
#include "support/random_graph.h"
#include "support/region_runner.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace egret::compiler {
namespace {

using ir::Graph;
using ir::NodeId;

std::int64_t scatters_of(const Graph& g) {
  std::int64_t count = 0;
  for (NodeId id = 0; id < g.size(); ++id)
    count += info_of(g[id].op).cls == OpClass::Scatter;
  return count;
}

/// Scatters of f32 [3,7,2] along its second axis, one after the other.
struct ScatterChain {
  Graph g;
  NodeId sum;

  ScatterChain() : sum(g.input("data", DType::F32, {3, 7, 2})) {}

  NodeId add(Op op = Op::ScatterAdd, const Shape& index = {4, 5}, std::int64_t axis = 1) {
    Shape updates = g[sum].shape;
    updates.erase(updates.begin() + axis);
    updates.insert(updates.begin() + axis, index.begin(), index.end());
    const NodeId at = g.binary(Op::And, g.input("index", DType::I32, index),
                               g.broadcast(g.constant(DType::I32, 7.0), index));
    return sum = g.scatter(op, sum, at, g.input("updates", DType::F32, updates), axis);
  }
  Graph joined() {
    g.outputs.push_back(sum);
    return join_scatters(g, testing::test_gpu());
  }
};

TEST(JoinScatters, KeepTheOrderOfUpdates) {
  for (const Op op : {Op::ScatterAdd, Op::ScatterMax, Op::ScatterSet}) {
    ScatterChain chain;
    for (int i = 0; i < 3; ++i)
      chain.add(op);
    const Graph joined = chain.joined();
    EXPECT_EQ(scatters_of(joined), 1);
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      const auto inputs = testing::random_inputs(chain.g, seed, {});
      const auto result = backend::reference::execute(joined, inputs)[0];
      const auto expected = backend::reference::expect(chain.g, inputs)[0];
      const auto compared = backend::reference::compare(result, expected, "sum");
      EXPECT_TRUE(compared.ok) << compared.message;
      if (op != Op::ScatterAdd) { // whose sums are rounded once
        EXPECT_EQ(result.bytes, backend::reference::execute(chain.g, inputs)[0].bytes)
            << info_of(op).name << " seed " << seed;
      }
    }
  }
}

TEST(JoinScatters, LeaveWhatIsReadBetween) {
  ScatterChain chain;
  const NodeId first = chain.add();
  chain.add();
  chain.g.outputs = {chain.g.unary(Op::Exp, first)};
  EXPECT_EQ(scatters_of(chain.joined()), 2);
  ScatterChain stored;
  stored.g.outputs = {stored.add()};
  stored.add();
  EXPECT_EQ(scatters_of(stored.joined()), 2);
}

TEST(JoinScatters, LeaveThoseOfOtherKinds) {
  ScatterChain ops;
  ops.add(Op::ScatterAdd);
  ops.add(Op::ScatterMax);
  EXPECT_EQ(scatters_of(ops.joined()), 2);
  ScatterChain shapes;
  shapes.add(Op::ScatterAdd, {4, 5});
  shapes.add(Op::ScatterAdd, {20});
  EXPECT_EQ(scatters_of(shapes.joined()), 2);
  ScatterChain axes;
  axes.add(Op::ScatterAdd, {4}, 1);
  axes.add(Op::ScatterAdd, {4}, 0);
  EXPECT_EQ(scatters_of(axes.joined()), 2);
}

TEST(JoinScatters, LeaveThoseOfACpu) {
  ScatterChain chain;
  chain.add();
  chain.add();
  chain.g.outputs = {chain.sum};
  EXPECT_EQ(scatters_of(join_scatters(chain.g, testing::test_targets()[0])), 2);
}

/// Code for one place of the joined scatters reads the values of that place alone.
TEST(JoinScatters, AreChoicesByAnAxisOfTheUpdates) {
  ScatterChain chain;
  for (int i = 0; i < 4; ++i)
    chain.add();
  const kernel::Target gpu = testing::test_gpu();
  int found = 0;
  for (const kernel::Region& region : testing::regions_of(chain.joined(), gpu))
    if (const auto form = kernel::scatter_form(region)) {
      ++found;
      ASSERT_GE(form->choice, 0);
      EXPECT_EQ(region.axes[std::size_t(form->choice)].extent, Expr(4));
    }
  EXPECT_EQ(found, 1);
}

} // namespace
} // namespace egret::compiler
