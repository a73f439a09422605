#include "compiler/search/fusion_plans.h"

#include "compiler/describe.h"
#include "compiler/pipeline.h"
#include "compiler/search/layout_moves.h"
#include "compiler/search/moves.h"
#include "compiler/search/plan_timer.h"
#include "compiler/search/timing.h"
#include "support/fail.h"
#include "support/hash.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>

namespace egret::compiler {

namespace {

/// Of the budget, what the first fusion plan's schedules may take when others are to be tried.
constexpr double kFirstShare = 0.7;
/// Seconds of a measurement of two programs, the least that is left when another one is begun, and
/// the least budget for any.
constexpr double kCompare = 0.8, kLeastLeft = 1, kLeastBudget = 4;
/// How much slower than the greedy fusion plan the model may find one that is tried, and how many
/// are.
constexpr double kFarBehind = 1.3;
constexpr std::size_t kMostTried = 16;
/// How much of the cheapest graph's time another one must take to be preferred without a
/// measurement.
constexpr double kClearlyLess = 0.97;
/// Seconds for finding and predicting fusion plans, of the budget and at most.
constexpr double kPlanShare = 0.1, kPlanSeconds = 2;
/// Programs that are too large to give two of them data of their own: bytes on the host, and as a
/// share of a device's free memory.
constexpr double kMostPlanBytes = 1536e6, kMostPlanShare = 0.3;

/// By kernel: launches.
using Kernels = std::map<Proposer::Key, double>;

bool has_fixed_sizes(const ir::Graph& graph) {
  for (ir::NodeId id = 0; id < graph.size(); ++id)
    for (const Expr& dim : graph[id].shape)
      if (!dim.is_constant())
        return false;
  return true;
}

} // namespace

std::string to_string(const FusionPlanChoice& choice) {
  std::string text = fmt::format("fusion_plan graph={}", choice.graph);
  for (const std::uint64_t move : choice.moves)
    text += fmt::format(" m{:016x}=1", move);
  return text;
}

FusionPlanChoice parse_fusion_plan(std::string_view text) {
  const kernel::Schedule schedule = kernel::parse_schedule(text);
  FusionPlanChoice choice;
  if (schedule.generator != "fusion_plan")
    fail(ErrorKind::Parse, "fusion plan: '{}' does not begin with 'fusion_plan'", text);
  for (const auto& [knob, value] : schedule.knobs) {
    if (knob == "graph" && value >= 0 && value < 64) {
      choice.graph = static_cast<int>(value);
    } else if (knob.size() == 17 && knob[0] == 'm' &&
               knob.find_first_not_of("0123456789abcdef", 1) == std::string::npos) {
      choice.moves.push_back(std::stoull(knob.substr(1), nullptr, 16));
    } else {
      fail(ErrorKind::Parse, "fusion plan: '{}={}' is neither a graph nor a change", knob, value);
    }
  }
  return choice;
}

struct FusionPlanSearch::Impl {
  CandidateGraphs candidates;
  const Options& options;
  backend::Device& device;
  KernelCache& cache;
  const kernel::Target& target;
  std::vector<PassTime>* times;
  Proposer proposer;
  const std::uint64_t program; ///< its hash, where a tuner remembers it
  const std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
  const double budget;
  CompareFusionPlans compare;
  bool known = false; ///< the choice was remembered
  bool ended = false; ///< by the caller
  double longest = 0; ///< seconds that it took to compile a fusion plan and to time it
  std::mutex moves_guard;
  std::map<int, std::vector<Move>> moves; ///< by candidate graph, of which one thread is at work

  Impl(const ir::Graph& graph, CandidateGraphs c, const Options& o, backend::Device& d,
       KernelCache& k, std::vector<PassTime>* t, CompareFusionPlans compare_)
      : candidates(std::move(c)), options(o), device(d), cache(k), target(d.target()), times(t),
        proposer(options, target), program(tuned() ? hash_of_program(graph) : 0),
        budget(options.budget_seconds.value_or(60)), compare(std::move(compare_)) {}

