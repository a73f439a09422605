#include "tensor/recipe.h"

#include "support/fail.h"
#include "tensor/engine.h"

#include <algorithm>

namespace egret::detail {
namespace {

// What backward() has let go and another thread is computing may be written over what it is made
// of.
bool has_recipe(const Node& node) {
  return within_reach(node) && node.kind == Node::Kind::Op && !node.grad_leaf &&
         node.needs_grad.load() && !node.inputs.empty() && !(node.in_flight && node.spent.load());
}

// A value that needs a gradient and cannot pass it on.
[[noreturn]] void refuse_dead_end(const Node& node, const char* who) {
  const std::string what = name_of(node.form.dtype) + to_string(node.form.shape);
  switch (node.kind) {
  case Node::Kind::Placeholder:
    fail(ErrorKind::State,
         "{}: `{}` ({}) was computed from tensors that require gradients, outside of {}; detach() "
         "it before the call",
         who, node.form.attrs.name, what, node.scope->name);
  case Node::Kind::Data:
    fail(ErrorKind::State,
         "{}: a value on the way ({}) is the result of a compiled function, which carries no "
         "recipe; "
         "call backward() inside the function, or detach() the result",
         who, what);
  default:
    fail(ErrorKind::State,
         "{}: backward() was called before on a value on the way ({}), which let its recipe go; "
         "pass "
         "retain = true to that call",
         who, what);
  }
}

// What is taken off before an exponential, -max(x) behind stop_gradient, x being in the recipe
// already: its nodes enter as what they are although no gradient passes them, as the rules look for
// them (autodiff/guards.h).
class TakenOff {
public:
  explicit TakenOff(std::uint64_t epoch) : epoch_(epoch) {}

  bool has(const Node& node) {
    if (!is_plain(node))
      return false;
    if (std::find(nodes_.begin(), nodes_.end(), &node) != nodes_.end())
      return true;
    if (const Op op = node.form.op; op != Op::Mul && op != Op::Expand && op != Op::Reshape)
      return false;
    std::vector<const Node*> way;
    if (!is_minus_max(node, way))
      return false;
    nodes_.insert(nodes_.end(), way.begin(), way.end());
    return true;
  }

private:
  static bool is_plain(const Node& node) {
    return within_reach(node) && node.kind == Node::Kind::Op && !node.grad_leaf &&
           !node.needs_grad.load();
  }
  // Follows views, whose nodes are added to the way.
  static const Node& below_views(const Node& node, std::vector<const Node*>& way) {
    const Node* at = &node;
    way.push_back(at);
    while (is_plain(*at) && (at->form.op == Op::Expand || at->form.op == Op::Reshape) &&
           !at->inputs.empty())
      way.push_back(at = at->inputs[0].get());
    return *at;
  }

  bool is_minus_max(const Node& node, std::vector<const Node*>& way) const {
    const Node& product = below_views(node, way);
    return is_plain(product) && product.form.op == Op::Mul && product.inputs.size() == 2 &&
           ((is_max(*product.inputs[0], way) && is_number(*product.inputs[1], way)) ||
            (is_max(*product.inputs[1], way) && is_number(*product.inputs[0], way)));
  }
  static bool is_number(const Node& node, std::vector<const Node*>& way) {
    const Node& number = below_views(node, way);
    return is_plain(number) && number.form.op == Op::Constant;
  }
  bool is_max(const Node& node, std::vector<const Node*>& way) const {
    const Node& stopped = below_views(node, way);
    if (!is_plain(stopped) || stopped.form.op != Op::StopGradient || stopped.inputs.empty())
      return false;
    const Node* at = stopped.inputs[0].get();
    while (has_recipe(*at) && at->form.op == Op::Reshape)
      at = at->inputs[0].get();
    return has_recipe(*at) && at->form.op == Op::ReduceMax && within_reach(*at->inputs[0]) &&
           at->inputs[0]->epoch == epoch_;
  }

  const std::uint64_t epoch_; // of the nodes that the recipe has
  std::vector<const Node*> nodes_;
};

void add_places(const Recipe& recipe, std::vector<std::uint64_t>& words) {
  words.push_back(recipe.forward);
  for (const auto* places : {&recipe.outputs, &recipe.seeds, &recipe.by}) {
    words.push_back(places->size());
    words.insert(words.end(), places->begin(), places->end());
  }
}

void add(const std::vector<Expr>& numbers, std::vector<std::uint64_t>& words) {
  for (const Expr& number : numbers)
    words.push_back(static_cast<std::uint64_t>(number.value()));
}

void add(const Recipe::Entry& entry, const ir::Attrs& attrs, std::vector<std::uint64_t>& words) {
  words.push_back(static_cast<std::uint64_t>(entry.node->form.op) |
                  static_cast<std::uint64_t>(attrs.dtype) << 8 |
                  static_cast<std::uint64_t>(attrs.value.dtype) << 16 |
                  static_cast<std::uint64_t>(entry.count) << 24 |
                  static_cast<std::uint64_t>(attrs.axes.size()) << 32 |
                  static_cast<std::uint64_t>(attrs.shape.size()) << 40 |
                  static_cast<std::uint64_t>(attrs.before.size()) << 48 |
                  static_cast<std::uint64_t>(attrs.after.size()) << 56);
  words.push_back(attrs.value.bits);
  for (std::size_t i = 0; i < entry.count; ++i)
    words.push_back(entry.operands[i]);
  for (const std::int64_t axis : attrs.axes)
    words.push_back(static_cast<std::uint64_t>(axis));
  add(attrs.shape, words);
  add(attrs.before, words);
  add(attrs.after, words);
}

// Needs an EngineLock; void where that has missed something.
class Collector {
public:
  Collector(const DerivativeQuery& query, const EngineLock& lock)
      : query_(query), lock_(lock), epoch_(next_epoch()), taken_off_(epoch_) {}

