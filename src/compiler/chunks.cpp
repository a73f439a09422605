#include "compiler/chunks.h"

#include "compiler/views.h"
#include "ir/structure.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace egret::compiler {

using ir::Graph;
using ir::Node;
using ir::NodeId;

namespace {

constexpr std::size_t kMostProducts = 2;
/// Chunks are multiples of this where the axis is long enough: whole vectors, tiles and lines.
constexpr std::int64_t kMultiple = 128;

std::size_t at(NodeId id) {
  return static_cast<std::size_t>(id);
}

bool contains(const std::vector<std::int64_t>& axes, std::size_t dim) {
  return std::find(axes.begin(), axes.end(), static_cast<std::int64_t>(dim)) != axes.end();
}

/// The dim of `to` that is dim `dim` of `from`, both shapes being row-major views of one another.
std::optional<std::size_t> same_dim(const Shape& from, std::size_t dim, const Shape& to) {
  Expr before(1), sum(1);
  for (std::size_t i = 0; i < dim; ++i)
    before = before * from[i];
  for (std::size_t i = 0; i < to.size(); sum = sum * to[i++])
    if (to[i] == from[dim] && sum == before)
      return i;
  return std::nullopt;
}

bool untouched(const Node& node, const Shape& operand, std::size_t dim) {
  switch (node.op) {
  case Op::Pad:
    return node.attrs.before[dim] == Expr(0) && node.attrs.after[dim] == Expr(0);
  case Op::Shrink:
    return node.shape[dim] == operand[dim];
  case Op::Flip:
    return !contains(node.attrs.axes, dim);
  default:
    return true;
  }
}

class Chunker {
public:
  Chunker(const Graph& graph, const ProductSplit& cut)
      : graph_(graph), cut_(cut), along_(graph.size()), live_(ir::live_nodes(graph)),
        users_(graph.size()), bounds_(bounds_of(graph, cut)), to_(graph.size(), ir::kNoNode) {
    for (NodeId id = 0; id < graph.size(); ++id)
      if (live_[at(id)])
        for (const NodeId in : graph[id].inputs)
          users_[at(in)].push_back(id);
  }

  std::optional<Graph> run() {
    if (bounds_.size() < 2 || !find_ends())
      return std::nullopt;
    for (const NodeId id : graph_.inputs())
      to_[at(id)] = out_.add(Op::Input, {}, graph_[id].attrs);
    for (NodeId id = 0; id < graph_.size(); ++id)
      if (live_[at(id)] && graph_[id].op != Op::Input)
        to_[at(id)] = made(id);
    for (const NodeId id : graph_.outputs)
      out_.outputs.push_back(to_[at(id)]);
    return ir::without_dead_code(out_);
  }

private:
  using Dim = std::optional<std::size_t>;

  /// Where the operand's dim is in the result; nothing where it is not there, or not all of it.
  Dim forward(const Node& node, const Shape& operand, std::size_t dim) const {
    const auto& axes = node.attrs.axes;
    if (info_of(node.op).cls == OpClass::Reduce) {
      if (contains(axes, dim))
        return std::nullopt;
      return dim - static_cast<std::size_t>(std::count_if(
                       axes.begin(), axes.end(), [&](auto a) { return a < std::int64_t(dim); }));
    }
    if (node.op == Op::Permute)
      return static_cast<std::size_t>(
          std::find(axes.begin(), axes.end(), static_cast<std::int64_t>(dim)) - axes.begin());
    if (node.op == Op::Reshape)
      return same_dim(operand, dim, node.shape);
    return untouched(node, operand, dim) ? Dim(dim) : std::nullopt;
  }

  /// And the reverse.
  Dim backward(const Node& node, const Shape& operand, std::size_t dim) const {
    const auto& axes = node.attrs.axes;
    if (info_of(node.op).cls == OpClass::Reduce) {
      std::size_t from = 0;
      for (std::size_t left = dim;; ++from)
        if (!contains(axes, from) && left-- == 0)
          return from;
    }
    if (node.op == Op::Permute)
      return static_cast<std::size_t>(axes[dim]);
    if (node.op == Op::Reshape)
      return same_dim(node.shape, dim, operand);
    return untouched(node, operand, dim) ? Dim(dim) : std::nullopt;
  }

