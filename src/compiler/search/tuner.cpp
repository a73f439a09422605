#include "compiler/search/tuner.h"

#include "compiler/search/cost_model.h"
#include "compiler/search/region_search.h"
#include "kernel/families.h"
#include "kernel/gpu_library.h"
#include "support/fail.h"
#include "support/hash.h"

#include <algorithm>
#include <numeric>

namespace egret::compiler {

namespace {

/// Schedules of each generator's space that a search tries, and candidates in all; schedules that
/// `quick` ranks.
constexpr std::size_t kPerGenerator = 32, kMost = 40, kRanked = 8;
/// Of the greedy schedule's prediction, what another candidate's may be at most to be taken
/// untried.
constexpr double kClearly = 0.5;
/// Of a program's predicted time, what `quick` does not try to save by ranking more kernels.
constexpr double kLeftUnranked = 0.05;
/// Time for a region's loop trees (docs/loops.md): a share of what the region has, none below the
/// least; and how many are proposed.
constexpr double kLoopShare = 0.1, kLoopLeast = 0.05, kLoopMost = 0.8;
constexpr std::size_t kLoopTrees = 8, kAllLoopTrees = 24;
/// Tells the keys of kernels with cold operands apart.
constexpr std::uint64_t kCold = 0x636f6c64;
/// Of schedules that `quick` ranked, from those that were measured.
constexpr std::uint64_t kByPrediction = 0x72616e6b;
/// Of programs' fusion plans, from those of regions.
constexpr std::uint64_t kFusionPlan = 0x646976;

kernel::Schedule library_schedule() {
  kernel::Schedule schedule;
  schedule.generator = kernel::gpu_library_generator().name();
  return schedule;
}

Candidates propose(const kernel::Region& region, const kernel::Target& target,
                   const Machine& machine, const backend::reference::Bindings& sizes,
                   Effort effort) {
  return effort == Effort::Exhaustive
             ? candidates_of(region, target, machine, sizes, 0, 0)
             : candidates_of(region, target, machine, sizes, kPerGenerator, kMost);
}

/// Trees for a region that is searched, in a share of its time.
void add_loops(SearchTask& task, const kernel::Target& target, const Machine& machine,
               Effort effort, RegionSearch& report) {
  loops::LoopOptions options;
  options.seconds = std::min(kLoopMost, kLoopShare * task.seconds);
  options.trees = effort == Effort::Exhaustive ? kAllLoopTrees : kLoopTrees;
  if (options.seconds >= kLoopLeast)
    report.loops =
        add_loop_trees(task.candidates, task.region, target, machine, task.sizes, options);
}

/// The first candidate that no trial rejected, where the search came to no choice; the first of all
/// when there is none.
kernel::Chosen not_rejected(const SearchTask& task, RegionSearch& report) {
  const std::vector<Candidate>& list = task.candidates.list;
  std::size_t i = 0;
  while (i < list.size() && report.candidates[i].rejected())
    ++i;
  const Candidate& c = list[i < list.size() ? i : 0];
  report.chosen = kernel::to_string(c.schedule);
  report.predicted = c.predicted;
  return {c.schedule, c.program};
}

} // namespace

struct Tuner::Impl {
  backend::Device& device;
  TunerOptions options;
  std::recursive_mutex turn; ///< of searches, one at a time; others choose meanwhile
  std::mutex guard;          ///< of the databases
  MeasurementProcess worker;
  bool with_loops = true; ///< not where a test proposes what it has in mind
  std::optional<TuningDatabase> normal, frozen;
  std::optional<Machine> machine;

  Impl(backend::Device& d, TunerOptions o)
      : device(d), options(std::move(o)), worker(options.worker) {
    with_loops = !options.propose;
    if (!options.propose)
      options.propose = propose;
  }

  TuningDatabase& database(bool is_frozen) {
    std::lock_guard lock(guard);
    auto& wanted = is_frozen ? frozen : normal;
    if (!wanted)
      wanted.emplace(options.folder,
                     is_frozen ? TuningDatabase::Mode::Frozen : TuningDatabase::Mode::Normal);
    return *wanted;
  }

