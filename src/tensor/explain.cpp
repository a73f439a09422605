// What reading a tensor would do, in words.
#include "runtime/runtime.h"
#include "tensor/engine.h"

#include <fmt/format.h>

#include <unordered_set>

namespace egret {

using namespace detail;

namespace {

ir::Graph graph_below(const Tensor& a, const char* who) {
  const NodePtr node = Access::raw(a, who);
  std::lock_guard lock(engine_mutex());
  return graph_of(walk(std::span(&node, 1), WalkOutputs::RootsAndHeld, node->scope.get(), who));
}

} // namespace

namespace {

// The graph that reading a value runs.
ir::Graph graph_of_read(const Tensor& a) {
  const NodePtr node = Access::raw(a, "explain");
  if (node->scope)
    return graph_below(a, "explain");
  std::vector<NodePtr> dropped; // let go after the lock
  std::lock_guard lock(engine_mutex());
  return graph_of(walk_to_read(std::span(&node, 1), "explain", dropped));
}

// How many operations of the recipe of a known value are kept for a gradient.
std::size_t kept_operations(const Tensor& a) {
  const NodePtr root = Access::raw(a, "explain");
  std::lock_guard lock(engine_mutex());
  std::unordered_set<const Node*> seen;
  std::vector<const Node*> open = {root.get()};
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    if (!node->inputs.empty() && seen.insert(node).second)
      for (const NodePtr& input : node->inputs)
        open.push_back(input.get());
  }
  return seen.size();
}

} // namespace

std::string explain(const Tensor& a) {
  if (a.is_materialized()) {
    const std::size_t kept = kept_operations(a);
    return kept == 0
               ? "the value is known: nothing runs\n"
               : fmt::format("the value is known: nothing runs\nits recipe of {} operations is "
                             "kept, because a gradient may need it\n",
                             kept);
  }
  const ir::Graph graph = graph_of_read(a);
  return runtime::Runtime::instance().program(graph)->report().text();
}

std::string graph_text(const Tensor& a) {
  return ir::print(graph_below(a, "graph_text"));
}

} // namespace egret
