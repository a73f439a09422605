#include "support/random_graph.h"

#include "backend/reference/reference.h"
#include "support/hash.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace egret::testing {

using ir::Graph;
using ir::NodeId;
using Axes = std::vector<std::int64_t>;

std::uint64_t Rng::bits() {
  std::uint64_t x = state_ += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

namespace {

constexpr double kLargestInteger = 9.2e18;

class Maker {
public:
  Maker(std::uint64_t seed, const RandomGraphOptions& options) : rng_(seed), options_(options) {
    options_.motifs = options_.motifs && options_.allowed.empty() && options_.views;
    // few dtypes a graph, so that ops find operands and make chains
    dtypes_ = options.dtypes;
    for (std::size_t keep = 2 + static_cast<std::size_t>(rng_.below(3)); dtypes_.size() > keep;)
      dtypes_.erase(dtypes_.begin() + rng_.below(static_cast<std::int64_t>(dtypes_.size())));
    if (options.floats && std::ranges::none_of(dtypes_, is_float)) {
      std::vector<DType> floats = options.dtypes;
      std::erase_if(floats, [](DType d) { return !is_float(d); });
      dtypes_.back() = rng_.pick(floats);
    }
    if (options.symbolic) {
      sizes_.push_back(Expr::symbol("N", 1, 9));
      sizes_.push_back(Expr::symbol("M", 2, 8, 2));
    }
  }

  Graph make() {
    std::vector<Op> ops = options_.allowed;
    if (ops.empty())
      for (int i = 0; i < kOps; ++i)
        ops.push_back(static_cast<Op>(i));
    std::erase_if(ops,
                  [&](Op op) { return op == Op::Input || (!options_.views && is_movement(op)); });
    new_input(rng_.pick(dtypes_), sizes_.empty() ? random_shape() : Shape(sizes_));
    for (int made = 0, tries = 0; made < options_.ops && tries < 20 * options_.ops; ++tries) {
      const std::optional<Graph> before = nearly_full() ? std::optional(graph_) : std::nullopt;
      std::optional<NodeId> id =
          options_.motifs && rng_.chance(0.1) ? motif() : try_op(rng_.pick(ops));
      if (before && ops_made() > options_.max_nodes) {
        graph_ = *before;
        break;
      }
      if (!id)
        continue;
      pool_.push_back(*id);
      ++made;
    }
    std::vector<bool> read(graph_.size());
    for (NodeId id = 0; id < graph_.size(); ++id)
      for (NodeId in : graph_[id].inputs)
        read[in] = true;
    for (NodeId id = 0; id < graph_.size(); ++id)
      if (!read[id])
        graph_.outputs.push_back(id);
    return std::move(graph_);
  }

private:
  int ops_made() const { return static_cast<int>(graph_.size() - graph_.inputs().size()); }
  /// One more op with its helpers may be too much.
  bool nearly_full() const { return ops_made() + 20 > options_.max_nodes; }

  std::int64_t most(const Shape& shape) const {
    std::int64_t count = 1;
    for (const Expr& dim : shape)
      count *= std::max<std::int64_t>(dim.upper(), 1);
    return count;
  }
  bool fits(const Shape& shape) const {
    return static_cast<std::int64_t>(shape.size()) <= options_.max_rank + 2 &&
           most(shape) <= options_.max_elements;
  }

  Expr random_dim() {
    if (!sizes_.empty() && rng_.chance(0.4))
      return rng_.chance(0.85) ? rng_.pick(sizes_) : rng_.pick(sizes_) + Expr(rng_.below(3));
    if (options_.zero_dims && rng_.chance(0.03))
      return 0;
    if (rng_.chance(0.15))
      return 1;
    if (rng_.chance(0.15)) // around widths of vectors
      return rng_.pick(Axes{15, 16, 17, 31, 32, 33, 64, 65});
    return 2 + rng_.below(7);
  }

  Shape random_shape() {
    Shape shape;
    std::int64_t rank = rng_.chance(0.1) ? 0 : 1 + rng_.below(options_.max_rank);
    for (; rank > 0; --rank) {
      shape.push_back(random_dim());
      if (!fits(shape))
        shape.back() = 1 + rng_.below(2);
      if (!fits(shape))
        shape.back() = 1;
    }
    return shape;
  }

  NodeId new_input(DType dtype, Shape shape) {
    bool by_value = shape.empty() && rng_.chance(0.5);
    NodeId id = graph_.input("x" + std::to_string(graph_.inputs().size()), dtype, std::move(shape),
                             by_value);
    pool_.push_back(id);
    return id;
  }

  Scalar random_scalar(DType dtype) {
    if (dtype == DType::Bool)
      return Scalar::from_bits(dtype, rng_.bits() & 1);
    if (is_float(dtype) && options_.special && rng_.chance(0.1))
      return Scalar::of(dtype, rng_.pick(std::vector<double>{0.0, -0.0, 1.0, -1.0, 0.5, 2.0,
                                                             INFINITY, -INFINITY, NAN}));
    if (is_float(dtype))
      return Scalar::of(dtype, rng_.uniform(-3, 3));
    return Scalar::of(dtype, rng_.below(9) - (is_signed(dtype) ? 4 : 0));
  }

  /// A node for which `fits` holds: mostly one that exists.
  template <class Fits>
  std::optional<NodeId> existing(Fits fits) {
    std::vector<NodeId> found;
    for (NodeId id : pool_)
      if (fits(graph_[id]))
        found.push_back(id);
    if (found.empty())
      return std::nullopt;
    auto n = static_cast<std::int64_t>(found.size()); // the later of two: chains grow
    return found[static_cast<std::size_t>(std::max(rng_.below(n), rng_.below(n)))];
  }

  template <class Takes>
  NodeId operand(Takes takes) {
    if (rng_.chance(0.9))
      if (auto id = existing([&](const ir::Node& n) { return takes(n.dtype); }))
        return *id;
    std::vector<DType> dtypes = dtypes_;
    std::erase_if(dtypes, [&](DType d) { return !takes(d); });
    if (dtypes.empty())
      return pool_[0]; // the op's dtype rule refuses it, and another op is tried
    DType dtype = rng_.pick(dtypes);
    if (rng_.chance(0.5))
      if (auto id = existing([](const ir::Node&) { return true; }))
        return graph_.cast(*id, dtype);
    return new_input(dtype, random_shape());
  }

  /// A value of exactly this dtype and shape, found or made.
  NodeId value(DType dtype, const Shape& shape) {
    if (rng_.chance(0.5))
      if (auto id =
              existing([&](const ir::Node& n) { return n.dtype == dtype && n.shape == shape; }))
        return *id;
    if (options_.views && rng_.chance(0.5))
      if (auto id = existing([&](const ir::Node& n) {
            return n.dtype == dtype && n.shape != shape && broadcasts(n.shape, shape);
          }))
        return graph_.broadcast(*id, shape);
    if (rng_.chance(0.4))
      if (auto id = existing([&](const ir::Node& n) { return n.shape == shape; }))
        return graph_.cast(*id, dtype);
    if (options_.views && rng_.chance(0.4))
      return graph_.broadcast(graph_.constant(random_scalar(dtype)), shape);
    Shape smaller = shape;
    if (options_.views && rng_.chance(0.4))
      for (Expr& dim : smaller)
        if (rng_.chance(0.5))
          dim = 1;
    NodeId id = new_input(dtype, smaller);
    return graph_.expand(id, shape);
  }

  static bool broadcasts(const Shape& from, const Shape& to) {
    if (from.size() > to.size())
      return false;
    for (std::size_t i = 0; i < from.size(); ++i) {
      const Expr &f = from[from.size() - 1 - i], &t = to[to.size() - 1 - i];
      if (!(f == t) && !(f == Expr(1)))
        return false;
    }
    return true;
  }

  std::int64_t random_axis(const Shape& shape) {
    return rng_.below(static_cast<std::int64_t>(shape.size()));
  }

  Axes random_axes(const Shape& shape) {
    Axes axes;
    for (std::size_t i = 0; i < shape.size(); ++i)
      if (rng_.chance(0.5))
        axes.push_back(static_cast<std::int64_t>(i));
    if (axes.empty())
      axes.push_back(random_axis(shape));
    return axes;
  }

  static bool takes(DTypeRule rule, DType d) {
    switch (rule) {
    case DTypeRule::Float:
      return is_float(d);
    case DTypeRule::Integer:
    case DTypeRule::Order:
      return is_integer(d);
    case DTypeRule::IntegerBool:
      return !is_float(d);
    case DTypeRule::Number:
    case DTypeRule::Index:
      return d != DType::Bool;
    default:
      return true;
    }
  }

  std::optional<NodeId> try_op(Op op) {
    const OpInfo& row = info_of(op);
    auto by_rule = [&](DType d) { return takes(row.dtypes, d); };
    switch (row.cls) {
    case OpClass::Source:
      return source(op);
    case OpClass::Convert:
      return conversion(op);
    case OpClass::Unary:
    case OpClass::Marker: {
      NodeId a = operand(by_rule);
      return by_rule(graph_[a].dtype) ? std::optional(graph_.unary(op, a)) : std::nullopt;
    }
    case OpClass::Binary: {
      NodeId a = operand(by_rule);
      if (!by_rule(graph_[a].dtype))
        return std::nullopt;
      NodeId b = value(graph_[a].dtype, Shape(graph_[a].shape));
      return rng_.chance(0.5) ? graph_.binary(op, a, b) : graph_.binary(op, b, a);
    }
    case OpClass::Ternary: {
      if (!has(DType::Bool))
        return std::nullopt;
      NodeId a = operand(by_rule);
      DType dtype = graph_[a].dtype;
      Shape shape = graph_[a].shape;
      NodeId b = value(dtype, shape), c = value(DType::Bool, shape);
      return graph_.select(c, a, b);
    }
    case OpClass::Reduce:
      return reduction(op);
    case OpClass::Scan: {
      NodeId a = operand(by_rule);
      if (graph_[a].shape.empty() || !by_rule(graph_[a].dtype))
        return std::nullopt;
      const std::int64_t axis = random_axis(graph_[a].shape);
      if (op != Op::ScanLinear)
        return graph_.scan(op, a, axis);
      const DType dtype = graph_[a].dtype;
      const Shape shape = graph_[a].shape;
      const NodeId factor = value(dtype, shape);
      return graph_.linear_scan(a, factor, axis);
    }
    case OpClass::Sort: {
      NodeId a = operand(by_rule);
      const Shape shape = graph_[a].shape;
      if (shape.empty() || !by_rule(graph_[a].dtype) || !has(DType::I64))
        return std::nullopt;
      const std::int64_t axis = random_axis(shape);
      const Expr& n = shape[static_cast<std::size_t>(axis)];
      return graph_.argsort(a, axis, n.lower() > 1 && rng_.chance(0.5) ? Expr(1) : n);
    }
    case OpClass::Gather:
      return gather();
    case OpClass::Scatter:
      return scatter(op);
    case OpClass::Movement:
      return movement(op);
    }
    return std::nullopt;
  }

  bool has(DType d) const { return std::ranges::find(options_.dtypes, d) != options_.dtypes.end(); }

  std::optional<NodeId> source(Op op) {
    DType dtype = rng_.pick(dtypes_);
    if (op == Op::Constant)
      return graph_.constant(random_scalar(dtype));
    if (dtype == DType::Bool)
      return std::nullopt;
    return graph_.iota(random_dim(), dtype);
  }

  std::optional<NodeId> conversion(Op op) {
    NodeId a = operand([](DType) { return true; });
    std::vector<DType> dtypes = dtypes_;
    DType from = graph_[a].dtype;
    std::erase_if(dtypes, [&](DType d) {
      return d == from || (op == Op::Bitcast && size_of(d) != size_of(from));
    });
    if (dtypes.empty())
      return std::nullopt;
    DType to = rng_.pick(dtypes);
    return op == Op::Cast ? graph_.cast(a, to) : graph_.bitcast(a, to);
  }

  std::optional<NodeId> reduction(Op op) {
    auto by_rule = [&](DType d) {
      return takes(info_of(op).dtypes, d) && (op != Op::ReduceArgMax || has(DType::I64));
    };
    NodeId a = operand(by_rule);
    const Shape& shape = graph_[a].shape;
    if (shape.empty() || !by_rule(graph_[a].dtype))
      return std::nullopt;
    return graph_.reduce(op, a,
                         op == Op::ReduceArgMax ? Axes{random_axis(shape)} : random_axes(shape));
  }

  /// An integer tensor, mostly with values inside 0..extent-1.
  std::optional<NodeId> index(const Expr& extent, std::optional<Shape> shape) {
    NodeId id;
    std::vector<DType> dtypes = dtypes_;
    std::erase_if(dtypes, [](DType d) { return !is_integer(d); });
    if (dtypes.empty())
      return std::nullopt;
    if (shape) {
      id = value(rng_.pick(dtypes), *shape);
    } else {
      id = operand([](DType d) { return is_integer(d); });
      if (!is_integer(graph_[id].dtype))
        return std::nullopt;
    }
    if (!extent.is_constant() || extent == Expr(0) || !options_.views || rng_.chance(0.2))
      return id;
    DType dtype = graph_[id].dtype;
    Shape like = graph_[id].shape;
    NodeId bound = graph_.constant(Scalar::of(dtype, extent.value()));
    return graph_.binary(Op::Mod, id, graph_.broadcast(bound, like));
  }

  static Shape gathered(const Shape& data, const Shape& index, std::int64_t axis) {
    Shape result(data.begin(), data.begin() + axis);
    result.insert(result.end(), index.begin(), index.end());
    result.insert(result.end(), data.begin() + axis + 1, data.end());
    return result;
  }

  std::optional<NodeId> gather() {
    NodeId data = operand([](DType) { return true; });
    Shape shape = graph_[data].shape;
    if (shape.empty())
      return std::nullopt;
    std::int64_t axis = random_axis(shape);
    auto at = index(shape[static_cast<std::size_t>(axis)], std::nullopt);
    if (!at || !fits(gathered(shape, graph_[*at].shape, axis)))
      return std::nullopt;
    return graph_.gather(data, *at, axis);
  }

  std::optional<NodeId> scatter(Op op) {
    NodeId data = operand([&](DType d) { return op != Op::ScatterAdd || d != DType::Bool; });
    Shape shape = graph_[data].shape;
    DType dtype = graph_[data].dtype;
    if (shape.empty() || (op == Op::ScatterAdd && dtype == DType::Bool))
      return std::nullopt;
    std::int64_t axis = random_axis(shape);
    Shape index_shape;
    for (std::int64_t rank = rng_.below(3); rank > 0; --rank)
      index_shape.push_back(1 + rng_.below(5));
    Shape updates = gathered(shape, index_shape, axis);
    if (!fits(updates))
      return std::nullopt;
    auto at = index(shape[static_cast<std::size_t>(axis)], index_shape);
    if (!at)
      return std::nullopt;
    return graph_.scatter(op, data, *at, value(dtype, updates), axis);
  }

  std::optional<NodeId> movement(Op op) {
    NodeId a = operand([](DType) { return true; });
    DType dtype = graph_[a].dtype;
    Shape shape = graph_[a].shape;
    std::size_t rank = shape.size();
    switch (op) {
    case Op::Reshape:
      return graph_.reshape(a, reshaped(shape));
    case Op::Permute: {
      Axes order;
      for (std::size_t i = 0; i < rank; ++i)
        order.insert(order.begin() + rng_.below(static_cast<std::int64_t>(i) + 1),
                     static_cast<std::int64_t>(i));
      return graph_.permute(a, order);
    }
    case Op::Expand: {
      for (Expr& dim : shape)
        if (dim == Expr(1) && rng_.chance(0.7))
          dim = random_dim();
      return fits(shape) ? std::optional(graph_.expand(a, shape)) : std::nullopt;
    }
    case Op::Pad: {
      Shape before(rank), after(rank), result = shape;
      for (std::size_t i = 0; i < rank; ++i) {
        before[i] = rng_.chance(0.4) ? Expr(rng_.below(3)) : Expr(0);
        after[i] = rng_.chance(0.4) ? Expr(rng_.below(3)) : Expr(0);
        if (!sizes_.empty() && rng_.chance(0.2))
          after[i] = rng_.pick(sizes_);
        result[i] = before[i] + shape[i] + after[i];
      }
      if (!fits(result))
        return std::nullopt;
      return graph_.pad(a, before, after, random_scalar(dtype));
    }
    case Op::Shrink: {
      Shape begin(rank), end = shape;
      for (std::size_t i = 0; i < rank; ++i) {
        std::int64_t least = shape[i].lower();
        if (rng_.chance(0.4) || least < 1)
          continue;
        std::int64_t first = rng_.below(least);
        begin[i] = first;
        if (shape[i].is_constant() || rng_.chance(0.5))
          end[i] = first + (options_.zero_dims ? 0 : 1) +
                   rng_.below(least - first + (options_.zero_dims ? 1 : 0));
      }
      return graph_.shrink(a, begin, end);
    }
    default:
      return rank == 0 ? std::nullopt : std::optional(graph_.flip(a, random_axes(shape)));
    }
  }

  /// What models are made of: products of matrices and normalized rows.
  std::optional<NodeId> motif() {
    NodeId a = operand(is_float);
    Shape shape = graph_[a].shape;
    DType dtype = graph_[a].dtype;
    if (!is_float(dtype) || shape.empty())
      return std::nullopt;
    return shape.size() > 1 && rng_.chance(0.6) ? product(a, dtype, shape) : softmax(a, shape);
  }

  std::optional<NodeId> product(NodeId a, DType dtype, const Shape& shape) {
    Expr k = shape.back(), n = random_dim();
    bool k_last = rng_.chance(0.5);
    auto last = static_cast<std::int64_t>(shape.size());
    Shape box(shape.begin(), shape.end() - 1), a_box = box, b_box(shape.size() - 1, Expr(1));
    for (const Expr& dim : k_last ? Shape{n, k} : Shape{k, n})
      box.push_back(dim), b_box.push_back(dim);
    for (const Expr& dim : k_last ? Shape{1, k} : Shape{k, 1})
      a_box.push_back(dim);
    if (!fits(box))
      return std::nullopt;
    NodeId b = k_last && rng_.chance(0.5) ? graph_.permute(value(dtype, {k, n}), {1, 0})
                                          : value(dtype, k_last ? Shape{n, k} : Shape{k, n});
    NodeId left = graph_.expand(graph_.reshape(a, a_box), box);
    NodeId right = graph_.expand(graph_.reshape(b, b_box), box);
    NodeId terms = rng_.chance(0.5) ? graph_.binary(Op::Mul, left, right)
                                    : graph_.binary(Op::Mul, right, left);
    return graph_.reduce(Op::ReduceSum, terms, {k_last ? last : last - 1});
  }

  std::optional<NodeId> softmax(NodeId a, const Shape& shape) {
    Axes axis{random_axis(shape)};
    Shape kept = shape;
    kept[static_cast<std::size_t>(axis[0])] = 1;
    auto spread = [&](NodeId row) { return graph_.expand(graph_.reshape(row, kept), shape); };
    NodeId minus = graph_.broadcast(graph_.constant(graph_[a].dtype, -1), shape);
    NodeId top = spread(graph_.reduce(Op::ReduceMax, a, axis));
    NodeId shifted = graph_.binary(Op::Add, a, graph_.binary(Op::Mul, top, minus));
    NodeId e = graph_.unary(Op::Exp, shifted);
    NodeId total = spread(graph_.reduce(Op::ReduceSum, e, axis));
    return graph_.binary(Op::Div, e, total);
  }

  /// Neighbouring dims merged, dims split, ones put in and taken out.
  Shape reshaped(const Shape& shape) {
    Shape result;
    for (const Expr& dim : shape) {
      if (dim == Expr(1) && rng_.chance(0.5))
        continue;
      if (!result.empty() && rng_.chance(0.35)) {
        result.back() = result.back() * dim;
        continue;
      }
      bool split = false;
      for (std::int64_t factor : {2, 3, 5})
        if (!split && !(dim == Expr(0)) && floormod(dim, factor) == Expr(0) && rng_.chance(0.4)) {
          result.push_back(floordiv(dim, factor));
          result.push_back(factor);
          split = true;
        }
      if (!split)
        result.push_back(dim);
    }
    while (static_cast<std::int64_t>(result.size()) < options_.max_rank && rng_.chance(0.25))
      result.insert(result.begin() + rng_.below(static_cast<std::int64_t>(result.size()) + 1),
                    Expr(1));
    return static_cast<std::int64_t>(result.size()) <= options_.max_rank + 1 ? result : shape;
  }

  Rng rng_;
  RandomGraphOptions options_;
  std::vector<DType> dtypes_;
  Graph graph_;
  std::vector<NodeId> pool_;
  std::vector<Expr> sizes_;
};

Scalar random_element(Rng& rng, DType dtype, const RandomInputOptions& options) {
  if (dtype == DType::Bool)
    return Scalar::from_bits(dtype, rng.bits() & 1);
  if (!is_float(dtype)) {
    if (options.special && rng.chance(0.04))
      return Scalar::of(dtype, rng.chance(0.5) ? -kLargestInteger * 2 : kLargestInteger * 3);
    if (options.special && rng.chance(0.02))
      return Scalar::from_bits(dtype, rng.bits());
    auto range = static_cast<std::int64_t>(options.range) + 4;
    return Scalar::of(dtype,
                      is_signed(dtype) ? rng.below(2 * range + 1) - range : rng.below(range));
  }
  if (options.special && rng.chance(0.04)) {
    using Limits = std::numeric_limits<float>;
    return Scalar::of(dtype, rng.pick(std::vector<double>{NAN, INFINITY, -INFINITY, 0.0, -0.0,
                                                          Limits::denorm_min(), Limits::max(),
                                                          -Limits::max(), 1e-30, 0.5, 65504.0}));
  }
  if (rng.chance(0.1)) // ties and exact zeros
    return Scalar::of(dtype, static_cast<double>(rng.below(5) - 2));
  return Scalar::of(dtype, rng.uniform(-options.range, options.range));
}

} // namespace

Graph random_graph(std::uint64_t seed, const RandomGraphOptions& options) {
  Graph graph = Maker(seed, options).make();
  ir::verify(graph);
  return graph;
}

std::vector<backend::reference::HostArray> random_inputs(const Graph& graph, std::uint64_t seed,
                                                         const RandomInputOptions& options) {
  const auto stream = [&](const std::string& name) {
    return Rng(combine(seed ^ 0x5eed, hash_text(name)));
  };
  backend::reference::Bindings bindings;
  for (const Expr& symbol : ir::symbols_of(graph)) {
    const std::int64_t steps = (symbol.upper() - symbol.lower()) / symbol.divisor();
    bindings.set(symbol, symbol.lower() +
                             symbol.divisor() * stream("symbol " + symbol.str()).below(steps + 1));
  }
  std::map<std::string, int> named;
  std::vector<backend::reference::HostArray> arrays;
  for (NodeId id : graph.inputs()) {
    const ir::Node& node = graph[id];
    const int before = named[node.attrs.name]++; // inputs may share a name
    Rng rng =
        stream(before == 0 ? node.attrs.name : node.attrs.name + " " + std::to_string(before));
    backend::reference::HostArray array(node.dtype, bindings.values_of(node.shape));
    for (std::int64_t i = 0; i < array.size(); ++i)
      array.set(i, backend::reference::number_of(random_element(rng, node.dtype, options)));
    arrays.push_back(std::move(array));
  }
  return arrays;
}

Graph long_sum(std::int64_t n) {
  Graph g;
  const NodeId x = g.input("x", DType::F32, {Expr(n)});
  g.outputs = {g.reduce(Op::ReduceSum, g.unary(Op::Sigmoid, x), {0})};
  return g;
}

} // namespace egret::testing
