#include "compiler/compile.h"

#include "compiler/chunks.h"
#include "compiler/derive.h"
#include "compiler/recompute.h"
#include "compiler/search/divisions.h"
#include "egret/passes.h"
#include "saturate/saturate.h"
#include "support/sizes.h"

#include <algorithm>
#include <fmt/format.h>
#include <span>

namespace egret::compiler {

namespace {

/// Forms that are cut into kernels, where several may be.
constexpr std::size_t kForms = 3;

/// What an identity of a view is a view of.
ir::NodeId source_of(const ir::Graph& graph, ir::NodeId id) {
  id = graph[id].inputs[0];
  while (is_movement(graph[id].op))
    id = graph[id].inputs[0];
  return id;
}

/// The cheapest graphs that the rules find for it, the best one first.
std::vector<ir::Graph> rewritten(const ir::Graph& graph, const Options& options, StageClock& stage,
                                 CompileReport& report) {
  const ir::Graph simple = stage("simplify", [&] { return passes::normalize()(graph); });
  saturate::Saturated saturated =
      stage("saturate", [&] { return saturate::Saturated(simple, options.chosen_rules()); });
  const bool several = *options.effort >= Effort::Search;
  std::vector<ir::Graph> best =
      stage("extract", [&] { return saturated.extract(several ? kForms : 1); });
  report.saturation = saturated.report();
  report.ops_before_rules = simple.size();
  return best;
}

/// Which kernels store or convert a value in another order.
std::vector<std::string> lines_of(const Relaid& relaid, const CompileReport& report) {
  std::vector<std::string> lines;
  for (const ir::NodeId id : relaid.copies)
    for (std::size_t k = 0; k < report.kernels.size(); ++k) {
      const std::vector<ir::NodeId>& nodes = report.kernels[k].nodes;
      if (std::find(nodes.begin(), nodes.end(), id) == nodes.end())
        continue;
      const ir::Node& node = report.graph[id];
      std::string line = fmt::format("relaid: %{} is %{} as {}, ", id, source_of(report.graph, id),
                                     to_string(node.shape));
      line += nodes.size() > 1 ? fmt::format("stored so by kernel {}", k)
                               : fmt::format("converted by kernel {}", k);
      if (std::find(lines.begin(), lines.end(), line) == lines.end())
        lines.push_back(std::move(line));
    }
  return lines;
}

Compiled compile_whole(const ir::Graph& graph, const Options& options, backend::Device& device,
                       KernelCache& cache) {
  CompileReport report;
  StageClock stage(report.stages);
  report.ops_recorded = graph.size();

  const bool search = options.effort.value_or(Effort::None) != Effort::None;
  const kernel::Target& target = device.target();
  const std::size_t outside = graph.inputs().size();
  Options with = options;
  if (!search || !options.fuse)
    with.steady.clear();
  std::optional<Derivation> first;
  if (!with.steady.empty())
    first = stage("derive", [&] { return derive(graph, with.steady, target); });
  const ir::Graph& recorded = first ? first->main : graph;
  if (first)
    with.steady.resize(recorded.inputs().size(), true);
  std::vector<ir::Graph> graphs;
  if (search)
    graphs = rewritten(recorded, options, stage, report);
  std::vector<std::unique_ptr<Form>> forms = stage("normalize", [&] {
    std::vector<std::unique_ptr<Form>> normal;
    for (const ir::Graph& one :
         search ? std::span<const ir::Graph>(graphs) : std::span(&recorded, 1))
      normal.push_back(std::make_unique<Form>(one));
    return normal;
  });
  DivisionSearch division(recorded, std::move(forms), with, device, cache);
  Partitioned parts = stage("partition", [&] { return division.first(); });
  Proposed proposed = stage("propose", [&] { return division.propose(std::move(parts)); });
  if (search)
    report.ops_extracted = division.form().ops();
  const Relaid* relaid = division.relaid();
  Compiled compiled = assemble(division.form(), std::move(proposed), division.options(), device,
                               cache, std::move(report));
  if (first || relaid) {
    compiled.derivation = std::make_shared<const Derivation>(
        compose(outside, first ? &*first : nullptr, relaid, compiled.report.graph));
    compiled.report.derived = compiled.derivation->report;
  }
  if (relaid)
    compiled.report.relaid = lines_of(*relaid, compiled.report);
  return compiled;
}

std::string described(const ir::Graph& graph, const Cut& cut) {
  const ir::Node& product = graph[cut.product];
  return fmt::format("a product {}{} is made in {} chunks along axis {}", name_of(product.dtype),
                     to_string(product.shape), cut.chunks, cut.dim);
}

/// Of products that are so large that they fill the memory.
std::vector<Cut> cuts_for(const ir::Graph& graph, const LimitError& whole) {
  return possible_cuts(graph, static_cast<double>(whole.least()) / 8);
}

/// With a large product in chunks, where the limit can be met so. `whole`: why not without.
Compiled compile_in_chunks(const ir::Graph& graph, const Options& options, backend::Device& device,
                           KernelCache& cache, const LimitError& whole) {
  const ir::Graph simple = passes::normalize()(graph);
  Options chunked = options;
  std::int64_t least = whole.least();
  for (const Cut& cut : cuts_for(simple, whole)) {
    const std::optional<ir::Graph> cut_up = in_chunks(simple, cut);
    if (!cut_up)
      continue;
    chunked.chunks = bounds_of(simple, cut);
    Options greedy = chunked;
    greedy.effort = Effort::None;
    try {
      Compiled compiled = compile_whole(*cut_up, greedy, device, cache);
      if (options.effort.value_or(Effort::None) != Effort::None) {
        try {
          compiled = compile_whole(*cut_up, chunked, device, cache);
        } catch (const LimitError&) { // with the schedules that a search chooses
        }
      }
      compiled.report.ops_recorded = graph.size();
      compiled.report.memory->before = whole.plain();
      compiled.report.memory->chunks = described(simple, cut);
      return compiled;
    } catch (const LimitError& error) {
      least = std::min(least, error.least());
    }
  }
  throw LimitError(*options.memory_limit, least, whole.plain());
}

} // namespace

Compiled compile_graph(const ir::Graph& graph, const Options& options, backend::Device& device,
                       KernelCache& cache) {
  if (options.memory_limit)
    checked_bytes(*options.memory_limit, "compile: memory_limit");
  try {
    return compile_whole(graph, options, device, cache);
  } catch (const LimitError& error) {
    if (!options.fuse)
      throw;
    if (options.chosen_rules().allowed.has(RuleTag::Reassociates))
      return compile_in_chunks(graph, options, device, cache, error);
    const ir::Graph simple = passes::normalize()(graph);
    const std::vector<Cut> cuts = cuts_for(simple, error);
    if (std::none_of(cuts.begin(), cuts.end(),
                     [&](const Cut& cut) { return in_chunks(simple, cut).has_value(); }))
      throw;
    throw LimitError(*options.memory_limit, error.least(), error.plain(),
                     "; with a product in chunks it may be less, where sums may be made in "
                     "another order (reassociates)");
  }
}

} // namespace egret::compiler