  // Of `quick` the round figures of the target: a program gets the same plan in every process that
  // finds the same in the database, on a busy machine too. Of searches they are measured at first
  // use, where that will be remembered: else the next process would plan by other figures.
  Machine figures(Effort effort, bool is_frozen) {
    if (effort < Effort::Search)
      return usual_machine(device.target());
    const bool may_measure = !is_frozen && options.folder && database(is_frozen).stats(0).writable;
    if (!machine || (may_measure && !machine->measured))
      machine = machine_of(
          device, database(is_frozen),
          {0, device.target().fingerprint, device.target().workers, tuning_version()}, may_measure);
    return *machine;
  }

  /// The device's, with the library when calls of it may be chosen. It is only looked for where
  /// there is something that it could do, as opening it takes a while: by `quick` where a search
  /// may have chosen a call of it.
  kernel::Target target(std::span<const WantedKernel> kernels, const SearchOptions& how) {
    kernel::Target target = device.target();
    const bool may = how.libraries &&
                     (how.effort >= Effort::Search || database(how.frozen).has_measured_choices());
    if (may && std::any_of(kernels.begin(), kernels.end(), [](const WantedKernel& wanted) {
          return kernel::find_product(*wanted.region).ok;
        }))
      target.product_library = device.product_library().version;
    return target;
  }

  TuningKey key_of(const WantedKernel& wanted, const kernel::Target& target,
                   const backend::reference::Bindings& sizes) const {
    std::uint64_t hash = kernel::hash_of(*wanted.region);
    if (wanted.cold)
      hash = combine(hash, kCold);
    // What was found among a library's ways holds for that version alone.
    if (target.product_library != 0 && kernel::find_product(*wanted.region).ok)
      hash = combine(hash, static_cast<std::uint64_t>(target.product_library));
    for (const auto& [symbol, value] : sizes.values())
      hash = combine(combine(hash, hash_text(symbol.str())), static_cast<std::uint64_t>(value));
    return {hash, device.target().fingerprint, device.target().workers, tuning_version()};
  }

  /// What `quick` ranked first, which no search takes for measured.
  static TuningKey by_prediction(TuningKey key) {
    key.region = combine(kByPrediction, key.region);
    return key;
  }

  TuningKey key_of_fusion_plan(std::uint64_t program) const {
    return {combine(kFusionPlan, program), device.target().fingerprint, device.target().workers,
            tuning_version()};
  }

  /// Why no call of the device's library is a candidate for a product that it could make; empty
  /// where there is nothing to say.
  std::string without_library(const kernel::Region& region, const kernel::Target& target,
                              const SearchOptions& wanted) const {
    if (target.product_library != 0 || !kernel::find_product(region).ok)
      return "";
    const backend::ProductLibrary library = device.product_library();
    if (library.version == 0)
      return library.why_not;
    return wanted.libraries ? "" : "libraries are not allowed";
  }

  /// A kernel that effort `quick` chooses a schedule for.
  struct Unranked {
    std::size_t number;  ///< of the kernel
    Candidate greedy;    ///< its prediction among it
    double launches;     ///< a run
    double may_save = 0; ///< seconds a run
  };

  // Which of them are worth the time of lowering other schedules. The roofline bounds what these
  // may save (Williams et al. 2009): a kernel for which no schedule can be clearly ahead is left
  // as it is, and of a program those that together make a small part of its time (Amdahl 1967).
  // The model does not tell a GPU's schedules apart.
  std::vector<Unranked*> worth_ranking(std::vector<Unranked>& kernels,
                                       std::span<const WantedKernel> wanted,
                                       std::span<const backend::reference::Bindings> sizes,
                                       const Machine& figures, double program_seconds) const {
    std::vector<Unranked*> worth;
    if (device.target().threads > 0)
      return worth;
    for (Unranked& k : kernels) {
      const WantedKernel& w = wanted[k.number];
      const double least = least_seconds(k.greedy.program, *w.region, device.target(), figures,
                                         sizes[k.number], w.cold);
      k.may_save = k.launches * (k.greedy.predicted - least);
      if (least < kClearly * k.greedy.predicted)
        worth.push_back(&k);
    }
    std::stable_sort(worth.begin(), worth.end(), [](const Unranked* a, const Unranked* b) {
      return a->may_save < b->may_save;
    });
    double left = 0;
    const auto first = std::find_if(worth.begin(), worth.end(), [&](const Unranked* k) {
      left += k->may_save;
      return left > kLeftUnranked * program_seconds;
    });
    worth.erase(worth.begin(), first);
    return worth;
  }

