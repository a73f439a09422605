#include "compiler/compile.h"

#include "compiler/chunks.h"
#include "compiler/describe.h"
#include "compiler/pipeline.h"
#include "compiler/recompute.h"
#include "compiler/search/fusion_plans.h"
#include "egret/passes.h"
#include "saturate/saturate.h"
#include "support/fail.h"
#include "support/sizes.h"

#include <algorithm>
#include <fmt/format.h>
#include <future>
#include <set>
#include <variant>
#include <vector>

namespace egret::compiler {

namespace {

/// What an identity of a view is a view of.
ir::NodeId source_of(const ir::Graph& graph, ir::NodeId id) {
  id = graph[id].inputs[0];
  while (is_movement(graph[id].op))
    id = graph[id].inputs[0];
  return id;
}

/// Which kernels store or convert a value in another layout.
std::vector<std::string> lines_of(const LayoutAssignment& assigned, const CompileReport& report) {
  std::vector<std::string> lines;
  for (const ir::NodeId id : assigned.copies)
    for (std::size_t k = 0; k < report.kernels.size(); ++k) {
      const std::vector<ir::NodeId>& nodes = report.kernels[k].nodes;
      if (std::find(nodes.begin(), nodes.end(), id) == nodes.end())
        continue;
      const ir::Node& node = report.graph[id];
      std::string line = fmt::format("layout: %{} is %{} as {}, ", id, source_of(report.graph, id),
                                     to_string(node.shape));
      line += nodes.size() > 1 ? fmt::format("stored so by kernel {}", k)
                               : fmt::format("converted by kernel {}", k);
      if (std::find(lines.begin(), lines.end(), line) == lines.end())
        lines.push_back(std::move(line));
    }
  return lines;
}

/// What is compiled, and with what.
struct Request {
  const ir::Graph& graph;
  const Options& options;
  backend::Device& device;
  KernelCache& cache;
};

/// Nodes of a graph whose passes take longer than a thread takes to begin.
constexpr std::size_t kLargeGraph = 512;

/// A graph as fusion plans start from it.
struct Prepared {
  CandidateGraphs::value_type candidate;
  std::uint64_t hash = 0; ///< of its normal form
  std::vector<PassTime> times;
};

/// The cheapest graph that rules extracted, the one that they were given, and other cheap ones:
/// what is less work by itself may be cut into worse kernels. In normal form, each once.
CandidateGraphs candidates_in(const Compilation& program) {
  std::vector<const ir::Graph*> graphs;
  for (const ir::Graph& graph : program.extracted)
    graphs.push_back(&graph);
  if (!program.saturated)
    graphs = {&program.graph};
  else if (program.saturated->is_rewritten())
    graphs.insert(graphs.begin() + 1, &program.graph);
  const auto prepared = [&](std::size_t i) {
    Prepared made;
    Compilation one(program.options, program.target);
    one.times = program.times ? &made.times : nullptr;
    if (graphs.size() > 1)
      one.fusion_plan = fmt::format("graph {} of {}", i + 1, graphs.size());
    one.graph = *graphs[i];
    run_phase(one, Phase::Graph);
    // Inputs that the caller binds keep their slots, whether used or not.
    ensure(one.candidate->graph().inputs().size() == graphs[i]->inputs().size() &&
               one.candidate->graph().outputs.size() == graphs[i]->outputs.size(),
           "compile: the normal form has another number of inputs or outputs");
    made.hash = ir::canonical_hash(one.candidate->graph());
    made.candidate = std::move(one.candidate);
    return made;
  };
  const auto policy =
      graphs[0]->size() >= kLargeGraph ? launch_beside(program.options) : std::launch::deferred;
  std::vector<std::future<Prepared>> others;
  for (std::size_t i = 1; i < graphs.size(); ++i)
    others.push_back(std::async(policy, prepared, i));
  std::set<std::uint64_t> seen;
  CandidateGraphs candidates;
  for (std::size_t i = 0; i < graphs.size(); ++i) {
    Prepared made = i == 0 ? prepared(0) : others[i - 1].get();
    if (seen.insert(made.hash).second)
      candidates.push_back(std::move(made.candidate));
    if (program.times)
      add_times(*program.times, made.times);
  }
  return candidates;
}

Compiled finished(const Request& request, const Compilation& program, FusionPlan plan,
                  CompileReport report) {
  if (program.saturated) {
    report.saturation = program.saturated->report();
    report.ops_before_rules = program.ops_before_rules;
    report.ops_extracted = plan.compilation.candidate->ops();
  }
  const std::shared_ptr<const LayoutAssignment> layouts = plan.compilation.layouts;
  Compiled compiled = compiled_of(std::move(plan.compilation), std::move(report));
  if (program.folded || layouts) {
    compiled.derivation = std::make_shared<const ParameterFolding>(
        compose(request.graph.inputs().size(), program.folded ? &*program.folded : nullptr,
                layouts.get(), compiled.report.graph));
    compiled.report.derived = compiled.derivation->report;
  }
  if (layouts)
    compiled.report.layouts = lines_of(*layouts, compiled.report);
  return compiled;
}

/// All phases of the pipeline, the later ones in a search over fusion plans. `split`: a product
/// that is made in chunks.
std::variant<Compiled, OverLimit> compile_once(const Request& request, const Options& options,
                                               const std::optional<ProductSplit>& split = {}) {
  CompileReport report;
  report.ops_recorded = request.graph.size();
  std::vector<PassTime> times;
  Compilation program(options, request.device.target());
  program.times = &times;
  program.graph = request.graph;
  program.split = split;
  run_phase(program, Phase::Program);
  const ir::Graph recorded = program.graph; // by which a search remembers what it chose
  run_phase(program, Phase::Rules);
  FusionPlanSearch search(recorded, candidates_in(program), program.options, request.device,
                          request.cache, &times);
  FusionPlan plan = search.run();
  if (plan.compilation.over_limit)
    return *plan.compilation.over_limit;
  Compiled compiled = finished(request, program, std::move(plan), std::move(report));
  compiled.report.passes = std::move(times);
  return compiled;
}

std::string described(const ir::Graph& graph, const ProductSplit& cut) {
  const ir::Node& product = graph[cut.product];
  return fmt::format("a product {}{} is made in {} chunks along axis {}", name_of(product.dtype),
                     to_string(product.shape), cut.chunks, cut.dim);
}

/// Ways to split products that are so large that they fill the memory, those with fewer chunks
/// first.
std::vector<ProductSplit> splits_of(const ir::Graph& simple, const OverLimit& whole) {
  std::vector<ProductSplit> cuts = possible_splits(simple, static_cast<double>(whole.least) / 8);
  std::erase_if(
      cuts, [&](const ProductSplit& cut) { return !split_into_chunks(simple, cut).has_value(); });
  return cuts;
}

/// With a large product in chunks, where the limit can be met so. `whole`: what is needed without.
Compiled compile_in_chunks(const Request& request, const ir::Graph& simple,
                           const std::vector<ProductSplit>& splits, const OverLimit& whole) {
  std::int64_t least = whole.least;
  for (const ProductSplit& split : splits) {
    Options greedy = request.options; // a search only where the greedy schedules meet the limit
    greedy.effort = Effort::None;
    auto attempt = compile_once(request, greedy, split);
    if (const auto* over = std::get_if<OverLimit>(&attempt)) {
      least = std::min(least, over->least);
      continue;
    }
    if (request.options.effort.value_or(Effort::None) != Effort::None)
      if (auto searched = compile_once(request, request.options, split);
          std::holds_alternative<Compiled>(searched))
        attempt = std::move(searched);
    Compiled compiled = std::get<Compiled>(std::move(attempt));
    compiled.report.memory->before = whole.plain;
    compiled.report.memory->chunks = described(simple, split);
    return compiled;
  }
  throw LimitError(*request.options.memory_limit, least, whole.plain);
}

} // namespace

Compiled compile_graph(const ir::Graph& graph, const Options& options, backend::Device& device,
                       KernelCache& cache) {
  if (options.memory_limit)
    checked_bytes(*options.memory_limit, "compile: memory_limit");
  const Request request{graph, options, device, cache};
  auto whole = compile_once(request, options);
  if (auto* compiled = std::get_if<Compiled>(&whole))
    return std::move(*compiled);
  const OverLimit over = std::get<OverLimit>(whole);
  if (!options.fuse)
    throw LimitError(*options.memory_limit, over.least, over.plain);
  const ir::Graph simple = passes::normalize()(graph);
  const std::vector<ProductSplit> splits = splits_of(simple, over);
  if (options.chosen_rules().allowed.has(RuleTag::Reassociates))
    return compile_in_chunks(request, simple, splits, over);
  throw LimitError(*options.memory_limit, over.least, over.plain,
                   splits.empty() ? ""
                                  : "; with a product in chunks it may be less, where sums may be "
                                    "made in another order (reassociates)");
}

} // namespace egret::compiler
