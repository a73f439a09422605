#include "compiler/split_slices.h"

#include "compiler/views.h"

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

namespace egret::compiler {

using ir::Graph;
using ir::Node;
using ir::NodeId;

namespace {

/// A dim of a product that is read in slices of `length`.
struct Slices {
  std::size_t dim;
  std::int64_t length;
  friend bool operator==(const Slices&, const Slices&) = default;
};

/// Where a read of a value goes along its dims: each the same as the reader's (nothing), or one of
/// them in a slice.
struct SliceRead {
  bool ok = false;
  std::optional<Slices> slices;
  std::int64_t begin = 0;
};

class SliceFinder {
public:
  explicit SliceFinder(const Graph& graph) : graph_(graph), facts_(graph) {}

  std::optional<Slices> of(NodeId sum) const {
    const Node& node = graph_[sum];
    if (node.op != Op::ReduceSum || facts_.product_of(sum) != node.inputs[0] ||
        facts_.is_output(sum))
      return std::nullopt;
    std::optional<Slices> found;
    std::set<std::int64_t> begins;
    std::vector<NodeId> waiting{sum};
    for (std::size_t i = 0; i < waiting.size(); ++i)
      for (const Use& use : facts_.uses(waiting[i])) {
        if (!is_elementwise(graph_[use.reader].op))
          return std::nullopt;
        const SliceRead read = read_of(
            facts_.view(graph_[use.reader].inputs[std::size_t(use.operand)]).map, node.shape);
        if (!read.ok || (found && read.slices && *found != *read.slices))
          return std::nullopt;
        if (read.slices) {
          found = read.slices;
          begins.insert(read.begin);
        } else if (facts_.is_output(use.reader)) {
          return std::nullopt;
        } else if (std::find(waiting.begin(), waiting.end(), use.reader) == waiting.end()) {
          waiting.push_back(use.reader);
        }
      }
    return begins.size() > 1 ? found : std::nullopt;
  }

private:
  static SliceRead read_of(const IndexMap& map, const Shape& shape) {
    SliceRead read;
    if (!map.is_total() || map.coords.size() != shape.size())
      return read;
    bool same = map.dims == shape;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      const Expr& at = map.coords[d];
      if (is_unit(shape[d]))
        continue;
      const auto variables = variables_of(at);
      if (variables.size() != 1 || !variables[0].is_axis())
        return read;
      const Expr begin = at - variables[0];
      const Expr& extent = map.dims[std::size_t(variables[0].axis_number())];
      same = same && at == Expr::axis(int(d), shape[d]);
      if (extent == shape[d] && begin == Expr(0))
        continue;
      if (read.slices || !begin.is_constant() || !extent.is_constant() || !shape[d].is_constant() ||
          shape[d].value() % extent.value() != 0 || begin.value() % extent.value() != 0 ||
          shape[d].value() / extent.value() > kMostSlices)
        return read;
      read.slices = Slices{d, extent.value()};
      read.begin = begin.value();
    }
    read.ok = same || read.slices;
    return read;
  }

  const Graph& graph_;
  GraphFacts facts_;
};

class SliceSplitter {
public:
  explicit SliceSplitter(const Graph& graph) : graph_(graph), to_(graph.size()) {}

  Graph run() {
    const SliceFinder finder(graph_);
    for (NodeId id : graph_.inputs()) // in their slots
      to_[id] = out_.add(Op::Input, {}, graph_[id].attrs);
    for (NodeId id = 0; id < graph_.size(); ++id) {
      if (graph_[id].op == Op::Input)
        continue;
      const auto slices = finder.of(id);
      any_ = any_ || slices;
      to_[id] = slices ? split(graph_[id], *slices) : copied(graph_[id]);
    }
    if (!any_)
      return graph_;
    for (NodeId id : graph_.outputs)
      out_.outputs.push_back(to_[id]);
    return ir::without_dead_code(out_);
  }

private:
  static Shape split_box(Shape shape, std::size_t dim, std::int64_t length) {
    const std::int64_t count = shape[dim].value() / length;
    shape[dim] = Expr(length);
    shape.insert(shape.begin() + std::ptrdiff_t(dim), Expr(count));
    return shape;
  }

  NodeId split(const Node& sum, const Slices& slices) {
    const Node& product = graph_[sum.inputs[0]];
    // The dim of the product's box: those that are summed stand between.
    auto dim = std::int64_t(slices.dim);
    std::vector<std::int64_t> axes = sum.attrs.axes;
    std::sort(axes.begin(), axes.end());
    for (const std::int64_t a : axes)
      dim += a <= dim;
    const Shape box = split_box(product.shape, std::size_t(dim), slices.length);
    const NodeId left = out_.reshape(to_[product.inputs[0]], box),
                 right = out_.reshape(to_[product.inputs[1]], box);
    const NodeId inputs[] = {left, right};
    const NodeId terms = out_.add(Op::Mul, inputs, product.attrs);
    ir::Attrs attrs = sum.attrs;
    attrs.axes = axes;
    for (std::int64_t& a : attrs.axes)
      a += a > dim;
    const NodeId result = out_.add(sum.op, std::span(&terms, 1), attrs);
    is_split_.insert(result);
    return out_.reshape(result, sum.shape);
  }

  NodeId copied(const Node& node) {
    std::vector<NodeId> inputs;
    for (NodeId i : node.inputs)
      inputs.push_back(to_[i]);
    if (is_elementwise(node.op))
      for (const NodeId i : inputs)
        if (out_[i].op == Op::Reshape && is_split_.contains(out_[i].inputs[0])) {
          const Shape box = out_[out_[i].inputs[0]].shape;
          for (NodeId& other : inputs)
            other = in_box(other, box);
          const NodeId result = out_.add(node.op, inputs, node.attrs);
          is_split_.insert(result);
          return out_.reshape(result, node.shape);
        }
    return out_.add(node.op, inputs, node.attrs);
  }

  NodeId in_box(NodeId id, const Shape& box) {
    const bool there = out_[id].op == Op::Reshape && out_[out_[id].inputs[0]].shape == box;
    return there ? out_[id].inputs[0] : out_.reshape(id, box);
  }

  const Graph& graph_;
  Graph out_;
  std::vector<NodeId> to_;
  std::set<NodeId> is_split_; ///< of out_
  bool any_ = false;
};

} // namespace

Graph split_slices(const Graph& graph) {
  return SliceSplitter(graph).run();
}

} // namespace egret::compiler
