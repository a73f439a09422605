// Moves that put values into memory as the kernels that read them prefer.
#include "compiler/search/layout_moves.h"

#include "compiler/search/machine.h"
#include "kernel/generator.h"
#include "support/hash.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace egret::compiler {

using ir::NodeId;
using kernel::Layout;

namespace {

/// Of a GPU's memory, what the copies of one move may take.
constexpr double kMemoryShare = 8;

class LayoutMoves {
public:
  LayoutMoves(const GraphFacts& facts, const Partitioned& parts, const kernel::Target& target,
              const LayoutContext& context, double least)
      : facts_(facts), graph_(facts.graph()), parts_(parts), target_(target), context_(context),
        least_(least), parameter_(parameters_of(graph_, context.steady)) {}

  std::vector<Move> run() {
    for (const BuiltRegion& built : parts_.regions)
      for (const kernel::Generator* generator : kernel::generators(target_)) {
        const std::vector<kernel::LayoutWish> wishes = generator->layouts(built.region, target_);
        const std::vector<std::uint64_t> expected = expect(built, wishes);
        for (const kernel::LayoutWish& wish : wishes)
          consider(built, wish);
        for (const std::uint64_t id : expected)
          found_.at(id).expected = true;
      }
    std::vector<Move> moves;
    for (auto& [id, move] : found_)
      if (target_.memory_bytes == 0 ||
          bytes_of(move) * kMemoryShare <= double(target_.memory_bytes))
        moves.push_back(std::move(move));
    std::stable_sort(moves.begin(), moves.end(),
                     [](const Move& a, const Move& b) { return a.elements > b.elements; });
    return moves;
  }

private:
  /// The moves by which all of a region's wishes with a figure are met, where that should pay and
  /// no region before this one wants what they change otherwise.
  std::vector<std::uint64_t> expect(const BuiltRegion& built,
                                    const std::vector<kernel::LayoutWish>& wishes) {
    constexpr double kMargin = 1.5;
    const Machine machine = usual_machine(target_);
    double saved = 0, spent = machine.launch_seconds; // the copies share one
    std::vector<std::uint64_t> ids;
    std::map<std::pair<NodeId, int>, std::pair<NodeId, std::uint64_t>> wanted = wanted_;
    for (const kernel::LayoutWish& wish : wishes) {
      if (wish.seconds <= 0)
        continue;
      if (!may_change(built, wish) || !kernel::fits_exactly(wish.layout))
        return {};
      const NodeId value = built.operands[static_cast<std::size_t>(wish.operand)];
      const std::pair<NodeId, std::uint64_t> as(value, kernel::hash_of(wish.layout));
      for (const Use& use : readers_in(built, value))
        if (wanted.try_emplace({use.reader, use.operand}, as).first->second != as)
          return {};
      saved = std::max(saved, wish.seconds);
      if (!parameter_[value])
        spent += 2 * elements_of(graph_[value].shape) *
                 static_cast<double>(size_of(graph_[value].dtype)) / machine.bytes_per_second;
      ids.push_back(combine(id_of(built, wish), parameter_[value] ? 3 : 4));
    }
    if (saved <= kMargin * spent)
      return {};
    wanted_ = std::move(wanted);
    return ids;
  }

  static std::uint64_t id_of(const BuiltRegion& built, const kernel::LayoutWish& wish) {
    return combine(combine(kernel::hash_of(built.region), static_cast<std::uint64_t>(wish.operand)),
                   kernel::hash_of(wish.layout));
  }

  double bytes_of(const Move& move) const {
    double bytes = 0;
    for (const LayoutChange& change : move.choices.layout_changes)
      bytes += elements_of(graph_[change.value].shape) *
               static_cast<double>(size_of(graph_[change.value].dtype));
    return bytes;
  }

