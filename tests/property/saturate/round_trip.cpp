// Graphs as terms and back, no rule run: the same values to the last bit, for every op.
#include "backend/reference/reference.h"
#include "saturate/terms.h"
#include "support/graph_runner.h"
#include "support/op_cases.h"
#include "support/random_graph.h"

#include <gtest/gtest.h>
#include <set>

namespace egret::testing {
namespace {

ir::Graph there_and_back(const ir::Graph& graph) {
  saturate::Terms terms;
  const auto roots = terms.add(graph);
  ir::Graph result = terms.graph_of(terms.egraph().extract(roots), graph);
  ir::verify(result);
  return result;
}

std::string changed_by_terms(const ir::Graph& graph, std::uint64_t seed) {
  const auto inputs = random_inputs(graph, seed);
  return changed(graph, there_and_back(graph), inputs);
}

TEST(Terms, RandomGraphsComeBackWithTheSameValues) {
  std::set<Op> seen;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const ir::Graph graph = random_graph(seed, {.symbolic = seed % 3 == 0});
    for (ir::NodeId id = 0; id < graph.size(); ++id)
      seen.insert(graph[id].op);
    ASSERT_EQ(changed_by_terms(graph, seed), "") << "seed " << seed;
  }
  for (int op = 0; op < kOps; ++op)
    EXPECT_TRUE(seen.contains(static_cast<Op>(op))) << info_of(static_cast<Op>(op)).name;
}

TEST(Terms, EveryOpInEveryLayoutComesBack) {
  for (const OpCase& c : op_cases({DType::F32, DType::BF16, DType::I32, DType::Bool}))
    ASSERT_EQ(changed_by_terms(c.graph, 1), "") << c.name;
}

// What the e-graph says of a class must hold for the values: its type, the number it holds, the
// dims along which it is constant.
TEST(Terms, AnalysesHold) {
  int numbers = 0, repeated = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    ir::Graph graph = random_graph(seed);
    graph.outputs.clear();
    for (ir::NodeId id = 0; id < graph.size(); ++id)
      graph.outputs.push_back(id);
    saturate::Terms terms;
    const auto roots = terms.add(graph);
    auto& e = terms.egraph();
    e.run(egraph::Plan::saturate({egraph::Plan::run(e.ruleset(saturate::kAnalysis))}));
    const auto values = backend::reference::execute(graph, random_inputs(graph, seed));
    for (ir::NodeId id = 0; id < graph.size(); ++id) {
      const auto& array = values[id];
      const egraph::Value root[] = {e.canonical(terms.tensor(), roots[id].value)};
      auto type = e.lookup(e.function("type"), root);
      ASSERT_TRUE(type) << print(graph) << id;
      EXPECT_EQ(e.to_string(*type),
                saturate::to_text(saturate::Type{graph[id].dtype, graph[id].shape}));
      if (auto value = e.lookup(e.function("value"), root)) {
        ++numbers;
        const Scalar scalar = terms.attributes().scalar(e.to_string(*value));
        for (std::int64_t i = 0; i < array.size(); ++i)
          ASSERT_TRUE(backend::reference::same(array.dtype, array.at(i),
                                               backend::reference::number_of(scalar)))
              << print(graph) << id;
      }
      const std::int64_t dep = e.to_i64(*e.lookup(e.function("dep"), root));
      backend::reference::for_each_point(array.dims, [&](const auto& point, std::int64_t number) {
        auto first = point;
        for (std::size_t i = 0; i < first.size(); ++i)
          if ((dep >> i & 1) == 0 && first[i] != 0)
            first[i] = 0, ++repeated;
        ASSERT_TRUE(backend::reference::same(
            array.dtype, array.at(number),
            array.at(backend::reference::number_of_point(array.dims, first))));
      });
    }
  }
  EXPECT_GT(numbers, 100);
  EXPECT_GT(repeated, 1000);
}

} // namespace
} // namespace egret::testing
