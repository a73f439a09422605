#include "support/minimize.h"

#include "egret/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>

namespace egret::testing {

using ir::Graph;
using ir::kNoNode;
using ir::NodeId;

namespace {

struct Edit {
  std::vector<NodeId> outputs;
  NodeId replaced = kNoNode;
  NodeId by = kNoNode;             ///< an earlier node of the same type, or none: a new input
  std::int64_t size = 0, less = 0; ///< sizes that are `size` become `less`; 0: none
};

Expr product(const Shape& shape) {
  Expr count = 1;
  for (const Expr& dim : shape)
    count = count * dim;
  return count;
}

/// A size that makes the count of `shape` that of `operand`, in place of one of its dims.
void fit_count(Shape& shape, const Shape& operand) {
  const Expr wanted = product(operand);
  if (product(shape) == wanted || !wanted.is_constant())
    return;
  for (Expr& dim : shape) {
    const Expr before = dim;
    dim = 1;
    const Expr others = product(shape);
    if (others.is_constant() && others.value() > 0 && wanted.value() % others.value() == 0) {
      dim = wanted.value() / others.value();
      return;
    }
    dim = before;
  }
}

/// A node's attributes after sizes have changed, as its first operand's new shape wants them.
ir::Attrs resized(const ir::Node& node, const Shape* operand, const Edit& edit) {
  ir::Attrs attrs = node.attrs;
  for (Expr& dim : attrs.shape)
    if (dim == Expr(edit.size))
      dim = edit.less;
  if (!operand)
    return attrs;
  if (node.op == Op::Reshape)
    fit_count(attrs.shape, *operand);
  for (std::size_t i = 0; i < attrs.shape.size() && i < operand->size(); ++i) {
    const Expr& dim = (*operand)[i];
    if (node.op == Op::Expand && !(dim == Expr(1)))
      attrs.shape[i] = dim;
    if (node.op == Op::Shrink && dim.is_constant()) {
      attrs.shape[i] = min(attrs.shape[i], dim);
      attrs.before[i] = min(attrs.before[i], attrs.shape[i]);
    }
  }
  return attrs;
}

std::vector<bool> live_after(const Graph& graph, const Edit& edit) {
  std::vector<bool> live(graph.size(), false);
  for (NodeId id : edit.outputs)
    live[id] = true;
  for (NodeId id = static_cast<NodeId>(graph.size()); id-- > 0;) {
    if (!live[id])
      continue;
    if (id == edit.replaced) {
      live[id] = false;
      if (edit.by != kNoNode)
        live[edit.by] = true;
      continue;
    }
    for (NodeId operand : graph[id].inputs)
      live[operand] = true;
  }
  return live;
}

/// Every symbol has a value: it is a dim of some input.
bool is_bound(const Graph& graph) {
  std::set<std::string> bound;
  for (NodeId id : graph.inputs())
    for (const Expr& dim : graph[id].shape)
      if (dim.is_symbol())
        bound.insert(dim.str());
  return std::ranges::all_of(ir::symbols_of(graph),
                             [&](const Expr& s) { return bound.contains(s.str()); });
}

class Minimizer {
public:
  Minimizer(const Graph& graph, const Fails& fails, int trials)
      : best_(graph), fails_(fails), trials_(trials) {}

  Graph run() {
    if (!fails_(best_))
      return best_;
    take(edited({.outputs = best_.outputs}));
    bool again = true;
    while (again && trials_ > 0) {
      again = fewer_outputs();
      again = earlier_output() || again;
      again = fewer_nodes() || again;
      again = fewer_symbols() || again;
      again = smaller_sizes() || again;
    }
    return best_;
  }

private:
  /// Ops, then inputs and outputs, then symbols, then sizes: each step must lessen these.
  static std::array<std::int64_t, 4> weight(const Graph& graph) {
    std::int64_t sizes = 0;
    for (NodeId id = 0; id < graph.size(); ++id)
      for (const Expr& dim : graph[id].shape)
        sizes += dim.upper();
    return {static_cast<std::int64_t>(graph.size() - graph.inputs().size()),
            static_cast<std::int64_t>(graph.inputs().size() + graph.outputs.size()),
            static_cast<std::int64_t>(ir::symbols_of(graph).size()), sizes};
  }

  bool take(const std::optional<Graph>& smaller) {
    if (!smaller || trials_ <= 0 || weight(*smaller) >= weight(best_) || !is_bound(*smaller))
      return false;
    --trials_;
    if (!fails_(*smaller))
      return false;
    best_ = *smaller;
    return true;
  }

