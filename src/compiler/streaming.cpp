#include "compiler/streaming.h"

#include "compiler/inlining.h"
#include "compiler/labels.h"
#include "compiler/views.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>

namespace egret::compiler {

using ir::NodeId;

namespace {

constexpr int kNoLabel = -1;

/// What sums over a box of products.
struct Sink {
  NodeId node;
  std::vector<int> frame; ///< by dim of its frame: the label; kNoLabel for columns and units
  std::set<int> over;     ///< labels
};

class StreamingFinder {
public:
  StreamingFinder(const GraphFacts& facts, const StreamingRules& rules, std::vector<bool>& stored)
      : facts_(facts), graph_(facts.graph()), rules_(rules), stored_(stored),
        labels_of_(graph_.size()) {}

  std::vector<Group> run() {
    for (NodeId id = 0; id < graph_.size(); ++id)
      if (is_inner(id))
        start(id);
      else if (!is_movement(graph_[id].op))
        visit(id);
    for (NodeId id : graph_.outputs)
      if (const NodeId base = facts_.view(id).base; is_score(base))
        reject(base);
    for (NodeId id = 0; id < graph_.size(); ++id)
      if (is_score(id)) {
        check_box(id);
        check_readers(id);
      }
    if (!at_fault_.empty())
      return {};
    if (rules_.in_memory)
      for (NodeId id = 0; id < graph_.size(); ++id)
        if (const NodeId product = facts_.product_of(id);
            product != ir::kNoNode && (is_score(id) || sink_of_.contains(id)))
          for (NodeId input : graph_[product].inputs)
            store_factor(input, products_of(id));
    compute_in_place();
    gather_kernels();
    std::vector<Group> groups;
    for (const std::vector<std::size_t>& kernel : kernels_)
      groups.push_back(group_of(kernel));
    for (NodeId id = 0; id < graph_.size(); ++id)
      if (is_score(id) && facts_.product_of(id) == ir::kNoNode)
        stored_[id] = false;
    return groups;
  }

  /// Products whose values something else than sums needs. While there are any, nothing is found:
  /// what is no stream must be taken for stored, as it may be a factor or an operand of one.
  const std::set<NodeId>& at_fault() const { return at_fault_; }

private:
  bool is_score(NodeId id) const { return !labels_of_[id].empty(); }

  /// A sum of products of factors that a stream takes, with elements enough beside both of them.
  bool is_inner(NodeId id) const {
    const NodeId product = facts_.product_of(id);
    if (product == ir::kNoNode || rules_.not_these.contains(id))
      return false;
    const double elements = elements_of(graph_[id].shape);
    for (NodeId input : graph_[product].inputs)
      if (!is_factor(input, elements))
        return false;
    const double least = is_deep(facts_, rules_, id) ? 1 : rules_.least_share_of_one;
    return share_of_factors(facts_, id) >= least && elements >= rules_.least_elements;
  }

  /// The products that a sum makes, or that lie under a sum over them.
  double products_of(NodeId sum) const {
    if (is_score(sum))
      return elements_of(graph_[sum].shape);
    double products = 0;
    for (NodeId input : graph_[facts_.product_of(sum)].inputs)
      if (is_scored(input))
        products = elements_of(graph_[facts_.view(input).base].shape);
    return products;
  }

  /// Whether a stream takes a value as a factor of so many products: seen through views, it is in
  /// memory, or computed or gathered in place, and no score. Where factors have to be in memory,
  /// what is gathered or computed is stored if it has no more elements than the products, which
  /// would be stored instead.
  bool is_factor(NodeId id, double products) const {
    const View& view = facts_.view(id);
    const ir::Node& node = graph_[view.base];
    if (!view.map.is_total() || is_score(view.base))
      return false;
    const bool here = stored_[view.base] || node.op == Op::Input;
    const bool gathered = info_of(node.op).cls == OpClass::Gather;
    if (rules_.in_memory) {
      if (here || is_stored_as_factor(node, products))
        return is_float(node.dtype) && size_of(node.dtype) <= 4;
      return node.op == Op::Cast && is_factor(node.inputs[0], products);
    }
    if (is_float(node.dtype) && size_of(node.dtype) > 4)
      return false;
    return here || node.inputs.empty() ||
           ((is_elementwise(node.op) || gathered) &&
            std::all_of(node.inputs.begin(), node.inputs.end(),
                        [&](NodeId input) { return is_factor(input, products); }));
  }

