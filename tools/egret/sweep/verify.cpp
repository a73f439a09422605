// Whether a draw's outputs are what the reference says.
#include "sweep/sweep.h"

#include "backend/reference/reference.h"
#include "compiler/bisect.h"
#include "egret/effort.h"
#include "runtime/host_arrays.h"
#include "runtime/runtime.h"
#include "tensor/engine.h"

#include <algorithm>
#include <mutex>

namespace egret::tool::sweep {

namespace {

namespace reference = backend::reference;

/// Elements that the reference computes in a few seconds, and at the most.
constexpr double kFew = 1.2e7, kMost = 40 * kFew;

struct Traced {
  ir::Graph graph;
  std::vector<detail::NodePtr> leaves; ///< by input
};

Traced traced(const Tensors& values) {
  std::vector<detail::NodePtr> roots;
  for (const Tensor& value : values)
    roots.push_back(detail::Access::raw(value, "sweep"));
  std::unique_lock lock(detail::engine_mutex());
  const detail::Walk walk =
      detail::settled_walk(lock, roots, detail::WalkOutputs::Roots, nullptr, "sweep");
  return {detail::graph_of(walk), walk.leaves};
}

double elements(const ir::Node& node) {
  double count = 1;
  for (const Expr& dim : node.shape)
    count *= static_cast<double>(dim.value());
  return count;
}

double work(const ir::Graph& graph) {
  double sum = 0;
  for (ir::NodeId id = 0; id < graph.size(); ++id)
    sum += elements(graph[id]);
  return sum;
}

Tensors views(const Json& inputs, const Tensors& bases) {
  Tensors result;
  for (std::size_t i = 0; i < bases.size(); ++i)
    result.push_back(view(bases[i], inputs[i]));
  return result;
}

std::vector<std::int64_t> integers(const Shape& shape) {
  std::vector<std::int64_t> result;
  for (const Expr& dim : shape)
    result.push_back(dim.value());
  return result;
}

std::vector<reference::Expected> expected(const Tensors& values) {
  const Traced t = traced(values);
  std::vector<runtime::RunInput> inputs;
  for (const detail::NodePtr& leaf : t.leaves)
    inputs.push_back(detail::run_input(leaf));
  return reference::expect(t.graph, runtime::host_arrays(t.graph, inputs));
}

} // namespace

double operations(const Program& program, const Tensors& inputs) {
  const ir::Graph graph = traced(program.run(inputs)).graph;
  double sum = 0;
  for (ir::NodeId id = 0; id < graph.size(); ++id) {
    const ir::Node& node = graph[id];
    const bool folds = info_of(node.op).cls == OpClass::Reduce;
    sum += info_of(node.op).flops * elements(folds ? graph[node.inputs[0]] : node);
  }
  return sum;
}

Verification verify(const Program& program, const Json& inputs, const Tensors& bases,
                    const Tensors& outputs) {
  double left = work(traced(program.run(views(inputs, bases))).graph);
  std::vector<Chosen> of_inputs(bases.size()), of_outputs(outputs.size());
  Verification result;
  for (const Lines& lines : program.lines) {
    const std::int64_t count = outputs[0].size(lines.outputs[0]);
    if (left <= kFew || count < 2)
      continue;
    const auto kept = std::clamp<std::int64_t>(
        static_cast<std::int64_t>(static_cast<double>(count) * kFew / left), 1, count);
    const std::vector<std::int64_t> places = bench::sample_rows(count, kept);
    for (std::size_t i = 0; i < bases.size(); ++i)
      if (lines.inputs[i] >= 0)
        of_inputs[i].emplace_back(lines.inputs[i], places);
    for (std::size_t o = 0; o < outputs.size(); ++o)
      of_outputs[o].emplace_back(lines.outputs[o], places);
    left *= static_cast<double>(kept) / static_cast<double>(count);
    result.how += fmt::format("{}{} of {} lines of axis {}", result.how.empty() ? "" : ", ", kept,
                              count, lines.outputs[0]);
  }
  if (result.how.empty())
    result.how = "all";
  if (left > kMost) {
    result.message = fmt::format("not verified: the reference would compute {:.2g} elements", left);
    return result;
  }
  Tensors shown_inputs;
  for (std::size_t i = 0; i < bases.size(); ++i)
    shown_inputs.push_back(shown(bases[i], inputs[i], of_inputs[i]));
  const std::vector<reference::Expected> wanted = expected(program.run(shown_inputs));
  if (wanted.size() != outputs.size())
    throw InternalError(fmt::format("sweep: the reference has {} outputs, the run {}",
                                    wanted.size(), outputs.size()));
  result.ok = true;
  std::int64_t checked = 0, vacuous = 0;
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    const Tensor part =
        shown(outputs[o], input(integers(outputs[o].shape()), outputs[o].dtype()), of_outputs[o]);
    reference::HostArray actual(part.dtype(), integers(part.shape()));
    actual.bytes = part.to_bytes();
    const reference::Comparison found =
        reference::compare(actual, wanted[o], fmt::format("output {}", o),
                           {.scale = compiler::tolerance_scale(allowed_rules())});
    checked += found.checked;
    vacuous += found.vacuous;
    result.worst = std::max(result.worst, found.worst);
    if (!found.ok && result.ok) {
      result.ok = false;
      result.message = fmt::format("wrong value: {} ({} of {} elements)", found.message,
                                   found.wrong, found.checked);
    }
  }
  if (vacuous > 0)
    result.how += fmt::format(", {} of {} elements without a bound", vacuous, checked);
  if (result.ok && checked > 0 && vacuous == checked) {
    result.ok = false;
    result.message = "not verified: no element has a finite error bound";
  }
  return result;
}

} // namespace egret::tool::sweep
