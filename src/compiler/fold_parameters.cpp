#include "compiler/fold_parameters.h"

#include "compiler/layout_assignment.h"
#include "compiler/views.h"
#include "egret/passes.h"
#include "support/fail.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace egret::compiler {

using ir::Graph;
using ir::Node;
using ir::NodeId;

namespace {

/// Of the second-level cache, what the results of products may take that their readers would
/// otherwise have been joined with; of the device's memory, what all derived values may take.
constexpr double kCacheShare = 4, kFoldedShare = 8;

/// A sum over products of a shared operand and a parameter.
struct Product {
  NodeId sum = 0, shared = 0, weight = 0; ///< operands as the product reads them, in its box
  bool weight_first = false;
  std::size_t axis = 0;            ///< of the box: the one that only the parameter has
  DType stored = DType::F32;       ///< in which the parameter can be kept
  std::vector<std::int64_t> order; ///< of the box's axes in the parameter's memory
};

std::size_t place_of(const Node& sum, std::size_t axis) {
  std::size_t place = axis;
  for (std::int64_t reduced : sum.attrs.axes)
    place -= reduced < static_cast<std::int64_t>(axis);
  return place;
}

/// The node with one element along the axes for which `keep` is false.
NodeId first_along(Graph& g, NodeId id, const std::vector<bool>& keep) {
  const Shape shape = g[id].shape;
  std::vector<Expr> begin(shape.size(), Expr(0)), end = shape;
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (!keep[i])
      end[i] = Expr(1);
  return g.shrink(id, begin, end);
}

std::vector<std::int64_t> inverse_of(const std::vector<std::int64_t>& order) {
  std::vector<std::int64_t> inverse(order.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    inverse[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  return inverse;
}

class Deriver {
public:
  Deriver(const Graph& graph, const std::vector<bool>& steady, const kernel::Target& target)
      : graph_(graph), facts_(graph), steady_(steady), target_(target) {}

  std::optional<ParameterFolding> run() {
    parameter_ = parameters_of(graph_, steady_);
    collect();
    std::erase_if(groups_, [&](const std::vector<Product>& g) { return !pays(g); });
    if (groups_.empty())
      return std::nullopt;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      add_fill(groups_[g]);
      for (std::size_t i = 0; i < groups_[g].size(); ++i)
        member_of_[groups_[g][i].sum] = {g, i};
    }
    write_main();
    return std::move(out_);
  }

private:
  std::optional<Product> product(NodeId sum) const {
    const NodeId id = facts_.product_of(sum);
    if (id == ir::kNoNode || graph_[sum].inputs[0] != id || facts_.is_output(sum))
      return std::nullopt;
    Product p;
    p.sum = sum;
    p.weight_first = parameter_[graph_[id].inputs[0]];
    p.weight = graph_[id].inputs[p.weight_first ? 0 : 1];
    p.shared = graph_[id].inputs[p.weight_first ? 1 : 0];
    if (!parameter_[p.weight] || parameter_[p.shared])
      return std::nullopt;
    const auto& axes = graph_[sum].attrs.axes;
    const auto &own = facts_.depends(p.weight), &others = facts_.depends(p.shared);
    int found = 0;
    for (std::size_t i = 0; i < own.size(); ++i) {
      if (own[i] && !graph_[id].shape[i].is_constant())
        return std::nullopt;
      const bool summed =
          std::find(axes.begin(), axes.end(), static_cast<std::int64_t>(i)) != axes.end();
      if (!own[i] || others[i] || summed)
        continue;
      ++found;
      p.axis = i;
    }
    if (found != 1)
      return std::nullopt;
    const View& view = facts_.view(p.weight);
    const Node& base = graph_[view.base];
    p.stored = graph_[p.weight].dtype;
    if (base.op == Op::Cast && is_float(graph_[base.inputs[0]].dtype) &&
        size_of(graph_[base.inputs[0]].dtype) < size_of(p.stored))
      p.stored = graph_[base.inputs[0]].dtype;
    p.order = memory_order(view, own.size());
    return p;
  }

  /// The axes of a view's box in the order of its base's dims; the others come first.
  static std::vector<std::int64_t> memory_order(const View& view, std::size_t rank) {
    std::vector<std::int64_t> order(rank), last;
    std::iota(order.begin(), order.end(), 0);
    for (const Expr& c : view.map.coords) {
      const int axis = plain_axis(c);
      if (axis == kNotPlain)
        return order;
      if (axis >= 0 && std::find(last.begin(), last.end(), axis) == last.end())
        last.push_back(axis);
    }
    std::erase_if(order, [&](std::int64_t a) {
      return std::find(last.begin(), last.end(), a) != last.end();
    });
    order.insert(order.end(), last.begin(), last.end());
    return order;
  }

  bool together(const Product& a, const Product& b) const {
    const View &x = facts_.view(a.shared), &y = facts_.view(b.shared);
    const Shape &s = graph_[a.shared].shape, &t = graph_[b.shared].shape;
    if (x.base != y.base || !(x.map.coords == y.map.coords) || !(x.map.holes == y.map.holes) ||
        graph_[a.sum].attrs.axes != graph_[b.sum].attrs.axes || a.axis != b.axis ||
        a.stored != b.stored || a.order != b.order || a.weight == b.weight ||
        s.size() != t.size() || graph_[a.sum].dtype != graph_[b.sum].dtype ||
        facts_.depends(a.weight) != facts_.depends(b.weight))
      return false;
    for (std::size_t i = 0; i < s.size(); ++i)
      if (i != a.axis && !(s[i] == t[i]))
        return false;
    return true;
  }

  void collect() {
    for (NodeId id = 0; id < graph_.size(); ++id) {
      if (graph_[id].op != Op::ReduceSum)
        continue;
      const auto p = product(id);
      if (!p)
        continue;
      const auto group = std::find_if(groups_.begin(), groups_.end(),
                                      [&](const auto& g) { return together(g.front(), *p); });
      if (group == groups_.end())
        groups_.push_back({*p});
      else
        group->push_back(*p);
    }
  }

  bool pays(const std::vector<Product>& group) {
    if (group.size() < 2)
      return false;
    double results = 0, copies = 0;
    bool epilogues = false;
    for (const Product& p : group) {
      results += elements_of(graph_[p.sum].shape) * static_cast<double>(size_of(p.stored));
      double elements = 1;
      for (std::size_t i = 0; i < facts_.depends(p.weight).size(); ++i)
        if (facts_.depends(p.weight)[i])
          elements *= elements_of({graph_[p.weight].shape[i]});
      copies += elements * static_cast<double>(size_of(p.stored));
      for (const Use& use : facts_.uses(p.sum))
        epilogues =
            epilogues || (is_elementwise(graph_[use.reader].op) && !facts_.is_product(use.reader));
    }
    if (epilogues && results > static_cast<double>(target_.l2_bytes) / kCacheShare)
      return false;
    if (target_.memory_bytes > 0 &&
        copies_ + copies > static_cast<double>(target_.memory_bytes) / kFoldedShare)
      return false;
    copies_ += copies;
    return true;
  }

  /// A parameter with all it is made of, in the graph that makes derived values.
  NodeId in_fill(NodeId id) { return filled_(id); }

  /// Adds the names of the inputs that a parameter is made of, each once.
  void name_sources(NodeId parameter, std::vector<std::string>& names) const {
    std::set<NodeId> seen{parameter};
    std::vector<NodeId> work{parameter};
    while (!work.empty()) {
      const Node& node = graph_[work.back()];
      work.pop_back();
      if (node.op == Op::Input &&
          std::find(names.begin(), names.end(), node.attrs.name) == names.end())
        names.push_back(node.attrs.name);
      for (NodeId i : node.inputs)
        if (seen.insert(i).second)
          work.push_back(i);
    }
  }

  /// The parameter in the box of its product, with one element along the axes it does not have.
  NodeId compact(const Product& p) {
    Graph& g = out_.fill;
    const View& view = facts_.view(p.weight);
    const Node& base = graph_[view.base];
    // Where only whole dims were moved, what may be symbolic in the box is left out.
    Shape shape;
    std::vector<std::int64_t> axes;
    for (std::size_t i = 0; i < base.shape.size(); ++i)
      if (const int axis = plain_axis(view.map.coords[i]);
          axis >= 0 && base.shape[i] == graph_[p.weight].shape[static_cast<std::size_t>(axis)])
        axes.push_back(axis);
    const std::vector<bool>& has = facts_.depends(p.weight);
    const bool whole =
        view.map.is_total() && axes.size() == base.shape.size() &&
        static_cast<std::ptrdiff_t>(axes.size()) == std::count(has.begin(), has.end(), true) &&
        std::equal(axes.begin(), axes.end(),
                   p.order.end() - static_cast<std::ptrdiff_t>(axes.size()));
    if (!whole)
      return first_along(g, in_fill(p.weight), has);
    for (std::int64_t axis : p.order)
      shape.push_back(has[static_cast<std::size_t>(axis)]
                          ? graph_[p.weight].shape[static_cast<std::size_t>(axis)]
                          : Expr(1));
    return g.permute(g.reshape(in_fill(view.base), shape), inverse_of(p.order));
  }

  /// The parameters of a group side by side, in the order of their memory.
  void add_fill(const std::vector<Product>& group) {
    Graph& g = out_.fill;
    FoldedParameter report;
    report.what = "concatenation";
    const Product& first = group.front();
    std::vector<NodeId> pieces;
    Expr total(0);
    for (const Product& p : group) {
      const NodeId piece = g.cast(compact(p), p.stored);
      total = total + g[piece].shape[p.axis];
      pieces.push_back(g.permute(piece, p.order));
      name_sources(p.weight, report.sources);
    }
    const auto axis = static_cast<std::size_t>(
        std::find(first.order.begin(), first.order.end(), static_cast<std::int64_t>(first.axis)) -
        first.order.begin());
    Shape shape = g[pieces.front()].shape;
    shape[axis] = total;
    Shape along(shape.size(), Expr(1));
    along[axis] = total;
    const NodeId place = g.expand(g.reshape(g.iota(total), along), shape);
    NodeId joined = 0;
    Expr end = total;
    for (std::size_t i = pieces.size(); i-- > 0;) {
      const Expr length = g[pieces[i]].shape[axis], begin = end - length;
      std::vector<Expr> before(shape.size(), Expr(0)), after = before;
      before[axis] = begin;
      after[axis] = total - end;
      const NodeId padded = g.pad(pieces[i], before, after, Scalar::of(first.stored, 0.0));
      joined = i + 1 == pieces.size()
                   ? padded
                   : g.select(g.binary(Op::Lt, place, limit(g, end, shape)), padded, joined);
      end = begin;
    }
    g.outputs.push_back(joined);
    report.dtype = first.stored;
    report.shape = shape;
    report.bytes = elements_of(shape) * static_cast<double>(size_of(report.dtype));
    out_.report.push_back(std::move(report));
  }

  static NodeId limit(Graph& g, const Expr& value, const Shape& shape) {
    return g.broadcast(g.constant(Scalar::of(DType::I64, value.value())), shape);
  }

  void write_main() {
    Graph& g = out_.main;
    std::vector<NodeId> now(graph_.size(), ir::kNoNode);
    for (NodeId id : graph_.inputs())
      now[id] = g.add(Op::Input, {}, graph_[id].attrs);
    for (std::size_t d = 0; d < out_.report.size(); ++d)
      derived_.push_back(
          g.input("derived" + std::to_string(d), out_.report[d].dtype, out_.report[d].shape));
    wide_.assign(groups_.size(), ir::kNoNode);
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Node node = graph_[id];
      if (node.op == Op::Input)
        continue;
      if (const auto member = member_of_.find(id); member != member_of_.end()) {
        now[id] = part(member->second.first, member->second.second, now);
        continue;
      }
      std::vector<NodeId> inputs;
      for (NodeId i : node.inputs)
        inputs.push_back(now[i]);
      now[id] = g.add(node.op, inputs, node.attrs);
    }
    for (NodeId o : graph_.outputs)
      g.outputs.push_back(now[o]);
    g = ir::without_dead_code(g);
  }

  NodeId part(std::size_t number, std::size_t member, const std::vector<NodeId>& now) {
    Graph& g = out_.main;
    const std::vector<Product>& group = groups_[number];
    const Product& p = group[member];
    if (wide_[number] == ir::kNoNode)
      wide_[number] = wide(number, p, now[p.shared]);
    const std::size_t place = place_of(graph_[p.sum], p.axis);
    const Shape shape = g[wide_[number]].shape;
    std::vector<Expr> begin(shape.size(), Expr(0)), end = shape;
    for (std::size_t i = 0; i < member; ++i)
      begin[place] = begin[place] + graph_[group[i].sum].shape[place];
    end[place] = begin[place] + graph_[p.sum].shape[place];
    return g.shrink(wide_[number], begin, end);
  }

  NodeId wide(std::size_t number, const Product& p, NodeId shared) {
    Graph& g = out_.main;
    const DType dtype = g[shared].dtype;
    NodeId weight = g.cast(g.permute(derived_[number], inverse_of(p.order)), dtype);
    Shape box = g[shared].shape;
    box[p.axis] = g[weight].shape[p.axis];
    std::vector<bool> keep(box.size(), true);
    keep[p.axis] = false;
    const NodeId x = g.expand(first_along(g, shared, keep), box);
    weight = g.expand(weight, box);
    const NodeId product =
        p.weight_first ? g.binary(Op::Mul, weight, x) : g.binary(Op::Mul, x, weight);
    return g.reduce(Op::ReduceSum, product, graph_[p.sum].attrs.axes);
  }

  const Graph& graph_;
  const GraphFacts facts_;
  const std::vector<bool>& steady_;
  const kernel::Target& target_;
  std::vector<bool> parameter_; ///< by node
  std::vector<std::vector<Product>> groups_;
  double copies_ = 0; ///< bytes
  ParameterFolding out_;
  FillCopier filled_{graph_, out_.fill, out_.sources};
  std::map<NodeId, std::pair<std::size_t, std::size_t>> member_of_; ///< by sum: group and place
  std::vector<NodeId> derived_, wide_;                              ///< by group
};

} // namespace

std::optional<ParameterFolding> fold_parameters(const Graph& graph, const std::vector<bool>& steady,
                                                const kernel::Target& target) {
  ensure(steady.size() == graph.inputs().size(), "derive: {} inputs, {} are told of",
         graph.inputs().size(), steady.size());
  if (std::count(steady.begin(), steady.end(), true) < 2)
    return std::nullopt;
  return Deriver(passes::normalize()(graph), steady, target).run();
}

} // namespace egret::compiler