  std::uint64_t hash_of_program(const ir::Graph& graph) const {
    std::uint64_t hash =
        combine(ir::canonical_hash(graph), saturate::hash_of(options.chosen_rules()));
    for (const OutputSpec& output : options.outputs)
      hash = combine(combine(hash, static_cast<std::uint64_t>(output.state_input)),
                     static_cast<std::uint64_t>(output.over_input));
    for (const bool steady : options.steady)
      hash = combine(hash, steady);
    if (options.memory_limit) // a fusion plan that was chosen without one may not meet it
      hash = combine(hash, static_cast<std::uint64_t>(*options.memory_limit));
    return combine(hash, options.fuse);
  }

  double left() const {
    return budget - std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  bool tuned() const {
    return options.tuner && options.effort.value_or(Effort::None) != Effort::None;
  }
  /// Whether other fusion plans may be tried at all.
  bool explores() const {
    return tuned() && *options.effort >= Effort::Search && !options.frozen && !known &&
           !options.has_greedy_partition() && budget >= kLeastBudget && options.fuse &&
           !options.inject_fault && has_fixed_sizes(candidates[0]->graph());
  }

  const std::shared_ptr<const CandidateGraph>& candidate(int form) const {
    return candidates[static_cast<std::size_t>(form)];
  }

  LayoutContext layout_context() const {
    LayoutContext context{options.steady, {}};
    for (const OutputSpec& output : options.outputs)
      if (output.state_input >= 0) {
        const auto slot = static_cast<std::size_t>(output.state_input);
        context.replaced.resize(std::max(context.replaced.size(), slot + 1));
        context.replaced[slot] = true;
      }
    return context;
  }

  const std::vector<Move>& moves_in(int form) {
    std::unique_lock lock(moves_guard);
    const auto [it, fresh] = moves.try_emplace(form);
    lock.unlock();
    if (fresh) {
      Options whole = options;
      whole.chunks.clear();
      whole.after_pass = {};
      const CandidateGraph& graph = *candidate(form);
      const Partitioned greedy = partition_for(graph, whole, target);
      it->second = layout_moves_of(graph.facts(), greedy, target, layout_context());
      std::vector<Move> others = moves_of(graph.facts(), greedy.partition);
      std::move(others.begin(), others.end(), std::back_inserter(it->second));
    }
    return it->second;
  }

  /// A fusion plan before its schedules.
  Compilation partitioned(const FusionPlanChoice& choice) { return partitioned(choice, times); }
  Compilation partitioned(const FusionPlanChoice& choice, std::vector<PassTime>* spent) {
    Compilation c(options, target);
    c.device = &device;
    c.cache = &cache;
    c.proposer = &proposer;
    c.times = spent;
    if (choice != FusionPlanChoice{})
      c.fusion_plan = to_string(choice);
    c.candidate = candidate(choice.graph);
    if (!choice.moves.empty())
      c.choices = together(moves_in(choice.graph), choice.moves);
    run_phase(c, Phase::Regions);
    run_phase(c, Phase::Launches);
    return c;
  }

  static void propose(Compilation& c, double seconds) {
    c.search_seconds = seconds;
    run_phase(c, Phase::Schedules);
  }

  std::vector<WantedKernel> wanted(const Compilation& c) const {
    return distinct_regions(c.candidate->graph(), c.parts.regions, target).wanted;
  }

  static Kernels kernels_of(const std::vector<WantedKernel>& wanted) {
    Kernels kernels;
    for (const WantedKernel& w : wanted)
      kernels[Proposer::key_of(w)] = w.launches;
    return kernels;
  }

  double predicted(const std::vector<WantedKernel>& wanted, const Machine& machine) {
    double seconds = 0;
    for (const WantedKernel& w : wanted)
      seconds += w.launches * proposer.predicted(w, machine);
    return seconds;
  }

  struct Other {
    FusionPlanChoice choice;
    std::string what;
    double ratio; ///< predicted, over the first fusion plan's
  };
  /// Fusion plans a step away from the first one, those that the model likes best first.
  std::vector<Other> others(const FusionPlanChoice& choice, const Compilation& first,
                            SearchReport& report) {
    const double until = left() - std::min(kPlanSeconds, kPlanShare * budget);
    const Machine machine = options.tuner->machine(false);
    const std::vector<WantedKernel> given = wanted(first);
    const double base = predicted(given, machine);
    std::set<Kernels> seen{kernels_of(given)};
    std::vector<Other> found;
    const auto consider = [&](FusionPlanChoice c, const std::string& what) {
      const Compilation other = partitioned(c);
      const std::vector<WantedKernel> kernels = wanted(other);
      if (!seen.insert(kernels_of(kernels)).second)
        return;
      ++report.fusion_plans_seen;
      const double ratio = predicted(kernels, machine) / std::max(base, 1e-12);
      if (ratio < kFarBehind)
        found.push_back({std::move(c), what, ratio});
    };
    for (std::size_t f = 1; f < candidates.size(); ++f)
      consider({static_cast<int>(f), {}}, fmt::format("candidate graph {}", f));
    for (const Move& move : moves_in(choice.graph)) {
      if (left() < until)
        break;
      consider({choice.graph, {move.id}}, move.what);
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const Other& a, const Other& b) { return a.ratio < b.ratio; });
    if (found.size() > kMostTried)
      found.erase(found.begin() + kMostTried, found.end());
    return found;
  }

