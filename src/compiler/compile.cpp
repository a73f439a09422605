#include "compiler/compile.h"

#include "compiler/search/divisions.h"
#include "egret/passes.h"
#include "saturate/saturate.h"
#include "support/sizes.h"

#include <span>

namespace egret::compiler {

namespace {

/// Forms that are cut into kernels, where several may be.
constexpr std::size_t kForms = 3;

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

} // namespace

Compiled compile_graph(const ir::Graph& graph, const Options& options, backend::Device& device,
                       KernelCache& cache) {
  if (options.memory_limit)
    checked_bytes(*options.memory_limit, "compile: memory_limit");
  CompileReport report;
  StageClock stage(report.stages);
  report.ops_recorded = graph.size();

  const bool search = options.effort.value_or(Effort::None) != Effort::None;
  std::vector<ir::Graph> graphs;
  if (search)
    graphs = rewritten(graph, options, stage, report);
  std::vector<std::unique_ptr<Form>> forms = stage("normalize", [&] {
    std::vector<std::unique_ptr<Form>> normal;
    for (const ir::Graph& one : search ? std::span<const ir::Graph>(graphs) : std::span(&graph, 1))
      normal.push_back(std::make_unique<Form>(one));
    return normal;
  });
  DivisionSearch division(graph, std::move(forms), options, device, cache);
  Partitioned parts = stage("partition", [&] { return division.first(); });
  Proposed proposed = stage("propose", [&] { return division.propose(std::move(parts)); });
  if (search)
    report.ops_extracted = division.form().ops();
  return assemble(division.form(), std::move(proposed), options, device, cache, std::move(report));
}

} // namespace egret::compiler
