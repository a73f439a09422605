#include "compiler/search/moves.h"

#include "compiler/inlining.h"
#include "support/hash.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace egret::compiler {

using ir::NodeId;

namespace {

/// A hash of each node with what is near it: what it is made of down to some depth, and who reads
/// it.
std::vector<std::uint64_t> surroundings(const GraphFacts& facts) {
  constexpr int kDepth = 6;
  const ir::Graph& graph = facts.graph();
  std::vector<std::uint64_t> alone(graph.size());
  for (NodeId id = 0; id < graph.size(); ++id) {
    const ir::Node& node = graph[id];
    std::uint64_t hash =
        combine(static_cast<std::uint64_t>(node.op), static_cast<std::uint64_t>(node.dtype));
    hash = combine(hash, hash_text(to_string(node.shape)));
    for (const std::int64_t axis : node.attrs.axes)
      hash = combine(hash, static_cast<std::uint64_t>(axis));
    alone[id] = hash;
  }
  std::vector<std::uint64_t> deep = alone;
  for (int depth = 0; depth < kDepth; ++depth) {
    std::vector<std::uint64_t> next = alone;
    for (NodeId id = 0; id < graph.size(); ++id)
      for (const NodeId input : graph[id].inputs)
        next[id] = combine(next[id], deep[input]);
    deep = std::move(next);
  }
  for (NodeId id = 0; id < graph.size(); ++id) {
    std::vector<std::uint64_t> readers;
    for (const Use& use : facts.uses(id))
      readers.push_back(alone[use.reader]);
    std::sort(readers.begin(), readers.end());
    for (const std::uint64_t reader : readers)
      deep[id] = combine(deep[id], reader);
  }
  return deep;
}

class MoveFinder {
public:
  MoveFinder(const GraphFacts& facts, const Partition& greedy, double least)
      : facts_(facts), graph_(facts.graph()), greedy_(greedy), least_(least),
        around_(surroundings(facts)) {}

  std::vector<Move> run() {
    for (NodeId id = 0; id < graph_.size(); ++id)
      turn(id);
    for (const Group& group : greedy_.groups)
      split(group);
    std::vector<Move> moves;
    for (auto& [id, move] : found_)
      moves.push_back(std::move(move));
    std::stable_sort(moves.begin(), moves.end(),
                     [](const Move& a, const Move& b) { return a.elements > b.elements; });
    leave_out(moves);
    return moves;
  }

private:
  std::string name(NodeId id) const {
    return fmt::format("{}{}", info_of(graph_[id].op).name, to_string(graph_[id].shape));
  }

  Move& move(std::uint64_t id, const std::string& what) {
    Move& m = found_[id];
    if (m.id == 0) {
      m.id = id;
      m.what = what;
    }
    return m;
  }

  void turn(NodeId id) {
    const OpClass cls = info_of(graph_[id].op).cls;
    const bool elementwise = cls != OpClass::Source && cls != OpClass::Reduce &&
                             cls != OpClass::Scan && cls != OpClass::Sort &&
                             cls != OpClass::Scatter && graph_[id].op != Op::Input &&
                             !is_movement(graph_[id].op);
    const double elements = elements_of(graph_[id].shape);
    if (!elementwise || facts_.is_product(id) || facts_.is_output(id) || elements < least_)
      return;
    if (!greedy_.stored[id] && !worth_storing(id, elements))
      return;
    Move& m = move(
        combine(around_[id], 1),
        fmt::format("{} {}", name(id), greedy_.stored[id] ? "computed by its readers" : "stored"));
    (greedy_.stored[id] ? m.choices.recomputed : m.choices.stored).insert(id);
    m.elements += elements;
  }

  /// A value with one reader that visits each element once is as well off inside it.
  bool worth_storing(NodeId id, double elements) const {
    const auto& uses = facts_.uses(id);
    return std::any_of(uses.begin(), uses.end(), [&](const Use& use) {
      const double read = elements_of(
          graph_[graph_[use.reader].inputs[static_cast<std::size_t>(use.operand)]].shape);
      return use.reader != uses[0].reader || facts_.is_product(use.reader) || read > elements;
    });
  }

  void split(const Group& group) {
    if (group.kind == GroupKind::Stream) // it is one kernel or none
      return;
    for (const Member& reader : group.members)
      for (const Read& read : reads_of(facts_, greedy_.stored, reader.node)) {
        const double elements = elements_of(graph_[read.base].shape);
        const bool inside =
            std::any_of(group.members.begin(), group.members.end(),
                        [&](const Member& m) { return m.node == read.base && !m.remade; });
        if (!inside || std::max(elements, elements_of(graph_[reader.node].shape)) < least_)
          continue;
        Move& m = move(combine(combine(around_[read.base], around_[reader.node]), 2),
                       fmt::format("{} and {} apart", name(read.base), name(reader.node)));
        m.choices.apart.emplace(read.base, reader.node);
        m.elements += elements;
      }
  }

  /// Kinds of fusion that the whole graph goes without.
  static void leave_out(std::vector<Move>& moves) {
    const auto add = [&](std::uint64_t id, const char* what, bool PartitionChoices::*part) {
      Move m{id, what, {}, 0};
      m.choices.*part = false;
      moves.push_back(std::move(m));
    };
    add(11, "large products stored", &PartitionChoices::streams);
    add(12, "kernels that read alike apart", &PartitionChoices::siblings);
    add(13, "sums of columns apart", &PartitionChoices::column_reductions);
    add(14, "small kernels apart", &PartitionChoices::batches);
  }

  const GraphFacts& facts_;
  const ir::Graph& graph_;
  const Partition& greedy_;
  const double least_;
  const std::vector<std::uint64_t> around_;
  std::map<std::uint64_t, Move> found_;
};

} // namespace

std::vector<Move> moves_of(const GraphFacts& facts, const Partition& greedy, double least) {
  return MoveFinder(facts, greedy, least).run();
}

PartitionChoices together(const std::vector<Move>& moves, const std::vector<std::uint64_t>& ids) {
  PartitionChoices all;
  for (const Move& move : moves) {
    if (std::find(ids.begin(), ids.end(), move.id) == ids.end())
      continue;
    all.recomputed.insert(move.choices.recomputed.begin(), move.choices.recomputed.end());
    all.apart.insert(move.choices.apart.begin(), move.choices.apart.end());
    all.stored.insert(move.choices.stored.begin(), move.choices.stored.end());
    all.layout_changes.insert(all.layout_changes.end(), move.choices.layout_changes.begin(),
                              move.choices.layout_changes.end());
    all.streams &= move.choices.streams;
    all.siblings &= move.choices.siblings;
    all.column_reductions &= move.choices.column_reductions;
    all.batches &= move.choices.batches;
  }
  return all;
}

} // namespace egret::compiler
