// Chains of movements by their index maps.
#include "egret/passes.h"
#include "saturate/attributes.h"
#include "support/fail.h"

#include <algorithm>
#include <bit>

namespace egret::saturate {

using ir::NodeId;

namespace {

bool is_unit(const Expr& e) {
  return e == Expr(1);
}

/// For each dim of the source: the dim of the result that it is (kUnit: a dim of size 1 that is
/// none). Empty when the map is anything but whole dims in some order with repeated ones between
/// them.
constexpr int kUnit = -1;
std::optional<std::vector<int>> whole_axes(const IndexMap& map, const Shape& source) {
  if (!map.is_total())
    return std::nullopt;
  std::vector<int> axes;
  std::vector<bool> taken(map.dims.size(), false);
  for (std::size_t i = 0; i < map.coords.size(); ++i) {
    const Expr& coord = map.coords[i];
    if (coord.is_axis()) {
      const auto axis = static_cast<std::size_t>(coord.axis_number());
      if (taken[axis] || !(map.dims[axis] == source[i]))
        return std::nullopt;
      taken[axis] = true;
      axes.push_back(static_cast<int>(axis));
    } else if (is_unit(source[i])) {
      axes.push_back(kUnit);
    } else {
      return std::nullopt;
    }
  }
  return axes;
}

/// The chain of such a map: ones leave, the others take their order, ones come, ones are repeated.
Steps steps_of_axes(const Shape& source, const std::vector<int>& axes, const Shape& result) {
  ir::Graph graph;
  NodeId node = graph.input("x", DType::F32, source);
  Shape kept;
  std::vector<std::pair<int, std::int64_t>> order;
  for (std::size_t i = 0; i < axes.size(); ++i)
    if (axes[i] != kUnit) {
      order.emplace_back(axes[i], static_cast<std::int64_t>(kept.size()));
      kept.push_back(source[i]);
    }
  std::ranges::sort(order);
  Shape spaced(result.size(), Expr(1));
  std::vector<std::int64_t> permutation;
  for (auto [axis, from] : order) {
    spaced[static_cast<std::size_t>(axis)] = result[static_cast<std::size_t>(axis)];
    permutation.push_back(from);
  }
  const bool turned = !std::ranges::is_sorted(permutation);
  if (turned)
    node = graph.permute(graph.reshape(node, kept), permutation);
  node = graph.expand(graph.reshape(node, spaced), result);
  return movements_of(graph, node).second;
}

/// The chain with what cancels taken out.
Steps simplified(const Type& source, const Steps& steps) {
  ir::Graph graph;
  const NodeId input = graph.input("x", source.dtype, source.shape);
  graph.outputs = {add_movements(graph, input, steps)};
  const ir::Graph simple = passes::simplify()(graph);
  auto [base, shorter] = movements_of(simple, simple.outputs[0]);
  return simple[base].op == Op::Input ? shorter : steps;
}

std::int64_t axes_in(const Expr& e) {
  std::int64_t mask = 0;
  for (const Expr& v : variables_of(e))
    if (v.is_axis())
      mask |= std::int64_t{1} << v.axis_number();
  return mask;
}

} // namespace

std::pair<NodeId, Steps> movements_of(const ir::Graph& graph, NodeId node) {
  Steps steps;
  for (; is_movement(graph[node].op); node = graph[node].inputs[0])
    steps.push_back({graph[node].op, graph[node].attrs});
  std::ranges::reverse(steps);
  return {node, std::move(steps)};
}

NodeId add_movements(ir::Graph& graph, NodeId node, const Steps& steps) {
  for (const Step& step : steps) {
    const ir::Attrs& a = step.attrs;
    switch (step.op) {
    case Op::Reshape:
      node = graph.reshape(node, a.shape);
      break;
    case Op::Permute:
      node = graph.permute(node, a.axes);
      break;
    case Op::Expand:
      node = graph.expand(node, a.shape);
      break;
    case Op::Pad:
      node = graph.pad(node, a.before, a.after, a.value);
      break;
    case Op::Shrink:
      node = graph.shrink(node, a.before, a.shape);
      break;
    default:
      node = graph.flip(node, a.axes);
    }
  }
  return node;
}

std::string Attributes::canonical_moves(const std::string& type_text, const Steps& steps) {
  const std::string written = to_text(steps);
  std::string key = type_text + "|" + written;
  if (auto found = canonical_.find(key); found != canonical_.end())
    return found->second;
  const Type source = type(type_text);
  const Moved whole = moved(type_text, written);
  auto remember = [&](std::string text) {
    return canonical_.emplace(std::move(key), std::move(text)).first->second;
  };
  if (whole.shape == source.shape && whole.map.is_identity())
    return remember({});
  if (auto axes = whole_axes(whole.map, source.shape))
    return remember(to_text(steps_of_axes(source.shape, *axes, whole.shape)));
  std::vector<Known>& known = known_[type_text];
  for (const Known& other : known)
    if (other.map == whole.map)
      return remember(other.moves);
  std::string shortest = to_text(simplified(source, steps));
  known.push_back({whole.map, shortest});
  return remember(shortest);
}

std::string Attributes::joined_moves(const std::string& type_text, const std::string& first,
                                     const std::string& second) {
  std::string key = type_text + "|" + first + "|" + second;
  if (auto found = joined_.find(key); found != joined_.end())
    return found->second;
  Steps steps = moved(type_text, first).steps;
  const Steps& more = moved(type_of_moved(type_text, first), second).steps;
  steps.insert(steps.end(), more.begin(), more.end());
  std::string result = canonical_moves(type_text, steps);
  joined_.emplace(std::move(key), result);
  return result;
}

std::string Attributes::type_of_moved(const std::string& type_text, const std::string& moves) {
  const Moved& m = moved(type_text, moves);
  return to_text(Type{type(type_text).dtype, m.shape});
}

std::int64_t Attributes::dep_of_moved(const std::string& type_text, const std::string& moves,
                                      std::int64_t dep) {
  const IndexMap& map = moved(type_text, moves).map;
  std::int64_t result = 0;
  for (std::size_t i = 0; i < map.coords.size(); ++i)
    if ((dep >> i & 1) != 0)
      result |= axes_in(map.coords[i]);
  for (const Hole& hole : map.holes)
    for (const Guard& guard : hole.valid)
      result |= axes_in(guard.value);
  return result;
}

std::optional<std::string> Attributes::value_of_moved(const std::string& type_text,
                                                      const std::string& moves,
                                                      const std::string& value) {
  const Scalar source = scalar(value);
  for (const Hole& hole : moved(type_text, moves).map.holes)
    if (!(hole.fill == source))
      return std::nullopt;
  return value;
}

bool Attributes::is_total(const std::string& type_text, const std::string& moves) {
  return moved(type_text, moves).map.is_total();
}

bool Attributes::keeps_size(const std::string& type_text, const std::string& moves) {
  return proves_less_equal(element_count(type(type_text).shape),
                           element_count(moved(type_text, moves).shape));
}

bool Attributes::grows(const std::string& type_text, const std::string& moves) {
  return proves_less(element_count(type(type_text).shape),
                     element_count(moved(type_text, moves).shape));
}

bool Attributes::has_elements(const std::string& type_text, std::int64_t axes) {
  const Shape& shape = type(type_text).shape;
  return std::ranges::all_of(axes_of(axes), [&](std::int64_t axis) {
    return static_cast<std::size_t>(axis) < shape.size() &&
           shape[static_cast<std::size_t>(axis)].lower() >= 1;
  });
}

std::optional<std::string> Attributes::first_along(const std::string& type_text,
                                                   std::int64_t axes) {
  if (!has_elements(type_text, axes))
    return std::nullopt;
  const Type source = type(type_text);
  ir::Graph graph;
  NodeId node = graph.input("x", source.dtype, source.shape);
  Shape end = source.shape, left;
  for (std::size_t i = 0; i < end.size(); ++i)
    if ((axes >> i & 1) != 0)
      end[i] = 1;
    else
      left.push_back(end[i]);
  node = graph.shrink(node, std::vector<Expr>(end.size(), Expr(0)), end);
  node = graph.reshape(node, left);
  return canonical_moves(type_text, movements_of(graph, node).second);
}

std::optional<std::string> Attributes::spread_along(const std::string& type_text,
                                                    std::int64_t axes) {
  const Type whole = type(type_text);
  Shape left, spaced;
  for (std::size_t i = 0; i < whole.shape.size(); ++i)
    if ((axes >> i & 1) != 0) {
      spaced.emplace_back(1);
    } else {
      left.push_back(whole.shape[i]);
      spaced.push_back(whole.shape[i]);
    }
  ir::Graph graph;
  NodeId node = graph.input("x", whole.dtype, left);
  node = graph.expand(graph.reshape(node, spaced), whole.shape);
  return canonical_moves(to_text(Type{whole.dtype, left}), movements_of(graph, node).second);
}

std::optional<std::pair<std::int64_t, std::string>>
Attributes::reduced_source(const std::string& type_text, const std::string& moves,
                           std::int64_t axes) {
  const Type source = type(type_text);
  const Moved whole = moved(type_text, moves);
  auto places = whole_axes(whole.map, source.shape);
  if (!places)
    return std::nullopt;
  std::int64_t mask = 0, found = 0;
  int last = -1;
  Shape inner, outer;
  std::vector<int> left;
  for (std::size_t i = 0; i < places->size(); ++i) {
    const int place = (*places)[i];
    if (place != kUnit && (axes >> place & 1) != 0) {
      if (place < last) // another order of summation
        return std::nullopt;
      last = place;
      mask |= std::int64_t{1} << i;
      found |= std::int64_t{1} << place;
    } else {
      inner.push_back(source.shape[i]);
      left.push_back(place);
    }
  }
  if (found != axes)
    return std::nullopt;
  std::vector<int> moved_place(whole.shape.size(), kUnit);
  for (std::size_t i = 0; i < whole.shape.size(); ++i)
    if ((axes >> i & 1) == 0) {
      moved_place[i] = static_cast<int>(outer.size());
      outer.push_back(whole.shape[i]);
    }
  for (int& place : left)
    if (place != kUnit)
      place = moved_place[static_cast<std::size_t>(place)];
  const std::string inner_type = to_text(Type{source.dtype, inner});
  return std::pair(mask, canonical_moves(inner_type, steps_of_axes(inner, left, outer)));
}

std::optional<Attributes::Lift> Attributes::lift(const std::string& inner, const std::string& moves,
                                                 std::int64_t k, std::int64_t l) {
  const Type product = type(inner);
  Shape summed, extents;
  for (std::size_t i = 0; i < product.shape.size(); ++i)
    ((k >> i & 1) != 0 ? extents : summed).push_back(product.shape[i]);
  const Moved view = moved(to_text(Type{product.dtype, summed}), moves);
  const auto places_of_sum = whole_axes(view.map, summed);
  if (!places_of_sum)
    return std::nullopt;
  Shape box = view.shape;
  box.insert(box.end(), extents.begin(), extents.end());
  const auto place = [](const Expr& dim, std::size_t at) {
    return is_unit(dim) ? kUnit : static_cast<int>(at);
  };
  Lift lift;
  std::vector<int> places, own;
  std::size_t next_summed = 0, next_k = view.shape.size();
  for (std::size_t i = 0; i < product.shape.size(); ++i)
    places.push_back((k >> i & 1) != 0 ? place(product.shape[i], next_k++)
                                       : (*places_of_sum)[next_summed++]);
  for (std::size_t i = 0; i < view.shape.size(); ++i)
    own.push_back(place(view.shape[i], i));
  lift.inner = canonical_moves(inner, steps_of_axes(product.shape, places, box));
  lift.outer = canonical_moves(to_text(Type{product.dtype, view.shape}),
                               steps_of_axes(view.shape, own, box));

  Shape rest, rest_box;
  std::vector<int> rest_places;
  for (std::size_t i = 0; i < box.size(); ++i)
    if (i >= view.shape.size() || (l >> i & 1) == 0) {
      if (i >= view.shape.size())
        lift.summed |= std::int64_t{1} << rest_box.size();
      rest_box.push_back(box[i]);
    }
  for (std::size_t i = 0; i < places.size(); ++i) {
    const int at = places[i];
    if (at != kUnit && (l >> at & 1) != 0) {
      lift.along |= std::int64_t{1} << i;
      continue;
    }
    rest.push_back(product.shape[i]);
    const std::int64_t before = at == kUnit ? 0 : l & ((std::int64_t{1} << at) - 1);
    rest_places.push_back(at == kUnit ? kUnit
                                      : at - std::popcount(static_cast<std::uint64_t>(before)));
  }
  const auto first = first_along(inner, lift.along);
  if (!first)
    return std::nullopt;
  lift.first = *first;
  lift.rest = canonical_moves(to_text(Type{product.dtype, rest}),
                              steps_of_axes(rest, rest_places, rest_box));
  return lift;
}

} // namespace egret::saturate
