#include "egret/autodiff.h"
#include "support/fail.h"
#include "support/hash.h"

#include <cmath>

namespace egret {

using ir::Graph;
using ir::NodeId;

namespace {

using Arrays = std::vector<std::vector<double>>;

/// Weights of the outputs in 0.5 .. 1.5, the same in every run.
Arrays weights_for(const Arrays& outputs) {
  Arrays weights;
  std::uint64_t counter = 0;
  for (const auto& output : outputs) {
    auto& list = weights.emplace_back();
    for (std::size_t i = 0; i < output.size(); ++i)
      list.push_back(0.5 + static_cast<double>(mix(++counter) >> 11) * 0x1p-53);
  }
  return weights;
}

double weighted_difference(const Arrays& a, const Arrays& b, const Arrays& weights) {
  double sum = 0;
  for (std::size_t o = 0; o < a.size(); ++o)
    for (std::size_t i = 0; i < a[o].size(); ++i)
      if (a[o][i] != b[o][i]) // equal infinities do not differ
        sum += weights[o][i] * (a[o][i] - b[o][i]);
  return sum;
}

std::vector<std::int64_t> f64_slots(const Graph& graph) {
  std::vector<std::int64_t> slots;
  for (std::size_t slot = 0; slot < graph.inputs().size(); ++slot)
    if (graph[graph.inputs()[slot]].dtype == DType::F64)
      slots.push_back(static_cast<std::int64_t>(slot));
  return slots;
}

void check_f64(const Graph& graph, const std::vector<std::int64_t>& wrt) {
  for (std::size_t i = 0; i < graph.outputs.size(); ++i)
    if (graph[graph.outputs[i]].dtype != DType::F64)
      fail(ErrorKind::DType, "gradcheck: output {} is {}; differences need f64", i,
           name_of(graph[graph.outputs[i]].dtype));
  for (std::int64_t slot : wrt) {
    if (slot < 0 || slot >= static_cast<std::int64_t>(graph.inputs().size()))
      fail(ErrorKind::Value, "gradcheck: input {} does not exist; the graph has {}", slot,
           graph.inputs().size());
    const ir::Node& node = graph[graph.inputs()[static_cast<std::size_t>(slot)]];
    if (node.dtype != DType::F64)
      fail(ErrorKind::DType, "gradcheck: input {} `{}` is {}; differences need f64", slot,
           node.attrs.name, name_of(node.dtype));
  }
}

/// The graph whose outputs are the gradients; its last inputs are the seeds.
Graph gradient_graph(const Graph& graph, const std::vector<std::int64_t>& wrt) {
  Graph result = graph;
  std::vector<NodeId> seeds, inputs;
  for (std::size_t i = 0; i < graph.outputs.size(); ++i)
    seeds.push_back(
        result.input(fmt::format("seed{}", i), DType::F64, graph[graph.outputs[i]].shape));
  for (std::int64_t slot : wrt)
    inputs.push_back(graph.inputs()[static_cast<std::size_t>(slot)]);
  result.outputs = gradients(result, graph.outputs, seeds, inputs);
  return result;
}

} // namespace

GradCheck gradcheck(const Graph& graph, const Arrays& inputs, const EvaluateGraph& evaluate,
                    std::vector<std::int64_t> wrt, const GradCheckOptions& options) {
  if (wrt.empty())
    wrt = f64_slots(graph);
  check_f64(graph, wrt);
  const Arrays weights = weights_for(evaluate(graph, inputs));
  Arrays with_seeds = inputs;
  with_seeds.insert(with_seeds.end(), weights.begin(), weights.end());
  const Arrays analytic = evaluate(gradient_graph(graph, wrt), with_seeds);

  GradCheck report;
  Arrays moved = inputs;
  for (std::size_t w = 0; w < wrt.size(); ++w) {
    auto& values = moved[static_cast<std::size_t>(wrt[w])];
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double at = values[i], step = options.step * std::max(1.0, std::fabs(at));
      const double above = at + step, below = at - step;
      values[i] = above;
      const Arrays up = evaluate(graph, moved);
      values[i] = below;
      const Arrays down = evaluate(graph, moved);
      values[i] = at;
      const double numeric = weighted_difference(up, down, weights) / (above - below);
      const double error = std::fabs(analytic[w][i] - numeric) /
                           (options.absolute + options.relative * std::fabs(numeric));
      const bool right = error <= 1; // false for NaN
      auto text = [&] {
        return fmt::format("input {} element {}: analytic {}, numeric {}", wrt[w], i,
                           analytic[w][i], numeric);
      };
      if (!right && report.ok) {
        report.ok = false;
        report.first = text();
      }
      if (!(error <= report.max_error) && !std::isnan(report.max_error)) {
        report.max_error = error;
        report.worst = text();
      }
    }
  }
  return report;
}

} // namespace egret