  /// A conversion is made by the kernel.
  bool is_stored_as_factor(const ir::Node& node, double products) const {
    const bool computed =
        info_of(node.op).cls == OpClass::Gather || (is_elementwise(node.op) && node.op != Op::Cast);
    return computed && elements_of(node.shape) <= products;
  }

  /// Stores what a kernel takes as a factor from memory.
  void store_factor(NodeId id, double products) {
    const NodeId base = facts_.view(id).base;
    const ir::Node& node = graph_[base];
    if (stored_[base] || is_score(base))
      return;
    if (is_stored_as_factor(node, products))
      stored_[base] = true;
    else if (node.op == Op::Cast)
      store_factor(node.inputs[0], products);
  }

  void start(NodeId id) {
    for (const Expr& extent : graph_[id].shape)
      labels_of_[id].push_back(is_unit(extent) ? kNoLabel : labels_.make());
    if (std::count(labels_of_[id].begin(), labels_of_[id].end(), kNoLabel) ==
        std::ptrdiff_t(labels_of_[id].size()))
      labels_of_[id].clear();
  }

  /// The labels of a reader's dims where it reads a score; nothing when it reads other points.
  std::optional<std::vector<int>> seen_by(NodeId operand) const {
    const View& view = facts_.view(operand);
    const std::vector<int>& made = labels_of_[view.base];
    if (!view.map.is_total())
      return std::nullopt;
    std::vector<int> labels(graph_[operand].shape.size(), kNoLabel);
    for (std::size_t j = 0; j < made.size(); ++j) {
      if (made[j] == kNoLabel)
        continue;
      const int dim = plain_axis(view.map.coords[j]);
      if (dim < 0 || labels[std::size_t(dim)] != kNoLabel)
        return std::nullopt;
      labels[std::size_t(dim)] = made[j];
    }
    return labels;
  }

  bool full(const std::vector<int>& labels, const Shape& shape) const {
    for (std::size_t i = 0; i < labels.size(); ++i)
      if (labels[i] == kNoLabel && !is_unit(shape[i]))
        return false;
    return true;
  }

  void visit(NodeId id) {
    const ir::Node& node = graph_[id];
    if (facts_.is_product(id))
      return; // seen with its sum
    const OpClass cls = info_of(node.op).cls;
    if (cls == OpClass::Reduce) {
      visit_sum(id);
      return;
    }
    if (!is_elementwise(node.op))
      return; // check_readers() rejects what it reads
    std::vector<int> merged(node.shape.size(), kNoLabel);
    bool any = false;
    for (NodeId input : node.inputs) {
      const NodeId base = facts_.view(input).base;
      if (!is_score(base))
        continue;
      const auto labels = seen_by(input);
      if (!labels || !full(*labels, node.shape)) {
        reject(base);
        return;
      }
      any = true;
      for (std::size_t i = 0; i < merged.size(); ++i)
        if (merged[i] == kNoLabel)
          merged[i] = (*labels)[i];
        else
          labels_.join(merged[i], (*labels)[i]);
    }
    if (any)
      labels_of_[id] = std::move(merged);
  }

