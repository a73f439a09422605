// A large graph of equal layers: what a layer costs does not depend on how many there are.
#include "backend/reference/reference.h"
#include "egret/passes.h"
#include "saturate/saturate.h"
#include "support/llama_graph.h"
#include "support/random_graph.h"

#include <gtest/gtest.h>

#include <ctime>

namespace egret::testing {
namespace {

using saturate::Saturated;
using saturate::Tag;
using saturate::Tags;

const Tags kAll{Tag::Exact, Tag::Reassociates, Tag::Approximate, Tag::InferenceOnly};

ir::Graph llama(std::int64_t layers) {
  return passes::normalize()(llama_graph({.layers = layers}));
}

TEST(LlamaGraph, EachLayerAddsTheSame) {
  for (Tags tags : {Tags{Tag::Exact}, kAll}) {
    std::vector<std::size_t> nodes, classes;
    for (std::int64_t layers : {2, 4, 6, 8}) {
      const Saturated saturated(llama(layers), {.allowed = tags, .seconds = 100});
      EXPECT_TRUE(saturated.report().saturated) << saturated.report().stopped;
      nodes.push_back(saturated.report().nodes);
      classes.push_back(saturated.report().classes);
    }
    EXPECT_EQ(nodes[1] - nodes[0], nodes[3] - nodes[2]);
    EXPECT_EQ(nodes[2] - nodes[1], nodes[3] - nodes[2]);
    EXPECT_EQ(classes[1] - classes[0], classes[3] - classes[2]);
  }
}

TEST(LlamaGraph, ThirtyTwoLayersSaturate) {
  const ir::Graph graph = llama(32);
  const std::clock_t begin = std::clock(); // of the processor, which others may use, too
  Saturated saturated(graph, {.allowed = kAll, .seconds = 100});
  const ir::Graph best = saturated.extract().at(0);
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  EXPECT_TRUE(saturated.report().saturated);
  RecordProperty("milliseconds", static_cast<int>(seconds * 1e3));
}

TEST(LlamaGraph, ComputesTheSameWithAllRules) {
  const ir::Graph graph = llama(2);
  Saturated saturated(graph, {.allowed = kAll, .seconds = 100});
  const ir::Graph best = saturated.extract().at(0);
  auto inputs = random_inputs(graph, 1, {.special = false, .range = 1});
  const auto expected = backend::reference::expect(graph, inputs);
  const auto actual = backend::reference::execute(best, inputs);
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const auto result = backend::reference::compare(actual[i], expected[i], "output");
    EXPECT_TRUE(result.ok) << result.message;
  }
}

} // namespace
} // namespace egret::testing
