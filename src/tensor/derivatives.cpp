#include "tensor/derivatives.h"

#include "egret/autodiff.h"
#include "egret/passes.h"
#include "saturate/saturate.h"
#include "support/call_sites.h"
#include "support/fail.h"
#include "tensor/recent.h"
#include "tensor/recipe.h"
#include "tensor/trace.h"

#include <algorithm>
#include <iterator>
#include <list>
#include <optional>
#include <unordered_map>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace egret::detail {

// What autodiff adds to a recipe. Its operations are numbered behind the recipe's entries.
struct Derivation {
  struct Step {
    FormPtr form;
    std::size_t count = 0; ///< of operands
    std::array<std::uint32_t, Inputs::kMost> operands{};
  };
  std::vector<Step> steps;
  std::vector<std::uint32_t> gradients;
  std::size_t words() const noexcept {
    return steps.size() * ((sizeof(Step) + sizeof(ir::Node)) / 8 + 16);
  }
};
using DerivationPtr = std::shared_ptr<const Derivation>;

/// A derivation as one thread found it, and the forms by whose places it is found.
struct RecentDerivation {
  DerivationPtr derivation;
  std::vector<FormPtr> forms;
};
class RecentDerivations : public Recent<RecentDerivation, 4> {};

namespace {

// Rules that keep values and not gradients: of equal operands of a maximum each gets its share.
constexpr const char* kSharingRules[] = {"max-again", "max-constants", "amax-of-max"};

// A recipe as a graph, and the graph that autodiff makes of it.
class Deriver {
public:
  Deriver(const Recipe& recipe, const char* who)
      : recipe_(recipe), who_(who), ids_(recipe.entries.size(), ir::kNoNode) {}

  Derivation run() {
    for (std::uint32_t place = 0; place < recipe_.forward; ++place)
      add(place);
    std::vector<ir::NodeId> outputs, seeds, by;
    for (const std::uint32_t place : recipe_.outputs)
      outputs.push_back(ids_[place]);
    outputs = rewritten(std::move(outputs));
    for (std::size_t i = 0; i < outputs.size(); ++i)
      seeds.push_back(recipe_.seeds[i] == Recipe::kOnes ? ones(recipe_.outputs[i])
                                                        : id_of(recipe_.seeds[i]));
    for (const std::uint32_t place : recipe_.by)
      by.push_back(id_of(place));
    return added(gradients(graph_, outputs, seeds, by));
  }

private:
  const ir::Node& form(std::uint32_t place) const { return recipe_.entries[place].node->form; }

  void put(std::uint32_t place, ir::NodeId id) {
    ids_[place] = id;
    places_.resize(std::max<std::size_t>(places_.size(), id + 1));
    if (!places_[id])
      places_[id] = place;
  }
  void enter(std::uint32_t place) {
    put(place, graph_.input(fmt::format("x{}", graph_.inputs().size()), form(place).dtype,
                            form(place).shape));
  }
  ir::NodeId id_of(std::uint32_t place) {
    if (ids_[place] == ir::kNoNode)
      enter(place);
    return ids_[place];
  }
  void add(std::uint32_t place) {
    const Recipe::Entry& entry = recipe_.entries[place];
    if (!entry.operation)
      return enter(place);
    std::array<ir::NodeId, Inputs::kMost> operands;
    for (std::size_t i = 0; i < entry.count; ++i)
      operands[i] = ids_[entry.operands[i]];
    put(place, graph_.add(form(place).op, {operands.data(), entry.count}, form(place).attrs));
  }
  ir::NodeId ones(std::uint32_t output) {
    const Shape& shape = form(output).shape;
    if (!(element_count(shape) == Expr(1)))
      fail(ErrorKind::Shape,
           "{}: {} has more than one element; give a seed of its shape, or sum it first", who_,
           to_string(shape));
    return graph_.broadcast(graph_.constant(form(output).dtype, 1), shape);
  }

  // In a traced function that the rules may rewrite, the recipe as they leave it; gives the
  // outputs. All that it is differentiated by must enter it: other values may be gone afterwards.
  std::vector<ir::NodeId> rewritten(std::vector<ir::NodeId> outputs) {
    auto* const trace = dynamic_cast<Trace*>(current_scope());
    const auto enters = [&](std::uint32_t place) { return !recipe_.entries[place].operation; };
    if (!trace || !trace->rules || !std::all_of(recipe_.by.begin(), recipe_.by.end(), enters))
      return outputs;
    saturate::SaturateOptions rules = *trace->rules;
    rules.without.insert(rules.without.end(), std::begin(kSharingRules), std::end(kSharingRules));
    rules.allowed = {};
    for (RuleTag tag : {RuleTag::Exact, RuleTag::Reassociates, RuleTag::Approximate})
      if (trace->rules->allowed.has(tag))
        rules.allowed.add(tag);
    graph_.outputs = std::move(outputs);
    // Markers stay, unlike in normalize(): gradients stop there.
    const Pass simplify = passes::fold_constants() | passes::simplify() | passes::dead_code();
    const ir::Graph simple = simplify(graph_);
    saturate::Saturated saturated(simple, rules);
    ir::Graph best = std::move(saturated.extract().at(0));
    trace->rules_text +=
        "before autodiff, " + compiler::rules_text(saturated.report(), simple.size(), best.size());
    std::vector<std::uint32_t> inputs;
    for (const ir::NodeId input : graph_.inputs())
      inputs.push_back(*places_[input]);
    graph_ = std::move(best);
    ids_.assign(ids_.size(), ir::kNoNode);
    places_.clear();
    for (std::size_t slot = 0; slot < inputs.size(); ++slot)
      put(inputs[slot], graph_.inputs()[slot]);
    return std::exchange(graph_.outputs, {});
  }

