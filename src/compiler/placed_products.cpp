#include "compiler/placed_products.h"

#include "compiler/affine_view.h"
#include "compiler/factors.h"
#include "compiler/search/machine.h"
#include "compiler/views.h"
#include "egret/passes.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <vector>

namespace egret::compiler {

using ir::Graph;
using ir::Node;
using ir::NodeId;

namespace {

/// A condition is compared with the places of the products at so many points at the most.
constexpr std::int64_t kMostPoints = 1 << 16;

bool is_among(const std::vector<std::int64_t>& axes, std::size_t axis) {
  return std::find(axes.begin(), axes.end(), std::int64_t(axis)) != axes.end();
}

bool has_constant_extents(const Shape& shape) {
  return std::all_of(shape.begin(), shape.end(), [](const Expr& e) { return e.is_constant(); });
}

/// An axis h = step * place + phase - shift.
struct Phases {
  std::int64_t step = 1, shift = 0;
  friend bool operator==(const Phases&, const Phases&) = default;
};

/// One sum of products in place of two.
struct OneSum {
  struct Factor {
    NodeId base;
    std::vector<Expr> coords; ///< over the box
    bool has(std::size_t axis) const {
      return std::any_of(coords.begin(), coords.end(), [&](const Expr& at) {
        const auto variables = variables_of(at);
        return std::any_of(variables.begin(), variables.end(),
                           [&](const Expr& v) { return v.axis_number() == int(axis); });
      });
    }
  };
  std::vector<Factor> factors;
  Shape box; ///< of the terms: the result's axes, then those that are summed
  std::size_t summed = 0;
  struct Axis { ///< of the result, in the box's order
    Expr extent;
    std::size_t dim;              ///< of the result
    std::optional<Phases> phases; ///< then it is two axes of the box
  };
  std::vector<Axis> result;
  std::optional<DType> rounded; ///< what alone reads the result casts it to

  bool has_phases() const {
    return std::any_of(result.begin(), result.end(),
                       [](const Axis& axis) { return axis.phases.has_value(); });
  }
};

class PlacedProductFinder {
public:
  PlacedProductFinder(const Graph& graph, const kernel::Target& target)
      : graph_(graph), facts_(graph), target_(target) {}

  std::optional<OneSum> find(NodeId id) const {
    const Node& fold = graph_[id];
    if (fold.op != Op::ReduceSum || !is_float(fold.dtype))
      return std::nullopt;
    const View& placed = facts_.view(fold.inputs[0]);
    const Node& sum = graph_[placed.base];
    if (sum.op != Op::ReduceSum || facts_.product_of(placed.base) != sum.inputs[0] ||
        facts_.is_output(placed.base) || facts_.uses(placed.base).size() != 1 ||
        !has_windows(placed.map) || !has_constant_extents(placed.map.dims) ||
        !has_constant_extents(graph_[sum.inputs[0]].shape) || !is_zero_beside(placed.map, sum) ||
        splits_scores(placed.map, sum))
      return std::nullopt;
    std::vector<std::size_t> dims; // of the placed box that are left
    for (std::size_t d = 0; d < placed.map.dims.size(); ++d)
      if (!is_among(fold.attrs.axes, d))
        dims.push_back(d);
    auto one = one_sum(fold, placed.map, sum, dims);
    // From the phases' results the result is cut out by another kernel. It goes along an axis that
    // has no phases, as the products' kernel does.
    if (one && one->has_phases())
      one = one_sum(fold, placed.map, sum, with_whole_axes_last(*one, dims));
    if (!one)
      return std::nullopt;
    one->rounded = rounded_to(id);
    return is_faster(*one, sum) ? one : std::nullopt;
  }

private:
  /// Whether several axes go along one of the sum's.
  static bool has_windows(const IndexMap& map) {
    return std::any_of(map.coords.begin(), map.coords.end(),
                       [](const Expr& at) { return variables_of(at).size() > 1; });
  }