  Recipe run() {
    for (const NodePtr& output : query_.outputs)
      walk(output);
    if (lock_.missed())
      return {};
    recipe_.forward = recipe_.entries.size();
    for (const NodePtr& output : query_.outputs)
      recipe_.outputs.push_back(output->place);
    for (const NodePtr& seed : query_.seeds)
      recipe_.seeds.push_back(seed ? place_of(seed) : Recipe::kOnes);
    if (query_.by) {
      for (const NodePtr& node : *query_.by)
        recipe_.by.push_back(place_of(node));
    } else {
      for (std::uint32_t place = 0; place < recipe_.forward; ++place)
        if (recipe_.entries[place].node->grad_leaf)
          recipe_.by.push_back(place);
    }
    if (lasts_ && !lock_.missed())
      note_forms();
    return std::move(recipe_);
  }

private:
  struct Frame {
    const NodePtr* node;
    std::size_t next;
  };

  bool has(const Node& node) const { return within_reach(node) && node.epoch == epoch_; }

  Recipe::Entry& enter(const NodePtr& node) {
    node->epoch = epoch_;
    node->place = static_cast<std::uint32_t>(recipe_.entries.size());
    lasts_ = lasts_ && !node->scope;
    recipe_.entries.emplace_back();
    recipe_.entries.back().node = node;
    return recipe_.entries.back();
  }
  std::uint32_t place_of(const NodePtr& node) {
    if (!has(*node) && within_reach(*node))
      enter(node);
    return within_reach(*node) ? node->place : 0;
  }

  void walk(const NodePtr& root) {
    std::vector<Frame> stack{{&root, 0}};
    while (!stack.empty()) {
      const NodePtr& node = *stack.back().node;
      if (!within_reach(*node))
        return;
      if (has(*node)) {
        stack.pop_back();
        continue;
      }
      if (!has_recipe(*node) && !taken_off_.has(*node)) {
        if (lock_.missed())
          return;
        if (node->needs_grad.load() && !node->grad_leaf && !is_asked_for(node))
          refuse_dead_end(*node, query_.who);
        enter(node);
        stack.pop_back();
        continue;
      }
      std::size_t& next = stack.back().next;
      while (next < node->inputs.size() && has(*node->inputs[next]))
        ++next;
      if (next < node->inputs.size()) {
        stack.push_back({&node->inputs[next], 0});
        continue;
      }
      Recipe::Entry& entry = enter(node);
      entry.operation = true;
      for (const NodePtr& input : node->inputs)
        entry.operands[entry.count++] = input->place;
      stack.pop_back();
    }
  }

  bool is_asked_for(const NodePtr& node) const {
    return query_.by && std::find(query_.by->begin(), query_.by->end(), node) != query_.by->end();
  }

  void note_forms() {
    auto& forms = recipe_.forms;
    forms.reserve(3 * recipe_.entries.size() + recipe_.by.size() + 8);
    for (const Recipe::Entry& entry : recipe_.entries) {
      forms.push_back(reinterpret_cast<std::uintptr_t>(&entry.node->form) |
                      static_cast<std::uint64_t>(entry.operation)); // forms are aligned
      forms.insert(forms.end(), entry.operands.begin(), entry.operands.begin() + entry.count);
    }
    add_places(recipe_, forms);
  }

  const DerivativeQuery& query_;
  const EngineLock& lock_;
  const std::uint64_t epoch_;
  TakenOff taken_off_;
  Recipe recipe_;
  bool lasts_ = true; // none of it belongs to a scope
};

} // namespace

std::vector<std::uint64_t> words_of(const Recipe& recipe) {
  std::vector<std::uint64_t> words;
  words.reserve(10 * recipe.entries.size() + recipe.by.size() + 8);
  for (const Recipe::Entry& entry : recipe.entries) {
    const ir::Node& form = entry.node->form;
    if (entry.operation) {
      add(entry, form.attrs, words);
      continue;
    }
    words.push_back(0xffu | static_cast<std::uint64_t>(form.dtype) << 8 |
                    static_cast<std::uint64_t>(form.shape.size()) << 32);
    add(form.shape, words);
  }
  add_places(recipe, words);
  return words;
}

Recipe recipe_of(const DerivativeQuery& query) {
  EngineLock lock;
  Recipe recipe = Collector(query, lock).run();
  if (!lock.missed())
    return recipe;
  lock.widen();
  return Collector(query, lock).run();
}

} // namespace egret::detail
