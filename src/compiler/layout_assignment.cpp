#include "compiler/layout_assignment.h"

#include "support/fail.h"

#include <algorithm>
#include <set>

namespace egret::compiler {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using kernel::Layout;

namespace {

Shape shape_of(const std::vector<std::int64_t>& extents) {
  return {extents.begin(), extents.end()};
}

/// How a layout is made of its box, step by step.
struct Steps {
  Shape box, padded, split, laid;
  std::vector<std::int64_t> order; ///< of the split's dims, as the layout has them

  explicit Steps(const Layout& layout) : box(shape_of(layout.box)), padded(box) {
    const std::vector<std::int64_t> extents = kernel::extents_of(layout);
    order.resize(extents.size());
    std::int64_t place = 0;
    for (std::size_t axis = 0; axis < layout.box.size(); ++axis) {
      std::int64_t whole = 1;
      for (std::size_t d = 0; d < extents.size(); ++d) // outer digits come first
        if (layout.digits[d].axis == static_cast<int>(axis)) {
          whole *= extents[d];
          split.push_back(Expr(extents[d]));
          order[d] = place++;
        }
      padded[axis] = Expr(whole);
    }
    laid = shape_of(extents);
  }
};

NodeId into(Graph& g, NodeId value, const Steps& steps) {
  const DType dtype = g[value].dtype;
  const std::vector<Expr> zeros(steps.box.size(), Expr(0));
  std::vector<Expr> after;
  for (std::size_t i = 0; i < steps.box.size(); ++i)
    after.push_back(steps.padded[i] - steps.box[i]);
  NodeId id = g.reshape(value, steps.box);
  if (!(steps.padded == steps.box))
    id = g.pad(id, zeros, after, Scalar::of(dtype, 0.0));
  return g.permute(g.reshape(id, steps.split), steps.order);
}

NodeId back(Graph& g, NodeId laid, const Steps& steps, const Shape& shape) {
  std::vector<std::int64_t> inverse(steps.order.size());
  for (std::size_t i = 0; i < steps.order.size(); ++i)
    inverse[static_cast<std::size_t>(steps.order[i])] = static_cast<std::int64_t>(i);
  NodeId id = g.reshape(g.permute(laid, inverse), steps.padded);
  if (!(steps.padded == steps.box))
    id = g.shrink(id, std::vector<Expr>(steps.box.size(), Expr(0)), steps.box);
  return g.reshape(id, shape);
}

class LayoutAssigner {
public:
  LayoutAssigner(const GraphFacts& facts, std::span<const LayoutChange> changes)
      : facts_(facts), old_(facts.graph()), changes_(changes),
        fill_(old_, out_.fill, out_.sources) {
    for (std::size_t c = 0; c < changes.size(); ++c)
      for (const Use& use : changes[c].readers)
        change_of_.emplace(std::pair(use.reader, use.operand), c);
    made_.resize(changes.size(), ir::kNoNode);
  }

  LayoutAssignment run() {
    Graph& g = out_.graph;
    out_.now.assign(old_.size(), ir::kNoNode);
    for (NodeId id : old_.inputs())
      out_.now[id] = g.add(Op::Input, {}, old_[id].attrs);
    for (NodeId id = 0; id < old_.size(); ++id) {
      const Node& node = old_[id];
      if (node.op == Op::Input || is_movement(node.op))
        continue;
      std::vector<NodeId> inputs;
      for (std::size_t j = 0; j < node.inputs.size(); ++j)
        inputs.push_back(operand(id, static_cast<int>(j)));
      out_.now[id] = g.add(node.op, inputs, node.attrs);
    }
    for (NodeId id : old_.outputs)
      g.outputs.push_back(seen(id, ir::kNoNode));
    drop_dead();
    return std::move(out_);
  }

private:
  /// Values that only made what is kept now.
  void drop_dead() {
    const Graph& g = out_.graph;
    std::vector<bool> live(g.size());
    for (NodeId id : g.outputs)
      live[id] = true;
    for (NodeId id = g.size(); id-- > 0;)
      if (live[id])
        for (NodeId i : g[id].inputs)
          live[i] = true;
    Graph alive;
    std::vector<NodeId> now(g.size(), ir::kNoNode);
    for (NodeId id : g.inputs())
      now[id] = alive.add(Op::Input, {}, g[id].attrs);
    for (NodeId id = 0; id < g.size(); ++id) {
      if (!live[id] || g[id].op == Op::Input)
        continue;
      std::vector<NodeId> inputs;
      for (NodeId i : g[id].inputs)
        inputs.push_back(now[i]);
      now[id] = alive.add(g[id].op, inputs, g[id].attrs);
    }
    for (NodeId id : g.outputs)
      alive.outputs.push_back(now[id]);
    for (NodeId& id : out_.now)
      if (id != ir::kNoNode)
        id = now[id];
    for (NodeId& id : out_.copies)
      id = now[id];
    out_.graph = std::move(alive);
  }

