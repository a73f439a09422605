#include "onnx/factor.h"

#include <algorithm>
#include <functional>

namespace egret::onnx {

namespace {

std::optional<Coordinate> coordinate_of(const Expr& e) {
  Coordinate coordinate;
  Expr rest = e;
  for (const Expr& variable : variables_of(e)) {
    const std::optional<Expr> coefficient =
        variable.is_axis() ? coefficient_of(e, variable) : std::nullopt;
    if (!coefficient || !coefficient->is_constant())
      return std::nullopt;
    coordinate.terms.push_back({variable.axis_number(), coefficient->value()});
    rest = rest - *coefficient * variable;
  }
  if (!(rest == Expr(0)))
    return std::nullopt;
  std::ranges::sort(coordinate.terms, {}, &Coordinate::Term::axis);
  return coordinate;
}

std::optional<Factor> factor_of(ir::NodeId source, const IndexMap& map) {
  Factor factor{source, {}};
  for (const Expr& e : map.coords) {
    std::optional<Coordinate> coordinate = coordinate_of(e);
    if (!coordinate)
      return std::nullopt;
    factor.coordinates.push_back(std::move(*coordinate));
  }
  return factor;
}

bool is_plain(const Factor& factor, const Shape& source, const Shape& box) {
  std::set<int> seen;
  for (std::size_t i = 0; i < source.size(); ++i) {
    const Coordinate& c = factor.coordinates[i];
    if (c.terms.empty() ? !(source[i] == Expr(1))
                        : !c.is_axis() || !seen.insert(c.terms[0].axis).second ||
                              !(box[static_cast<std::size_t>(c.terms[0].axis)] == source[i]))
      return false;
  }
  return true;
}

// Visits the sources of views of `id`, from itself on, while they cover the product without holes.
void visit_sources(const ir::Graph& graph, ir::NodeId id,
                   const std::function<void(const Factor&)>& visit) {
  IndexMap map = IndexMap::identity(graph[id].shape);
  for (;;) {
    if (const std::optional<Factor> factor = factor_of(id, map))
      visit(*factor);
    if (!is_movement(graph[id].op))
      return;
    map = compose(map, ir::view_of(graph, id));
    if (!map.is_total())
      return;
    id = graph[id].inputs[0];
  }
}

} // namespace

std::set<int> Factor::axes() const {
  std::set<int> all;
  for (const Coordinate& coordinate : coordinates)
    for (const Coordinate::Term& term : coordinate.terms)
      all.insert(term.axis);
  return all;
}

Factor plain_factor(const ir::Graph& graph, ir::NodeId id) {
  Factor found;
  visit_sources(graph, id, [&](const Factor& factor) {
    if (is_plain(factor, graph[factor.source].shape, graph[id].shape))
      found = factor;
  });
  return found;
}

std::optional<Factor> linear_factor(const ir::Graph& graph, ir::NodeId id) {
  std::optional<Factor> found;
  visit_sources(graph, id, [&](const Factor& factor) {
    if (is_plain(factor, graph[factor.source].shape, graph[id].shape))
      found.reset();
    else
      found = factor;
  });
  return found;
}

} // namespace egret::onnx