  /// Operands of the region's nodes, and of what is computed inside of them, that read `value`.
  std::vector<Use> readers_in(const BuiltRegion& built, NodeId value) const {
    std::vector<Use> readers;
    std::vector<NodeId> work = built.region.nodes;
    std::set<NodeId> seen(work.begin(), work.end());
    while (!work.empty()) {
      const NodeId at = work.back();
      work.pop_back();
      const auto& inputs = graph_[at].inputs;
      for (std::size_t j = 0; j < inputs.size(); ++j) {
        const NodeId base = facts_.view(inputs[j]).base;
        if (base == value)
          readers.push_back({at, static_cast<int>(j)});
        else if (!parts_.partition.stored[base] && graph_[base].op != Op::Input &&
                 seen.insert(base).second)
          work.push_back(base);
      }
    }
    std::sort(readers.begin(), readers.end(), [](const Use& a, const Use& b) {
      return std::pair(a.reader, a.operand) < std::pair(b.reader, b.operand);
    });
    return readers;
  }

  /// What a scatter updates must stay where it is.
  bool is_updated(const Use& use) const {
    return info_of(graph_[use.reader].op).cls == OpClass::Scatter && use.operand == 0;
  }

  /// Whether a region reads all of an operand in one way.
  static bool read_alike(const kernel::Region& region, int operand) {
    std::set<std::uint64_t> ways;
    for (const kernel::Stage& stage : region.stages)
      for (const kernel::Load& load : stage.loads)
        if (load.source == kernel::Source::Operand && load.number == operand)
          ways.insert(load.map.hash());
    return ways.size() == 1;
  }

  /// The layout by the value's own dims, where each axis of its box is some of them and none is
  /// taken apart.
  std::optional<Layout> by_dims(const Layout& layout, const Shape& shape) const {
    if (!kernel::is_permutation(layout))
      return std::nullopt;
    std::vector<std::vector<int>> dims(layout.box.size());
    std::size_t dim = 0;
    for (std::size_t axis = 0; axis < layout.box.size(); ++axis) {
      std::int64_t whole = 1;
      while (whole < layout.box[axis] && dim < shape.size()) {
        whole *= shape[dim].value();
        dims[axis].push_back(static_cast<int>(dim++));
      }
      if (whole != layout.box[axis])
        return std::nullopt;
    }
    Layout result;
    for (const Expr& extent : shape)
      result.box.push_back(extent.value());
    std::vector<bool> placed(shape.size());
    for (const kernel::Digit& digit : layout.digits)
      for (const int d : dims[static_cast<std::size_t>(digit.axis)]) {
        result.digits.push_back({d, 0});
        placed[static_cast<std::size_t>(d)] = true;
      }
    for (std::size_t d = 0; d < shape.size(); ++d) // dims of one element
      if (!placed[d])
        result.digits.insert(result.digits.begin(), {static_cast<int>(d), 0});
    return result;
  }

  /// Whether the operand's value may lie otherwise for the region.
  bool may_change(const BuiltRegion& built, const kernel::LayoutWish& wish) const {
    const NodeId value = built.operands[static_cast<std::size_t>(wish.operand)];
    const ir::Node& node = graph_[value];
    const bool known = std::all_of(node.shape.begin(), node.shape.end(),
                                   [](const Expr& extent) { return extent.is_constant(); });
    const auto slot = static_cast<std::size_t>(node.attrs.slot);
    const bool replaced = node.op == Op::Input && slot < context_.replaced.size() &&
                          static_cast<bool>(context_.replaced[slot]);
    if (!known || replaced || (elements_of(node.shape) < least_ && wish.seconds <= 0) ||
        !read_alike(built.region, wish.operand))
      return false;
    const std::vector<Use> readers = readers_in(built, value);
    return !readers.empty() && std::none_of(readers.begin(), readers.end(),
                                            [&](const Use& use) { return is_updated(use); });
  }

