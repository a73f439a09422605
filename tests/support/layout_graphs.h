// Random graphs whose values stand in random layouts, compared with the reference.
#pragma once

#include "backend/cpu/cpu_device.h"
#include "backend/reference/reference.h"
#include "compiler/search/moves.h"
#include "support/fusion_plans.h"
#include "support/plan_runner.h"
#include "support/random_graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fmt/format.h>

namespace egret::testing {

/// Graphs of seeds `first` to `first + count`, some of their values put into random orders for some
/// of their readers, some of their inputs taken for parameters.
class LayoutGraphs {
public:
  int kept = 0, copied = 0; ///< values, of all graphs

  void run(std::uint64_t first, std::uint64_t count) {
    for (std::uint64_t seed = first; seed < first + count; ++seed)
      check(seed);
  }

private:
  static kernel::Layout random_layout(const Shape& shape, Rng& random) {
    kernel::Layout layout;
    for (const Expr& extent : shape)
      layout.box.push_back(extent.value());
    std::vector<kernel::Digit> outer, inner;
    for (int axis = 0; axis < static_cast<int>(shape.size()); ++axis) {
      outer.push_back({axis, 0});
      if (random.chance(0.5))
        inner.push_back({axis, 1 + random.below(4)});
    }
    const auto shuffle = [&](std::vector<kernel::Digit>& digits) {
      for (std::size_t i = digits.size(); i > 1; --i)
        std::swap(digits[i - 1],
                  digits[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(i)))]);
    };
    shuffle(outer);
    shuffle(inner);
    layout.digits = outer;
    layout.digits.insert(layout.digits.end(), inner.begin(), inner.end());
    return layout;
  }

  static bool is_updated(const ir::Graph& g, const compiler::Use& use) {
    return info_of(g[use.reader].op).cls == OpClass::Scatter && use.operand == 0;
  }

  static std::vector<compiler::LayoutChange> draw(const compiler::GraphFacts& facts,
                                                  const std::vector<bool>& parameter, Rng& random) {
    std::vector<compiler::LayoutChange> changes;
    const ir::Graph& g = facts.graph();
    for (ir::NodeId id = 0; id < g.size(); ++id) {
      const auto known = [](const Expr& e) { return e.is_constant() && e.value() > 0; };
      const Shape& shape = g[id].shape;
      if (is_movement(g[id].op) || g[id].attrs.by_value || shape.empty() || !random.chance(0.4) ||
          !std::all_of(shape.begin(), shape.end(), known))
        continue;
      compiler::LayoutChange change{
          id, random_layout(shape, random), {}, parameter[id], "some order"};
      for (const compiler::Use& use : facts.uses(id))
        if (!is_updated(g, use) && random.chance(0.7))
          change.readers.push_back(use);
      if (!change.readers.empty())
        changes.push_back(std::move(change));
    }
    return changes;
  }

  void check(std::uint64_t seed) {
    namespace reference = backend::reference;
    const ir::Graph graph = random_graph(seed, {.ops = 16, .symbolic = seed % 4 == 0});
    const auto normal = compiler::normal_form(graph);
    const compiler::CandidateGraph& form = *normal;
    Rng random(seed);
    std::vector<bool> steady;
    for (std::size_t i = 0; i < graph.inputs().size(); ++i)
      steady.push_back(random.chance(0.5));
    const auto parameter = compiler::parameters_of(form.graph(), steady);
    const auto changes = draw(form.facts(), parameter, random);
    const compiler::LayoutAssignment assigned = compiler::with_layouts(form.facts(), changes);
    kept += static_cast<int>(assigned.report.size());
    copied += static_cast<int>(assigned.copies.size());
    const compiler::CandidateGraph laid(assigned.graph);

    const std::vector<reference::HostArray> inputs = random_inputs(graph, seed);
    std::vector<reference::HostArray> all = inputs, from;
    for (const std::size_t source : assigned.sources)
      from.push_back(inputs[source]);
    if (!assigned.fill.outputs.empty())
      for (reference::HostArray& array : reference::execute(assigned.fill, from))
        all.push_back(std::move(array));

    compiler::PartitionChoices choices;
    choices.stored.insert(assigned.copies.begin(), assigned.copies.end());
    const compiler::Compiled compiled = compile_fusion_plan(laid, choices, {}, *device_, cache_);
    const auto expected = reference::expect(graph, inputs);
    const auto actual = run_plan(compiled, assigned.graph, all, device_.get());
    for (std::size_t o = 0; o < actual.size(); ++o) {
      const auto result = reference::compare(actual[o], expected[o], fmt::format("output {}", o));
      EXPECT_TRUE(result.ok) << "seed " << seed << ": " << result.message << "\n"
                             << ir::print(graph) << "became\n"
                             << ir::print(assigned.graph);
    }
  }

  std::unique_ptr<backend::Device> device_ = backend::cpu::make_cpu_device(2);
  compiler::KernelCache cache_;
};

} // namespace egret::testing