  void visit_sum(NodeId id) {
    const ir::Node& node = graph_[id];
    const NodeId product = facts_.product_of(id);
    NodeId scored = node.inputs[0];
    if (product != ir::kNoNode) {
      if (product != scored) // seen through a permutation
        return;
      int scores = 0;
      for (NodeId input : graph_[product].inputs) {
        if (!is_scored(input))
          continue;
        ++scores;
        scored = input;
      }
      if (scores != 1)
        return; // two scores, or none: check_readers() sees them
    } else if (!is_scored(scored)) {
      return;
    }
    const auto labels = seen_by(scored);
    if (!labels)
      return;
    Sink sink{id, *labels, {}};
    for (std::int64_t a : node.attrs.axes) {
      if ((*labels)[std::size_t(a)] == kNoLabel) {
        if (is_unit(graph_[node.inputs[0]].shape[std::size_t(a)]))
          continue;
        return;
      }
      sink.over.insert((*labels)[std::size_t(a)]);
    }
    // A product has columns of its own beside the box, another sum has not.
    const bool columns = !full(*labels, frame_of(graph_, id));
    if (sink.over.empty() || columns != (product != ir::kNoNode) ||
        monoid_of(node.op) == Monoid::ArgMax ||
        elements_of(graph_[facts_.view(scored).base].shape) <
            rules_.least_share * elements_of(node.shape))
      return;
    sink_of_[id] = sinks_.size();
    sinks_.push_back(std::move(sink));
  }

  bool is_smaller(NodeId a, NodeId b) const {
    return elements_of(graph_[a].shape) < elements_of(graph_[b].shape);
  }

  /// Whether an operand is a score, seen through movement.
  bool is_scored(NodeId operand) const { return is_score(facts_.view(operand).base); }

  /// Every use of a score must be by another score, or by a sum that was taken in.
  void check_readers(NodeId id) {
    for (const Use& use : facts_.uses(id)) {
      if (is_score(use.reader) && facts_.product_of(use.reader) == ir::kNoNode)
        continue;
      if (sink_of_.contains(use.reader))
        continue;
      bool summed = facts_.is_product(use.reader) && !facts_.uses(use.reader).empty();
      for (const Use& sum : facts_.uses(use.reader))
        summed = summed && sink_of_.contains(sum.reader);
      if ((summed && reads_factor(use.reader, elements_of(graph_[id].shape))) ||
          meets_a_smaller_one(id, use.reader))
        continue;
      reject(id);
    }
  }

  /// Of two scores that are multiplied, the smaller one is stored: it is rejected for this use.
  bool meets_a_smaller_one(NodeId id, NodeId product) const {
    return facts_.is_product(product) &&
           std::any_of(graph_[product].inputs.begin(), graph_[product].inputs.end(),
                       [&](NodeId input) {
                         const NodeId other = facts_.view(input).base;
                         return is_score(other) && is_smaller(other, id);
                       });
  }

  /// A stream takes the factor beside the score.
  bool reads_factor(NodeId product, double scores) const {
    for (NodeId input : graph_[product].inputs)
      if (!is_scored(input) && !is_factor(input, scores))
        return false;
    return true;
  }

  /// The products that a score is made of are to be stored.
  void reject(NodeId score) {
    std::set<NodeId> seen;
    find_inner(score, at_fault_, seen);
  }

  std::set<int> roots(const std::vector<int>& labels) const {
    std::set<int> result;
    for (int l : labels)
      if (l != kNoLabel)
        result.insert(labels_.find(l));
    return result;
  }

  /// Rejects boxes two axes of which turned out to be one, as where a product meets its transpose.
  void check_box(NodeId id) {
    const auto& labels = labels_of_[id];
    const auto axes =
        std::count_if(labels.begin(), labels.end(), [](int l) { return l != kNoLabel; });
    if (std::ptrdiff_t(roots(labels).size()) < axes)
      reject(id);
  }