  bool is_output(NodeId id) const {
    return std::find(graph_.outputs.begin(), graph_.outputs.end(), id) != graph_.outputs.end();
  }

  /// Finds what is made of the product, up to the reductions that end it.
  bool find_ends() {
    along_[at(cut_.product)] = cut_.dim;
    bool larger = false;
    for (NodeId id = cut_.product; id < graph_.size(); ++id) {
      if (!live_[at(id)])
        continue;
      if (id > cut_.product && !find_end(id, larger))
        return false;
      if (along_[at(id)] &&
          std::find(graph_.outputs.begin(), graph_.outputs.end(), id) != graph_.outputs.end())
        return false;
    }
    return larger;
  }

  bool find_end(NodeId id, bool& larger) {
    const Node& node = graph_[id];
    Dim dim;
    for (const NodeId in : node.inputs)
      if (along_[at(in)]) {
        if (dim && *dim != *along_[at(in)])
          return false;
        dim = along_[at(in)];
      }
    if (!dim)
      return true;
    if (is_elementwise(node.op)) {
      along_[at(id)] = dim;
      return true;
    }
    const Shape& operand = graph_[node.inputs[0]].shape;
    const bool is_larger = elements_of(operand) > elements_of(graph_[cut_.product].shape);
    switch (info_of(node.op).cls) {
    case OpClass::Movement:
      along_[at(id)] = forward(node, operand, *dim);
      return along_[at(id)].has_value();
    case OpClass::Scan:
      if (node.inputs.size() > 1)
        return false;
      along_[at(id)] = dim;
      return !contains(node.attrs.axes, *dim);
    case OpClass::Reduce:
      break;
    default:
      return false;
    }
    if (node.op == Op::ReduceArgMax)
      return false;
    if (!contains(node.attrs.axes, *dim)) {
      joined_.insert(last_conversion(id, *forward(node, operand, *dim)));
      reductions_.insert(id);
      larger = larger || is_larger;
    } else if (is_larger || cut_.all_sums) {
      combined_.emplace(id, *dim);
      larger = larger || is_larger;
    }
    return true;
  }

  /// A sum that nothing but a conversion reads need not be joined before that.
  std::pair<NodeId, std::size_t> last_conversion(NodeId id, std::size_t dim) const {
    std::pair<NodeId, std::size_t> last{id, dim};
    while (users_[at(id)].size() == 1 && !is_output(id)) {
      const NodeId user = users_[at(id)][0];
      const Node& node = graph_[user];
      if (node.op == Op::Expand || (node.op != Op::Cast && !is_movement(node.op)))
        break;
      const Dim next = forward(node, graph_[id].shape, dim);
      if (!next)
        break;
      id = user;
      dim = *next;
      if (node.op == Op::Cast && size_of(node.dtype) <= size_of(graph_[last.first].dtype))
        last = {id, dim};
    }
    return last;
  }

  NodeId made(NodeId id) {
    const Node& node = graph_[id];
    if (const auto end = combined_.find(id); end != combined_.end()) {
      NodeId all = ir::kNoNode;
      for (std::size_t c = 0; c < bounds_.size(); ++c) {
        const NodeId part =
            out_.reduce(node.op, piece(c, node.inputs[0], end->second), node.attrs.axes);
        all = c == 0 ? part : out_.binary(combining(node.op), all, part);
      }
      return all;
    }
    if (const auto end = joined_.find(id); end != joined_.end())
      return join(id, end->second);
    std::vector<NodeId> inputs;
    for (const NodeId in : node.inputs)
      inputs.push_back(to_[at(in)]);
    return out_.add(node.op, inputs, node.attrs);
  }

  static Op combining(Op reduction) {
    return reduction == Op::ReduceSum ? Op::Add : reduction == Op::ReduceMax ? Op::Max : Op::Mul;
  }

