#include "compiler/affine_view.h"

#include <algorithm>
#include <cstdlib>
#include <set>

namespace egret::compiler {

namespace {

using ir::Graph;
using ir::NodeId;

/// A variable of a coordinate.
struct Stride {
  int axis = 0;
  std::int64_t extent = 1, step = 0; ///< the step is not 0
  std::int64_t reach() const { return (extent - 1) * std::abs(step); }
};

/// The variables of a coordinate, those with the longest steps first.
std::vector<Stride> strides_of(const Expr& at, const Shape& dims) {
  std::vector<Stride> list;
  for (const Expr& v : variables_of(at)) {
    const int axis = v.axis_number();
    list.push_back({axis, dims[std::size_t(axis)].value(), coefficient_of(at, v)->value()});
  }
  std::stable_sort(list.begin(), list.end(), [](const Stride& a, const Stride& b) {
    return std::abs(a.step) > std::abs(b.step);
  });
  return list;
}

/// Shapes and bounds of a node, changed along one dimension.
class Along {
public:
  Along(Graph& graph, NodeId node, std::size_t dim) : g_(graph), node_(node), dim_(dim) {}

  NodeId node() const { return node_; }
  void pad(std::int64_t before, std::int64_t after) {
    const std::size_t rank = g_[node_].shape.size();
    std::vector<Expr> low(rank, Expr(0)), high(rank, Expr(0));
    low[dim_] = Expr(before);
    high[dim_] = Expr(after);
    if (before > 0 || after > 0)
      node_ = g_.pad(node_, low, high, Scalar::of(g_[node_].dtype, 0.0));
  }
  void shrink(std::int64_t begin, std::int64_t end) {
    std::vector<Expr> low(g_[node_].shape.size(), Expr(0)), high = g_[node_].shape;
    if (begin == 0 && high[dim_] == Expr(end))
      return;
    low[dim_] = Expr(begin);
    high[dim_] = Expr(end);
    node_ = g_.shrink(node_, low, high);
  }
  /// One dimension as two, and the second one is the current one.
  void split(std::int64_t outer, std::int64_t inner) {
    Shape shape = g_[node_].shape;
    shape[dim_] = Expr(inner);
    shape.insert(shape.begin() + std::ptrdiff_t(dim_), Expr(outer));
    node_ = g_.reshape(node_, shape);
    ++dim_;
  }
  /// So many copies, one after the other.
  void repeat(std::int64_t times) {
    const std::int64_t length = g_[node_].shape[dim_].value();
    split(1, length);
    Shape shape = g_[node_].shape;
    shape[dim_ - 1] = Expr(times);
    node_ = g_.expand(node_, shape);
    shape.erase(shape.begin() + std::ptrdiff_t(dim_--));
    shape[dim_] = Expr(times * length);
    node_ = g_.reshape(node_, shape);
  }
  /// Drops the current dimension, which has one element, and goes to the one behind it.
  void drop() {
    Shape shape = g_[node_].shape;
    shape.erase(shape.begin() + std::ptrdiff_t(dim_));
    node_ = g_.reshape(node_, shape);
  }
  std::size_t dim() const { return dim_; }

private:
  Graph& g_;
  NodeId node_;
  std::size_t dim_;
};

} // namespace

bool is_affine_view(const std::vector<Expr>& coords) {
  std::set<int> seen;
  for (const Expr& at : coords)
    for (const Expr& v : variables_of(at)) {
      const auto step = v.is_axis() ? coefficient_of(at, v) : std::nullopt;
      if (!step || !step->is_constant() || !seen.insert(v.axis_number()).second)
        return false;
    }
  return true;
}

NodeId affine_view(Graph& g, NodeId source, const std::vector<Expr>& coords, const Shape& dims) {
  std::vector<int> axes; // of the box, by dimension of the view as it is made
  NodeId node = source;
  for (const Expr& at : coords) {
    const std::vector<Stride> strides = strides_of(at, dims);
    // What the variables reach over; those that go backwards are turned at the end.
    std::int64_t low = evaluate(at, [](const Expr&) { return std::int64_t{0}; }), reach = 0;
    for (const Stride& s : strides) {
      reach += s.reach();
      low -= s.step < 0 ? s.reach() : 0;
    }
    Along along(g, node, axes.size());
    const std::int64_t length = g[node].shape[axes.size()].value(), high = low + reach + 1;
    along.pad(std::max<std::int64_t>(-low, 0), std::max<std::int64_t>(high - length, 0));
    along.shrink(std::max<std::int64_t>(low, 0), std::max<std::int64_t>(low, 0) + reach + 1);
    for (const Stride& s : strides) {
      const std::int64_t step = std::abs(s.step), all = reach + 1;
      reach -= s.reach();
      // Rows of `each`, in which the other variables begin at 0.
      const bool overlap = reach >= step;
      const std::int64_t each = overlap ? all + step : step;
      if (overlap)
        along.repeat(s.extent);
      const std::int64_t have = overlap ? all * s.extent : all;
      along.pad(0, each * s.extent - have);
      along.split(s.extent, each);
      along.shrink(0, reach + 1);
      axes.push_back(s.axis);
    }
    along.drop();
    node = along.node();
    std::vector<std::int64_t> turned;
    for (std::size_t i = 0; i < strides.size(); ++i)
      if (strides[i].step < 0)
        turned.push_back(std::int64_t(axes.size() - strides.size() + i));
    if (!turned.empty())
      node = g.flip(node, turned);
  }
  std::vector<std::int64_t> order;
  Shape box(dims.size(), Expr(1));
  for (std::size_t i = 0; i < dims.size(); ++i) {
    const auto at = std::find(axes.begin(), axes.end(), int(i));
    if (at == axes.end())
      continue;
    order.push_back(at - axes.begin());
    box[i] = dims[i];
  }
  return g.expand(g.reshape(g.permute(node, order), box), dims);
}

} // namespace egret::compiler
