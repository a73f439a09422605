#include "tensor/known_plans.h"

#include "runtime/runtime.h"
#include "support/hash.h"

#include <algorithm>

namespace egret::detail {
namespace {

constexpr std::size_t kFamilies = 512;
constexpr std::size_t kSize = std::size_t{4} << 20; // words: 32 MiB
constexpr std::size_t kExact = 16;                  // programs of one structure by exact numbers
constexpr std::size_t kAttempts = 6;                // attempts to make one of more numbers
constexpr std::size_t kExplored = 4;                // walks that an attempt looks at

std::uint64_t hash_of(const KnownPlans::Words& words) {
  std::uint64_t h = words.size();
  for (std::uint64_t word : words)
    h = combine(h, word);
  return h;
}

// Deterministic execution promises the same bits for a value whatever ran before; the engines that
// interpret and check want memory for all inputs.
bool may_generalize() {
  const auto& runtime = runtime::Runtime::instance();
  return runtime.engine() == runtime::Engine::Compiled && !runtime.deterministic() &&
         !runtime.checked_execution();
}

// The numbers of a walk with another begin of its only slice of a leaf that may begin elsewhere.
std::optional<KnownPlans::Numbers> with_moved_slice(const Walk& walk) {
  std::size_t at = 0;
  for (const NodePtr& leaf : walk.leaves)
    at += leaf->form.shape.size();
  std::optional<KnownPlans::Numbers> moved;
  for (const Node* node : walk.order) {
    if (info_of(node->form.op).cls == OpClass::Reduce)
      return std::nullopt;
    if (node->form.op != Op::Shrink) {
      at += numbers_of(*node);
      continue;
    }
    for (std::size_t axis = 0; axis < node->form.shape.size(); ++axis, at += 2) {
      const std::int64_t size = node->inputs[0]->form.shape[axis].value();
      const std::int64_t begin = walk.numbers[at], length = walk.numbers[at + 1];
      if (length == size)
        continue;
      if (moved || !(node->inputs[0]->place & kLeafBit))
        return std::nullopt;
      moved = walk.numbers;
      (*moved)[at] = begin > 0 ? begin - 1 : begin + 1;
    }
  }
  return moved;
}

} // namespace

KnownPlans::Family* KnownPlans::family_of(const Words& words) {
  const auto found = index_.find(hash_of(words));
  if (found == index_.end() || found->second->words != words)
    return nullptr;
  families_.splice(families_.begin(), families_, found->second);
  return &*found->second;
}

KnownPlans::Found KnownPlans::find(const Words& words, const Numbers& numbers) {
  Family* family = family_of(words);
  if (!family)
    return {};
  for (auto exact = family->exact.begin(); exact != family->exact.end(); ++exact)
    if (exact->numbers == numbers) {
      family->exact.splice(family->exact.begin(), family->exact, exact);
      return {exact->program, nullptr};
    }
  for (auto plan = family->relative.rbegin(); plan != family->relative.rend(); ++plan)
    if ((*plan)->fits(numbers))
      return {(*plan)->program, *plan};
  return {};
}

Exploration KnownPlans::explore(const Walk& walk) {
  Exploration e;
  e.graph = graph_of(walk);
  if (!may_generalize())
    return e;
  std::vector<Numbers> samples;
  if (Family* family = family_of(walk.signature)) {
    if (family->attempts++ >= kAttempts)
      return e;
    samples = family->explored;
  } else if (auto moved = with_moved_slice(walk)) {
    samples.push_back(std::move(*moved));
  }
  if (samples.empty())
    return e;
  samples.push_back(walk.numbers);
  e.relative = std::make_shared<RelativePlan>();
  e.general = generalized(walk, samples, *e.relative);
  return e;
}

void KnownPlans::put(const Words& words, const Numbers& numbers, const Found& plan) {
  Family* family = family_of(words);
  if (!family) {
    const std::uint64_t key = hash_of(words);
    if (const auto other = index_.find(key); other != index_.end())
      erase(other->second);
    families_.emplace_front();
    family = &families_.front();
    family->key = key;
    family->words = words;
    family->size = words.size();
    size_ += family->size;
    index_.emplace(key, families_.begin());
  }
  const std::size_t before = family->size;
  family->explored.push_back(numbers);
  if (family->explored.size() > kExplored)
    family->explored.erase(family->explored.begin());
  if (plan.relative)
    family->relative.push_back(plan.relative);
  else
    family->exact.push_front({numbers, plan.program});
  if (family->exact.size() > kExact)
    family->exact.pop_back();
  family->size = words.size() + numbers.size() * (family->explored.size() + family->exact.size() +
                                                  2 * family->relative.size());
  size_ += family->size - before;
  while (families_.size() > kFamilies || (size_ > kSize && families_.size() > 1))
    erase(std::prev(families_.end()));
}

void KnownPlans::erase(Place place) {
  size_ -= place->size;
  index_.erase(place->key);
  families_.erase(place);
}

KnownPlans& known_plans() {
  static auto* const plans = new KnownPlans;
  return *plans;
}

KnownPlans::Found explored(Exploration e) {
  auto& runtime = runtime::Runtime::instance();
  if (e.general) {
    try {
      e.relative->program = runtime.program(*e.general);
      return {e.relative->program, e.relative};
    } catch (const Error&) { // no kernel for sizes that are not known: it is compiled as it is
    }
  }
  return {runtime.program(e.graph), nullptr};
}

} // namespace egret::detail