  // The schedule that the model ranks first, when it is clearly ahead of the greedy one and of the
  // same generator: loops of different kinds compare too badly for a choice that nobody tries, and
  // whether stores should pass by the caches depends on who reads the results.
  static Candidate first_ranked(Candidates all, RegionSearch& report) {
    std::size_t best = 0;
    for (std::size_t i = 0; i < all.list.size(); ++i) {
      CandidateReport& c = report.candidates.emplace_back();
      c.schedule = kernel::to_string(all.list[i].schedule);
      c.state = "ranked";
      c.predicted = all.list[i].predicted;
      const kernel::Schedule &one = all.list[i].schedule, &greedy = all.list[0].schedule;
      const bool comparable =
          one.generator == greedy.generator && one.store_policy == greedy.store_policy;
      if (comparable && c.predicted < kClearly * all.list[0].predicted &&
          c.predicted < all.list[best].predicted)
        best = i;
    }
    return std::move(all.list[best]);
  }

  // A tree in place of a schedule that no family made, where the model puts it far ahead.
  kernel::Chosen or_tree(Candidate best, const kernel::Region& region,
                         const backend::reference::Bindings& sizes, const Machine& figures,
                         RegionSearch& report) const {
    if (with_loops)
      if (auto tree =
              quick_loop_tree(best, region, device.target(), figures, sizes, report.loops)) {
        CandidateReport& c = report.candidates.emplace_back();
        c.schedule = kernel::to_string(tree->schedule);
        c.state = "ranked";
        c.predicted = tree->predicted;
        best = std::move(*tree);
      }
    report.predicted = best.predicted;
    return {std::move(best.schedule), std::move(best.program)};
  }

  // So that other programs and processes need not lower what it was chosen from.
  void remember_ranked(const TuningKey& key, const RegionSearch& r,
                       TuningDatabase& database) const {
    TuningChoice choice;
    choice.schedule = r.chosen;
    choice.name = r.name;
    choice.device = device.name();
    choice.effort = name_of(Effort::Quick);
    choice.candidates = static_cast<std::int64_t>(r.candidates.size());
    database.put(key, choice);
  }

  // Chooses for the kernels that `quick` has no measured choice for.
  void rank(std::vector<Unranked>& unranked, std::span<const WantedKernel> kernels,
            std::span<const backend::reference::Bindings> sizes, const Machine& figures,
            SearchReport& report, std::vector<std::optional<kernel::Chosen>>& chosen) {
    double seconds = 0;
    for (std::size_t i = 0; i < kernels.size(); ++i)
      seconds += kernels[i].launches * report.regions[i].predicted;
    const bool given = !with_loops; // candidates that a test has in mind are all ranked
    std::vector<Unranked*> worth;
    if (given)
      for (Unranked& k : unranked)
        worth.push_back(&k);
    else
      worth = worth_ranking(unranked, kernels, sizes, figures, seconds);
    for (Unranked* k : worth) {
      const kernel::Region& region = *kernels[k->number].region;
      const kernel::Target& target = device.target();
      k->greedy = first_ranked(
          given ? options.propose(region, target, figures, sizes[k->number], Effort::Quick)
                : candidates_like(std::move(k->greedy), region, target, figures, sizes[k->number],
                                  kRanked, kernels[k->number].cold),
          report.regions[k->number]);
    }
    for (Unranked& k : unranked) {
      RegionSearch& r = report.regions[k.number];
      chosen[k.number] =
          or_tree(std::move(k.greedy), *kernels[k.number].region, sizes[k.number], figures, r);
      chosen[k.number]->program.name = kernels[k.number].region->name;
      r.chosen = kernel::to_string(chosen[k.number]->schedule);
    }
  }