  /// What one program's search has found so far.
  struct Best {
    FusionPlanChoice choice;
    Compilation compilation;
    Compiled compiled = {};
    std::unique_ptr<PlanTimer> timer = {};
    Kernels kernels = {};
    double seconds = 0;
  };

  /// Runs the passes that are left, to time the whole program; false: above the memory limit.
  static bool compile(Best& best) {
    run_phase(best.compilation, Phase::Plan);
    if (best.compilation.over_limit)
      return false;
    best.compiled = compiled_of(best.compilation);
    return true;
  }

  bool too_large(const Compiled& compiled) const {
    const double bytes = PlanTimer::bytes_of(compiled.plan);
    return bytes > (device.host_memory()
                        ? kMostPlanBytes
                        : kMostPlanShare * static_cast<double>(device.memory().free));
  }

  /// Whether two moves put what some reader reads into a layout each.
  bool exclude_each_other(int form, std::uint64_t a, std::uint64_t b) {
    std::set<std::pair<ir::NodeId, int>> readers;
    for (const LayoutChange& change : together(moves_in(form), {a}).layout_changes)
      for (const Use& use : change.readers)
        readers.emplace(use.reader, use.operand);
    for (const LayoutChange& change : together(moves_in(form), {b}).layout_changes)
      for (const Use& use : change.readers)
        if (readers.contains({use.reader, use.operand}))
          return true;
    return false;
  }

  /// The fusion plan `other` on top of the best one: from the changes that were kept, and its own,
  /// which takes the place of one that it cannot go with.
  FusionPlanChoice on_top(const FusionPlanChoice& best, const FusionPlanChoice& other) {
    if (other.graph != best.graph)
      return other;
    FusionPlanChoice both = best;
    std::erase_if(both.moves, [&](std::uint64_t kept) {
      return std::any_of(other.moves.begin(), other.moves.end(), [&](std::uint64_t move) {
        return exclude_each_other(best.graph, kept, move);
      });
    });
    both.moves.insert(both.moves.end(), other.moves.begin(), other.moves.end());
    std::sort(both.moves.begin(), both.moves.end());
    return both;
  }

  std::vector<std::vector<double>> rounds_of(Best& best, Best& challenger) {
    if (compare)
      return compare(best.compiled, challenger.compiled);
    for (Best* one : {&best, &challenger})
      if (!one->timer)
        one->timer = std::make_unique<PlanTimer>(device, one->compiled, options.workers);
    PlanTimer* const both[] = {best.timer.get(), challenger.timer.get()};
    return time_in_turn(both, kCompare);
  }

  void try_other(const Other& other, Best& best, FusionPlanReport& measurement,
                 SearchReport& report) {
    const FusionPlanChoice choice = on_top(best.choice, other.choice);
    Best challenger{choice, partitioned(choice)};
    challenger.kernels = kernels_of(wanted(challenger.compilation));
    if (challenger.kernels == best.kernels) {
      measurement.state = "the same";
      return;
    }
    propose(challenger.compilation, (left() - longest) / 2);
    report.measured += challenger.compilation.proposed.search.measured;
    const double begin = left();
    if (!compile(challenger)) {
      measurement.state = "above the memory limit";
      return;
    }
    if (too_large(challenger.compiled)) {
      measurement.state = "too large";
      return;
    }
    const auto rounds = rounds_of(best, challenger);
    longest = std::max(longest, begin - left());
    measurement.ratio = compare_rounds(rounds[1], rounds[0]).ratio;
    measurement.seconds = timing_of(rounds[1]).seconds;
    if (best.seconds == 0)
      best.seconds = report.greedy_seconds = timing_of(rounds[0]).seconds;
    ++report.measured;
    measurement.state = "slower";
    if (pick(rounds) != 1)
      return;
    measurement.state = "taken";
    challenger.seconds = measurement.seconds;
    best = std::move(challenger);
  }

