#include "compiler/compile.h"

#include "compiler/batching.h"
#include "compiler/partitioned.h"
#include "compiler/plan_builder.h"
#include "compiler/prepare.h"
#include "compiler/search/cost_model.h"
#include "compiler/search/tuner.h"
#include "compiler/sink_reshapes.h"
#include "egret/passes.h"
#include "kernel/generator.h"
#include "kernel/parts.h"
#include "kernel/phases.h"
#include "saturate/saturate.h"
#include "support/fail.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <thread>

namespace egret::compiler {

using ir::NodeId;

namespace {

/// Runs a stage and notes its time.
class StageClock {
public:
  explicit StageClock(CompileReport& report) : report_(report) {}
  template <class F>
  auto operator()(const char* stage, F&& run) {
    const auto begin = std::chrono::steady_clock::now();
    auto result = run();
    report_.stages.push_back(
        {stage, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()});
    return result;
  }

private:
  CompileReport& report_;
};

/// Inputs that the caller binds keep their slots, whether used or not; normalization must not lose
/// one.
ir::Graph normalized(const ir::Graph& graph) {
  ir::Graph result = prepare(sink_reshapes(passes::normalize()(graph)));
  ir::verify(result);
  ensure(result.inputs().size() == graph.inputs().size() &&
             result.outputs.size() == graph.outputs.size(),
         "compile: normalization changed the number of inputs or outputs");
  return result;
}

/// The cheapest graph that the rules find for it.
ir::Graph rewritten(const ir::Graph& graph, const Options& options, StageClock& stage,
                    CompileReport& report) {
  const ir::Graph simple = stage("simplify", [&] { return passes::normalize()(graph); });
  saturate::Saturated saturated =
      stage("saturate", [&] { return saturate::Saturated(simple, options.chosen_rules()); });
  ir::Graph best = stage("extract", [&] { return std::move(saturated.extract().at(0)); });
  report.saturation = saturated.report();
  report.ops_before_rules = simple.size();
  report.ops_extracted = best.size();
  return best;
}

/// The distinct kernels of a program and, for each region, which of them computes it.
struct Proposed {
  std::vector<kernel::KernelEntry> entries;
  std::vector<int> entry_of; ///< by region
};

/// Schedules and programs of distinct regions, greedy or searched.
std::vector<kernel::Chosen> choose(const std::vector<WantedKernel>& wanted, const Options& options,
                                   const kernel::Target& target, SearchReport& report) {
  const Effort effort = options.effort.value_or(Effort::None);
  if (effort != Effort::None && options.tuner)
    return options.tuner->choose(
        wanted, {effort, options.budget_seconds.value_or(60), options.frozen, options.progress},
        report);
  std::vector<kernel::Chosen> chosen;
  for (const WantedKernel& kernel : wanted)
    chosen.push_back(kernel::lower_greedily(*kernel.region, target));
  return chosen;
}

/// By region: WantedKernel::cold.
std::vector<bool> cold_regions(const ir::Graph& graph, const std::vector<BuiltRegion>& regions,
                               const kernel::Target& target) {
  constexpr double kLeast = 256 << 10; // smaller ones may stay in some cache
  const auto bytes = [&](NodeId id) {
    double all = static_cast<double>(size_of(graph[id].dtype));
    for (const Expr& dim : graph[id].shape)
      all *= static_cast<double>(dim.upper());
    return all;
  };
  const auto is_input = [&](NodeId id) { return graph[id].op == Op::Input; };
  std::set<NodeId> inputs;
  for (const BuiltRegion& built : regions)
    std::copy_if(built.operands.begin(), built.operands.end(), std::inserter(inputs, inputs.end()),
                 is_input);
  double all_inputs = 0;
  for (const NodeId id : inputs)
    all_inputs += bytes(id);
  std::vector<bool> cold(regions.size(), false);
  if (all_inputs <= static_cast<double>(std::max(target.l2_bytes, target.l3_bytes)))
    return cold;
  for (std::size_t i = 0; i < regions.size(); ++i) {
    double from_inputs = 0, all = 0;
    for (const NodeId id : regions[i].operands) {
      all += bytes(id);
      from_inputs += is_input(id) ? bytes(id) : 0;
    }
    for (const NodeId id : regions[i].outputs)
      all += bytes(id);
    cold[i] = from_inputs >= kLeast && from_inputs >= all / 2;
  }
  return cold;
}

Proposed propose(const ir::Graph& graph, const std::vector<BuiltRegion>& regions,
                 const Options& options, const kernel::Target& target, SearchReport& report) {
  Proposed proposed;
  std::map<std::uint64_t, int> known;
  std::vector<WantedKernel> wanted;
  const std::vector<bool> cold = cold_regions(graph, regions, target);
  for (std::size_t i = 0; i < regions.size(); ++i) {
    const BuiltRegion& built = regions[i];
    auto [it, fresh] =
        known.emplace(kernel::hash_of(built.region), static_cast<int>(wanted.size()));
    if (fresh)
      wanted.push_back({&built.region, 0});
    wanted[static_cast<std::size_t>(it->second)].launches += 1;
    wanted[static_cast<std::size_t>(it->second)].cold |= cold[i];
    proposed.entry_of.push_back(it->second);
  }
  std::vector<kernel::Chosen> chosen = choose(wanted, options, target, report);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    kernel::Chosen& c = chosen[i];
    kernel::Region region = *wanted[i].region;
    if (options.alter)
      options.alter(region, c);
    c.program.name = region.name;
    kernel::verify(c.program);
    const std::uint64_t hash = kernel::hash_of(c.program);
    proposed.entries.push_back(
        {std::move(region), std::move(c.schedule), std::move(c.program), hash});
  }
  return proposed;
}

struct Built {
  std::vector<std::shared_ptr<const backend::Artifact>> artifacts;
  int compiled = 0, loaded = 0, cached = 0;
};

/// Compiles on as many threads as the device has a use for.
Built compile_kernels(const kernel::Plan& plan, backend::Device& device, KernelCache& cache) {
  const std::size_t n = plan.kernels.size();
  Built built;
  built.artifacts.resize(n);
  std::atomic<std::size_t> next{0};
  std::atomic<int> compiled{0}, loaded{0};
  std::exception_ptr failure;
  std::mutex guard;
  auto work = [&] {
    for (std::size_t i; (i = next++) < n;) {
      try {
        bool was_cached = false;
        built.artifacts[i] = cache.get(plan.kernels[i].program, device, &was_cached);
        (built.artifacts[i]->loaded() ? loaded : compiled) += !was_cached;
      } catch (...) {
        std::lock_guard lock(guard);
        failure = std::current_exception();
        next = n;
      }
    }
  };
  const std::size_t helpers =
      std::min<std::size_t>(n, static_cast<std::size_t>(std::max(1, device.compile_threads())));
  std::vector<std::jthread> threads;
  for (std::size_t t = 1; t < helpers; ++t)
    threads.emplace_back(work);
  work();
  threads.clear();
  if (failure)
    std::rethrow_exception(failure);
  built.compiled = compiled;
  built.loaded = loaded;
  built.cached = static_cast<int>(n) - compiled - loaded;
  return built;
}

std::int64_t upper_bytes(const Expr& e) {
  return e.upper();
}

void describe_kernels(const ir::Graph& graph, const kernel::Plan& plan,
                      const kernel::Target& target, CompileReport& report) {
  const Machine machine =
      report.search.machine.launch_seconds > 0 ? report.search.machine : usual_machine(target);
  std::vector<double> predicted;
  for (const kernel::KernelEntry& entry : plan.kernels)
    predicted.push_back(
        predict(entry.program, entry.region, target, machine, sizes_to_try(entry.region)));
  for (const kernel::Step& step : plan.steps) {
    report.copies += step.kind == kernel::StepKind::Copy;
    if (step.kind != kernel::StepKind::Launch)
      continue;
    const kernel::KernelEntry& entry = plan.kernels[step.kernel];
    const kernel::Cost cost = kernel::cost_of(entry.region);
    KernelReport k;
    k.name = entry.region.name;
    k.form = name_of(kernel::classify(entry.region));
    k.schedule = kernel::to_string(entry.schedule);
    k.bytes_read = upper_bytes(cost.bytes_read);
    k.bytes_written = upper_bytes(cost.bytes_written);
    k.flops = static_cast<double>(upper_bytes(cost.flops));
    k.parts = static_cast<int>(kernel::parts_of(entry.region).size());
    k.phases = kernel::phases_of(entry.program);
    const auto number = static_cast<std::size_t>(step.kernel);
    k.predicted = predicted[number];
    if (number < report.search.regions.size()) // they are in the order of distinct kernels
      k.measured = report.search.regions[number].seconds;
    k.nodes = step.nodes;
    for (NodeId id : step.nodes)
      k.ops.emplace_back(info_of(graph[id].op).name);
    report.kernels.push_back(std::move(k));
  }
}

} // namespace

