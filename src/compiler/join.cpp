#include "compiler/join.h"

#include "compiler/factors.h"
#include "compiler/split_slices.h"
#include "compiler/views.h"
#include "support/fail.h"

#include <algorithm>
#include <set>

namespace egret::compiler {

using ir::NodeId;

namespace {

double extent_of(const Group& g, bool reduced) {
  Shape dims;
  for (std::size_t i = 0; i < g.axes.size(); ++i)
    if (g.reduced[i] == reduced)
      dims.push_back(g.axes[i]);
  return elements_of(dims);
}

/// Arrays that a group reads along the axes that it reduces: at the least one.
double arrays_along_rows(const GraphFacts& facts, const std::vector<std::span<const Read>>& reads,
                         const Group& g) {
  std::set<NodeId> arrays, made;
  for (const Member& m : g.members)
    made.insert(m.node);
  for (const Member& m : g.members) {
    const bool along = std::any_of(m.frame.begin(), m.frame.end(),
                                   [&](int a) { return a >= 0 && g.reduced[std::size_t(a)]; });
    for (const Read& read : reads[m.node])
      if (along && !made.contains(read.base) && elements_of(facts.graph()[read.base].shape) > 1)
        arrays.insert(read.base);
  }
  return std::max<double>(1, static_cast<double>(arrays.size()));
}

/// Whether the arrays of a group's points lie in memory along axes that it reduces: whether their
/// rows are what it sums. By its own order of axes where no array of all points says so.
bool sums_rows(const GraphFacts& facts, const std::vector<std::span<const Read>>& reads,
               const Group& g) {
  double rows = 0, columns = 0;
  const double points = extent_of(g, false) * extent_of(g, true);
  for (const Member& m : g.members)
    for (const Read& read : reads[m.node]) {
      const Shape& shape = facts.graph()[read.base].shape;
      std::size_t last = shape.size();
      while (last > 0 && is_unit(shape[last - 1]))
        --last;
      if (last == 0 || read.indirect || 2 * elements_of(shape) < points)
        continue;
      const int p = plain_axis(read.map.coords[last - 1]);
      if (const int axis = p < 0 ? -1 : m.frame[std::size_t(p)]; axis >= 0)
        (g.reduced[std::size_t(axis)] ? rows : columns) +=
            double(size_of(facts.graph()[read.base].dtype));
    }
  return rows + columns == 0 ? bool(g.reduced.back()) : rows > columns;
}

/// The lines that a reduction's loops go along: rows of memory, or columns; and whether they keep
/// every worker busy: there are enough of them, or they are short by the elements of all arrays
/// that a worker goes through.
struct Lines {
  bool columns, enough;
};

Lines lines_of(const GraphFacts& facts, const std::vector<std::span<const Read>>& reads,
               const Group& g, bool by_columns) {
  constexpr double kEnoughRows = 64, kEnoughColumns = 2048, kShort = 65536, kColumnsOfWorker = 8;
  const bool columns = by_columns ? !sums_rows(facts, reads, g) : !g.reduced.back();
  const double line = extent_of(g, true) * arrays_along_rows(facts, reads, g);
  return {columns, extent_of(g, false) >= (columns ? kEnoughColumns : kEnoughRows) ||
                       line * (columns ? kColumnsOfWorker : 1) <= kShort};
}

/// A reduction kernel may also store values of every point it visits only if that keeps every
/// worker busy, column by column where the target's kernels do so. Workers share what is longer for
/// its sums alone, in a kernel before the one that goes through all points.
bool may_store_points(const Group& g, const Lines& lines, bool by_columns) {
  return lines.enough &&
         (!lines.columns ||
          (by_columns && std::all_of(g.axes.begin(), g.axes.end(),
                                     [](const Expr& extent) { return extent.is_constant(); })));
}

/// Whether a sum of the group waits for another one, but for spreads, which go along with their
/// means.
bool has_sums_that_wait(const GraphFacts& facts, const std::vector<std::span<const Read>>& reads,
                        const Group& g) {
  const auto reduces = [&](NodeId id) {
    return info_of(facts.graph()[id].op).cls == OpClass::Reduce;
  };
  std::set<NodeId> members;
  for (const Member& m : g.members)
    members.insert(m.node);
  const FactorReader factors(facts);
  for (const NodeId sum : members) {
    if (!reduces(sum))
      continue;
    std::set<NodeId> seen{sum}; // it, and what it reads by way of maps
    std::vector<NodeId> waiting{sum};
    while (!waiting.empty()) {
      const NodeId reader = waiting.back();
      waiting.pop_back();
      for (const Read& read : reads[reader]) {
        if (!members.contains(read.base) || !seen.insert(read.base).second)
          continue;
        if (!reduces(read.base))
          waiting.push_back(read.base);
        else if (!factors.is_spread(sum, read.base))
          return true;
      }
    }
  }
  return false;
}

/// Correspondence of the consumer's axes to the producer's.
class Alignment {
public:
  /// `slices`: reads may be at fixed places of one short axis.
  Alignment(const Group& producer, const Group& consumer, bool slices)
      : producer_(producer), consumer_(consumer), slices_(slices),
        to_producer(consumer.axes.size(), -1), sliced(producer.sliced),
        taken_(producer.axes.size(), false) {}