  void try_all(const std::vector<Other>& list, Best& best, SearchReport& report) {
    try {
      for (const Other& other : list) {
        FusionPlanReport& measurement = report.fusion_plans.emplace_back();
        measurement.what = other.what;
        measurement.predicted = other.ratio;
        if (left() < std::max(kLeastLeft, longest))
          report.fusion_plan_note = "the budget is used up";
        else if (ended = ended || !go_on(report); ended)
          report.fusion_plan_note = "the search was ended";
        else
          try_other(other, best, measurement, report);
      }
    } catch (const Error& error) { // the device has no memory for the data of two programs
      if (error.kind() != ErrorKind::Memory)
        throw;
      report.fusion_plan_note = error.what();
    }
  }

  /// The best fusion plan that is found from the first one, whose schedules are known. Where the
  /// first one is above the memory limit, it stays.
  FusionPlan explore(FusionPlan first) {
    SearchReport report = std::move(first.compilation.proposed.search);
    const std::vector<Other> list = others(first.choice, first.compilation, report);
    Best best{first.choice, std::move(first.compilation)};
    best.kernels = kernels_of(wanted(best.compilation));
    if (!list.empty()) {
      const double begin = left();
      const bool compiled = compile(best);
      longest = begin - left();
      if (!compiled)
        return {best.choice, std::move(best.compilation)};
      if (too_large(best.compiled))
        report.fusion_plan_note = "the program is too large to be timed beside another";
      else
        try_all(list, best, report);
    }
    // Regions as they are in the fusion plan that won, with what their own searches said.
    propose(best.compilation, 0);
    report.regions = std::move(best.compilation.proposed.search.regions);
    report.seconds = budget - left();
    best.compilation.proposed.search = std::move(report);
    if (!list.empty() && !ended)
      options.tuner->remember_fusion_plan(program, to_string(best.choice), best.seconds,
                                          best.compilation.proposed.search.greedy_seconds);
    return {best.choice, std::move(best.compilation)};
  }

  /// The fusion plan that was remembered, or the greedy one of the cheapest graph.
  FusionPlanChoice first_choice() {
    if (!tuned() || !options.fuse || options.has_greedy_partition())
      return {};
    if (const auto text = options.tuner->fusion_plan(program, options.frozen))
      try {
        const FusionPlanChoice before = parse_fusion_plan(*text);
        if (static_cast<std::size_t>(before.graph) < candidates.size()) {
          known = true;
          return before;
        }
      } catch (const Error&) { // a file that somebody edited
      }
    return {};
  }

  /// The greedy fusion plan of a candidate graph, with changes of layouts that are expected to pay
  /// by far.
  FusionPlan greedy_in(int graph) { return greedy_in(graph, times); }
  FusionPlan greedy_in(int graph, std::vector<PassTime>* spent) {
    FusionPlan plan{{graph, {}}, partitioned({graph, {}}, spent)};
    if (auto layouts = expected_layouts(plan); !layouts.empty()) {
      plan.choice.moves = std::move(layouts);
      plan.compilation = partitioned(plan.choice, spent);
    }
    return plan;
  }

  /// The greedy fusion plans of all candidate graphs but the first one.
  struct OtherPlans {
    std::vector<FusionPlan> plans;
    std::vector<PassTime> times;
  };
  std::unique_ptr<OtherPlans> other_plans() {
    auto made = std::make_unique<OtherPlans>();
    for (std::size_t f = 1; f < candidates.size(); ++f)
      made->plans.push_back(greedy_in(static_cast<int>(f), times ? &made->times : nullptr));
    return made;
  }
  /// Whether prefer_by_prediction() has something to choose from.
  bool may_prefer_by_prediction() const {
    return tuned() && !known && candidates.size() > 1 && options.fuse && !options.memory_limit &&
           !options.has_greedy_partition();
  }

