#include "compiler/views.h"

#include "support/fail.h"

#include <algorithm>

namespace egret::compiler {

using ir::NodeId;

int plain_axis(const Expr& e) {
  if (e.is_axis())
    return e.axis_number();
  if (e.is_constant() && e.value() == 0)
    return kZeroAxis;
  return kNotPlain;
}

double elements_of(const Shape& shape) {
  double n = 1;
  for (const Expr& d : shape)
    n *= static_cast<double>(std::min<std::int64_t>(d.upper(), std::int64_t{1} << 40));
  return n;
}

namespace {

/// Dims of a movement's box along which a view with base dependence `base` can vary.
std::vector<bool> dependence_through(const IndexMap& map, const std::vector<bool>& base) {
  std::vector<bool> result(map.dims.size(), false);
  auto mark = [&](const Expr& e) {
    for (const Expr& v : variables_of(e))
      if (v.is_axis() && v.axis_number() < static_cast<int>(result.size()))
        result[v.axis_number()] = true;
  };
  for (std::size_t j = 0; j < map.coords.size(); ++j)
    if (base[j])
      mark(map.coords[j]);
  for (const Hole& hole : map.holes)
    for (const Guard& guard : hole.valid)
      mark(guard.value);
  return result;
}

} // namespace

GraphFacts::GraphFacts(const ir::Graph& graph) : graph_(graph) {
  const std::size_t n = graph.size();
  views_.resize(n);
  uses_.resize(n);
  output_.assign(n, false);
  depends_.resize(n);
  product_.assign(n, ir::kNoNode);
  is_product_.assign(n, false);
  for (NodeId id = 0; id < n; ++id) {
    const ir::Node& node = graph[id];
    if (is_movement(node.op)) {
      const View& from = views_[node.inputs[0]];
      views_[id] = {from.base, compose(ir::view_of(graph, id), from.map)};
    } else {
      views_[id] = {id, IndexMap::identity(node.shape)};
      for (int j = 0; j < static_cast<int>(node.inputs.size()); ++j)
        uses_[views_[node.inputs[j]].base].push_back({id, j});
    }
    find_dependence(id);
  }
  for (NodeId id : graph.outputs)
    output_[views_[id].base] = true;
  for (NodeId id = 0; id < n; ++id)
    if (graph[id].op == Op::ReduceSum)
      find_product(id);
}

const IndexMap& GraphFacts::view_through(NodeId id, const IndexMap& frame) const {
  std::deque<Through>& known = through_[{id, frame.hash()}];
  for (const Through& through : known)
    if (through.frame == frame)
      return through.view;
  return known.emplace_back(Through{frame, compose(frame, views_[id].map)}).view;
}

void GraphFacts::find_dependence(NodeId id) {
  const ir::Node& node = graph_[id];
  std::vector<bool>& dep = depends_[id];
  dep.assign(node.shape.size(), false);
  switch (info_of(node.op).cls) {
  case OpClass::Source:
    for (std::size_t i = 0; i < dep.size(); ++i)
      dep[i] = !is_unit(node.shape[i]);
    break;
  case OpClass::Movement:
    dep = dependence_through(ir::view_of(graph_, id), depends_[node.inputs[0]]);
    break;
  case OpClass::Reduce: {
    const auto& from = depends_[node.inputs[0]];
    std::size_t out = 0;
    for (std::size_t i = 0; i < from.size(); ++i)
      if (std::find(node.attrs.axes.begin(), node.attrs.axes.end(), static_cast<std::int64_t>(i)) ==
          node.attrs.axes.end())
        dep[out++] = from[i];
    break;
  }
  case OpClass::Gather:
  case OpClass::Scatter:
  case OpClass::Scan:
  case OpClass::Sort:
    for (std::size_t i = 0; i < dep.size(); ++i)
      dep[i] = !is_unit(node.shape[i]);
    break;
  default:
    for (NodeId input : node.inputs)
      for (std::size_t i = 0; i < dep.size(); ++i)
        dep[i] = dep[i] || depends_[input][i];
  }
}

void GraphFacts::find_product(NodeId id) {
  const ir::Node& reduce = graph_[id];
  const View& operand = views_[reduce.inputs[0]];
  const ir::Node& product = graph_[operand.base];
  if (product.op != Op::Mul || !operand.map.is_total() || output_[operand.base] ||
      uses_[operand.base].size() != 1)
    return;
  // Each dim of the reduced box must be one dim of the product's box.
  std::vector<int> dim_of(product.shape.size(), -1);
  for (std::size_t j = 0; j < operand.map.coords.size(); ++j) {
    int axis = plain_axis(operand.map.coords[j]);
    if (axis == kNotPlain)
      return;
    dim_of[j] = axis;
  }
  const auto& a = depends_[product.inputs[0]];
  const auto& b = depends_[product.inputs[1]];
  bool m = false, n = false, k = false;
  for (std::size_t j = 0; j < product.shape.size(); ++j) {
    if (is_unit(product.shape[j]))
      continue;
    bool summed = std::find(reduce.attrs.axes.begin(), reduce.attrs.axes.end(), dim_of[j]) !=
                  reduce.attrs.axes.end();
    // A factor that is the same for all terms is one of a product all the same: the gradient that
    // comes from a mean over positions, beside the weights of an attention.
    if (summed) {
      if (!a[j] && !b[j])
        return;
      k = true;
    } else {
      if (!a[j] && !b[j])
        return;
      m = m || (a[j] && !b[j]);
      n = n || (b[j] && !a[j]);
    }
  }
  if (m && n && k) {
    product_[id] = operand.base;
    is_product_[operand.base] = true;
  }
}

} // namespace egret::compiler