  /// Whether an axis is only split, as heads into groups that share a key, of a sum over what is
  /// made of products larger than their factors, as scores are: a kernel that goes along these
  /// products without storing them (streaming.h) has their axes as they are. Windows at as many
  /// positions as there are elements, as of padded convolutions, have holes.
  bool splits_scores(const IndexMap& map, const Node& sum) const {
    return map.holes.empty() && elements_of(map.dims) == elements_of(sum.shape) &&
           std::ranges::any_of(graph_[sum.inputs[0]].inputs, [&](NodeId factor) {
             return is_made_of_large_products(facts_, factor);
           });
  }

  /// Whether all holes are zeros and each of their conditions fails only where some coordinate lies
  /// beside the sum: a factor with zeros there has zeros in the holes.
  bool is_zero_beside(const IndexMap& map, const Node& sum) const {
    for (const Hole& hole : map.holes) {
      if (!(hole.fill == Scalar::of(sum.dtype, 0.0)))
        return false;
      if (!std::all_of(hole.valid.begin(), hole.valid.end(),
                       [&](const Guard& guard) { return is_of_coordinates(guard, map, sum); }))
        return false;
    }
    return true;
  }

  bool is_of_coordinates(const Guard& guard, const IndexMap& map, const Node& sum) const {
    const std::vector<Expr> variables = variables_of(guard.value);
    if (!guard.lo.is_constant() || !guard.hi.is_constant())
      return false;
    std::int64_t points = 1;
    for (const Expr& v : variables) {
      if (!v.is_axis())
        return false;
      points *= map.dims[std::size_t(v.axis_number())].value();
      if (points > kMostPoints)
        return false;
    }
    std::vector<std::size_t> coords; // of no other variables
    for (std::size_t j = 0; j < map.coords.size(); ++j) {
      const auto own = variables_of(map.coords[j]);
      if (std::all_of(own.begin(), own.end(), [&](const Expr& v) {
            return std::find(variables.begin(), variables.end(), v) != variables.end();
          }))
        coords.push_back(j);
    }
    for (std::int64_t point = 0; point < points; ++point) {
      std::map<int, std::int64_t> at;
      std::int64_t rest = point;
      for (const Expr& v : variables) {
        const std::int64_t extent = map.dims[std::size_t(v.axis_number())].value();
        at[v.axis_number()] = rest % extent;
        rest /= extent;
      }
      const auto value = [&](const Expr& e) {
        return evaluate(e, [&](const Expr& v) { return at.at(v.axis_number()); });
      };
      const std::int64_t here = value(guard.value);
      if (here >= guard.lo.value() && here < guard.hi.value())
        continue;
      if (std::none_of(coords.begin(), coords.end(), [&](std::size_t j) {
            const std::int64_t c = value(map.coords[j]);
            return c < 0 || c >= sum.shape[j].value();
          }))
        return false;
    }
    return true;
  }

  /// The axes that are divided by a step, with a constant added; nothing where anything else is.
  static std::optional<std::map<int, Phases>> phases_of(const std::vector<Expr>& coords) {
    std::map<int, Phases> found;
    std::vector<Expr> waiting = coords;
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      const ExprNode node = waiting[i].node();
      if (node.kind == ExprKind::Axis)
        continue;
      if (node.kind != ExprKind::FloorDiv && node.kind != ExprKind::FloorMod) {
        waiting.insert(waiting.end(), node.operands.begin(), node.operands.end());
        continue;
      }
      const auto variables = variables_of(node.operands[0]);
      if (variables.size() != 1 || !variables[0].is_axis() || !node.operands[1].is_constant())
        return std::nullopt;
      const Expr added = node.operands[0] - variables[0];
      const std::int64_t step = node.operands[1].value();
      if (!added.is_constant())
        return std::nullopt;
      const Phases phases{step, ((added.value() % step) + step) % step};
      const auto [at, fresh] = found.emplace(variables[0].axis_number(), phases);
      if (!fresh && !(at->second == phases))
        return std::nullopt;
    }
    return found;
  }