  // A choice from before that this version can still make.
  std::optional<kernel::Chosen> remembered(const kernel::Region& region,
                                           const kernel::Target& target, const TuningChoice& choice,
                                           RegionSearch& report) const {
    try {
      kernel::Schedule schedule = kernel::parse_schedule(choice.schedule);
      for (const kernel::Generator* generator : kernel::generators(target))
        if (generator->name() == schedule.generator) {
          kernel::Lowered lowered = generator->lower(region, schedule, target);
          if (!lowered.ok) {
            report.dropped = choice.schedule + ": " + lowered.reason;
            return std::nullopt;
          }
          kernel::verify(lowered.program);
          lowered.program.name = region.name;
          report.cache_hit = true;
          report.chosen = choice.schedule;
          report.seconds = choice.seconds;
          report.greedy_seconds = choice.greedy_seconds;
          return kernel::Chosen{std::move(schedule), std::move(lowered.program)};
        }
      report.dropped = choice.schedule + ": there is no such generator";
    } catch (const Error& error) { // no schedule: a file that somebody edited
      report.dropped = choice.schedule + ": " + error.what();
    } catch (const InternalError& error) { // of its generator, or of verification
      report.dropped = choice.schedule + ": " + error.what();
      report.failed.push_back({choice.schedule, error.what()});
    }
    return std::nullopt;
  }
};

Tuner::Tuner(backend::Device& device, TunerOptions options)
    : impl_(std::make_unique<Impl>(device, std::move(options))) {}
Tuner::~Tuner() = default;

std::unique_lock<std::recursive_mutex> Tuner::take_turn() {
  return std::unique_lock(impl_->turn);
}

Machine Tuner::machine(bool frozen) {
  std::lock_guard lock(impl_->turn);
  return impl_->figures(Effort::Search, frozen);
}

std::optional<std::string> Tuner::fusion_plan(std::uint64_t program, bool frozen) {
  const auto choice = impl_->database(frozen).choice(impl_->key_of_fusion_plan(program));
  return choice ? std::optional(choice->schedule) : std::nullopt;
}

void Tuner::remember_fusion_plan(std::uint64_t program, const std::string& fusion_plan,
                                 double seconds, double greedy_seconds) {
  TuningChoice choice;
  choice.schedule = fusion_plan;
  choice.name = "program";
  choice.device = impl_->device.name();
  choice.effort = name_of(Effort::Search);
  choice.seconds = seconds;
  choice.greedy_seconds = greedy_seconds;
  impl_->database(false).put(impl_->key_of_fusion_plan(program), choice);
}

std::vector<kernel::Chosen> Tuner::choose(std::span<const WantedKernel> kernels,
                                          const SearchOptions& options, SearchReport& report) {
  const auto turn =
      options.effort >= Effort::Search ? take_turn() : std::unique_lock<std::recursive_mutex>();
  const kernel::Target target = impl_->target(kernels, options);
  const SearchClock clock(options, kernels.size(), impl_->options.clock);
  const bool measures = options.effort >= Effort::Search && !options.frozen;
  TuningDatabase& database = impl_->database(options.frozen);
  const Machine machine = impl_->figures(options.effort, options.frozen);
  report.effort = options.effort;
  report.machine = machine;
  report.regions.resize(kernels.size());
  std::vector<std::optional<kernel::Chosen>> chosen(kernels.size());

  // What is known already; of the rest, how much of the budget each is worth.
  std::vector<std::size_t> open;
  std::vector<Impl::Unranked> unranked;
  std::vector<backend::reference::Bindings> sizes;
  std::vector<double> share(kernels.size());
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const kernel::Region& region = *kernels[i].region;
    RegionSearch& r = report.regions[i];
    sizes.push_back(sizes_to_try(region));
    const TuningKey key = impl_->key_of(kernels[i], target, sizes[i]);
    r.name = region.name;
    r.region = key.region;
    if (auto choice = database.choice(key))
      if (options.effort != Effort::Exhaustive || options.frozen || choice->effort == "exhaustive")
        chosen[i] = impl_->remembered(region, target, *choice, r);
    if (options.effort == Effort::Quick && !chosen[i] && impl_->with_loops)
      if (auto choice = database.choice(Impl::by_prediction(key)))
        chosen[i] = impl_->remembered(region, target, *choice, r);
    if (chosen[i]) {
      ++report.cache_hits;
      r.predicted = predict(chosen[i]->program, region, target, machine, sizes[i], kernels[i].cold);
      continue;
    }
    chosen[i] = kernel::lower_greedily(region, impl_->device.target(), &r.failed);
    chosen[i]->program.name = region.name;
    r.chosen = kernel::to_string(chosen[i]->schedule);
    r.predicted = predict(chosen[i]->program, region, target, machine, sizes[i], kernels[i].cold);
    share[i] = kernels[i].launches * r.predicted;
    if (measures)
      open.push_back(i);
    else if (options.effort >= Effort::Search)
      r.note = "not in the database, which is frozen";
    else
      unranked.push_back(
          {i,
           {std::move(chosen[i]->schedule), std::move(chosen[i]->program), 0, r.predicted},
           kernels[i].launches});
  }
  if (!unranked.empty()) {
    impl_->rank(unranked, kernels, sizes, machine, report, chosen);
    for (const Impl::Unranked& k : unranked)
      if (const RegionSearch& r = report.regions[k.number]; !r.candidates.empty() || r.loops)
        impl_->remember_ranked(
            Impl::by_prediction(impl_->key_of(kernels[k.number], target, sizes[k.number])), r,
            database);
  }

