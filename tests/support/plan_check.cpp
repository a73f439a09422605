#include "support/plan_check.h"

#include "kernel/families.h"
#include "support/plan_runner.h"

#include <fmt/format.h>

namespace egret::testing {

using backend::reference::Expected;
using backend::reference::HostArray;

PlanCheck check_plan(const ir::Graph& graph, std::vector<HostArray> inputs,
                     std::span<const Expected> expected, const PlanCheckOptions& options,
                     backend::Device& device, compiler::KernelCache& cache) {
  PlanCheck check;
  try {
    compiler::Compiled compiled = compiler::compile_graph(graph, options.compile, device, cache);
    const auto actual = run_plan(compiled, graph, inputs, options.interpret ? nullptr : &device);
    check.report = std::move(compiled.report);
    for (std::size_t o = 0; o < actual.size(); ++o) {
      const auto result = backend::reference::compare(actual[o], expected[o],
                                                      fmt::format("output {}", o), options.compare);
      check.checked += result.checked;
      check.vacuous += result.vacuous;
      if (!result.ok && check.problem.empty())
        check.problem = result.message;
    }
  } catch (const std::exception& e) {
    check.problem = e.what();
  }
  return check;
}

PlanCheck check_plan(const ir::Graph& graph, std::uint64_t seed, const PlanCheckOptions& options,
                     backend::Device& device, compiler::KernelCache& cache) {
  const std::vector<HostArray> inputs = random_inputs(graph, seed, options.inputs);
  const std::vector<Expected> expected = backend::reference::expect(graph, inputs);
  return check_plan(graph, inputs, expected, options, device, cache);
}

std::vector<const kernel::Generator*> reachable_generators(const kernel::Target& target) {
  const auto all = kernel::generators(target);
  std::vector<const kernel::Generator*> reachable(all.begin(), all.end());
  std::erase(reachable, &kernel::stream_generator());
  std::erase(reachable, &kernel::loops_generator()); // proposes nothing by itself
  // Its counters of each worker are worth their memory from thousands of updates on, which is more
  // than these graphs have; tests/property/kernel/scatters.cpp checks it.
  std::erase(reachable, &kernel::scatter_generator());
  return reachable;
}

} // namespace egret::testing