  /// The result's dims, those last that only a factor without phases' places has.
  static std::vector<std::size_t> with_whole_axes_last(const OneSum& one,
                                                       std::vector<std::size_t> dims) {
    std::vector<std::size_t> places, of_axis; // axes of the box
    std::size_t next = 0;
    for (const OneSum::Axis& axis : one.result) {
      of_axis.push_back(next);
      if (axis.phases)
        places.push_back(next++);
      ++next;
    }
    const auto is_whole = [&](std::size_t d) {
      return std::any_of(one.factors.begin(), one.factors.end(), [&](const auto& factor) {
        const auto& other = &factor == &one.factors[0] ? one.factors[1] : one.factors[0];
        return factor.has(of_axis[d]) && !other.has(of_axis[d]) &&
               std::none_of(places.begin(), places.end(),
                            [&](std::size_t place) { return factor.has(place); });
      });
    };
    std::vector<std::size_t> order, last;
    for (std::size_t d = 0; d < dims.size(); ++d)
      (is_whole(d) ? last : order).push_back(dims[d]);
    order.insert(order.end(), last.begin(), last.end());
    return order;
  }

  /// The type that all readers of a value cast it to, where they read it as it is.
  std::optional<DType> rounded_to(NodeId id) const {
    std::optional<DType> to;
    if (facts_.is_output(id))
      return std::nullopt;
    for (const Use& use : facts_.uses(id)) {
      const Node& reader = graph_[use.reader];
      if (reader.op != Op::Cast || !facts_.view(reader.inputs[0]).map.is_total() ||
          (to && *to != reader.dtype) || size_of(reader.dtype) > size_of(graph_[id].dtype))
        return std::nullopt;
      to = reader.dtype;
    }
    return to;
  }

  /// `dims`: the result's, of the placed box, in the order in which the new box has them.
  std::optional<OneSum> one_sum(const Node& fold, const IndexMap& map, const Node& sum,
                                const std::vector<std::size_t>& dims) const {
    const auto phases = phases_of(map.coords);
    if (!phases)
      return std::nullopt;
    const Node& product = graph_[sum.inputs[0]];
    OneSum one;
    std::vector<Expr> at(map.dims.size(), Expr(0)); // of the placed box, over the new one
    const auto new_axis = [&](const Expr& extent) {
      one.box.push_back(extent);
      return Expr::axis(int(one.box.size()) - 1, extent);
    };
    for (const auto& [axis, split] : *phases)
      if (is_among(fold.attrs.axes, std::size_t(axis)))
        return std::nullopt;
    for (const std::size_t d : dims) {
      const auto split = phases->find(int(d));
      const auto before =
          std::count_if(dims.begin(), dims.end(), [&](std::size_t o) { return o < d; });
      one.result.push_back({map.dims[d], std::size_t(before), {}});
      if (split == phases->end()) {
        at[d] = new_axis(map.dims[d]);
        continue;
      }
      const auto [step, shift] = split->second;
      one.result.back().phases = split->second;
      const Expr place = new_axis(ceildiv(map.dims[d] + Expr(shift), step));
      at[d] = place * Expr(step) + new_axis(Expr(step)) - Expr(shift);
    }
    one.summed = one.box.size();
    std::vector<Expr> of_product; // by axis of the terms
    std::size_t left = 0;
    for (std::size_t i = 0; i < product.shape.size(); ++i)
      of_product.push_back(is_among(sum.attrs.axes, i) ? new_axis(product.shape[i]) : Expr(0));
    for (std::size_t d = 0; d < map.dims.size(); ++d)
      if (is_among(fold.attrs.axes, d))
        at[d] = new_axis(map.dims[d]);
    IndexMap coords = map;
    coords.holes.clear();
    coords = rebase(coords, at, one.box);
    for (std::size_t i = 0; i < product.shape.size(); ++i)
      if (!is_among(sum.attrs.axes, i))
        of_product[i] = coords.coords[left++];
    for (const NodeId input : product.inputs) {
      auto factor = factor_of(input, product.shape, of_product, one.box);
      if (!factor)
        return std::nullopt;
      one.factors.push_back(std::move(*factor));
    }
    return one;
  }