  /// Node `id`, a movement of something or not, with `instead` in place of what it moves.
  NodeId seen(NodeId id, NodeId instead) {
    if (!is_movement(old_[id].op))
      return instead == ir::kNoNode ? out_.now[id] : instead;
    const NodeId from = seen(old_[id].inputs[0], instead);
    return out_.graph.add(old_[id].op, std::vector<NodeId>{from}, old_[id].attrs);
  }

  NodeId operand(NodeId reader, int j) {
    const NodeId id = old_[reader].inputs[static_cast<std::size_t>(j)];
    const auto change = change_of_.find({reader, j});
    if (change == change_of_.end() || facts_.view(id).base != changes_[change->second].value)
      return seen(id, ir::kNoNode);
    return seen(id, copy(change->second));
  }

  /// The value of a change as its readers see it.
  NodeId copy(std::size_t number) {
    if (made_[number] != ir::kNoNode)
      return made_[number];
    Graph& g = out_.graph;
    const LayoutChange& change = changes_[number];
    const Shape shape = old_[change.value].shape;
    const Steps steps(change.layout);
    NodeId laid = ir::kNoNode;
    if (change.kept) {
      laid = kept(change, steps);
    } else {
      laid = g.unary(Op::StopGradient, into(g, out_.now[change.value], steps)); // the identity
      out_.copies.push_back(laid);
    }
    return made_[number] = back(g, laid, steps, shape);
  }

  NodeId kept(const LayoutChange& change, const Steps& steps) {
    const NodeId filled = into(out_.fill, fill_(change.value), steps);
    const auto same = std::find(out_.fill.outputs.begin(), out_.fill.outputs.end(), filled);
    if (same != out_.fill.outputs.end())
      return inputs_[static_cast<std::size_t>(same - out_.fill.outputs.begin())];
    out_.fill.outputs.push_back(filled);
    FoldedParameter report;
    report.what = change.what;
    report.dtype = old_[change.value].dtype;
    report.shape = steps.laid;
    for (NodeId id = 0; id < out_.fill.size(); ++id)
      if (out_.fill[id].op == Op::Input && reads(filled, id))
        report.sources.push_back(out_.fill[id].attrs.name);
    report.bytes = elements_of(steps.laid) * static_cast<double>(size_of(report.dtype));
    out_.kept_bytes += report.bytes;
    const std::string name = "laid" + std::to_string(out_.report.size());
    out_.report.push_back(std::move(report));
    inputs_.push_back(out_.graph.input(name, old_[change.value].dtype, steps.laid));
    return inputs_.back();
  }

  bool reads(NodeId id, NodeId source) const {
    std::vector<NodeId> work{id};
    std::set<NodeId> done{id};
    while (!work.empty()) {
      const NodeId at = work.back();
      work.pop_back();
      if (at == source)
        return true;
      for (NodeId i : out_.fill[at].inputs)
        if (done.insert(i).second)
          work.push_back(i);
    }
    return false;
  }

  const GraphFacts& facts_;
  const Graph& old_;
  std::span<const LayoutChange> changes_;
  LayoutAssignment out_;
  FillCopier fill_;
  std::map<std::pair<NodeId, int>, std::size_t> change_of_;
  std::vector<NodeId> made_;   ///< by change
  std::vector<NodeId> inputs_; ///< by kept value
};

} // namespace

NodeId FillCopier::operator()(NodeId id) {
  if (const auto known = known_.find(id); known != known_.end())
    return known->second;
  const Node& node = graph_[id];
  NodeId made = 0;
  if (node.op == Op::Input) {
    sources_.push_back(static_cast<std::size_t>(node.attrs.slot));
    made = to_.input(node.attrs.name, node.dtype, node.shape);
  } else {
    std::vector<NodeId> inputs;
    for (NodeId i : node.inputs)
      inputs.push_back((*this)(i));
    made = to_.add(node.op, inputs, node.attrs);
  }
  return known_[id] = made;
}

LayoutAssignment with_layouts(const GraphFacts& facts, std::span<const LayoutChange> changes) {
  return LayoutAssigner(facts, changes).run();
}

std::vector<bool> parameters_of(const Graph& graph, const std::vector<bool>& steady) {
  std::vector<bool> fixed(graph.size()); // constants too
  std::vector<bool> parameter(graph.size());
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph[id];
    if (node.op == Op::Input) {
      const auto slot = static_cast<std::size_t>(node.attrs.slot);
      fixed[id] = parameter[id] = !node.attrs.by_value && slot < steady.size() && steady[slot];
      continue;
    }
    fixed[id] =
        std::all_of(node.inputs.begin(), node.inputs.end(), [&](NodeId i) { return fixed[i]; });
    parameter[id] = fixed[id] && std::any_of(node.inputs.begin(), node.inputs.end(), [&](NodeId i) {
                      return static_cast<bool>(parameter[i]);
                    });
  }
  return parameter;
}