  // The nodes below `results` that are none of the recipe's.
  Derivation added(const std::vector<ir::NodeId>& results) {
    places_.resize(graph_.size());
    std::vector<bool> needed(graph_.size());
    for (const ir::NodeId id : results)
      needed[id] = true;
    for (auto id = static_cast<ir::NodeId>(graph_.size()); id-- > 0;)
      if (needed[id] && !places_[id])
        for (const ir::NodeId input : graph_[id].inputs)
          needed[input] = true;
    Derivation made;
    for (ir::NodeId id = 0; id < graph_.size(); ++id) {
      if (!needed[id] || places_[id])
        continue;
      places_[id] = static_cast<std::uint32_t>(recipe_.entries.size() + made.steps.size());
      const ir::Node& node = graph_[id];
      Derivation::Step& step = made.steps.emplace_back();
      step.form = make_form(node.op, node.dtype, node.shape, node.attrs);
      for (const ir::NodeId input : node.inputs)
        step.operands[step.count++] = *places_[input];
    }
    for (const ir::NodeId id : results)
      made.gradients.push_back(*places_[id]);
    return made;
  }

  const Recipe& recipe_;
  const char* who_;
  ir::Graph graph_;
  std::vector<ir::NodeId> ids_;                      // by place
  std::vector<std::optional<std::uint32_t>> places_; // by id; nothing: none of the recipe's
};

// Where the operations of a recipe were recorded, by place; a leaf's is that of its first reader.
std::vector<call_sites::Id> sites_of(const Recipe& recipe) {
  std::vector<call_sites::Id> sites;
  std::unordered_map<const Node*, std::size_t> place;
  for (const auto& entry : recipe.entries) {
    place.emplace(entry.node.get(), sites.size());
    sites.push_back(entry.node->site);
  }
  for (const auto& entry : recipe.entries)
    for (const NodePtr& input : entry.node->inputs)
      if (const auto found = place.find(input.get());
          found != place.end() && sites[found->second] == 0)
        sites[found->second] = entry.node->site;
  return sites;
}

// Where a derivative belongs: to an operation of the recipe that it reads a value of, else to those
// whose derivatives it reads.
call_sites::Id site_of(const Derivation::Step& step, const std::vector<call_sites::Id>& sites,
                       const std::vector<NodePtr>& made) {
  call_sites::Id site = 0;
  for (std::size_t i = 0; i < step.count; ++i) {
    const std::uint32_t place = step.operands[i];
    if (place < sites.size() && sites[place] != 0)
      return call_sites::gradient_of(sites[place]);
    if (place >= sites.size() && site == 0)
      site = made[place - sites.size()]->site;
  }
  return site;
}

// Records the operations, and gives the gradients.
std::vector<NodePtr> recorded(const Recipe& recipe, const Derivation& derivation) {
  const std::size_t forward = recipe.entries.size();
  std::vector<NodePtr> made;
  made.reserve(derivation.steps.size());
  const auto sites = call_sites::wanted() ? sites_of(recipe) : std::vector<call_sites::Id>();
  const auto at = [&](std::uint32_t place) -> const NodePtr& {
    return place < forward ? recipe.entries[place].node : made[place - forward];
  };
  for (const Derivation::Step& step : derivation.steps) {
    Inputs inputs;
    bool known[Inputs::kMost] = {};
    for (std::size_t i = 0; i < step.count; ++i) {
      known[i] = step.operands[i] < forward;
      inputs.push_back(at(step.operands[i]));
    }
    place_together(inputs, {known, inputs.size()});
    made.push_back(record_form(step.form, std::move(inputs)));
    if (const call_sites::Id site = sites.empty() ? 0 : site_of(step, sites, made); site != 0)
      made.back()->site = site;
  }
  std::vector<NodePtr> gradients;
  for (const std::uint32_t place : derivation.gradients)
    gradients.push_back(at(place));
  return gradients;
}

std::uint64_t hash_of(const std::vector<std::uint64_t>& words) {
  return XXH3_64bits(words.data(), words.size() * sizeof(std::uint64_t));
}

// Derivations by the words of their recipes. Bounded; the least recently used go first.
class KnownDerivations {
public:
  static KnownDerivations& instance() {
    static auto* const known = new KnownDerivations;
    return *known;
  }
  DerivationPtr find(const std::vector<std::uint64_t>& words) {
    const std::uint64_t key = hash_of(words);
    std::lock_guard lock(mutex_);
    const auto found = index_.find(key);
    if (found == index_.end() || found->second->words != words)
      return nullptr;
    entries_.splice(entries_.begin(), entries_, found->second);
    return found->second->derivation;
  }
  void put(std::vector<std::uint64_t> words, DerivationPtr derivation) {
    const std::uint64_t key = hash_of(words);
    std::list<Entry> gone; // let go after the lock
    std::lock_guard lock(mutex_);
    if (const auto other = index_.find(key); other != index_.end())
      take(other->second, gone);
    const std::size_t size = words.size() + derivation->words();
    entries_.push_front({key, size, std::move(words), std::move(derivation)});
    index_.emplace(key, entries_.begin());
    size_ += size;
    while (entries_.size() > kEntries || (size_ > kSize && entries_.size() > 1))
      take(std::prev(entries_.end()), gone);
  }

private:
  static constexpr std::size_t kEntries = 512;
  static constexpr std::size_t kSize = std::size_t{4} << 20; // words: 32 MiB
  struct Entry {
    std::uint64_t key;
    std::size_t size; // in words, roughly
    std::vector<std::uint64_t> words;
    DerivationPtr derivation;
  };
  void take(std::list<Entry>::iterator place, std::list<Entry>& gone) {
    size_ -= place->size;
    index_.erase(place->key);
    gone.splice(gone.begin(), entries_, place);
  }