  /// An operand of the product over the terms' box, from the first value on its way from memory
  /// of which it is an affine view: where a reshape has split or joined axes, from behind that.
  /// `of_product`: by axis of the product, where it is.
  std::optional<OneSum::Factor> factor_of(NodeId operand, const Shape& shape,
                                          const std::vector<Expr>& of_product,
                                          const Shape& box) const {
    std::optional<OneSum::Factor> found;
    IndexMap map = IndexMap::identity(shape);
    for (NodeId id = operand;; id = graph_[id].inputs[0]) {
      if (auto factor = factor_from(id, map, shape, of_product, box))
        found = std::move(factor);
      if (!is_movement(graph_[id].op))
        return found;
      map = compose(map, ir::view_of(graph_, id));
    }
  }

  /// The same from one value, which the product's operand is a view of by `map`.
  std::optional<OneSum::Factor> factor_from(NodeId id, const IndexMap& map,
                                            const Shape& product_shape,
                                            const std::vector<Expr>& of_product,
                                            const Shape& box) const {
    const Shape& shape = graph_[id].shape;
    OneSum::Factor factor{id, {}};
    if (!map.is_total() || !has_constant_extents(shape))
      return std::nullopt;
    for (std::size_t j = 0; j < shape.size(); ++j) {
      const Expr& at = map.coords[j];
      const auto variables = variables_of(at);
      // Only all of a dimension has zeros beside it where the sum has its ends.
      const bool is_all = at.is_axis() && shape[j] == product_shape[std::size_t(at.axis_number())];
      const auto stays_inside = [&](const Expr& v) {
        if (!v.is_axis())
          return false;
        const auto i = std::size_t(v.axis_number());
        const Expr &place = of_product[i], &extent = product_shape[i];
        return place.is_axis() ? box[std::size_t(place.axis_number())] == extent
                               : place.is_constant();
      };
      if (!is_all && !std::all_of(variables.begin(), variables.end(), stays_inside))
        return std::nullopt;
      factor.coords.push_back(substitute(at, [&](const Expr& v) {
        return std::optional(of_product[std::size_t(v.axis_number())]);
      }));
    }
    if (!is_affine_view(factor.coords))
      return std::nullopt;
    return factor;
  }

  bool is_of_16_bits(const OneSum::Factor& factor) const {
    const Node& node = graph_[facts_.view(factor.base).base];
    const DType dtype = node.op == Op::Cast ? graph_[node.inputs[0]].dtype : node.dtype;
    return is_float(dtype) && size_of(dtype) == 2;
  }

  /// Elements of windows that threads copy to shared memory: each once for every tile of the other
  /// factor's rows or columns.
  static double copied_elements(const OneSum& one) {
    constexpr double kTile = 256;
    double all = 0;
    for (const OneSum::Factor& factor : one.factors) {
      double own = 1, others = 1;
      for (std::size_t axis = 0; axis < one.box.size(); ++axis)
        (factor.has(axis) ? own : others) *= double(one.box[axis].value());
      all += own * std::ceil(others / kTile);
    }
    return all;
  }

  /// A product that threads multiply: its tiles, of all batches, and their products.
  struct Tiles {
    double count = 1, products = 1;
  };
  /// `has`: whether a factor has an axis. `depth`: the extent of all that is summed.
  template <class Has>
  static Tiles tiles_of(const Shape& box, double depth, const Has& has) {
    constexpr double kTile = 64;
    double rows = 1, columns = 1, others = 1; // the depth and the batch
    for (std::size_t axis = 0; axis < box.size(); ++axis) {
      const bool left = has(0, axis), right = has(1, axis);
      (left == right ? others : left ? rows : columns) *= double(box[axis].value());
    }
    const double count = std::ceil(rows / kTile) * std::ceil(columns / kTile);
    return {count * others / depth, count * others * kTile * kTile};
  }