  /// Values of the rows between sums over a deep product, such as the logarithm of a sum, are
  /// computed where they are read: stored, they would keep the sums that need them out of the
  /// kernel.
  void compute_in_place() {
    std::set<int> deep;
    for (NodeId id = 0; id < graph_.size(); ++id)
      if (is_score(id) && facts_.product_of(id) != ir::kNoNode && is_deep(facts_, rules_, id))
        deep.merge(roots(labels_of_[id]));
    if (deep.empty())
      return;
    std::vector<bool> of_sums(graph_.size(), false), here(graph_.size(), false);
    for (NodeId id = 0; id < graph_.size(); ++id) {
      if (!is_elementwise(graph_[id].op) || is_score(id))
        continue;
      for (NodeId input : graph_[id].inputs) {
        const NodeId base = facts_.view(input).base;
        of_sums[id] = of_sums[id] || of_sums[base] || sink_of_.contains(base);
      }
    }
    for (NodeId id = graph_.size(); id-- > 0;) {
      const auto& uses = facts_.uses(id);
      here[id] = of_sums[id] && !facts_.is_output(id) && !uses.empty() &&
                 std::all_of(uses.begin(), uses.end(), [&](const Use& use) {
                   const auto box = roots(labels_of_[use.reader]);
                   return here[use.reader] ||
                          (!box.empty() && facts_.product_of(use.reader) == ir::kNoNode &&
                           std::includes(deep.begin(), deep.end(), box.begin(), box.end()));
                 });
      if (here[id])
        stored_[id] = false;
    }
  }

  /// Puts each sum into the first kernel that runs over its axes and that it does not wait for by
  /// way of another kernel.
  void gather_kernels() {
    find_columns();
    for (std::size_t s = 0; s < sinks_.size(); ++s) {
      std::set<int> box = roots(sinks_[s].frame), over;
      for (int l : sinks_[s].over)
        over.insert(labels_.find(l));
      bool found = false;
      for (std::size_t k = 0; k < kernels_.size() && !found; ++k)
        if (boxes_[k] == box && overs_[k] == over && !waits_for(sinks_[s].node, kernels_[k])) {
          kernels_[k].push_back(s);
          found = true;
        }
      if (found)
        continue;
      kernels_.push_back({s});
      boxes_.push_back(std::move(box));
      overs_.push_back(std::move(over));
    }
  }

  /// Whether a sum depends on one of the kernel's by way of what another kernel stores. All sums of
  /// a kernel depend on what one of them depends on.
  bool waits_for(NodeId sink, const std::vector<std::size_t>& kernel) const {
    std::set<NodeId> members, late; // late: of other kernels that depend on this one
    for (std::size_t s : kernel)
      members.insert(sinks_[s].node);
    for (;;) {
      // 0: does not depend on the kernel, 1: by way of what is computed in place, 2: of others
      std::vector<char> how(sink + 1, 0);
      const NodeId first =
          late.empty() ? *members.begin() : std::min(*members.begin(), *late.begin());
      for (NodeId id = first; id < sink; ++id) {
        for (NodeId input : graph_[id].inputs)
          how[id] = std::max(how[id], how[input]);
        if (members.contains(id))
          how[id] = std::max<char>(how[id], 1);
        else if (late.contains(id) || (how[id] == 1 && stored_[id] && !is_score(id)))
          how[id] = 2;
        if (has_late_factor(id, how) || (how[id] == 1 && reads_columns(id)))
          how[id] = 2;
      }
      if (has_late_factor(sink, how))
        return true;
      for (NodeId input : graph_[sink].inputs)
        if (how[input] > 1)
          return true;
      const std::size_t known = late.size();
      for (const std::vector<std::size_t>& other : kernels_)
        if (&other != &kernel && std::any_of(other.begin(), other.end(), [&](std::size_t s) {
              return sinks_[s].node < sink && how[sinks_[s].node] > 1;
            }))
          for (const std::size_t s : other)
            if (sinks_[s].node < sink)
              late.insert(sinks_[s].node);
      if (late.size() == known)
        return false;
    }
  }

  /// Whether a score reads a sum over the box by its columns, which a row of that sum has as a
  /// whole only when the box was gone through.
  bool reads_columns(NodeId score) const {
    return is_score(score) && std::ranges::any_of(columns_[score], std::identity{});
  }

