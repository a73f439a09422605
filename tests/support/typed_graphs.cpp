#include "support/typed_graphs.h"

#include "autodiff/rules.h"
#include "backend/cpu/cpu_device.h"
#include "egret/autodiff.h"
#include "support/minimize.h"
#include "support/op_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <thread>

namespace egret::testing {

using ir::Graph;
using ir::NodeId;

namespace {

constexpr std::size_t kMostFailures = 5;
constexpr int kMostOps = 40;

std::vector<NodeId> float_inputs(const Graph& graph) {
  std::vector<NodeId> inputs = graph.inputs();
  std::erase_if(inputs, [&](NodeId id) { return !is_float(graph[id].dtype); });
  return inputs;
}

std::vector<NodeId> float_outputs(const Graph& graph) {
  std::vector<NodeId> outputs = graph.outputs;
  std::erase_if(outputs, [&](NodeId id) { return !is_float(graph[id].dtype); });
  return outputs;
}

bool is_wild(std::uint64_t seed) {
  return seed % 4 == 0;
}

PlanCheckOptions options_of(std::uint64_t seed) {
  PlanCheckOptions options;
  options.compile.effort = seed % 5 == 0 ? Effort::Quick : Effort::None;
  options.compile.fuse = seed % 11 != 0;
  options.inputs = {.special = is_wild(seed), .range = is_wild(seed) ? 4.0 : 2.0};
  return options;
}

} // namespace

Graph typed_graph(std::uint64_t seed) {
  if (seed % 200 == 7)
    return long_sum(135000 + static_cast<std::int64_t>(seed % 900));
  Rng rng(seed);
  const double part = rng.uniform(0, 1); // mostly small graphs, which tell more for their time
  RandomGraphOptions options;
  options.ops = options.max_nodes = 1 + static_cast<int>(part * part * kMostOps);
  options.dtypes = all_dtypes();
  options.special = is_wild(seed);
  options.floats = rng.chance(0.9);
  options.symbolic = seed % 7 == 0;
  options.max_rank = 3;
  options.max_elements = seed % 6 == 0 ? 2000 : 120;
  return random_graph(seed, options);
}

Graph with_gradients(const Graph& graph) {
  const std::vector<NodeId> wrt = float_inputs(graph), outputs = float_outputs(graph);
  if (wrt.empty() || outputs.empty())
    return graph;
  Graph g = graph;
  const DType type =
      std::ranges::any_of(outputs, [&](NodeId id) { return g[id].dtype == DType::F64; })
          ? DType::F64
          : DType::F32;
  NodeId loss = g.constant(type, 0);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Shape shape = g[outputs[i]].shape;
    const DType wide = accumulator_of(g[outputs[i]].dtype);
    const NodeId weights = g.input(fmt::format("weights{}", i), wide, shape);
    const NodeId terms = g.binary(Op::Mul, g.cast(outputs[i], wide), weights);
    std::vector<std::int64_t> axes;
    for (std::size_t axis = 0; axis < shape.size(); ++axis)
      axes.push_back(static_cast<std::int64_t>(axis));
    loss = g.binary(Op::Add, loss, g.cast(g.reduce(Op::ReduceSum, terms, axes), type));
  }
  const NodeId one = g.constant(type, 1);
  const auto slopes = gradients(g, {{loss}}, {{one}}, wrt);
  g.outputs.push_back(loss);
  g.outputs.insert(g.outputs.end(), slopes.begin(), slopes.end());
  ir::verify(g);
  return g;
}

std::set<Op> differentiated_ops(const Graph& graph) {
  std::vector<bool> depends(graph.size(), false), leads(graph.size(), false);
  for (NodeId id : float_inputs(graph))
    depends[id] = true;
  const auto flows = [&](NodeId id, std::size_t k) {
    return is_float(graph[id].dtype) && depends[graph[id].inputs[k]] &&
           autodiff::rule_of(graph[id].op, k);
  };
  for (NodeId id = 0; id < graph.size(); ++id)
    for (std::size_t k = 0; k < graph[id].inputs.size(); ++k)
      if (flows(id, k))
        depends[id] = true;
  for (NodeId id : float_outputs(graph))
    leads[id] = true;
  std::set<Op> ops;
  for (NodeId id = static_cast<NodeId>(graph.size()); id-- > 0;)
    for (std::size_t k = 0; leads[id] && k < graph[id].inputs.size(); ++k)
      if (flows(id, k)) {
        leads[graph[id].inputs[k]] = true;
        ops.insert(graph[id].op);
      }
  return ops;
}

std::string TypedFailure::text() const {
  return fmt::format("seed {}: {}\n{}", seed, problem, ir::print(minimized));
}

void TypedGraphs::run(std::uint64_t first, std::uint64_t count) {
  std::atomic<std::uint64_t> next{first};
  const auto work = [&] {
    const auto device = backend::cpu::make_cpu_device(2);
    compiler::KernelCache cache;
    for (std::uint64_t seed; (seed = next++) < first + count;) {
      check(seed, *device, cache);
      std::lock_guard lock(guard_);
      if (failures.size() >= kMostFailures)
        return;
    }
  };
  std::vector<std::jthread> threads;
  for (unsigned t = 1; t < std::thread::hardware_concurrency(); ++t)
    threads.emplace_back(work);
  work();
}

void TypedGraphs::check(std::uint64_t seed, backend::Device& device, compiler::KernelCache& cache) {
  const Graph forward = typed_graph(seed);
  const Graph graph = with_gradients(forward);
  PlanCheckOptions options = options_of(seed);
  std::set<std::string> chosen;
  options.compile.inject_fault = [&](kernel::Region& region, kernel::Chosen& c) {
    chosen.insert(c.schedule.generator);
    if (alter_)
      alter_(region, c);
  };
  const PlanCheck found = check_plan(graph, seed, options, device, cache);
  std::optional<TypedFailure> failure;
  if (!found.problem.empty()) {
    const auto fails = [&](const Graph& part) {
      return !check_plan(part, seed, options, device, cache).problem.empty();
    };
    Graph small = minimized(graph, fails);
    failure = {seed, check_plan(small, seed, options, device, cache).problem, std::move(small)};
  }
  std::lock_guard lock(guard_);
  if (failure)
    failures.push_back(std::move(*failure));
  ++graphs;
  checked += found.checked;
  vacuous += found.vacuous;
  generators.merge(chosen);
  differentiated.merge(differentiated_ops(forward));
  most_ops = std::max(most_ops, forward.size() - forward.inputs().size());
  for (NodeId id = 0; id < forward.size(); ++id) {
    drawn.insert(forward[id].op);
    dtypes.insert(forward[id].dtype);
  }
}

} // namespace egret::testing