  /// Chunks behind each other: the place along the dim selects the chunk.
  NodeId join(NodeId id, std::size_t dim) {
    const Shape shape = graph_[id].shape;
    const std::int64_t extent = bounds_.back().second;
    Shape line(shape.size(), Expr(1));
    line[dim] = Expr(extent);
    const NodeId places = out_.expand(out_.reshape(out_.iota(Expr(extent)), line), shape);
    NodeId all = ir::kNoNode;
    for (std::size_t c = bounds_.size(); c-- > 0;) {
      std::vector<Expr> before(shape.size(), Expr(0)), after = before;
      before[dim] = Expr(bounds_[c].first);
      after[dim] = Expr(extent - bounds_[c].second);
      const NodeId one =
          out_.pad(piece(c, id, dim), before, after, Scalar::of(graph_[id].dtype, std::int64_t{0}));
      if (all == ir::kNoNode) {
        all = one;
        continue;
      }
      const NodeId end =
          out_.broadcast(out_.constant(Scalar::of(DType::I64, bounds_[c].second)), shape);
      all = out_.select(out_.binary(Op::Lt, places, end), one, all);
    }
    return all;
  }

  /// What chunk c has of a value along a dim: made of what its operands have of it, or cut out of
  /// it where it is an input or made by a reduction that has nothing to do with the product.
  NodeId piece(std::size_t c, NodeId id, std::size_t dim) {
    const auto key = std::make_tuple(c, id, dim);
    if (const auto known = pieces_.find(key); known != pieces_.end())
      return known->second;
    return pieces_[key] = make_piece(c, id, dim);
  }

  NodeId make_piece(std::size_t c, NodeId id, std::size_t dim) {
    const Node& node = graph_[id];
    const Expr width(bounds_[c].second - bounds_[c].first);
    const OpClass cls = info_of(node.op).cls;
    if (is_elementwise(node.op)) {
      std::vector<NodeId> inputs;
      for (const NodeId in : node.inputs)
        inputs.push_back(piece(c, in, dim));
      return out_.add(node.op, inputs, node.attrs);
    }
    const bool inside =
        id == cut_.product || reductions_.contains(id) || (cls == OpClass::Scan && along_[at(id)]);
    if (node.inputs.empty() || !(cls == OpClass::Movement || inside))
      return cut_out(c, id, dim);
    const NodeId operand = node.inputs[0];
    const Shape& from = graph_[operand].shape;
    ir::Attrs attrs = node.attrs;
    if (node.op == Op::Expand || node.op == Op::Reshape)
      attrs.shape[dim] = width;
    if (node.op == Op::Expand && !(from[dim] == node.shape[dim]))
      return out_.expand(to_[at(operand)], attrs.shape);
    const Dim below = backward(node, from, dim);
    if (!below)
      return cut_out(c, id, dim);
    if (node.op == Op::Shrink) {
      attrs.before[dim] = Expr(0);
      attrs.shape[dim] = width;
    }
    const NodeId part = piece(c, operand, *below);
    return out_.add(node.op, std::span(&part, 1), attrs);
  }

  NodeId cut_out(std::size_t c, NodeId id, std::size_t dim) {
    const Shape& shape = graph_[id].shape;
    std::vector<Expr> begin(shape.size(), Expr(0)), end(shape.begin(), shape.end());
    begin[dim] = Expr(bounds_[c].first);
    end[dim] = Expr(bounds_[c].second);
    return out_.shrink(to_[at(id)], begin, end);
  }

  const Graph& graph_;
  const ProductSplit& cut_;
  std::vector<Dim> along_; ///< by node that is made of the product: its dim of the cut
  std::vector<bool> live_;
  std::vector<std::vector<NodeId>> users_;
  std::vector<std::pair<std::int64_t, std::int64_t>> bounds_; ///< by chunk
  std::map<NodeId, std::size_t> combined_;                    ///< reductions, the operand's dim
  std::map<NodeId, std::size_t> joined_;                      ///< values, the dim of their chunks
  std::set<NodeId> reductions_;                               ///< along other dims
  Graph out_;
  std::vector<NodeId> to_;
  std::map<std::tuple<std::size_t, NodeId, std::size_t>, NodeId> pieces_;
};

/// Whether a node sums products, as they are or converted.
bool sums_products(const Graph& graph, NodeId id) {
  if (graph[id].op != Op::ReduceSum)
    return false;
  NodeId in = graph[id].inputs[0];
  while (graph[in].op == Op::Cast)
    in = graph[in].inputs[0];
  return graph[in].op == Op::Mul && elements_of(graph[in].shape) > elements_of(graph[id].shape);
}

} // namespace

