// Matching: a search with backtracking, since a commutative node or an alternative that fits here
// may not fit with what comes later.
#include "ir/pattern_spec.h"
#include "ir/structure.h"
#include "support/fail.h"

#include <algorithm>
#include <unordered_map>

namespace egret::pattern {
namespace {

bool is_commutative(Op op) {
  switch (op) {
  case Op::Add:
  case Op::Mul:
  case Op::Max:
  case Op::Eq:
  case Op::And:
  case Op::Or:
  case Op::Xor:
    return true;
  default:
    return false;
  }
}

/// A movement that brings no value of its own.
bool moves_only(Op op) {
  return is_movement(op) && op != Op::Pad;
}

/// By node: how many live nodes read it; an output counts for two, so that it is never private to
/// one reader.
std::vector<std::uint32_t> count_uses(const Graph& graph, const std::vector<bool>& live) {
  std::vector<std::uint32_t> uses(graph.size());
  for (NodeId id = 0; id < graph.size(); ++id) {
    const auto& in = graph[id].inputs;
    for (std::size_t i = 0; live[id] && i < in.size(); ++i)
      if (std::find(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(i), in[i]) ==
          in.begin() + static_cast<std::ptrdiff_t>(i))
        ++uses[in[i]];
  }
  std::vector<NodeId> outputs = graph.outputs;
  std::ranges::sort(outputs);
  outputs.erase(std::unique(outputs.begin(), outputs.end()), outputs.end());
  for (NodeId id : outputs)
    uses[id] += 2;
  return uses;
}

class Matcher {
public:
  explicit Matcher(const Graph& graph)
      : graph_(graph), live_(ir::live_nodes(graph)), uses_(count_uses(graph, live_)) {}

  bool is_live(NodeId id) const { return live_[id]; }

  std::optional<Match> at(NodeId root, const Pattern& pattern) {
    Match start;
    start.root = root;
    std::optional<Match> result;
    fits(pattern, root, std::move(start), [&](Match&& match) {
      std::ranges::sort(match.covered);
      match.covered.erase(std::unique(match.covered.begin(), match.covered.end()),
                          match.covered.end());
      result = std::move(match);
      return true;
    });
    return result;
  }

private:
  using Next = std::function<bool(Match&&)>;

  /// Whether `id` fits in some way after which `next` also holds.
  bool fits(const Pattern& pattern, NodeId id, Match match, const Next& next) {
    const Spec& spec = pattern.spec();
    switch (spec.kind) {
    case Spec::Kind::Any:
      return demands(spec, id, id, match) && next(std::move(match));
    case Spec::Kind::Constant:
      return fits_constant(spec, id, std::move(match), next);
    case Spec::Kind::Viewed:
      return demands(spec, id, id, match) && fits_viewed(spec, id, match, next);
    case Spec::Kind::OneOf:
      if (!demands(spec, id, id, match))
        return false;
      return std::ranges::any_of(spec.operands, [&](const Pattern& alternative) {
        return fits(alternative, id, match, next);
      });
    case Spec::Kind::Node:
      break;
    }
    const ir::Node& node = graph_[id];
    if (std::ranges::find(spec.ops, node.op) == spec.ops.end() || !has_axes(spec, node) ||
        !demands(spec, id, id, match))
      return false;
    match.covered.push_back(id);
    if (operands_fit(spec, node.inputs, match, 0, next))
      return true;
    if (spec.ordered || !is_commutative(node.op) || node.inputs[0] == node.inputs[1])
      return false;
    return operands_fit(spec, {node.inputs[1], node.inputs[0]}, match, 0, next);
  }

  bool operands_fit(const Spec& spec, const std::vector<NodeId>& inputs, const Match& match,
                    std::size_t place, const Next& next) {
    if (place == inputs.size())
      return next(Match(match));
    return fits(spec.operands[place], inputs[place], match, [&](Match&& so_far) {
      return operands_fit(spec, inputs, so_far, place + 1, next);
    });
  }

  bool fits_constant(const Spec& spec, NodeId id, Match match, const Next& next) {
    NodeId source = id;
    while (moves_only(graph_[source].op)) {
      match.covered.push_back(source);
      source = graph_[source].inputs[0];
    }
    const ir::Node& node = graph_[source];
    if (node.op != Op::Constant ||
        (spec.value && node.attrs.value.bits != Scalar::of(node.dtype, *spec.value).bits))
      return false;
    return demands(spec, id, source, match) && next(std::move(match));
  }

  bool fits_viewed(const Spec& spec, NodeId id, const Match& match, const Next& next) {
    std::vector<NodeId> chain{id};
    while (is_movement(graph_[chain.back()].op))
      chain.push_back(graph_[chain.back()].inputs[0]);
    const Pattern& source = spec.operands[0];
    for (std::size_t depth = chain.size(); depth-- > 0;) {
      Match deeper = match;
      deeper.covered.insert(deeper.covered.end(), chain.begin(),
                            chain.begin() + static_cast<std::ptrdiff_t>(depth));
      if (!source.spec().name.empty())
        deeper.views.insert_or_assign(source.spec().name, view(chain, depth));
      if (fits(source, chain[depth], std::move(deeper), next))
        return true;
    }
    return false;
  }