Compiled compile_graph(const ir::Graph& graph, const Options& options, backend::Device& device,
                       KernelCache& cache) {
  Compiled result;
  CompileReport& report = result.report;
  StageClock stage(report);
  report.ops_recorded = graph.size();

  const bool search = options.effort.value_or(Effort::None) != Effort::None;
  const ir::Graph chosen = search ? rewritten(graph, options, stage, report) : graph;
  report.graph = stage("normalize", [&] { return normalized(chosen); });
  const GraphFacts facts = stage("views", [&] { return GraphFacts(report.graph); });
  Partitioned parts =
      stage("partition", [&] { return partition_for(facts, options.fuse, device.target()); });
  stage("batch", [&] {
    declare_states_in_place(report.graph, parts.regions, options.outputs);
    if (options.fuse)
      batch_small_kernels(report.graph, parts.regions, options.outputs, device.target());
    return true;
  });
  const std::vector<BuiltRegion>& regions = parts.regions;
  Proposed proposed = stage("propose", [&] {
    return propose(report.graph, regions, options, device.target(), report.search);
  });
  std::vector<int> order; // of the kernels
  result.plan = stage("plan", [&] {
    std::vector<PlannedKernel> kernels;
    for (std::size_t i = 0; i < regions.size(); ++i)
      kernels.push_back({regions[i], proposed.entry_of[i]});
    kernel::Plan plan =
        build_plan(report.graph, kernels, std::move(proposed.entries), options.outputs, order);
    kernel::verify(plan);
    return plan;
  });
  for (const int k : order)
    result.launches.push_back({regions[static_cast<std::size_t>(k)].operands,
                               regions[static_cast<std::size_t>(k)].outputs});
  Built built = stage("compile", [&] { return compile_kernels(result.plan, device, cache); });
  result.artifacts = std::move(built.artifacts);

  result.plan.key = ir::canonical_hash(report.graph) ^ device.target().fingerprint;
  report.ops_normalized = report.graph.size();
  report.unfused = parts.partition.unfused;
  report.arena_bytes = upper_bytes(result.plan.arena_bytes);
  report.liveness_bound_bytes = upper_bytes(result.plan.liveness_bound_bytes);
  report.kernels_compiled = built.compiled;
  report.kernels_loaded = built.loaded;
  report.kernels_from_cache = built.cached;
  describe_kernels(report.graph, result.plan, device.target(), report);
  return result;
}

} // namespace egret::compiler