  /// By node and dim: whether a sum's columns lie along it, of a sum or of what is computed in
  /// place of sums, scores included.
  void find_columns() {
    columns_.assign(graph_.size(), {});
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const ir::Node& node = graph_[id];
      std::vector<bool>& columns = columns_[id];
      if (const auto found = sink_of_.find(id); found != sink_of_.end()) {
        const std::vector<int>& labels = sinks_[found->second].frame;
        for (std::size_t i = 0; i < labels.size(); ++i)
          if (std::ranges::find(node.attrs.axes, std::int64_t(i)) == node.attrs.axes.end())
            columns.push_back(labels[i] == kNoLabel && !is_unit(frame_of(graph_, id)[i]));
        continue;
      }
      columns.assign(node.shape.size(), false);
      if (!is_elementwise(node.op) || (stored_[id] && !is_score(id)))
        continue;
      for (NodeId input : node.inputs) {
        const View& view = facts_.view(input);
        for (std::size_t j = 0; j < columns_[view.base].size(); ++j)
          if (columns_[view.base][j])
            for (const Expr& variable : variables_of(view.map.coords[j]))
              if (variable.is_axis())
                columns[std::size_t(variable.axis_number())] = true;
      }
    }
  }

  /// Whether a factor that the stream reads from memory, or makes of what is there, depends on a
  /// sum of the kernel (`how`, as in waits_for()): it is ready when all rows of that sum are.
  bool has_late_factor(NodeId sum, const std::vector<char>& how) const {
    const NodeId product = facts_.product_of(sum);
    return product != ir::kNoNode && (is_score(sum) || sink_of_.contains(sum)) &&
           std::any_of(graph_[product].inputs.begin(), graph_[product].inputs.end(),
                       [&](NodeId input) { return !is_scored(input) && how[input] > 0; });
  }

  /// The products that a sum reads, through what is made of them.
  void find_inner(NodeId id, std::set<NodeId>& inner, std::set<NodeId>& seen) const {
    const NodeId base = facts_.view(id).base;
    if (!seen.insert(base).second)
      return;
    if (is_score(base) && facts_.product_of(base) != ir::kNoNode) {
      inner.insert(base);
      return;
    }
    if (is_score(base) || facts_.is_product(base))
      for (NodeId input : graph_[base].inputs)
        find_inner(input, inner, seen);
  }

  Group group_of(const std::vector<std::size_t>& kernel) {
    Group g;
    g.kind = GroupKind::Stream;
    std::map<int, int> axis_of; // by label
    const auto axis = [&](int label, const Expr& extent) {
      const auto [it, fresh] = axis_of.try_emplace(labels_.find(label), int(g.axes.size()));
      if (fresh) {
        g.axes.push_back(extent);
        g.reduced.push_back(false);
      }
      return it->second;
    };
    const auto own_axis = [&](const Expr& extent, bool reduced) {
      if (is_unit(extent))
        return kZeroAxis;
      g.axes.push_back(extent);
      g.reduced.push_back(reduced);
      return int(g.axes.size()) - 1;
    };
    std::set<NodeId> inner, seen;
    for (std::size_t s : kernel)
      for (NodeId input : graph_[sinks_[s].node].inputs)
        find_inner(input, inner, seen);
    const auto member_of = [&](NodeId id, const std::vector<int>& labels) {
      const Shape& frame = frame_of(graph_, id);
      Member m{id, std::vector<int>(frame.size(), kZeroAxis), {}};
      for (std::size_t i = 0; i < frame.size(); ++i) {
        const auto& over = graph_[id].attrs.axes;
        const bool summed = std::find(over.begin(), over.end(), std::int64_t(i)) != over.end();
        m.frame[i] = labels[i] != kNoLabel ? axis(labels[i], frame[i]) : own_axis(frame[i], summed);
        if (summed && m.frame[i] >= 0)
          g.reduced[std::size_t(m.frame[i])] = true;
        if (!summed)
          m.place.push_back(m.frame[i]);
      }
      return m;
    };
    for (NodeId id : inner) {
      const Shape& frame = frame_of(graph_, id);
      std::vector<int> labels;
      std::size_t next = 0;
      for (std::size_t i = 0; i < frame.size(); ++i) {
        const auto& over = graph_[id].attrs.axes;
        const bool summed = std::find(over.begin(), over.end(), std::int64_t(i)) != over.end();
        labels.push_back(summed ? kNoLabel : labels_of_[id][next++]);
      }
      g.members.push_back(member_of(id, labels));
      g.members.back().remade = true;
    }
    for (std::size_t s : kernel) {
      const Sink& sink = sinks_[s];
      g.members.push_back(member_of(sink.node, sink.frame));
      add_conversion(g);
    }
    return g;
  }