  IndexMap view(const std::vector<NodeId>& chain, std::size_t depth) {
    IndexMap map = IndexMap::identity(graph_[chain[0]].shape);
    for (std::size_t i = 0; i < depth; ++i)
      map = compose(map, ir::view_of(graph_, chain[i]));
    return map;
  }

  /// What a pattern demands of the node itself. `named` is the node that its name stands for.
  bool demands(const Spec& spec, NodeId id, NodeId named, Match& match) {
    const ir::Node& node = graph_[id];
    if (spec.dtype && node.dtype != *spec.dtype)
      return false;
    if (spec.single_use && uses_[id] != 1)
      return false;
    if (spec.has_shape && !(shape_fits(spec, node.shape, match) && varies_as_told(spec, id)))
      return false;
    for (const auto& holds : spec.where)
      if (!holds(graph_, id))
        return false;
    if (spec.name.empty())
      return true;
    auto [place, is_new] = match.nodes.emplace(spec.name, named);
    return is_new || place->second == named;
  }

  static bool shape_fits(const Spec& spec, const Shape& shape, Match& match) {
    if (shape.size() < spec.dims.size() || (!spec.has_batch && shape.size() != spec.dims.size()))
      return false;
    std::size_t front = shape.size() - spec.dims.size();
    if (spec.has_batch) {
      Shape batch(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(front));
      if (match.has_batch && match.batch != batch)
        return false;
      match.batch = std::move(batch);
      match.has_batch = true;
    }
    for (std::size_t i = 0; i < spec.dims.size(); ++i) {
      const DimToken& token = spec.dims[i];
      const Expr& dim = shape[front + i];
      if (token.size >= 0 && !(dim == Expr(token.size)))
        return false;
      if (token.letter != 0) {
        auto [place, is_new] = match.dims.emplace(token.letter, dim);
        if (!is_new && !(place->second == dim))
          return false;
      }
    }
    return true;
  }

  bool varies_as_told(const Spec& spec, NodeId id) {
    if (spec.broadcast.empty() && spec.varies.empty())
      return true;
    const Shape& shape = graph_[id].shape;
    const std::vector<bool>& varying = varying_dims(id);
    auto place = [&](char letter) {
      return shape.size() - spec.dims.size() + static_cast<std::size_t>(spec.place_of(letter));
    };
    return std::ranges::none_of(spec.broadcast, [&](char c) { return varying[place(c)]; }) &&
           std::ranges::all_of(spec.varies, [&](char c) {
             return varying[place(c)] || shape[place(c)] == Expr(1);
           });
  }

  /// By dim of the node: whether its value depends on the coordinate, seen through the movements
  /// below.
  const std::vector<bool>& varying_dims(NodeId id) {
    auto found = varying_.find(id);
    if (found != varying_.end())
      return found->second;
    std::vector<NodeId> chain{id};
    while (is_movement(graph_[chain.back()].op))
      chain.push_back(graph_[chain.back()].inputs[0]);
    IndexMap map = view(chain, chain.size() - 1);
    std::vector<bool> varying(graph_[id].shape.size());
    auto mark = [&](const Expr& e) {
      for (const Expr& variable : variables_of(e))
        if (variable.is_axis())
          varying[static_cast<std::size_t>(variable.axis_number())] = true;
    };
    std::ranges::for_each(map.coords, mark);
    for (const Hole& hole : map.holes)
      for (const Guard& guard : hole.valid)
        for (const Expr* e : {&guard.value, &guard.lo, &guard.hi})
          mark(*e);
    return varying_.emplace(id, std::move(varying)).first->second;
  }

  bool has_axes(const Spec& spec, const ir::Node& node) const {
    if (!spec.over)
      return true;
    const Spec& operand = spec.operands[0].spec();
    std::size_t rank = graph_[node.inputs[0]].shape.size();
    if (rank < operand.dims.size())
      return false;
    std::vector<std::int64_t> wanted;
    for (char c : *spec.over)
      wanted.push_back(static_cast<std::int64_t>(rank - operand.dims.size()) + operand.place_of(c));
    std::ranges::sort(wanted);
    return node.attrs.axes == wanted;
  }

  const Graph& graph_;
  std::vector<bool> live_;
  std::vector<std::uint32_t> uses_;
  std::unordered_map<NodeId, std::vector<bool>> varying_;
};

} // namespace

std::vector<Match> find(const Graph& graph, const Pattern& pattern) {
  Matcher matcher(graph);
  std::vector<Match> matches;
  for (NodeId id = 0; id < graph.size(); ++id)
    if (matcher.is_live(id))
      if (auto match = matcher.at(id, pattern))
        matches.push_back(std::move(*match));
  return matches;
}

std::optional<Match> match_at(const Graph& graph, NodeId root, const Pattern& pattern) {
  if (root >= graph.size())
    fail(ErrorKind::Value, "pattern: %{} does not exist; the graph has {} nodes", root,
         graph.size());
  return Matcher(graph).at(root, pattern);
}

} // namespace egret::pattern