namespace {

/// Adds a graph to another, `inputs` in place of its inputs; gives its outputs.
std::vector<NodeId> added(Graph& to, const Graph& from, const std::vector<NodeId>& inputs) {
  std::vector<NodeId> now(from.size(), ir::kNoNode), outputs;
  for (NodeId id = 0; id < from.size(); ++id) {
    const Node& node = from[id];
    if (node.op == Op::Input) {
      now[id] = inputs[static_cast<std::size_t>(node.attrs.slot)];
      continue;
    }
    std::vector<NodeId> operands;
    for (NodeId i : node.inputs)
      operands.push_back(now[i]);
    now[id] = to.add(node.op, operands, node.attrs);
  }
  for (NodeId id : from.outputs)
    outputs.push_back(now[id]);
  return outputs;
}

} // namespace

ParameterFolding compose(std::size_t outside, const ParameterFolding* first,
                         const LayoutAssignment* assigned, const Graph& main) {
  ParameterFolding d;
  d.main = main;
  std::map<std::size_t, NodeId> input_of; // by slot outside
  const auto input = [&](std::size_t slot, const Graph& from, std::size_t number) {
    const auto [it, fresh] = input_of.emplace(slot, 0);
    if (fresh) {
      const Node& node = from[from.inputs()[number]];
      it->second = d.fill.input(node.attrs.name, node.dtype, node.shape);
      d.sources.push_back(slot);
    }
    return it->second;
  };
  std::vector<NodeId> values; // of `first`
  if (first) {
    std::vector<NodeId> inputs;
    for (std::size_t i = 0; i < first->sources.size(); ++i)
      inputs.push_back(input(first->sources[i], first->fill, i));
    values = added(d.fill, first->fill, inputs);
    std::vector<bool> read(main.size());
    for (NodeId id = 0; id < main.size(); ++id)
      for (NodeId i : main[id].inputs)
        read[i] = true;
    for (NodeId id : main.outputs)
      read[id] = true;
    for (std::size_t v = 0; v < values.size(); ++v) {
      const NodeId here = main.inputs()[outside + v];
      FoldedParameter report = first->report[v];
      if (read[here]) {
        d.fill.outputs.push_back(values[v]);
      } else {
        report.bytes = 0;
        report.what.clear();
        d.fill.outputs.push_back(
            d.fill.reshape(d.fill.constant(Scalar::of(report.dtype, 0.0)), {Expr(1)}));
      }
      d.report.push_back(std::move(report));
    }
  }
  if (assigned) {
    std::vector<NodeId> inputs;
    for (std::size_t i = 0; i < assigned->sources.size(); ++i) {
      const std::size_t slot = assigned->sources[i];
      inputs.push_back(slot < outside ? input(slot, assigned->fill, i) : values[slot - outside]);
    }
    const std::vector<NodeId> laid = added(d.fill, assigned->fill, inputs);
    for (std::size_t v = 0; v < laid.size(); ++v) {
      d.fill.outputs.push_back(laid[v]);
      d.report.push_back(assigned->report[v]);
      for (const std::size_t slot : assigned->sources)
        if (slot >= outside) { // made of what `first` made
          d.report.back().sources.clear();
          break;
        }
      if (d.report.back().sources.empty()) {
        std::set<std::string> names;
        for (const auto& [slot, id] : input_of)
          names.insert(d.fill[id].attrs.name);
        d.report.back().sources.assign(names.begin(), names.end());
      }
    }
  }
  return d;
}

} // namespace egret::compiler