  std::mutex mutex_;
  std::list<Entry> entries_; // most recently used first
  std::unordered_map<std::uint64_t, std::list<Entry>::iterator> index_;
  std::size_t size_ = 0;
};

std::atomic<std::uint64_t> derived{0};

// With forms of its own, whose owners only one thread counts.
DerivationPtr own_copy(const Derivation& derivation) {
  auto copy = std::make_shared<Derivation>(derivation);
  for (Derivation::Step& step : copy->steps)
    step.form = std::make_shared<const ir::Node>(*step.form);
  return copy;
}

// Of a recipe that is known or may be met again, from the store.
DerivationPtr stored(const Recipe& recipe, const char* who) {
  std::vector<std::uint64_t> words = words_of(recipe);
  if (DerivationPtr known = KnownDerivations::instance().find(words))
    return known;
  auto made = std::make_shared<Derivation>(Deriver(recipe, who).run());
  derived.fetch_add(1, std::memory_order_relaxed);
  KnownDerivations::instance().put(std::move(words), made);
  return made;
}

DerivationPtr derivation_of(const Recipe& recipe, const char* who) {
  if (recipe.forms.empty() || current_scope()) {
    derived.fetch_add(1, std::memory_order_relaxed);
    return std::make_shared<Derivation>(Deriver(recipe, who).run());
  }
  Stream& stream = this_stream();
  if (!stream.derivations)
    stream.derivations = std::make_shared<RecentDerivations>();
  const std::uint64_t key = hash_of(recipe.forms);
  if (const RecentDerivation* recent = stream.derivations->find(key, recipe.forms))
    return recent->derivation;
  RecentDerivation fresh{own_copy(*stored(recipe, who)), {}};
  for (const Recipe::Entry& entry : recipe.entries)
    fresh.forms.push_back(entry.node->shared_form);
  return stream.derivations->put(key, recipe.forms, std::move(fresh)).derivation;
}

void check_seed(const Node& output, const Node& seed, const char* who) {
  if (seed.form.shape != output.form.shape)
    fail(ErrorKind::Shape, "{}: the seed is {} and the value {}; they must be equal", who,
         to_string(seed.form.shape), to_string(output.form.shape));
  if (seed.form.dtype != output.form.dtype)
    fail(ErrorKind::DType, "{}: the seed is {} and the value {}; they must be equal", who,
         name_of(seed.form.dtype), name_of(output.form.dtype));
}

} // namespace

std::uint64_t recipes_derived() noexcept {
  return derived.load(std::memory_order_relaxed);
}

Derivatives differentiate(const DerivativeQuery& query) {
  const QueueHold hold; // a gradient is one with what it is made of
  const Recipe recipe = recipe_of(query);
  for (std::size_t i = 0; i < query.outputs.size(); ++i)
    if (query.seeds[i])
      check_seed(*query.outputs[i], *query.seeds[i], query.who);
  const DerivationPtr derivation = derivation_of(recipe, query.who);
  Derivatives found;
  for (const std::uint32_t place : recipe.by)
    found.by.push_back(recipe.entries[place].node);
  found.gradients = recorded(recipe, *derivation);
  for (std::size_t i = 0; i < found.by.size(); ++i)
    if (const Placement at = found.by[i]->placement();
        at.is_bound() && !joined(at, found.gradients[i]->placement()))
      found.gradients[i] = placed(found.gradients[i], at, query.who);
  return found;
}

} // namespace egret::detail
