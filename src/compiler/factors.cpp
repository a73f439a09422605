#include "compiler/factors.h"

#include <algorithm>
#include <cmath>

namespace egret::compiler {

using ir::Graph;
using ir::Node;
using ir::NodeId;

namespace {

/// The axis of what a sum adds up.
constexpr int kSummed = -2;
/// Products of more factors are not read.
constexpr std::size_t kMostFactors = 64;
/// Values that are looked at for large products.
constexpr std::size_t kMostLookedAt = 256;

} // namespace

bool is_sum(const Node& node) {
  return node.op == Op::ReduceSum && node.dtype == DType::F32;
}

std::set<int> summed_axes(const Node& reduce) {
  return {reduce.attrs.axes.begin(), reduce.attrs.axes.end()};
}

std::vector<int> own_axes(const Graph& graph, NodeId id) {
  std::vector<int> axis;
  for (std::size_t i = 0; i < graph[id].shape.size(); ++i)
    axis.push_back(is_unit(graph[id].shape[i]) ? -1 : int(i));
  return axis;
}

bool is_larger_than_its_factors(const GraphFacts& facts, NodeId sum) {
  const Graph& graph = facts.graph();
  return std::ranges::all_of(graph[facts.product_of(sum)].inputs, [&](NodeId factor) {
    return elements_of(graph[sum].shape) > elements_of(graph[facts.view(factor).base].shape);
  });
}

bool is_made_of_large_products(const GraphFacts& facts, NodeId id) {
  const Graph& graph = facts.graph();
  std::set<NodeId> seen;
  std::vector<NodeId> waiting{id};
  while (!waiting.empty() && seen.size() < kMostLookedAt) {
    const NodeId base = facts.view(waiting.back()).base;
    waiting.pop_back();
    if (!seen.insert(base).second)
      continue;
    if (is_elementwise(graph[base].op))
      waiting.insert(waiting.end(), graph[base].inputs.begin(), graph[base].inputs.end());
    else if (facts.product_of(base) != ir::kNoNode && is_larger_than_its_factors(facts, base))
      return true;
  }
  return false;
}

SumBox::SumBox(const Graph& graph, NodeId sum)
    : axis(own_axes(graph, graph[sum].inputs[0])), shape(graph[graph[sum].inputs[0]].shape),
      over(summed_axes(graph[sum])) {
  std::erase_if(over, [&](int a) { return is_unit(shape[std::size_t(a)]); });
}

bool Leaf::depends(const std::set<int>& axes) const {
  return std::any_of(axis.begin(), axis.end(), [&](int a) { return axes.contains(a); });
}

bool FactorReader::read(NodeId id, const std::vector<int>& axis, bool divides,
                        std::vector<Leaf>& leaves) const {
  std::vector<Leaf> waiting{{id, axis, divides}}; // values, the next one last
  while (!waiting.empty()) {
    // A value that is multiplied by itself again and again has very many factors.
    if (waiting.size() + leaves.size() > kMostFactors)
      return false;
    Leaf value = std::move(waiting.back());
    waiting.pop_back();
    const View& view = facts_.view(value.base);
    const Node& node = graph_[view.base];
    if (!view.map.is_total() || node.dtype != DType::F32)
      return false;
    std::vector<int> below;
    for (std::size_t j = 0; j < view.map.coords.size(); ++j) {
      const int dim = plain_axis(view.map.coords[j]);
      if (dim == kNotPlain || (dim == kZeroAxis && !is_unit(node.shape[j])))
        return false;
      below.push_back(dim == kZeroAxis ? -1 : value.axis[std::size_t(dim)]);
      if (below.back() >= 0 && std::count(below.begin(), below.end(), below.back()) > 1)
        return false; // a diagonal
    }
    if (node.op == Op::Mul || node.op == Op::Div) {
      waiting.push_back({node.inputs[1], below, value.divides != (node.op == Op::Div)});
      waiting.push_back({node.inputs[0], below, value.divides});
    } else if (node.op == Op::StopGradient) {
      waiting.push_back({node.inputs[0], below, value.divides});
    } else if (node.op == Op::Select && is_guard_of_exponentials(node)) {
      waiting.push_back({node.inputs[2], below, value.divides});
    } else {
      leaves.push_back({view.base, std::move(below), value.divides});
    }
  }
  return true;
}

bool FactorReader::is_sum_of_exponentials(NodeId id) const {
  const Node& sum = graph_[id];
  if (!is_sum(sum))
    return false;
  const Node& exp = graph_[sum.inputs[0]];
  if (exp.op != Op::Exp || exp.dtype != DType::F32)
    return false;
  for (const int a : summed_axes(sum))
    if (exp.shape[std::size_t(a)].lower() < 1)
      return false;
  const Node& difference = graph_[exp.inputs[0]];
  if (difference.op != Op::Add)
    return false;
  for (std::size_t k : {0u, 1u})
    if (is_minus_maximum(difference.inputs[k], difference.inputs[1 - k], sum.attrs.axes))
      return true;
  return false;
}

bool FactorReader::is_guard_of_exponentials(const Node& node) const {
  const Node& test = graph_[facts_.view(node.inputs[0]).base];
  const auto is_zero = [&](NodeId id) { return value_of(id) == 0.0; };
  return facts_.view(node.inputs[0]).map.is_identity() && test.op == Op::Eq &&
         ((test.inputs[0] == node.inputs[2] && is_zero(test.inputs[1])) ||
          (test.inputs[1] == node.inputs[2] && is_zero(test.inputs[0]))) &&
         is_sum_of_exponentials(facts_.view(node.inputs[2]).base);
}

std::optional<double> FactorReader::value_of(NodeId id) const {
  const Node& node = graph_[facts_.view(id).base];
  if (node.op != Op::Constant || !is_float(node.dtype))
    return std::nullopt;
  return node.attrs.value.as_double();
}

std::optional<MinusOfRows> FactorReader::minus_of_rows(NodeId id) const {
  MinusOfRows found{ir::kNoNode, IndexMap::identity(graph_[id].shape), {}};
  for (bool negative = false;;) {
    const Node& node = graph_[id];
    const int minus_one = node.op == Op::Mul && !negative ? minus_one_of(node) : -1;
    if (minus_one < 0 && !is_movement(node.op) && node.op != Op::StopGradient) {
      found.base = id;
      return negative ? std::optional(std::move(found)) : std::nullopt;
    }
    if (is_movement(node.op))
      found.map = compose(found.map, ir::view_of(graph_, id));
    found.path.push_back(id);
    negative = negative || minus_one >= 0;
    id = node.inputs[minus_one >= 0 ? static_cast<std::size_t>(1 - minus_one) : 0];
  }
}

int FactorReader::minus_one_of(const Node& mul) const {
  for (const int k : {0, 1})
    if (value_of(mul.inputs[static_cast<std::size_t>(k)]) == -1.0)
      return k;
  return -1;
}

bool FactorReader::is_own_row(NodeId reduce, NodeId x, const IndexMap& map) const {
  if (!map.is_total() || graph_[reduce].inputs[0] != x)
    return false;
  const std::set<int> over = summed_axes(graph_[reduce]);
  std::size_t dim = 0;
  for (std::size_t a = 0; a < graph_[x].shape.size(); ++a) {
    if (over.contains(static_cast<int>(a)))
      continue;
    const int at = plain_axis(map.coords[dim++]);
    if (at != static_cast<int>(a) && !(at == kZeroAxis && is_unit(graph_[x].shape[a])))
      return false;
  }
  return true;
}

bool FactorReader::is_minus_maximum(NodeId id, NodeId x,
                                    const std::vector<std::int64_t>& axes) const {
  const auto minus = minus_of_rows(id);
  return minus && graph_[minus->base].op == Op::ReduceMax &&
         graph_[minus->base].attrs.axes == axes && is_own_row(minus->base, x, minus->map);
}

bool FactorReader::is_deviation(const Leaf& factor, const SumBox& box, NodeId* mean) const {
  const Node& add = graph_[factor.base];
  return add.op == Op::Add && !factor.divides && has_all(factor, box) &&
         (is_minus_mean(add.inputs[1], add.inputs[0], factor.axis, box, mean) ||
          is_minus_mean(add.inputs[0], add.inputs[1], factor.axis, box, mean));
}

bool FactorReader::is_spread(NodeId sum, NodeId mean) const {
  if (!is_sum(graph_[sum]))
    return false;
  const SumBox box(graph_, sum);
  std::vector<Leaf> leaves;
  NodeId found = ir::kNoNode;
  return read(graph_[sum].inputs[0], box.axis, false, leaves) && leaves.size() == 2 &&
         leaves[0] == leaves[1] && is_deviation(leaves[0], box, &found) && found == mean;
}

bool FactorReader::has_all(const Leaf& value, const SumBox& box) const {
  return std::ranges::all_of(box.over, [&](int a) {
    const auto at = std::ranges::find(value.axis, a);
    return at != value.axis.end() && std::ranges::count(value.axis, a) == 1 &&
           graph_[value.base].shape[std::size_t(at - value.axis.begin())] ==
               box.shape[std::size_t(a)];
  });
}

bool FactorReader::is_minus_mean(NodeId m, NodeId x, const std::vector<int>& axis,
                                 const SumBox& box, NodeId* mean) const {
  std::vector<Leaf> leaves;
  if (!read(m, axis, false, leaves))
    return false;
  double factor = 1;
  const Leaf* sum = nullptr;
  for (const Leaf& l : leaves) {
    if (const auto number = value_of(l.base)) {
      factor = l.divides ? factor / *number : factor * *number;
    } else {
      if (sum || l.divides || !is_sum(graph_[l.base]))
        return false;
      sum = &l;
    }
  }
  if (!sum)
    return false;
  // The sum is of x over these axes, and along the others each element is its own row's.
  const NodeId operand = graph_[sum->base].inputs[0];
  const std::set<int> summed = summed_axes(graph_[sum->base]);
  std::vector<int> of_sum;
  std::size_t kept = 0;
  for (std::size_t dim = 0; dim < graph_[operand].shape.size(); ++dim)
    of_sum.push_back(summed.contains(int(dim)) ? kSummed : sum->axis[kept++]);
  const auto its = seen(operand, of_sum), mine = seen(x, axis);
  if (!its || !mine || its->base != mine->base || !has_all(*mine, box))
    return false;
  double count = 1;
  for (std::size_t dim = 0; dim < mine->axis.size(); ++dim) {
    const Expr& extent = graph_[mine->base].shape[dim];
    const int at = mine->axis[dim];
    if (is_unit(extent))
      continue;
    if (its->axis[dim] != (at >= 0 && box.over.contains(at) ? kSummed : at))
      return false;
    if (its->axis[dim] != kSummed)
      continue;
    if (!extent.is_constant())
      return false;
    count *= double(extent.value());
  }
  constexpr double kRounding = 1e-6; // of a factor in f32
  if (std::abs(factor * count + 1) >= kRounding)
    return false;
  if (mean)
    *mean = sum->base;
  return true;
}

std::optional<Leaf> FactorReader::seen(NodeId id, const std::vector<int>& axis) const {
  const View& view = facts_.view(id);
  if (!view.map.is_total())
    return std::nullopt;
  Leaf leaf{view.base, {}, false};
  for (std::size_t dim = 0; dim < view.map.coords.size(); ++dim) {
    const int at = plain_axis(view.map.coords[dim]);
    const Expr& extent = graph_[view.base].shape[dim];
    if (!is_unit(extent) && (at < 0 || !(graph_[id].shape[std::size_t(at)] == extent)))
      return std::nullopt;
    leaf.axis.push_back(at < 0 ? -1 : axis[std::size_t(at)]);
  }
  return leaf;
}

} // namespace egret::compiler