  bool bind(int consumer_axis, int producer_axis) {
    if (to_producer[consumer_axis] == producer_axis)
      return true;
    if (to_producer[consumer_axis] >= 0 || taken_[producer_axis] ||
        !(consumer_.axes[consumer_axis] == producer_.axes[producer_axis]))
      return false;
    to_producer[consumer_axis] = producer_axis;
    taken_[producer_axis] = true;
    return true;
  }

  bool add_read(const Member& made, const Member& reader, const IndexMap& map) {
    if (!map.is_total())
      return false;
    for (std::size_t j = 0; j < made.place.size(); ++j) {
      const int p = plain_axis(map.coords[j]);
      if (made.place[j] == kZeroAxis)
        continue;
      if (slices_ && map.coords[j].is_constant() && may_slice(made.place[j])) {
        sliced = made.place[j];
        taken_[sliced] = true;
        continue;
      }
      if (p < 0 || reader.frame[p] < 0 || !bind(reader.frame[p], made.place[j]))
        return false;
    }
    return true;
  }

  /// Pairs the axes that no read relates, in order, when they agree in number and extent.
  void pair_free_axes() {
    std::vector<int> mine, theirs;
    for (std::size_t i = 0; i < to_producer.size(); ++i)
      if (to_producer[i] < 0)
        mine.push_back(static_cast<int>(i));
    for (std::size_t i = 0; i < taken_.size(); ++i)
      if (!taken_[i])
        theirs.push_back(static_cast<int>(i));
    if (mine.size() != theirs.size())
      return;
    for (std::size_t i = 0; i < mine.size(); ++i)
      if (!(consumer_.axes[mine[i]] == producer_.axes[theirs[i]]))
        return;
    for (std::size_t i = 0; i < mine.size(); ++i)
      bind(mine[i], theirs[i]);
  }

  bool covers_producer() const {
    return std::all_of(taken_.begin(), taken_.end(), [](bool t) { return t; });
  }
  bool covers_consumer() const {
    return std::all_of(to_producer.begin(), to_producer.end(), [](int a) { return a >= 0; });
  }

private:
  bool may_slice(int axis) const {
    const Expr& extent = producer_.axes[axis];
    return !producer_.reduced[axis] && extent.is_constant() && extent.value() <= kMostSlices &&
           (sliced == axis || (sliced < 0 && !taken_[axis]));
  }