  /// A sum that is only read through a conversion to a narrower type ends with it.
  void add_conversion(Group& g) {
    const Member made = g.members.back();
    const auto& uses = facts_.uses(made.node);
    if (uses.size() != 1 || facts_.is_output(made.node))
      return;
    const NodeId reader = uses[0].reader;
    if (graph_[reader].op != Op::Cast ||
        size_of(graph_[reader].dtype) >= size_of(graph_[made.node].dtype))
      return;
    const View& view = facts_.view(graph_[reader].inputs[0]);
    Member m{reader, std::vector<int>(graph_[reader].shape.size(), kZeroAxis), {}};
    if (!view.map.is_total())
      return;
    for (std::size_t j = 0; j < made.place.size(); ++j) {
      if (made.place[j] == kZeroAxis)
        continue;
      const int dim = plain_axis(view.map.coords[j]);
      if (dim < 0 || m.frame[std::size_t(dim)] != kZeroAxis)
        return;
      m.frame[std::size_t(dim)] = made.place[j];
    }
    for (std::size_t i = 0; i < m.frame.size(); ++i)
      if (m.frame[i] == kZeroAxis && !is_unit(graph_[reader].shape[i]))
        return;
    m.place = m.frame;
    stored_[reader] = true;
    g.members.push_back(std::move(m));
  }

  const GraphFacts& facts_;
  const ir::Graph& graph_;
  const StreamingRules& rules_;
  std::vector<bool>& stored_;
  Labels labels_;
  std::set<NodeId> at_fault_;
  std::vector<std::vector<int>> labels_of_; ///< of scores, by dim
  std::vector<std::vector<bool>> columns_;  ///< find_columns()
  std::vector<Sink> sinks_;
  std::map<NodeId, std::size_t> sink_of_;
  std::vector<std::vector<std::size_t>> kernels_; ///< sinks
  std::vector<std::set<int>> boxes_, overs_;      ///< by kernel
};

} // namespace

double share_of_factors(const GraphFacts& facts, NodeId product) {
  const ir::Graph& graph = facts.graph();
  double factors = 0;
  for (NodeId input : graph[facts.product_of(product)].inputs) {
    Shape own; // of the box that the factor varies over
    for (std::size_t i = 0; i < graph[input].shape.size(); ++i)
      if (facts.depends(input)[i])
        own.push_back(graph[input].shape[i]);
    factors += elements_of(own);
  }
  return elements_of(graph[product].shape) / factors;
}

bool is_deep(const GraphFacts& facts, const StreamingRules& rules, NodeId product) {
  const ir::Graph& graph = facts.graph();
  return elements_of(graph[graph[product].inputs[0]].shape) >
         rules.most_terms * elements_of(graph[product].shape);
}

std::vector<Group> find_streaming_groups(const GraphFacts& facts, const StreamingRules& rules,
                                         std::vector<bool>& stored) {
  for (StreamingRules left = rules;;) {
    std::vector<bool> changed = stored;
    StreamingFinder finder(facts, left, changed);
    std::vector<Group> groups = finder.run();
    if (finder.at_fault().empty()) {
      stored = std::move(changed);
      return groups;
    }
    // The smaller ones first: once they are stored, larger ones may be at fault no longer.
    const auto size = [&](NodeId id) { return elements_of(facts.graph()[id].shape); };
    double smallest = std::numeric_limits<double>::infinity();
    for (const NodeId id : finder.at_fault())
      smallest = std::min(smallest, size(id));
    for (const NodeId id : finder.at_fault())
      if (size(id) <= 2 * smallest)
        left.not_these.insert(id);
  }
}

} // namespace egret::compiler