  /// Values in memory that an element of a factor is computed from: each window reads them anew.
  double loads_of(NodeId factor) const {
    constexpr std::size_t kMostNodes = 64;
    std::vector<NodeId> seen{facts_.view(factor).base};
    double loads = 0;
    for (std::size_t i = 0; i < seen.size() && i < kMostNodes; ++i) {
      const Node& node = graph_[seen[i]];
      if (!is_elementwise(node.op)) {
        if (info_of(node.op).cls == OpClass::Reduce && facts_.uses(seen[i]).size() == 1 &&
            elements_of(node.shape) == elements_of(graph_[seen[0]].shape))
          return 1; // the sum's kernel makes all that follows, and stores it
        loads += elements_of(node.shape) > 1 ? 1 : 0;
        continue;
      }
      for (const NodeId input : node.inputs)
        if (const NodeId base = facts_.view(input).base;
            std::find(seen.begin(), seen.end(), base) == seen.end())
          seen.push_back(base);
    }
    return std::max(loads, 1.0);
  }

  struct Seconds {
    double placed = 0, whole = 0;
  };
  /// Of the products of both forms, by a unit for 16 bits. What its windows are computed from is
  /// stored for them.
  Seconds products_of_unit(const OneSum& one, const Node& product,
                           const kernel::MatrixUnit& unit) const {
    constexpr double kClock = 1.5e9, kSchedulers = 4;
    constexpr double kCopiedBytes = 3e10; // of a multiprocessor in a second
    const bool queued = target_.unit(kernel::FragmentLayout::SwizzledSharedRows) != nullptr;
    const double ideal =
        double(unit.m) * unit.n * unit.k / unit.cycles * kSchedulers * target_.workers * kClock;
    return {elements_of(product.shape) / ideal * (queued ? 0.5 : 1.4),
            std::max(elements_of(one.box) / ideal * (queued ? 0.62 : 2.5),
                     2 * copied_elements(one) / (kCopiedBytes * target_.workers))};
  }
  /// The same by threads. The elements of windows come through registers, and a step of the depth
  /// waits for each of their loads.
  Seconds products_of_threads(const OneSum& one, const Node& product, double rate) const {
    constexpr double kSlowerWindows = 1.1, kEachLoad = 0.1, kStep = 16, kLoadSeconds = 7e-7,
                     kBlocks = 4; // of a multiprocessor at a time
    double loads = 1, depth = 1;
    for (const OneSum::Factor& factor : one.factors)
      loads = std::max(loads, loads_of(factor.base));
    for (std::size_t axis = one.summed; axis < one.box.size(); ++axis)
      depth *= double(one.box[axis].value());
    const auto varies = [&](int factor, std::size_t axis) {
      return bool(facts_.depends(product.inputs[std::size_t(factor)])[axis]);
    };
    const auto has = [&](int factor, std::size_t axis) {
      return one.factors[std::size_t(factor)].has(axis);
    };
    const Tiles before = tiles_of(product.shape, 1, varies), after = tiles_of(one.box, depth, has);
    const double waves = std::ceil(after.count / (kBlocks * target_.workers));
    return {before.products / rate,
            std::max(after.products / rate * kSlowerWindows * (1 + kEachLoad * (loads - 1)),
                     std::ceil(depth / kStep) * loads * kLoadSeconds * waves)};
  }

  /// On a CPU windows are read from a copy of their operand, a whole vector at a time. Products
  /// that are placed are stored row by row, so that the lanes of their sums lie apart. What phases
  /// would save, the cut of the result takes.
  Seconds on_a_cpu(const OneSum& one, const Node& product, const Node& sum, double rate) const {
    constexpr double kSlowerWindows = 1.2, kPlacedSeconds = 1e-9; // of an element, by a worker
    if (one.has_phases())
      return {0, 1};
    return {elements_of(product.shape) / rate +
                elements_of(sum.shape) * kPlacedSeconds / target_.workers,
            elements_of(one.box) / rate * kSlowerWindows};
  }

