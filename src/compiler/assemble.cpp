#include "compiler/assemble.h"

#include "compiler/plan_builder.h"
#include "compiler/recompute.h"
#include "compiler/search/cost_model.h"
#include "kernel/generator.h"
#include "kernel/parts.h"
#include "kernel/phases.h"
#include "support/hash.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <set>
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

/// Seconds of a launch of each.
std::vector<double> predictions(const std::vector<kernel::KernelEntry>& entries,
                                const kernel::Target& target, const Machine& machine) {
  std::vector<double> seconds;
  for (const kernel::KernelEntry& entry : entries)
    seconds.push_back(
        predict(entry.program, entry.region, target, machine, sizes_to_try(entry.region)));
  return seconds;
}

void describe_kernels(const ir::Graph& graph, const kernel::Plan& plan,
                      const kernel::Target& target, CompileReport& report) {
  const std::vector<double> predicted = predictions(
      plan.kernels, target,
      report.search.machine.launch_seconds > 0 ? report.search.machine : usual_machine(target));
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

MemoryReport describe_memory(std::int64_t limit, const BuiltPlan& built,
                             const CompileReport& report) {
  MemoryReport memory{limit, built.plain_bytes, report.arena_bytes, {}, 0, 0, 0};
  std::map<int, std::size_t> first; // launch of each kernel
  std::map<std::size_t, int> again;
  for (std::size_t i = 0; i < built.order.size(); ++i) {
    const auto [it, fresh] = first.emplace(built.order[i], i);
    if (fresh)
      continue;
    const KernelReport& kernel = report.kernels[i];
    ++again[it->second];
    memory.added_bytes += kernel.bytes_read + kernel.bytes_written;
    memory.added_flops += kernel.flops;
    memory.added_seconds += kernel.predicted;
  }
  for (const auto& [kernel, times] : again)
    memory.again.push_back({kernel, times});
  return memory;
}

/// The kernels as they are, or where the limit cannot be met with them, with frugal ones.
BuiltPlan plan_within(const ir::Graph& graph, const std::vector<PlannedKernel>& kernels,
                      const std::vector<kernel::KernelEntry>& entries, const Options& options,
                      const kernel::Target& target) {
  const auto build = [&](const std::vector<kernel::KernelEntry>& some) {
    // A plan must not depend on what was measured, so round figures serve for what is made again.
    return build_plan(graph, kernels, some, options.outputs,
                      {predictions(some, target, usual_machine(target)), options.memory_limit});
  };
  try {
    return build(entries);
  } catch (const LimitError& as_they_are) {
    std::vector<kernel::KernelEntry> frugal = entries;
    bool any = false;
    for (kernel::KernelEntry& entry : frugal)
      if (std::optional<kernel::Chosen> chosen =
              kernel::lower_frugally(entry.region, entry.schedule, target)) {
        chosen->program.name = entry.region.name;
        kernel::verify(chosen->program);
        entry.schedule = std::move(chosen->schedule);
        entry.program_hash = kernel::hash_of(chosen->program);
        entry.program = std::move(chosen->program);
        any = true;
      }
    if (!any)
      throw;
    try {
      return build(frugal);
    } catch (const LimitError& at_best) {
      throw at_best.least() < as_they_are.least() ? at_best : as_they_are;
    }
  }
}

} // namespace

Proposer::Proposer(const Options& options, const kernel::Target& target)
    : options_(options), target_(target) {}

Proposer::Key Proposer::key_of(const WantedKernel& wanted) {
  return {kernel::hash_of(*wanted.region), wanted.cold};
}

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
  std::vector<kernel::Chosen> found = options_.tuner->choose(
      fresh,
      {effort, seconds, options_.frozen, options_.progress, options_.libraries.value_or(true)},
      report);
  std::set<Key> open; // those that the search did not come to: they may be asked for again
  for (std::size_t i = 0; i < fresh.size(); ++i) {
    if (!report.note.empty() && report.regions[i].note == report.note)
      open.insert(key_of(fresh[i]));
    known_.emplace(key_of(fresh[i]), Known{std::move(found[i]), std::move(report.regions[i])});
  }
  report.regions.clear();
  for (const WantedKernel& w : wanted) {
    const Known& known = known_.at(key_of(w));
    chosen.push_back(known.chosen);
    report.regions.push_back(known.search);
  }
  for (const Key& key : open)
    known_.erase(key);
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
  const Key key = key_of(wanted);
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
  BuiltPlan planned = stage("plan", [&] {
    std::vector<PlannedKernel> kernels;
    for (std::size_t i = 0; i < regions.size(); ++i)
      kernels.push_back({regions[i], proposed.entry_of[i]});
    const std::size_t entries = proposed.entries.size();
    BuiltPlan built =
        options.memory_limit
            ? plan_within(report.graph, kernels, proposed.entries, options, device.target())
            : build_plan(report.graph, kernels, std::move(proposed.entries), options.outputs,
                         {std::vector<double>(entries, 0), std::nullopt});
    kernel::verify(built.plan);
    return built;
  });
  result.plan = std::move(planned.plan);
  for (const int k : planned.order)
    result.launches.push_back({regions[static_cast<std::size_t>(k)].operands,
                               regions[static_cast<std::size_t>(k)].outputs});
  Built built = stage("compile", [&] { return compile_kernels(result.plan, device, cache); });
  result.artifacts = std::move(built.artifacts);

  result.plan.key = ir::canonical_hash(report.graph) ^ device.target().fingerprint;
  if (options.memory_limit)
    result.plan.key = combine(result.plan.key, static_cast<std::uint64_t>(*options.memory_limit));
  report.ops_normalized = report.graph.size();
  report.unfused = proposed.parts.partition.unfused;
  report.arena_bytes = upper_bytes(result.plan.arena_bytes);
  report.liveness_bound_bytes = upper_bytes(result.plan.liveness_bound_bytes);
  report.kernels_compiled = built.compiled;
  report.kernels_loaded = built.loaded;
  report.kernels_from_cache = built.cached;
  describe_kernels(report.graph, result.plan, device.target(), report);
  if (options.memory_limit)
    report.memory = describe_memory(*options.memory_limit, planned, report);
  result.report = std::move(report);
  return result;
}

} // namespace egret::compiler