  /// Nothing when a rule of the graph forbids it.
  std::optional<Graph> edited(const Edit& edit) const {
    const std::vector<bool> live = live_after(best_, edit);
    Graph result;
    std::vector<NodeId> renamed(best_.size(), kNoNode);
    try {
      for (NodeId id = 0; id < best_.size(); ++id) {
        const ir::Node& node = best_[id];
        if (id == edit.replaced) {
          renamed[id] = edit.by != kNoNode ? renamed[edit.by]
                                           : result.input(new_name(), node.dtype, node.shape);
          continue;
        }
        if (!live[id])
          continue;
        std::vector<NodeId> operands;
        for (NodeId operand : node.inputs)
          operands.push_back(renamed[operand]);
        const Shape* first = operands.empty() ? nullptr : &result[operands[0]].shape;
        ir::Attrs attrs = edit.size > 0 ? resized(node, first, edit) : node.attrs;
        attrs.slot = -1;
        renamed[id] = result.add(node.op, operands, attrs);
      }
      for (NodeId id : edit.outputs)
        result.outputs.push_back(renamed[id]);
      ir::verify(result);
    } catch (const Error&) {
      return std::nullopt;
    }
    return result;
  }

  std::string new_name() const {
    for (int n = 0;; ++n) {
      std::string name = fmt::format("cut{}", n);
      if (std::ranges::none_of(best_.inputs(),
                               [&](NodeId id) { return best_[id].attrs.name == name; }))
        return name;
    }
  }

  bool fewer_outputs() {
    bool any = false;
    for (NodeId output : std::vector<NodeId>(best_.outputs))
      if (best_.outputs.size() > 1 && take(edited({.outputs = {output}})))
        return true;
    for (std::size_t i = best_.outputs.size(); i-- > 0 && best_.outputs.size() > 1;) {
      std::vector<NodeId> outputs = best_.outputs;
      outputs.erase(outputs.begin() + static_cast<std::ptrdiff_t>(i));
      any = take(edited({.outputs = outputs})) || any;
    }
    return any;
  }

  /// The first node that fails by itself: its operands are right.
  bool earlier_output() {
    for (NodeId id = 0; id < best_.size(); ++id)
      if (best_[id].op != Op::Input && take(edited({.outputs = {id}})))
        return true;
    return false;
  }

  bool fewer_nodes() {
    bool any = false;
    for (NodeId id = static_cast<NodeId>(best_.size()); id-- > 0;)
      if (id < best_.size() && best_[id].op != Op::Input)
        any = without(id) || any;
    return any;
  }

  bool without(NodeId id) {
    const ir::Node node = best_[id];
    std::vector<NodeId> instead = node.inputs;
    instead.insert(instead.end(), best_.inputs().begin(), best_.inputs().end());
    for (NodeId other : instead)
      if (other < id && best_[other].dtype == node.dtype && best_[other].shape == node.shape &&
          take(edited({.outputs = best_.outputs, .replaced = id, .by = other})))
        return true;
    return take(edited({.outputs = best_.outputs, .replaced = id}));
  }

  bool fewer_symbols() {
    bool any = false;
    for (const Expr& symbol : ir::symbols_of(best_))
      for (std::int64_t step : {0, 1, 2}) {
        const std::int64_t size = symbol.lower() + step * symbol.divisor();
        std::optional<Graph> fixed;
        try {
          if (size <= symbol.upper())
            fixed = ir::with_dims(best_, [&](const Expr& s) {
              return s == symbol ? std::optional(Expr(size)) : std::nullopt;
            });
        } catch (const Error&) {
          continue;
        }
        if (take(fixed)) {
          any = true;
          break;
        }
      }
    return any;
  }

  bool smaller_sizes() {
    std::set<std::int64_t> sizes;
    for (NodeId id = 0; id < best_.size(); ++id)
      for (const Expr& dim : best_[id].attrs.shape)
        if (dim.is_constant() && dim.value() > 1)
          sizes.insert(dim.value());
    bool any = false;
    for (std::int64_t size : sizes)
      for (std::int64_t less : {std::int64_t{1}, std::int64_t{2}, size / 2, size - 1})
        if (less < size && take(edited({.outputs = best_.outputs, .size = size, .less = less}))) {
          any = true;
          break;
        }
    return any;
  }

  Graph best_;
  const Fails& fails_;
  int trials_;
};

} // namespace

Graph minimized(const Graph& graph, const Fails& fails, int trials) {
  return Minimizer(graph, fails, trials).run();
}

} // namespace egret::testing