  const Group& producer_;
  const Group& consumer_;
  bool slices_;

public:
  std::vector<int> to_producer;
  int sliced; ///< the producer's axis of which reads are at fixed places, or -1

private:
  std::vector<bool> taken_;
};

std::vector<int> renamed(const std::vector<int>& axes, const std::vector<int>& to) {
  std::vector<int> result = axes;
  for (int& a : result)
    if (a >= 0)
      a = to[a];
  return result;
}

/// The group with its axes in the order `order` (a permutation: place i holds old axis order[i]).
Group reordered(const Group& g, const std::vector<int>& order) {
  Group result = g;
  std::vector<int> to(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    to[order[i]] = static_cast<int>(i);
    result.axes[i] = g.axes[order[i]];
    result.reduced[i] = g.reduced[order[i]];
  }
  for (Member& m : result.members) {
    m.frame = renamed(m.frame, to);
    m.place = renamed(m.place, to);
  }
  if (g.sliced >= 0)
    result.sliced = to[g.sliced];
  return result;
}

/// Why the joined group is no form that a kernel can have; empty when it is.
std::string objection(const GraphFacts& facts, const std::vector<std::span<const Read>>& reads,
                      const Group& g, bool by_columns) {
  if (g.members.size() > 64)
    return "the kernel would store more than 64 values";
  if (g.flops > kLargestKernel)
    return "the kernel's code would be too large";
  std::size_t parallel = std::count(g.reduced.begin(), g.reduced.end(), false);
  bool points = g.kind != GroupKind::Reduce;
  if (!points && !g.axes.empty()) {
    const Lines lines = lines_of(facts, reads, g, by_columns);
    points = may_store_points(g, lines, by_columns);
    if (by_columns && lines.columns && !lines.enough && has_sums_that_wait(facts, reads, g))
      return "few long columns are shared by blocks, a sum at a time";
  }
  for (const Member& m : g.members) {
    std::vector<bool> has(g.axes.size(), false);
    for (int a : m.frame)
      if (a >= 0)
        has[a] = true;
    std::size_t p = 0, k = 0;
    for (std::size_t i = 0; i < has.size(); ++i)
      (g.reduced[i] ? k : p) += has[i];
    const bool of_slices = g.sliced >= 0 && k == 0 && !has[g.sliced];
    if (p + of_slices != parallel || (k != 0 && k != g.axes.size() - parallel))
      return "their loops run over different axes";
    const bool reduces = info_of(facts.graph()[m.node].op).cls == OpClass::Reduce;
    if (reduces) {
      // What it sums over must be all that the group sums over.
      for (int a : m.place)
        if (a >= 0 && g.reduced[a])
          return "one of the two sums over axes that the other keeps";
    }
    if (g.kind == GroupKind::Reduce && k != 0 && !reduces && !points)
      return "the reduction does not go row by row";
  }
  return {};
}

} // namespace

Group group_of_one(const GraphFacts& facts, NodeId id) {
  const ir::Graph& graph = facts.graph();
  const ir::Node& node = graph[id];
  Group g;
  Member m{id, {}, {}};
  const Shape& frame = frame_of(graph, id);
  const OpClass cls = info_of(node.op).cls;
  const bool reduces = cls == OpClass::Reduce;
  for (std::size_t i = 0; i < frame.size(); ++i) {
    const bool over = (reduces || cls == OpClass::Scan || cls == OpClass::Sort) &&
                      std::find(node.attrs.axes.begin(), node.attrs.axes.end(),
                                static_cast<std::int64_t>(i)) != node.attrs.axes.end();
    int axis = kZeroAxis;
    if (!is_unit(frame[i])) {
      axis = static_cast<int>(g.axes.size());
      g.axes.push_back(frame[i]);
      g.reduced.push_back(over);
    }
    m.frame.push_back(axis);
    if (!over || !reduces)
      m.place.push_back(axis);
  }
  switch (cls) {
  case OpClass::Reduce:
    g.kind = facts.product_of(id) != ir::kNoNode ? GroupKind::Contraction : GroupKind::Reduce;
    break;
  case OpClass::Scan:
    g.kind = GroupKind::Scan;
    break;
  case OpClass::Sort:
    g.kind = GroupKind::Sort;
    break;
  case OpClass::Scatter:
    g.kind = GroupKind::Scatter;
    break;
  default:
    g.kind = GroupKind::Map;
  }
  g.members.push_back(std::move(m));
  return g;
}

Joined join(const GraphFacts& facts, const std::vector<std::span<const Read>>& reads,
            const Group& producer, const Group& consumer, bool by_columns, bool slices) {
  auto no = [](std::string why) { return Joined{false, {}, std::move(why)}; };
  const bool epilogue = producer.kind == GroupKind::Contraction && consumer.kind == GroupKind::Map;
  const bool both_rows = (producer.kind == GroupKind::Map || producer.kind == GroupKind::Reduce) &&
                         (consumer.kind == GroupKind::Map || consumer.kind == GroupKind::Reduce);
  const bool of_scan = producer.kind == GroupKind::Scan && consumer.kind == GroupKind::Map;
  if (!epilogue && !both_rows && !of_scan)
    return no(
        producer.kind == GroupKind::Stream || consumer.kind == GroupKind::Stream
            ? "one of the two goes through products that it makes anew"
        : consumer.kind == GroupKind::Contraction ? "a contraction packs its operands from memory"
        : producer.kind == GroupKind::Contraction ? "a reduction cannot end a contraction's kernel"
        : producer.kind == GroupKind::Scan        ? "of a scan's readers only maps go along with it"
                                           : "scans, sorts and scatters have kernels of their own");
  Alignment align(producer, consumer, epilogue && slices);
  for (const Member& reader : consumer.members)
    for (const Read& read : reads[reader.node])
      for (const Member& made : producer.members)
        if (read.base == made.node && (read.indirect || !align.add_read(made, reader, read.map)))
          return no("it is read at other points than those at which it is made");
  align.pair_free_axes();

  Group g = producer;
  std::vector<int> to(consumer.axes.size());
  for (std::size_t i = 0; i < consumer.axes.size(); ++i) {
    to[i] = align.to_producer[i];
    if (to[i] < 0) {
      to[i] = static_cast<int>(g.axes.size());
      g.axes.push_back(consumer.axes[i]);
      g.reduced.push_back(false);
    }
    g.reduced[to[i]] = g.reduced[to[i]] || consumer.reduced[i];
  }
  if (consumer.kind == GroupKind::Map && !align.covers_consumer())
    return no("its loops run over more axes than the producer's");
  if (producer.kind == GroupKind::Map && consumer.kind == GroupKind::Map &&
      !align.covers_producer())
    return no("their loops run over different axes");
  if (of_scan && !align.covers_producer())
    return no("its loops do not run over all of the scan's axes");
  if (consumer.kind == GroupKind::Reduce)
    g.kind = GroupKind::Reduce;
  for (const Member& m : consumer.members)
    g.members.push_back({m.node, renamed(m.frame, to), renamed(m.place, to)});
  g.flops += consumer.flops;
  g.sliced = align.sliced;
  // The wider loop nest says which axes are innermost.
  if (!align.covers_consumer() && align.covers_producer())
    g = reordered(g, to);
  if (epilogue)
    for (std::size_t i = 0; i < consumer.axes.size(); ++i)
      if (producer.reduced[to[i]])
        return no("its loops run over the summed axis");
  if (std::string why = objection(facts, reads, g, by_columns); !why.empty())
    return no(why);
  return {true, std::move(g), {}};
}

} // namespace egret::compiler
