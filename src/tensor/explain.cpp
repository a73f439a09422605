// What reading a tensor would do, in words.
#include "runtime/runtime.h"
#include "tensor/engine.h"

namespace egret {

using namespace detail;

namespace {

ir::Graph graph_below(const Tensor& a, const char* who) {
  const NodePtr node = Access::raw(a, who);
  std::lock_guard lock(engine_mutex());
  return graph_of(walk(std::span(&node, 1), WalkOutputs::RootsAndHeld, node->scope.get(), who));
}

} // namespace

std::string explain(const Tensor& a) {
  if (a.is_materialized())
    return "the value is known: nothing runs\n";
  const ir::Graph graph = graph_below(a, "explain");
  return runtime::Runtime::instance().program(graph)->report().text();
}

std::string graph_text(const Tensor& a) {
  return ir::print(graph_below(a, "graph_text"));
}

} // namespace egret
