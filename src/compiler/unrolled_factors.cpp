#include "compiler/unrolled_factors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

namespace egret::compiler {

using ir::Graph;
using ir::Node;
using ir::NodeId;

namespace {

/// Whether a Shrink leaves one index along one axis, and all of the others.
bool find_slice(const Graph& graph, UnrolledFactor& factor) {
  const Node& slice = graph[factor.root];
  if (slice.op != Op::Shrink)
    return false;
  const Shape& whole = graph[slice.inputs[0]].shape;
  bool one = false;
  for (std::size_t d = 0; d < whole.size(); ++d) {
    const Expr &begin = slice.attrs.before[d], &end = slice.attrs.shape[d];
    if (begin == Expr(0) && end == whole[d])
      continue;
    if (one || !begin.is_constant() || !(end - begin == Expr(1)) || !whole[d].is_constant())
      return false;
    one = true;
    factor.axis = static_cast<std::int64_t>(d);
    factor.index = begin.value();
  }
  factor.whole = slice.inputs[0];
  return one;
}

} // namespace

UnrolledFactor unrolled_factor(const Graph& graph, NodeId id) {
  UnrolledFactor factor;
  for (; graph[id].op == Op::Reshape || graph[id].op == Op::Permute || graph[id].op == Op::Expand ||
         graph[id].op == Op::Cast;
       id = graph[id].inputs[0])
    factor.moves.push_back(id);
  std::reverse(factor.moves.begin(), factor.moves.end());
  factor.root = id;
  factor.is_slice = find_slice(graph, factor);
  return factor;
}

std::string form_of(const Graph& graph, const UnrolledFactor& factor) {
  std::string text = name_of(graph[factor.root].dtype);
  const auto add_shape = [&](NodeId id) {
    for (const Expr& e : graph[id].shape)
      text += " " + e.str();
  };
  add_shape(factor.root);
  for (const NodeId id : factor.moves) {
    text += fmt::format("; {} {} {}", info_of(graph[id].op).name, name_of(graph[id].dtype),
                        fmt::join(graph[id].attrs.axes, " "));
    add_shape(id);
  }
  return text;
}

NodeId stack_of(Graph& out, const std::vector<NodeId>& roots) {
  const auto count = static_cast<std::int64_t>(roots.size());
  const Shape shape = out[roots[0]].shape, all = with_front(Expr(count), shape);
  const NodeId index =
      out.reshape(out.iota(Expr(count)), with_front(Expr(count), Shape(shape.size(), Expr(1))));
  const Scalar zero = Scalar::of(out[roots[0]].dtype, 0.0);
  const std::function<NodeId(std::int64_t, std::int64_t)> join = [&](std::int64_t begin,
                                                                     std::int64_t end) {
    if (end - begin == 1) {
      std::vector<Expr> before(all.size(), Expr(0)), after(all.size(), Expr(0));
      before[0] = Expr(begin);
      after[0] = Expr(count - end);
      const NodeId one =
          out.reshape(roots[static_cast<std::size_t>(begin)], with_front(Expr(1), shape));
      return out.pad(one, before, after, zero);
    }
    const std::int64_t middle = begin + (end - begin) / 2;
    const NodeId bound =
        out.broadcast(out.constant(Scalar::of(DType::I64, middle)), out[index].shape);
    const NodeId first = out.expand(out.binary(Op::Lt, index, bound), all);
    const NodeId left = join(begin, middle), right = join(middle, end);
    return out.select(first, left, right);
  };
  return join(0, count);
}

NodeId slices_in_front(Graph& out, const Graph& graph, const UnrolledFactor& first, NodeId whole,
                       std::int64_t count) {
  const Node& slice = graph[first.root];
  std::vector<Expr> begin = slice.attrs.before, end = slice.attrs.shape;
  const auto axis = static_cast<std::size_t>(first.axis);
  end[axis] = begin[axis] + Expr(count);
  std::vector<std::int64_t> order{first.axis};
  for (std::int64_t d = 0; d < static_cast<std::int64_t>(begin.size()); ++d)
    if (d != first.axis)
      order.push_back(d);
  return out.reshape(out.permute(out.shrink(whole, begin, end), order),
                     with_front(Expr(count), slice.shape));
}

NodeId moved_behind_front(Graph& out, const Graph& graph, const UnrolledFactor& factor,
                          NodeId roots) {
  const Expr count = out[roots].shape[0];
  for (const NodeId id : factor.moves) {
    const Node& move = graph[id];
    if (move.op == Op::Reshape) {
      roots = out.reshape(roots, with_front(count, move.shape));
    } else if (move.op == Op::Cast) {
      roots = out.cast(roots, move.dtype);
    } else if (move.op == Op::Expand) {
      roots = out.expand(roots, with_front(count, move.shape));
    } else {
      std::vector<std::int64_t> axes{0};
      for (const std::int64_t a : move.attrs.axes)
        axes.push_back(a + 1);
      roots = out.permute(roots, axes);
    }
  }
  return roots;
}

NodeId front_as_axis(Graph& out, NodeId stack, std::size_t axis) {
  Shape shape = out[stack].shape;
  shape.erase(shape.begin() + 1 + static_cast<std::ptrdiff_t>(axis));
  std::vector<std::int64_t> order;
  for (std::int64_t d = 1; d < static_cast<std::int64_t>(shape.size()); ++d)
    order.push_back(d);
  order.insert(order.begin() + static_cast<std::ptrdiff_t>(axis), 0);
  return out.permute(out.reshape(stack, shape), order);
}

NodeId element_of(Graph& out, NodeId stack, std::int64_t index, const Shape& shape) {
  const Shape all = out[stack].shape;
  std::vector<Expr> begin(all.size(), Expr(0)), end(all.begin(), all.end());
  begin[0] = Expr(index);
  end[0] = Expr(index + 1);
  return out.reshape(out.shrink(stack, begin, end), shape);
}

Shape with_front(const Expr& extent, const Shape& shape) {
  Shape all{extent};
  all.insert(all.end(), shape.begin(), shape.end());
  return all;
}

} // namespace egret::compiler
