// Steps of unrolled loops that become one scan, and those that do not.
#include "compiler/resolve_slices.h"
#include "compiler/roll_recurrences.h"
#include "compiler/step_ends.h"

#include "egret/egret.h"
#include "egret/graph.h"
#include "egret/passes.h"
#include "support/equal_values.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

namespace egret::compiler {
namespace {

using Body = std::function<Tensor(std::int64_t step, const Tensor& before)>;

constexpr std::int64_t kSteps = 24;

/// The state behind each of so many steps.
std::vector<Tensor> loop(Tensor state, const Body& body, std::int64_t steps = kSteps) {
  std::vector<Tensor> states;
  for (std::int64_t i = 0; i < steps; ++i)
    states.push_back(state = body(i, state));
  return states;
}

ir::Graph graph_of(const std::function<void(egret::Graph&)>& make) {
  egret::Graph g;
  make(g);
  return passes::normalize()(resolve_slices(passes::normalize()(ir::parse_graph(g.text()))));
}

std::int64_t count(const ir::Graph& graph, Op op) {
  std::int64_t n = 0;
  for (ir::NodeId id = 0; id < graph.size(); ++id)
    n += graph[id].op == op;
  return n;
}

/// The rolled graph: so many linear scans, and not much else, however many steps there are.
ir::Graph rolled(const ir::Graph& graph, std::int64_t scans, std::size_t most = 60) {
  const ir::Graph result = passes::normalize()(roll_recurrences(graph));
  testing::expect_equal_values(graph, result);
  EXPECT_EQ(count(result, Op::ScanLinear), scans) << ir::print(result);
  EXPECT_LE(result.size(), most) << ir::print(result);
  return result;
}

Tensor line(egret::Graph& g, const char* name, Shape shape = {kSteps, 3, 5}) {
  return g.tensor(std::move(shape), DType::F32, name);
}

TEST(RollRecurrences, GatedStatesAreOneScan) {
  rolled(graph_of([](egret::Graph& g) {
           const Tensor x = line(g, "x"), gate = line(g, "gate");
           stack(loop(zeros({3, 5}),
                      [&](std::int64_t i, const Tensor& h) {
                        return sigmoid(gate.select(0, i)) * h + x.select(0, i);
                      }),
                 0)
               .retrieve();
         }),
         1);
}

TEST(RollRecurrences, StepsMayGoBackwardsAlongAnyAxisFromAnyState) {
  rolled(graph_of([](egret::Graph& g) {
           const Tensor x = line(g, "x", {3, kSteps, 5}), gate = line(g, "gate", {3, kSteps, 5}),
                        first = g.tensor({3, 5}, DType::F32, "first"),
                        keep = g.tensor({5}, DType::F32, "keep");
           std::vector<Tensor> states = loop(first, [&](std::int64_t i, const Tensor& h) {
             const std::int64_t at = kSteps - 1 - i;
             return tanh(x.select(1, at)) + h * (gate.select(1, at) * keep);
           });
           stack(std::vector<Tensor>(states.rbegin(), states.rend()), 1).retrieve();
           states.back().retrieve();
         }),
         1);
}

TEST(RollRecurrences, FactorsMayBeTheSameInAllSteps) {
  rolled(graph_of([](egret::Graph& g) {
           const Tensor x = line(g, "x"), keep = g.tensor({5}, DType::F32, "keep");
           stack(loop(g.tensor({3, 5}, DType::F32, "first"),
                      [&](std::int64_t i, const Tensor& h) {
                        return keep * h + (1 - keep) * x.select(0, i);
                      }),
                 0)
               .retrieve();
         }),
         1);
}

TEST(RollRecurrences, WhatStepsMakeOfTheirStatesIsMadeOfAllOfThem) {
  const ir::Graph graph = rolled(
      graph_of([](egret::Graph& g) { // the recurrence of a state space
        const Tensor x = line(g, "x", {2, kSteps, 4}), step = line(g, "step", {2, kSteps, 4}),
                     a = g.tensor({4, 3}, DType::F32, "a"), b = line(g, "b", {2, kSteps, 3}),
                     c = line(g, "c", {2, kSteps, 3});
        std::vector<Tensor> outputs;
        loop(zeros({2, 4, 3}), [&](std::int64_t i, const Tensor& h) {
          const Tensor dt = softplus(step.select(1, i));
          const Tensor next = exp(dt.unsqueeze(-1) * -exp(a)) * h +
                              (dt * x.select(1, i)).unsqueeze(-1) * b.select(1, i).unsqueeze(1);
          outputs.push_back((next * c.select(1, i).unsqueeze(1)).sum(-1));
          return next;
        });
        stack(outputs, 1).retrieve();
      }),
      1, 90);
  EXPECT_EQ(count(graph, Op::ReduceSum), 1);
}

TEST(RollRecurrences, GradientsAreScansTheOtherWay) {
  rolled(graph_of([](egret::Graph& g) {
           Tensor x = line(g, "x"), gate = line(g, "gate");
           x.set_requires_grad();
           gate.set_requires_grad();
           const Tensor loss =
               square(stack(loop(zeros({3, 5}),
                                 [&](std::int64_t i, const Tensor& h) {
                                   return sigmoid(gate.select(0, i)) * h + x.select(0, i);
                                 }),
                            0))
                   .sum();
           for (Tensor& d : grad(std::vector{loss}, std::vector{x, gate}))
             d.retrieve();
         }),
         2, 110);
}

TEST(RollRecurrences, SumsOfStepsAreReductions) {
  const auto total = [](bool all) {
    return graph_of([all](egret::Graph& g) {
      const Tensor x = line(g, "x"), w = line(g, "w");
      std::vector<Tensor> sums = loop(zeros({3, 5}), [&](std::int64_t i, const Tensor& s) {
        return s + tanh(x.select(0, i)) * w.select(0, i);
      });
      if (all)
        stack(sums, 0).retrieve();
      sums.back().retrieve();
    });
  };
  EXPECT_EQ(count(rolled(total(true), 0), Op::ScanSum), 1);
  const ir::Graph last = rolled(total(false), 0);
  EXPECT_EQ(count(last, Op::ScanSum), 0);
  EXPECT_EQ(count(last, Op::ReduceSum), 1);
}

TEST(RollRecurrences, APartMayStayAndMoveAtOnce) {
  rolled(graph_of([](egret::Graph& g) { // the first term is the factor of all steps
           const Tensor x = line(g, "x");
           stack(loop(g.tensor({3, 5}, DType::F32, "first"),
                      [&](std::int64_t i, const Tensor& h) {
                        return x.select(0, 0) * h + x.select(0, i);
                      }),
                 0)
               .retrieve();
         }),
         1);
}

TEST(RollRecurrences, WhatIsReadOnTheWayKeepsItsValue) {
  // The states are a run then, the values between them none.
  constexpr auto kFewest = static_cast<std::int64_t>(kLeastSteps);
  const ir::Graph graph = graph_of([](egret::Graph& g) {
    const Tensor x = line(g, "x"), w = line(g, "w");
    Tensor on_the_way;
    std::vector<Tensor> sums = loop(
        g.tensor({3, 5}, DType::F32, "first"),
        [&](std::int64_t i, const Tensor& s) {
          const Tensor half = s + x.select(0, i);
          if (i == 5)
            on_the_way = half;
          return half + w.select(0, i);
        },
        kFewest);
    sums.back().retrieve();
    on_the_way.retrieve();
  });
  const ir::Graph result = roll_recurrences(graph);
  testing::expect_equal_values(graph, result);
  EXPECT_EQ(count(result, Op::ScanSum), 1);
}

TEST(RollRecurrences, TermsThatComeTwiceCountTwice) {
  const ir::Graph graph = graph_of([](egret::Graph& g) {
    const Tensor x = line(g, "x");
    std::vector<Tensor> terms{tanh(x.select(0, 2))};
    for (std::int64_t i = 0; i < kSteps; ++i)
      terms.push_back(tanh(x.select(0, i)));
    while (terms.size() > 1) { // by pairs, so that no addition follows from the one before
      for (std::size_t i = 0; i + 1 < terms.size(); ++i) {
        terms[i] = terms[i] + terms[i + 1];
        terms.erase(terms.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      }
    }
    terms[0].retrieve();
  });
  const ir::Graph result = roll_recurrences(graph);
  testing::expect_equal_values(graph, result);
  EXPECT_EQ(count(result, Op::ReduceSum), 1);
}

TEST(RollRecurrences, StatesOfOneLoopMayFeedAnother) {
  rolled(graph_of([](egret::Graph& g) {
           const Tensor x = line(g, "x"), keep = g.tensor({5}, DType::F32, "keep");
           const auto smooth = [&](const std::function<Tensor(std::int64_t)>& input) {
             return loop(zeros({3, 5}),
                         [&](std::int64_t i, const Tensor& h) { return keep * h + input(i); });
           };
           const std::vector<Tensor> once = smooth([&](std::int64_t i) { return x.select(0, i); });
           stack(smooth([&](std::int64_t i) { return once[std::size_t(i)]; }), 0).retrieve();
         }),
         2);
}

/// Graphs that stay as they are.
void expect_unchanged(const std::function<void(egret::Graph&)>& make) {
  const ir::Graph graph = graph_of(make);
  EXPECT_EQ(ir::canonical_hash(roll_recurrences(graph)), ir::canonical_hash(graph));
}

TEST(RollRecurrences, OtherStepsStay) {
  const auto states = [](const Body& body, std::int64_t steps = kSteps) {
    return [=](egret::Graph& g) {
      stack(loop(g.tensor({3, 5}, DType::F32, "first"), body, steps), 0).retrieve();
    };
  };
  expect_unchanged([&](egret::Graph& g) { // not linear in the state
    const Tensor x = line(g, "x");
    states([&](std::int64_t i, const Tensor& h) { return tanh(h) + x.select(0, i); })(g);
  });
  expect_unchanged([&](egret::Graph& g) { // the factor is made of the state
    const Tensor x = line(g, "x");
    states([&](std::int64_t i, const Tensor& h) { return sigmoid(h) * h + x.select(0, i); })(g);
  });
  expect_unchanged([&](egret::Graph& g) { // steps that skip
    const Tensor x = line(g, "x", {64, 3, 5});
    states([&](std::int64_t i, const Tensor& h) { return h + x.select(0, i * i % 64); })(g);
  });
  expect_unchanged([&](egret::Graph& g) { // few
    const Tensor x = line(g, "x");
    states([&](std::int64_t i, const Tensor& h) { return h + x.select(0, i); }, 5)(g);
  });
}

} // namespace
} // namespace egret::compiler