  std::stable_sort(open.begin(), open.end(),
                   [&](std::size_t a, std::size_t b) { return share[a] > share[b]; });
  double left = std::accumulate(open.begin(), open.end(), 0.0,
                                [&](double sum, std::size_t i) { return sum + share[i]; });
  std::string stopped; // why the rest is left as it is
  if (!open.empty() && impl_->options.worker.binary.empty())
    try {
      find_worker();
    } catch (const Error& error) {
      stopped = error.what();
    }
  for (std::size_t n = 0; n < open.size(); ++n) {
    const std::size_t i = open[n];
    RegionSearch& r = report.regions[i];
    if (stopped.empty() && clock.cancelled())
      stopped = "the search was ended";
    if (stopped.empty() && clock.left() <= 0)
      stopped = "the budget is used up";
    if (!stopped.empty()) {
      r.note = stopped;
      continue;
    }
    const double begin = clock.seconds();
    // Half as much again as its share: what regions leave goes to those after them.
    const double fair = left > 0 ? 1.5 * clock.left() * share[i] / left : clock.left();
    left -= share[i];
    SearchTask task{
        *kernels[i].region,
        impl_->key_of(kernels[i], target, sizes[i]),
        sizes[i],
        kernels[i].cold,
        impl_->options.propose(*kernels[i].region, target, machine, sizes[i], options.effort),
        name_of(options.effort),
        impl_->device.name(),
        std::min(clock.left(), std::max(fair, 1.0)),
        kernels.size() - open.size() + n};
    if (impl_->with_loops)
      add_loops(task, target, machine, options.effort, r);
    if (std::string why = impl_->without_library(*kernels[i].region, target, options); !why.empty())
      task.candidates.refused.push_back({library_schedule(), std::move(why)});
    try {
      if (auto won = search_region(task, impl_->worker, database, clock, r, report.measured))
        chosen[i] = std::move(won);
      else if (!r.candidates.empty() && r.candidates[0].rejected())
        chosen[i] = not_rejected(task, r);
    } catch (const Error& error) { // no worker, or no device for it
      stopped = error.what();
      r.note = stopped;
    }
    r.search_seconds = clock.seconds() - begin;
  }
  if (!stopped.empty())
    report.note = stopped;
  report.ended = clock.cancelled();
  report.seconds = clock.seconds();
  std::vector<kernel::Chosen> result;
  for (auto& one : chosen)
    result.push_back(std::move(*one));
  return result;
}

} // namespace egret::compiler
