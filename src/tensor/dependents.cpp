// What a read computes beside the value that was asked for.
#include "tensor/engine.h"

#include <algorithm>
#include <optional>

namespace egret::detail {

namespace {

// Held values, not among those that a walk computes, that depend on some that it computes and
// forgets: an optimizer's states beside a loss, the next state of a generator beside its numbers.
// Left for later they would have it all computed again, with more of it after every step.
class Dependents {
public:
  explicit Dependents(Walk& w) : w_(w), forgotten_(w.order.size(), true) {
    for (const NodePtr& output : w.outputs)
      forgotten_[output->place] = false;
    // Constants, and views of what is in memory then, cost nothing again.
    for (const Node* node : w.order)
      if (node->inputs.empty() || (is_view(*node) && stays(*node->inputs[0])))
        forgotten_[node->place] = false;
  }

  /// What was looked at goes to `dropped`: a handle may have let it go meanwhile.
  std::vector<NodePtr> find(std::vector<NodePtr>& dropped) {
    std::vector<NodePtr> found;
    if (w_.order.empty() || !used_elsewhere())
      return found;
    const std::size_t first = dropped.size();
    look_at_handles(dropped);
    for (std::size_t i = first; i < dropped.size(); ++i)
      if (answer(*dropped[i]) == Answer::Yes)
        found.push_back(dropped[i]);
    return found;
  }

private:
  // All of them, or with this stream those whose values are at home in it.
  static void look_at_handles(std::vector<NodePtr>& nodes) {
    if (!held_stream)
      return for_each_handle([&](const Handle& handle) {
        if (handle.holds())
          nodes.push_back(handle.node());
      });
    Stream& stream = *held_stream;
    const auto look = [&](const Handle& handle) {
      if (handle.holds())
        if (NodePtr node = handle.node_at(stream))
          nodes.push_back(std::move(node));
    };
    visit_handles(stream.handles, look);
    // Before the lists are looked at: a handle that comes into one behind that says so again.
    if (!stream.abroad.load(std::memory_order_relaxed) ||
        !stream.abroad.exchange(false, std::memory_order_relaxed))
      return;
    const std::size_t here = nodes.size();
    for_each_stream([&](Stream& other) {
      if (&other != &stream)
        visit_handles(other.handles, look);
    });
    if (nodes.size() > here)
      stream.abroad.store(true, std::memory_order_relaxed);
  }

  enum class Answer : std::uint8_t { No, Yes, Refused }; ///< Refused: cannot be computed now

  // Of another device than the one that the walk is for.
  static bool is_elsewhere(const Node& node) {
    const Placement at = node.placement();
    return (node.transfer && !node.is_leaf_value()) ||
           (at.is_bound() && device_for(at) != device_for({}));
  }
  bool stays(const Node& operand) const {
    return (operand.place & kLeafBit) || !forgotten_[operand.place];
  }

  // Quick, and right when it says no: something refers to a forgotten value from outside.
  bool used_elsewhere() {
    auto& uses = w_.references; // one of those within the walk, and how many there are
    uses.assign(w_.order.size(), {nullptr, 0});
    for (const Node* node : w_.order)
      for (const NodePtr& input : node->inputs)
        if (!(input->place & kLeafBit)) {
          auto& [one, count] = uses[input->place];
          one = &input;
          ++count;
        }
    for (std::size_t i = 0; i < w_.order.size(); ++i) {
      const Node& node = *w_.order[i];
      const int temporaries = node.handles.handles() - node.handles.claims();
      if (!forgotten_[i])
        continue;
      const auto& [one, count] = uses[i];
      if ((one ? one->use_count() : node.weak_from_this().use_count()) > count + temporaries)
        return true;
    }
    return false;
  }

  std::optional<Answer> known(const Node& node) const {
    if (!within_reach(node)) // the walk starts anew, with all nodes
      return Answer::Refused;
    if (node.epoch == w_.order[0]->epoch)
      return !(node.place & kLeafBit) && forgotten_[node.place] ? Answer::Yes : Answer::No;
    if (node.epoch == epoch_)
      return static_cast<Answer>(node.place);
    if (node.in_flight || node.failure || node.kind == Node::Kind::Placeholder || node.scope ||
        is_elsewhere(node))
      return Answer::Refused;
    if (node.is_leaf_value())
      return Answer::No;
    return std::nullopt;
  }

  Answer answer(Node& root) {
    if (!within_reach(root))
      return Answer::Refused;
    if (root.epoch != epoch_) { // a value of the walk itself is no dependent of it
      if (known(root))
        return Answer::No;
      find_answer(root);
    }
    return static_cast<Answer>(root.place);
  }

  void find_answer(Node& root) {
    std::vector<Node*> stack{&root};
    while (!stack.empty()) {
      Node& node = *stack.back();
      if (known(node)) {
        stack.pop_back();
        continue;
      }
      Answer all = Answer::No;
      bool complete = true;
      for (const NodePtr& input : node.inputs) {
        const auto of_input = known(*input);
        if (!of_input) {
          stack.push_back(input.get());
          complete = false;
        } else {
          all = std::max(all, *of_input);
        }
      }
      if (complete) {
        node.epoch = epoch_;
        node.place = static_cast<std::uint32_t>(all);
        stack.pop_back();
      }
    }
  }

  Walk& w_;
  std::vector<bool> forgotten_;
  const std::uint64_t epoch_ =
      next_epoch(); // of nodes outside of the walk; their places are answers
};

} // namespace

Walk walk_to_read(std::span<const NodePtr> roots, const char* who, std::vector<NodePtr>& dropped,
                  std::size_t asked, Walk room) {
  const auto outputs = roots.first(std::min(asked, roots.size()));
  Walker walker(nullptr, who, std::move(room));
  walker.add(roots);
  walker.list_outputs(outputs, true);
  Walk& w = walker.walk();
  while (w.is_whole() && w.order.size() <= kMostOps) {
    const std::vector<NodePtr> more = Dependents(w).find(dropped);
    if (more.empty())
      break;
    walker.add(more);
    if (!w.is_whole() || w.order.size() > kMostOps)
      return walk(roots, WalkOutputs::RootsAndHeld, nullptr, who, asked);
    walker.list_outputs(outputs, true);
  }
  return std::move(w);
}

} // namespace egret::detail
