#include "tensor/known_plans.h"

#include "compiler/refusals.h"
#include "runtime/count.h"
#include "runtime/plan_store.h"
#include "runtime/runtime.h"

#include <algorithm>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace egret::detail {
namespace {

constexpr std::size_t kFamilies = 512;
constexpr std::size_t kSize = std::size_t{4} << 20; // words: 32 MiB
constexpr std::size_t kExact = 16;                  // programs of one structure by exact numbers
constexpr std::size_t kRelative = 8;                // and by expressions
constexpr std::size_t kExplored = 8;                // walks that a new plan is to fit
constexpr int kFailures = 3; // after which numbers of a structure are not generalized any more
constexpr int kHot = 64;     // uses for the same numbers after which these get a plan of their own

// The oldest of those that were not used for longest.
template <class List>
auto least_used(List& list) {
  auto least = list.begin();
  for (auto at = list.begin(); at != list.end(); ++at)
    if (at->used.at() <= least->used.at())
      least = at;
  return least;
}

std::uint64_t hash_of(const std::vector<std::uint64_t>& words) {
  return XXH3_64bits(words.data(), words.size() * sizeof(std::uint64_t));
}

// Deterministic execution promises the same bits for a value whatever ran before; the engines that
// interpret and check want memory for all inputs.
bool may_generalize() {
  const auto& runtime = runtime::Runtime::instance();
  return runtime.engine() == runtime::Engine::Compiled && !runtime.deterministic() &&
         !runtime.checked_execution();
}

// A plan reserves what its largest sizes take, which for several sizes that differ at once may be
// any multiple of what a walk takes. It may reserve a few times of what the walk's operands,
// results and reductions take.
bool reserves_too_much(const runtime::Program& general, const ir::Graph& walk) {
  constexpr double kAlways = 64 << 20, kTimes = 8;
  std::vector<char> counts(walk.size());
  for (const ir::NodeId id : walk.outputs)
    counts[static_cast<std::size_t>(id)] = 1;
  double bytes = 0;
  for (std::size_t i = 0; i < walk.size(); ++i) {
    const ir::Node& node = walk[static_cast<ir::NodeId>(i)];
    if (!counts[i] && node.op != Op::Input && info_of(node.op).cls != OpClass::Reduce)
      continue;
    double size = static_cast<double>(size_of(node.dtype));
    for (const Expr& dim : node.shape)
      size *= static_cast<double>(dim.upper());
    bytes += size;
  }
  return static_cast<double>(general.report().arena_bytes) > std::max(kAlways, kTimes * bytes);
}

RecentPlans& recent_plans() {
  Stream& stream = this_stream();
  if (!stream.plans)
    stream.plans = std::make_shared<RecentPlans>();
  return *stream.plans;
}

// Kept, and counted by this thread alone.
std::shared_ptr<const runtime::Program>
own_program(const std::shared_ptr<const runtime::Program>& program) {
  auto kept = program->kept();
  return kept ? kept : own_count(program);
}

} // namespace

KnownPlans::Family* KnownPlans::family_of(const Words& words, std::uint64_t key) {
  const auto found = index_.find(key);
  if (found == index_.end() || found->second->words != words)
    return nullptr;
  found->second->used.set(puts_);
  return &*found->second;
}

KnownPlans::Found KnownPlans::find(const Walk& walk) {
  const std::uint64_t key = hash_of(walk.signature);
  Found found;
  RecentPlans& recent = recent_plans();
  recent.bring_up_to(puts_, runtime::PlanStore::evictions());
  if (const RecentPlan* own = recent.find(key, walk.signature);
      own && own->numbers == walk.numbers) {
    found.plan = own->plan;
    return found;
  }
  std::optional<History> history;
  {
    std::shared_lock lock(mutex_);
    if (Family* family = family_of(walk.signature, key)) {
      for (Exact& exact : family->exact)
        if (exact.numbers == walk.numbers) {
          exact.used.set(puts_);
          found.plan = {own_program(exact.program), nullptr, exact.overwrites};
          recent.put(key, walk.signature, {walk.numbers, found.plan});
          return found;
        }
      for (auto relative = family->relative.rbegin(); relative != family->relative.rend();
           ++relative)
        if (relative->plan->fits(walk.numbers)) {
          found.plan = {relative->plan->program, relative->plan, relative->plan->overwrites};
          if (!relative->plan->has_sizes || !becomes_hot(*relative, walk.numbers))
            return found;
          break;
        }
      if (!found.plan)
        history = History{family->explored, family->failures};
    }
  }
  // The graph is made without the lock of the store.
  if (found.plan)
    found.exploration = Exploration{.graph = graph_of(walk), .specializes = true};
  else
    found.exploration = explore(walk, history ? &*history : nullptr);
  return found;
}