  void consider(const BuiltRegion& built, const kernel::LayoutWish& wish) {
    if (!may_change(built, wish))
      return;
    const NodeId value = built.operands[static_cast<std::size_t>(wish.operand)];
    const ir::Node& node = graph_[value];
    const std::vector<Use> readers = readers_in(built, value);
    const std::uint64_t id = id_of(built, wish);
    const std::string name =
        node.op == Op::Input && !node.attrs.name.empty()
            ? node.attrs.name + to_string(node.shape)
            : fmt::format("{}{}", info_of(node.op).name, to_string(node.shape));
    if (parameter_[value]) {
      add(combine(id, 3), fmt::format("{} kept in {}", name, wish.what),
          {value, wish.layout, readers, true, wish.what});
      return;
    }
    if (kernel::fits_exactly(wish.layout))
      add(combine(id, 4), fmt::format("{} put into {} for {}", name, wish.what, built.region.name),
          {value, wish.layout, readers, false, wish.what});
    const std::vector<Use>& all = facts_.uses(value);
    const auto dims = by_dims(wish.layout, node.shape);
    const bool may =
        node.op != Op::Input && !facts_.is_output(value) &&
        info_of(node.op).cls != OpClass::Scatter &&
        std::none_of(all.begin(), all.end(), [&](const Use& use) { return is_updated(use); });
    if (dims && may) {
      std::string order;
      for (const kernel::Digit& digit : dims->digits)
        order += fmt::format("{}{}", order.empty() ? "" : ",", digit.axis);
      add(combine(id, 5), fmt::format("{} stored as [{}]", name, order),
          {value, *dims, all, false, fmt::format("[{}]", order)});
    }
  }

  void add(std::uint64_t id, const std::string& what, LayoutChange change) {
    Move& move = found_[id];
    if (move.id == 0) {
      move.id = id;
      move.what = what;
    }
    for (const LayoutChange& same : move.choices.layout_changes)
      if (same.value == change.value && same.readers == change.readers)
        return; // of two wishes for one layout
    move.elements += elements_of(graph_[change.value].shape);
    move.choices.layout_changes.push_back(std::move(change));
  }

  const GraphFacts& facts_;
  const ir::Graph& graph_;
  const Partitioned& parts_;
  const kernel::Target& target_;
  const LayoutContext& context_;
  const double least_;
  const std::vector<bool> parameter_;
  std::map<std::uint64_t, Move> found_;
  /// By operand of a node: the value and the layout of the expected moves so far.
  std::map<std::pair<NodeId, int>, std::pair<NodeId, std::uint64_t>> wanted_;
};

} // namespace

std::vector<Move> layout_moves_of(const GraphFacts& facts, const Partitioned& parts,
                                  const kernel::Target& target, const LayoutContext& context,
                                  double least) {
  return LayoutMoves(facts, parts, target, context, least).run();
}

bool may_expect_layouts(const Partitioned& parts, const kernel::Target& target) {
  return std::ranges::any_of(parts.regions, [&](const BuiltRegion& built) {
    return std::ranges::any_of(kernel::generators(target), [&](const kernel::Generator* generator) {
      return std::ranges::any_of(generator->layouts(built.region, target),
                                 [](const kernel::LayoutWish& wish) { return wish.seconds > 0; });
    });
  });
}

PartitionChoices choices_in_layouts(const PartitionChoices& choices,
                                    const LayoutAssignment& assigned) {
  PartitionChoices now = choices;
  now.layout_changes.clear();
  now.recomputed.clear();
  now.apart.clear();
  now.stored.clear();
  const auto here = [&](NodeId id) { return assigned.now[id]; };
  for (const NodeId id : choices.recomputed)
    if (here(id) != ir::kNoNode)
      now.recomputed.insert(here(id));
  for (const auto& [a, b] : choices.apart)
    if (here(a) != ir::kNoNode && here(b) != ir::kNoNode)
      now.apart.insert(std::minmax(here(a), here(b)));
  for (const NodeId id : choices.stored)
    if (here(id) != ir::kNoNode)
      now.stored.insert(here(id));
  now.stored.insert(assigned.copies.begin(), assigned.copies.end());
  return now;
}

} // namespace egret::compiler
