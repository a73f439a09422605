// A graph through the whole compiler, its results compared with the reference's.
#pragma once

#include "backend/reference/reference.h"
#include "compiler/compile.h"
#include "kernel/generator.h"
#include "support/random_graph.h"

#include <span>
#include <string>
#include <vector>

namespace egret::testing {

struct PlanCheck {
  std::string problem; ///< empty when right; else the first wrong element, or what was thrown
  compiler::CompileReport report;
  std::int64_t checked = 0; ///< elements
  std::int64_t vacuous = 0; ///< those of them of which nothing could be said
};

struct PlanCheckOptions {
  compiler::Options compile;
  RandomInputOptions inputs;
  bool interpret = false; ///< launches go through the interpreter
  backend::reference::CompareOptions compare;
};

/// `inputs` by slot; `expected`: what the reference expects of them.
PlanCheck check_plan(const ir::Graph& graph, std::vector<backend::reference::HostArray> inputs,
                     std::span<const backend::reference::Expected> expected,
                     const PlanCheckOptions& options, backend::Device& device,
                     compiler::KernelCache& cache);
/// Inputs are drawn by `seed`.
PlanCheck check_plan(const ir::Graph& graph, std::uint64_t seed, const PlanCheckOptions& options,
                     backend::Device& device, compiler::KernelCache& cache);

/// The generators whose kernels random graphs reach: not those of products larger than a cache
/// (tests/property/streams) and of scatters with many updates (tests/property/kernel/scatters.cpp).
std::vector<const kernel::Generator*> reachable_generators(const kernel::Target& target);

} // namespace egret::testing