  /// Where nothing is measured: one of `others` in place of `plan`, whose schedules are known,
  /// where a model of the machine finds that it takes clearly less time.
  void prefer_by_prediction(FusionPlan& plan, OtherPlans& others) {
    if (times)
      add_times(*times, others.times);
    // The figures that the schedules were chosen by: with `quick` no measured time decides.
    const Machine machine = plan.compilation.proposed.search.machine;
    const double base = std::max(predicted(wanted(plan.compilation), machine), 1e-12);
    std::vector<FusionPlanReport> seen;
    FusionPlan* best = nullptr;
    double least = kClearlyLess;
    for (FusionPlan& other : others.plans) {
      FusionPlanReport& report = seen.emplace_back();
      report.what = fmt::format("candidate graph {}", other.choice.graph);
      report.predicted = predicted(wanted(other.compilation), machine) / base;
      if (report.predicted >= least)
        continue;
      least = report.predicted;
      best = &other;
    }
    if (best) {
      plan = std::move(*best);
      plan.compilation.times = times;
      propose(plan.compilation, left());
      seen[static_cast<std::size_t>(plan.choice.graph) - 1].state = "taken";
    }
    SearchReport& report = plan.compilation.proposed.search;
    report.fusion_plans_seen = static_cast<std::int64_t>(seen.size());
    report.fusion_plans = std::move(seen);
  }

  /// Changes of layouts that are expected to pay by far in the greedy fusion plan.
  std::vector<std::uint64_t> expected_layouts(const FusionPlan& first) {
    if (!options.fuse || known || !first.choice.moves.empty() || target.units.empty() ||
        !may_expect_layouts(first.compilation.parts, target))
      return {};
    std::vector<std::uint64_t> ids;
    for (const Move& move : moves_in(first.choice.graph))
      if (move.expected)
        ids.push_back(move.id);
    std::sort(ids.begin(), ids.end());
    return ids;
  }

  bool go_on(const SearchReport& report) const {
    const std::size_t n = report.regions.size();
    return !options.progress ||
           options.progress({"program", n, n, report.fusion_plans.size() - 1,
                             report.fusion_plans.size(), budget - left(), budget, 0, ""});
  }
};

FusionPlanSearch::FusionPlanSearch(const ir::Graph& graph, CandidateGraphs candidates,
                                   const Options& options, backend::Device& device,
                                   KernelCache& cache, std::vector<PassTime>* times,
                                   CompareFusionPlans compare)
    : impl_(std::make_unique<Impl>(graph, std::move(candidates), options, device, cache, times,
                                   std::move(compare))) {}
FusionPlanSearch::~FusionPlanSearch() = default;

FusionPlan FusionPlanSearch::run() {
  Impl& impl = *impl_;
  const FusionPlanChoice choice = impl.first_choice();
  const bool explores = impl.explores();
  std::future<std::unique_ptr<Impl::OtherPlans>> others;
  if (!explores && choice.graph == 0 && impl.may_prefer_by_prediction())
    others = std::async(launch_beside(impl.options), [&impl] { return impl.other_plans(); });
  FusionPlan plan = choice == FusionPlanChoice{} ? impl.greedy_in(0)
                                                 : FusionPlan{choice, impl.partitioned(choice)};
  const bool searches = impl.tuned() && *impl.options.effort >= Effort::Search;
  const auto turn = searches ? impl.options.tuner->take_turn()
                             : std::unique_lock<std::recursive_mutex>(); // others may compile
  Impl::propose(plan.compilation, (explores ? kFirstShare : 1) * impl.left());
  if (others.valid())
    impl.prefer_by_prediction(plan, *others.get());
  const SearchReport& search = plan.compilation.proposed.search;
  if (explores && search.note.empty()) {
    plan = impl.explore(std::move(plan));
  } else if (explores && !search.ended) { // all of the time is needed for the kernels
    const SearchReport before = search;
    Impl::propose(plan.compilation, impl.left());
    SearchReport& after = plan.compilation.proposed.search;
    after.measured += before.measured;
    after.cache_hits += before.cache_hits;
    after.seconds += before.seconds;
  }
  plan.compilation.proposed.search.fusion_plan = to_string(plan.choice);
  run_phase(plan.compilation, Phase::Plan);
  return plan;
}

} // namespace egret::compiler