bool KnownPlans::becomes_hot(Relative& relative, const Numbers& numbers) {
  const std::uint64_t now = XXH3_64bits(numbers.data(), numbers.size() * sizeof(numbers[0]));
  if (relative.last.exchange(now, std::memory_order_relaxed) != now)
    relative.uses.store(0, std::memory_order_relaxed);
  return relative.uses.fetch_add(1, std::memory_order_relaxed) + 1 == kHot;
}

Exploration KnownPlans::explore(const Walk& walk, const History* history) {
  Exploration e;
  e.graph = graph_of(walk);
  if (!may_generalize() || (history && history->failures >= kFailures))
    return e;
  std::vector<Numbers> samples = history ? history->explored : with_moved_slices(walk);
  if (samples.empty())
    return e;
  samples.push_back(walk.numbers);
  e.relative = std::make_shared<RelativePlan>();
  e.general = generalized(walk, samples, *e.relative);
  return e;
}

void KnownPlans::put(const Walk& walk, const KnownPlan& plan, bool failed) {
  const std::uint64_t key = hash_of(walk.signature);
  std::list<Family> gone; // let go after the lock: programs take their time
  std::unique_lock lock(mutex_);
  ++puts_;
  Family* family = family_of(walk.signature, key);
  if (!family) {
    if (const auto other = index_.find(key); other != index_.end())
      erase(other->second, gone);
    families_.emplace_front();
    family = &families_.front();
    family->key = key;
    family->words = walk.signature;
    family->used.set(puts_);
    index_.emplace(key, families_.begin());
  }
  if (std::find(family->explored.begin(), family->explored.end(), walk.numbers) ==
      family->explored.end())
    family->explored.push_back(walk.numbers);
  if (family->explored.size() > kExplored)
    family->explored.erase(family->explored.begin());
  if (plan.relative) {
    family->relative.emplace_back(plan.relative);
    if (family->relative.size() > kRelative)
      family->relative.pop_front();
  } else {
    if (family->exact.size() == kExact)
      family->exact.erase(least_used(family->exact));
    family->exact.emplace_front(walk.numbers, plan.program, plan.overwrites, puts_);
    family->failures += failed ? 1 : 0;
  }
  size_ -= family->size;
  family->size = walk.signature.size() +
                 walk.numbers.size() *
                     (family->explored.size() + family->exact.size() + 3 * family->relative.size());
  size_ += family->size;
  while (families_.size() > kFamilies || (size_ > kSize && families_.size() > 1))
    erase(least_used(families_), gone);
}

void KnownPlans::erase(Place place, std::list<Family>& gone) {
  size_ -= place->size;
  index_.erase(place->key);
  gone.splice(gone.begin(), families_, place);
}

KnownPlans& known_plans() {
  static auto* const plans = new KnownPlans;
  return *plans;
}

KnownPlan explored(const Walk& walk, KnownPlans::Found found) {
  if (!found.exploration)
    return std::move(found.plan);
  auto& runtime = runtime::Runtime::instance();
  Exploration& e = *found.exploration;
  (e.specializes ? runtime::count().plan_specializations : runtime::count().plan_explorations)
      .add(1);
  KnownPlan plan;
  const auto program_of = [&](const ir::Graph& graph, bool& overwrites) {
    compiler::Options options;
    options.lazy = true;
    options.outputs = compiler::outputs_over_inputs(graph);
    overwrites = !options.outputs.empty();
    return runtime.program(graph, options);
  };
  if (e.general) {
    try {
      e.relative->program = program_of(*e.general, e.relative->overwrites);
      if (!reserves_too_much(*e.relative->program, e.graph))
        plan = {e.relative->program, e.relative, e.relative->overwrites};
    } catch (const Error&) { // no kernel for sizes that are not known: it is compiled as it is
    } catch (const InternalError&) {
      if (compiler::strict_by_environment())
        throw;
      runtime::count().kernels_refused.add(1);
    }
  }
  if (!plan)
    plan.program = program_of(e.graph, plan.overwrites);
  known_plans().put(walk, plan, e.relative && !plan.relative);
  return plan;
}

} // namespace egret::detail