std::vector<ProductSplit> possible_splits(const ir::Graph& graph, double least_bytes) {
  const std::vector<bool> live = ir::live_nodes(graph);
  const auto bytes = [&](NodeId id) {
    return elements_of(graph[id].shape) * static_cast<double>(size_of(graph[id].dtype));
  };
  std::vector<NodeId> products;
  for (NodeId id = 0; id < graph.size(); ++id)
    if (live[at(id)] && bytes(id) >= least_bytes && sums_products(graph, id))
      products.push_back(id);
  std::stable_sort(products.begin(), products.end(),
                   [&](NodeId a, NodeId b) { return bytes(a) > bytes(b); });
  products.resize(std::min(products.size(), kMostProducts));
  std::vector<ProductSplit> cuts;
  for (const NodeId id : products)
    for (const std::int64_t chunks : {2, 4, 8, 16})
      for (const bool all_sums : {false, true})
        for (std::size_t dim = graph[id].shape.size(); dim-- > 0;)
          if (const Expr& extent = graph[id].shape[dim];
              extent.is_constant() && extent.upper() >= 2 * chunks)
            cuts.push_back({id, dim, chunks, all_sums});
  return cuts;
}

std::vector<std::pair<std::int64_t, std::int64_t>> bounds_of(const ir::Graph& graph,
                                                             const ProductSplit& cut) {
  const std::int64_t extent = graph[cut.product].shape[cut.dim].upper();
  std::int64_t width = (extent + cut.chunks - 1) / cut.chunks;
  if (width > kMultiple)
    width = (width + kMultiple - 1) / kMultiple * kMultiple;
  std::vector<std::pair<std::int64_t, std::int64_t>> bounds;
  for (std::int64_t begin = 0; begin < extent; begin += width)
    bounds.emplace_back(begin, std::min(begin + width, extent));
  return bounds;
}

std::vector<int> chunks_of(const ir::Graph& graph,
                           const std::vector<std::pair<std::int64_t, std::int64_t>>& bounds) {
  std::vector<int> chunk(graph.size(), 0);
  const auto cut_out = [&](const Node& node) {
    for (std::size_t c = 0; c < bounds.size(); ++c)
      for (std::size_t dim = 0; dim < node.shape.size(); ++dim)
        if (!untouched(node, graph[node.inputs[0]].shape, dim) &&
            node.attrs.before[dim] == Expr(bounds[c].first) &&
            node.attrs.shape[dim] == Expr(bounds[c].second))
          return static_cast<int>(c) + 1;
    return 0;
  };
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph[id];
    std::set<int> of_operands;
    bool so_far = false, reduced = false;
    for (const NodeId in : node.inputs) {
      so_far = so_far || chunk[at(in)] == kSoFar;
      if (chunk[at(in)] <= 0)
        continue;
      of_operands.insert(chunk[at(in)]);
      reduced = reduced || info_of(graph[in].op).cls == OpClass::Reduce;
    }
    if (of_operands.size() > 1 || (so_far && reduced))
      chunk[at(id)] = kSoFar;
    else if (of_operands.size() == 1)
      chunk[at(id)] = *of_operands.begin();
    else if (of_operands.empty() && node.op == Op::Shrink)
      chunk[at(id)] = cut_out(node);
  }
  return chunk;
}

std::optional<ir::Graph> split_into_chunks(const ir::Graph& graph, const ProductSplit& cut) {
  return Chunker(graph, cut).run();
}

} // namespace egret::compiler
