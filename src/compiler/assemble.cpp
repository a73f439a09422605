#include "compiler/assemble.h"

#include "compiler/plan_builder.h"
#include "compiler/search/cost_model.h"
#include "kernel/generator.h"
#include "kernel/parts.h"
#include "kernel/phases.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

namespace egret::compiler {

using ir::NodeId;

namespace {

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

std::pair<std::uint64_t, bool> key_of(const WantedKernel& wanted) {
  return {kernel::hash_of(*wanted.region), wanted.cold};
}

} // namespace

Proposer::Proposer(const Options& options, const kernel::Target& target)
    : options_(options), target_(target) {}

std::vector<kernel::Chosen> Proposer::choose(const std::vector<WantedKernel>& wanted,
                                             double seconds, SearchReport& report) {
  std::vector<kernel::Chosen> chosen;
  const Effort effort = options_.effort.value_or(Effort::None);
  if (effort == Effort::None || !options_.tuner) {
    for (const WantedKernel& kernel : wanted)
      chosen.push_back(kernel::lower_greedily(*kernel.region, target_));
    return chosen;
  }
  std::vector<WantedKernel> fresh;
  std::copy_if(wanted.begin(), wanted.end(), std::back_inserter(fresh),
               [&](const WantedKernel& w) { return !known_.contains(key_of(w)); });
  std::vector<kernel::Chosen> found =
      options_.tuner->choose(fresh, {effort, seconds, options_.frozen, options_.progress}, report);
  for (std::size_t i = 0; i < fresh.size(); ++i)
    known_.emplace(key_of(fresh[i]), Known{std::move(found[i]), std::move(report.regions[i])});
  report.regions.clear();
  for (const WantedKernel& w : wanted) {
    const Known& known = known_.at(key_of(w));
    chosen.push_back(known.chosen);
    report.regions.push_back(known.search);
  }
  return chosen;
}

Proposed Proposer::propose(const Form& form, Partitioned parts, double seconds) {
  Proposed proposed;
  const DistinctRegions distinct = distinct_regions(form.graph(), parts.regions, target_);
  std::vector<kernel::Chosen> chosen = choose(distinct.wanted, seconds, proposed.search);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    kernel::Chosen& c = chosen[i];
    kernel::Region region = *distinct.wanted[i].region;
    if (options_.alter)
      options_.alter(region, c);
    c.program.name = region.name;
    kernel::verify(c.program);
    const std::uint64_t hash = kernel::hash_of(c.program);
    proposed.entries.push_back(
        {std::move(region), std::move(c.schedule), std::move(c.program), hash});
  }
  proposed.entry_of = distinct.of_region;
  proposed.parts = std::move(parts);
  return proposed;
}

double Proposer::predicted(const WantedKernel& wanted, const Machine& machine) {
  const auto key = key_of(wanted);
  if (const auto it = known_.find(key); it != known_.end())
    return it->second.search.predicted;
  const auto [it, fresh] = predicted_.emplace(key, 0);
  if (fresh)
    it->second = predict(kernel::lower_greedily(*wanted.region, target_).program, *wanted.region,
                         target_, machine, sizes_to_try(*wanted.region), wanted.cold);
  return it->second;
}

Compiled assemble(const Form& form, Proposed proposed, const Options& options,
                  backend::Device& device, KernelCache& cache, CompileReport report) {
  Compiled result;
  StageClock stage(report.stages);
  const std::vector<BuiltRegion>& regions = proposed.parts.regions;
  report.graph = form.graph();
  report.search = std::move(proposed.search);
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
  report.unfused = proposed.parts.partition.unfused;
  report.arena_bytes = upper_bytes(result.plan.arena_bytes);
  report.liveness_bound_bytes = upper_bytes(result.plan.liveness_bound_bytes);
  report.kernels_compiled = built.compiled;
  report.kernels_loaded = built.loaded;
  report.kernels_from_cache = built.cached;
  describe_kernels(report.graph, result.plan, device.target(), report);
  result.report = std::move(report);
  return result;
}

} // namespace egret::compiler