  bool is_faster(const OneSum& one, const Node& sum) const {
    const Machine machine = usual_machine(target_);
    const Node& product = graph_[sum.inputs[0]];
    if (!target_.is_gpu()) {
      const Seconds seconds = on_a_cpu(one, product, sum, machine.flops_per_second / 2);
      return seconds.whole < seconds.placed;
    }
    const kernel::MatrixUnit* unit = target_.unit(kernel::FragmentLayout::SubgroupFragments);
    const bool by_unit =
        unit != nullptr && std::all_of(one.factors.begin(), one.factors.end(),
                                       [&](const auto& f) { return is_of_16_bits(f); });
    Seconds seconds = by_unit ? products_of_unit(one, product, *unit)
                              : products_of_threads(one, product, machine.flops_per_second / 2);
    const double moved = 2 * elements_of(sum.shape) * double(size_of(sum.dtype));
    seconds.placed += moved / machine.bytes_per_second + machine.launch_seconds;
    if (one.has_phases()) { // from all of them the result is cut out
      double bytes = 2 * double(size_of(one.rounded.value_or(sum.dtype)));
      for (const OneSum::Axis& axis : one.result)
        bytes *= double(axis.extent.value());
      seconds.whole += bytes / machine.bytes_per_second + machine.launch_seconds;
    }
    return seconds.whole < seconds.placed;
  }

  const Graph& graph_;
  GraphFacts facts_;
  const kernel::Target& target_;
};

NodeId made_of(Graph& g, const OneSum& one, const std::vector<NodeId>& to) {
  std::vector<NodeId> factors;
  for (const OneSum::Factor& factor : one.factors)
    factors.push_back(affine_view(g, to[factor.base], factor.coords, one.box));
  std::vector<std::int64_t> summed;
  for (std::size_t i = one.summed; i < one.box.size(); ++i)
    summed.push_back(std::int64_t(i));
  NodeId result = g.reduce(Op::ReduceSum, g.binary(Op::Mul, factors[0], factors[1]), summed);
  if (one.rounded)
    result = g.cast(result, *one.rounded);
  Shape joined;
  std::vector<Expr> begin, end;
  std::vector<std::int64_t> order(one.result.size());
  std::size_t at = 0;
  for (const OneSum::Axis& axis : one.result) {
    order[axis.dim] = std::int64_t(joined.size());
    Expr extent = one.box[at++];
    if (axis.phases)
      extent = extent * one.box[at++];
    joined.push_back(extent);
    begin.emplace_back(axis.phases ? axis.phases->shift : 0);
    end.push_back(begin.back() + axis.extent);
  }
  return g.permute(g.shrink(g.reshape(result, joined), begin, end), order);
}

} // namespace

Graph with_placed_products(const Graph& graph, const kernel::Target& target) {
  const PlacedProductFinder finder(graph, target);
  std::map<NodeId, OneSum> found;
  for (NodeId id = 0; id < graph.size(); ++id)
    if (auto one = finder.find(id))
      found.emplace(id, std::move(*one));
  if (found.empty())
    return graph;
  Graph out;
  std::vector<NodeId> to(graph.size(), ir::kNoNode);
  for (const NodeId id : graph.inputs()) // in their slots
    to[id] = out.add(Op::Input, {}, graph[id].attrs);
  for (NodeId id = 0; id < graph.size(); ++id) {
    if (graph[id].op == Op::Input)
      continue;
    if (const auto one = found.find(id); one != found.end()) {
      to[id] = made_of(out, one->second, to);
      continue;
    }
    std::vector<NodeId> inputs;
    for (const NodeId input : graph[id].inputs)
      inputs.push_back(to[input]);
    const bool is_cast = graph[id].op == Op::Cast && out[inputs[0]].dtype == graph[id].dtype;
    to[id] = is_cast ? inputs[0] : out.add(graph[id].op, inputs, graph[id].attrs);
  }
  for (const NodeId id : graph.outputs)
    out.outputs.push_back(to[id]);
  return passes::normalize()(out);
}

} // namespace egret::compiler
