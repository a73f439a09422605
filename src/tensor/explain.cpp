// What reading a tensor would do, in words.
#include "egret/explain.h"

#include "compiler/prepare_outputs.h"
#include "runtime/runtime.h"
#include "support/fail.h"
#include "tensor/known_plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

namespace egret {

using namespace detail;

namespace {

ir::Graph graph_below(const Tensor& a, const char* who) {
  const NodePtr node = Access::raw(a, who);
  std::unique_lock lock(engine_mutex());
  return graph_of(
      settled_walk(lock, std::span(&node, 1), WalkOutputs::RootsAndHeld, node->scope.get(), who));
}

} // namespace

namespace {

// The program that reading a value runs.
std::shared_ptr<const runtime::Program> program_of_read(const Tensor& a) {
  const NodePtr node = Access::raw(a, "explain");
  const runtime::ThreadDevice device(device_for(node->placement()));
  if (node->scope)
    return runtime::Runtime::instance().program(graph_below(a, "explain"));
  std::vector<NodePtr> dropped; // let go after the lock
  std::unique_lock lock(engine_mutex());
  for (;;) {
    Walk w = walk_to_read(std::span(&node, 1), "explain", dropped, 1);
    if (w.is_whole()) {
      describe(w);
      KnownPlans::Found found = known_plans().find(w);
      lock.unlock();
      return explored(w, std::move(found)).program;
    }
    settle(lock, w, "explain");
  }
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

std::string kernel_text(const compiler::KernelReport& k) {
  return fmt::format("{} [{}]: {}reads {} bytes, writes {}, {:.3g} flops, predicted {:.3g} us{}",
                     k.name, k.form,
                     k.parts > 1 ? fmt::format("{} independent parts, ", k.parts) : "",
                     k.bytes_read, k.bytes_written, k.flops, k.predicted * 1e6,
                     k.measured > 0 ? fmt::format(", measured {:.3g} us", k.measured * 1e6) : "");
}

// The place of the kernel that makes a node.
std::size_t kernel_of(const compiler::CompileReport& report, ir::NodeId node) {
  for (std::size_t k = 0; k < report.kernels.size(); ++k)
    for (ir::NodeId id : report.kernels[k].nodes)
      if (id == node)
        return k;
  return report.kernels.size();
}

double predicted_seconds(const compiler::CompileReport& report) {
  double sum = 0;
  for (const compiler::KernelReport& k : report.kernels)
    sum += k.predicted;
  return sum;
}

// Why there are two kernels, as far as the compiler has noted it.
std::string reason(const compiler::CompileReport& report, const compiler::KernelReport& a,
                   const compiler::KernelReport& b) {
  const auto has = [](const compiler::KernelReport& k, ir::NodeId node) {
    return std::find(k.nodes.begin(), k.nodes.end(), node) != k.nodes.end();
  };
  std::string text;
  for (const compiler::Unfused& u : report.unfused)
    if ((has(a, u.producer) && has(b, u.consumer)) || (has(b, u.producer) && has(a, u.consumer)))
      text += fmt::format("  %{} -> %{}: {}\n", u.producer, u.consumer, u.why);
  return text.empty() ? "  neither reads what the other makes over the same points, they share no "
                        "large operand, and they are not both small\n"
                      : text;
}

} // namespace

std::string explain(const Tensor& a, const Tensor& b) {
  const NodePtr roots[] = {Access::raw(a, "explain"), Access::raw(b, "explain")};
  for (const Tensor* t : {&a, &b})
    if (t->is_materialized())
      fail(ErrorKind::State, "explain: the {} value is known: nothing runs for it",
           t == &a ? "first" : "second");
  ir::Graph graph;
  {
    std::unique_lock lock(engine_mutex());
    graph =
        graph_of(settled_walk(lock, roots, WalkOutputs::Roots, roots[0]->scope.get(), "explain"));
  }
  auto& runtime = runtime::Runtime::instance();
  const runtime::ThreadDevice device(device_for(roots[0]->placement()));
  const auto program = runtime.program(graph, {.lazy = !roots[0]->scope});
  const compiler::CompileReport& report = program->report();
  const ir::Graph& compiled = report.graph;
  if (compiled.outputs.empty() || report.kernels.empty())
    return "no kernel is needed\n";
  const ir::NodeId first = compiler::same_memory(compiled, compiled.outputs.front()),
                   second = compiler::same_memory(compiled, compiled.outputs.back());
  const std::size_t one = kernel_of(report, first), two = kernel_of(report, second);
  if (one == report.kernels.size() || two == report.kernels.size())
    return "no kernel makes one of the two\n";
  const auto& k1 = report.kernels[one];
  const auto& k2 = report.kernels[two];
  const auto name = [&](ir::NodeId id) {
    return fmt::format("%{} {}{}", id, info_of(compiled[id].op).name,
                       to_string(compiled[id].shape));
  };
  std::string text;
  if (one == two) {
    const auto apart = runtime.program(graph, {.fuse = false});
    text = fmt::format("{} and {} are made by one kernel\n  {}\n", name(first), name(second),
                       kernel_text(k1));
    text +=
        fmt::format("  with a kernel for each operation: {} kernels, predicted {:.3g} us; as it "
                    "is: {}, {:.3g} us\n",
                    apart->report().kernels.size(), predicted_seconds(apart->report()) * 1e6,
                    report.kernels.size(), predicted_seconds(report) * 1e6);
    return text;
  }
  text = fmt::format("{} and {} are made by two kernels\n  {}\n  {}\n", name(first), name(second),
                     kernel_text(k1), kernel_text(k2));
  text += reason(report, k1, k2);
  const kernel::Target& target = runtime.target();
  const compiler::Machine machine = report.search.machine.launch_seconds > 0
                                        ? report.search.machine
                                        : compiler::usual_machine(target);
  return text + fmt::format("  one kernel would save a launch, {:.3g} us, and what both would not "
                            "have to read again\n",
                            machine.launch_seconds * 1e6);
}

std::string explain(const Tensor& a) {
  if (a.is_materialized()) {
    const std::size_t kept = kept_operations(a);
    return kept == 0
               ? "the value is known: nothing runs\n"
               : fmt::format("the value is known: nothing runs\nits recipe of {} operations is "
                             "kept, because a gradient may need it\n",
                             kept);
  }
  return program_of_read(a)->report().text();
}

std::string graph_text(const Tensor& a) {
  return ir::print(graph_below(a, "graph_text"));
}

} // namespace egret
