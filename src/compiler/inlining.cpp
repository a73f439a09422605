#include "compiler/inlining.h"

#include <algorithm>
#include <map>
#include <set>

namespace egret::compiler {

using ir::NodeId;

namespace {

// A value is computed anew in several readers when that costs at most this many additions an
// element and reads no more large arrays than reading the value itself would.
constexpr double kCheapFlops = 12;
// Values made of indices and constants only (masks, positions) may cost more: they save a whole
// array.
constexpr double kCheapLeafFlops = 24;
// A load takes as long as so many additions where it comes from a cache.
constexpr double kFlopsOfLoad = 4;
// What is neither written nor read is worth so many additions a byte: about what a machine's cores
// do while its memory moves one.
constexpr double kFlopsPerByte = 16;
constexpr double kCachedBytes = 1 << 20;
// Work that a contraction may do while it packs an operand.
constexpr double kPrologueFlops = 16;
// The same for each of many tiles of a product whose other work matrix units do: more of it than
// that holds them up. A further array counts for registers and the latency of its loads.
constexpr double kTilePrologueFlops = 6, kFlopsOfFurtherLoad = 2;
// A factor of 16 bits is stored when the product reads both of its factors so many times: it can
// then fetch them as they are.
constexpr double kManyReads = 128;
// A value of which a product reads windows that overlap so much is packed from memory: there it is
// a plain load, which may be copied once instead of packed once a window.
constexpr double kOverlap = 2;
// Of a concatenation that a product packs: such a one takes less time than a launch.
constexpr double kFewPackedBytes = 256 << 10;
constexpr double kLargestCone = 400;
constexpr std::size_t kMostLoads = 24;

/// What computing a value inside its reader would cost.
struct Cone {
  double flops = 0;
  double flops_by_use = 0; ///< what is used several times counts for each
  std::set<NodeId> large;  ///< arrays read that are about as large as the value
  std::set<NodeId> small;
  bool ends_reduction = false; ///< reads, point by point, a reduction that nothing else reads: it
                               ///< is the natural end of that kernel
};

class Chooser {
public:
  Chooser(const GraphFacts& facts, bool fuse, const PartitionChoices& choices)
      : facts_(facts), graph_(facts.graph()), fuse_(fuse), choices_(choices),
        stored_(graph_.size(), false), cones_(graph_.size()), seen_(graph_.size(), ir::kNoNode) {}

  std::vector<bool> run() {
    std::vector<bool> forced(graph_.size(), false);
    for (NodeId id = 0; id < graph_.size(); ++id) {
      auto cls = info_of(graph_[id].op).cls;
      if (cls == OpClass::Scatter) {
        find_bounds(graph_[id].inputs[1]);
        find_joined(graph_[id].inputs[1]);
        find_joined(graph_[id].inputs[2]);
      }
      if (cls == OpClass::Gather || cls == OpClass::Scatter)
        forced[facts_.view(graph_[id].inputs[0]).base] = true;
    }
    for (NodeId id : graph_.outputs)
      forced[facts_.view(id).base] = true;
    for (NodeId id = 0; id < graph_.size(); ++id)
      if (graph_[id].op != Op::Input && !is_movement(graph_[id].op))
        decide(id, forced[id] || choices_.stored.contains(id));
    return stored_;
  }

private:
  void decide(NodeId id, bool forced) {
    const ir::Node& node = graph_[id];
    const OpClass cls = info_of(node.op).cls;
    if (cls == OpClass::Reduce || cls == OpClass::Scan || cls == OpClass::Sort ||
        cls == OpClass::Scatter) {
      stored_[id] = true;
      return;
    }
    cones_[id] = cone_of(id);
    const bool free = !forced && cls != OpClass::Source && !facts_.is_product(id);
    const bool recomputed = fuse_ && choices_.recomputed.contains(id) && may_inline(id);
    stored_[id] = forced || (free && !recomputed && !inlines(id));
  }

  /// Whether a value is chosen by its place along an axis: it is a concatenation.
  bool is_concatenation(const ir::Node& select) const {
    const ir::Node& test = graph_[facts_.view(select.inputs[0]).base];
    return test.op == Op::Lt && graph_[facts_.view(test.inputs[0]).base].op == Op::Iota &&
           graph_[facts_.view(test.inputs[1]).base].op == Op::Constant;
  }

  /// Notes the concatenations of which a scatter's operand is made: an update needs one of the
  /// values that are concatenated.
  void find_joined(NodeId operand) {
    const NodeId id = facts_.view(operand).base;
    const ir::Node& select = graph_[id];
    if (select.op != Op::Select || !is_concatenation(select) || joined_.contains(id))
      return;
    const ir::Node& test = graph_[facts_.view(select.inputs[0]).base];
    joined_[id] = elements_of(graph_[facts_.view(test.inputs[0]).base].shape);
    find_joined(select.inputs[1]);
    find_joined(select.inputs[2]);
  }

  /// Notes the truth values of the condition that an index is selected by, or each of those that
  /// are concatenated to it.
  void find_bounds(NodeId index) {
    const ir::Node& select = graph_[facts_.view(index).base];
    if (select.op != Op::Select)
      return;
    if (is_concatenation(select)) {
      find_bounds(select.inputs[1]);
      find_bounds(select.inputs[2]);
    }
    std::vector<NodeId> left{facts_.view(select.inputs[0]).base};
    while (!left.empty()) {
      const NodeId id = left.back();
      left.pop_back();
      if (graph_[id].dtype != DType::Bool || !is_elementwise(graph_[id].op) ||
          !bounds_.insert(id).second)
        continue;
      for (const NodeId input : graph_[id].inputs)
        left.push_back(facts_.view(input).base);
    }
  }

  /// Whether the value can be computed inside its readers at all.
  bool may_inline(NodeId id) const {
    const Cone& cone = cones_[id];
    return !facts_.uses(id).empty() && cone.flops <= kLargestCone &&
           cone.large.size() + cone.small.size() <= kMostLoads;
  }

  Cone cone_of(NodeId id) {
    const ir::Node& node = graph_[id];
    Cone cone;
    cone.flops = flops_of(id, id);
    cone.flops_by_use = info_of(node.op).cls == OpClass::Source ? 0 : info_of(node.op).flops;
    const double size = elements_of(node.shape);
    for (NodeId input : node.inputs) {
      const View& view = facts_.view(input);
      const NodeId base = view.base;
      if (stored_[base] || graph_[base].op == Op::Input) {
        const double base_size = elements_of(graph_[base].shape);
        (base_size * 2 >= size && base_size > 1 ? cone.large : cone.small).insert(base);
        if (stored_[base] && info_of(graph_[base].op).cls == OpClass::Reduce &&
            facts_.uses(base).size() == 1 && base_size == size)
          cone.ends_reduction = true;
      } else {
        const Cone& from = cones_[base];
        cone.flops_by_use += from.flops_by_use;
        cone.large.insert(from.large.begin(), from.large.end());
        cone.small.insert(from.small.begin(), from.small.end());
        cone.ends_reduction = cone.ends_reduction || from.ends_reduction;
      }
    }
    return cone;
  }

  /// Work of `id` and of the values before it that a kernel which reads `root` computes. What
  /// several of them read at the same point counts once, as in a kernel's body; what is read
  /// through views counts for each view, as its points differ.
  double flops_of(NodeId id, NodeId root) {
    const ir::Node& node = graph_[id];
    double flops = info_of(node.op).cls == OpClass::Source ? 0 : info_of(node.op).flops;
    for (NodeId input : node.inputs) {
      const NodeId base = facts_.view(input).base;
      if (seen_[input] == root || stored_[base] || graph_[base].op == Op::Input)
        continue;
      seen_[input] = root;
      flops += base == input ? flops_of(input, root) : cones_[base].flops;
    }
    return flops;
  }

  /// A value that is only widened has that conversion's readers: were they to make it be stored
  /// behind the conversion, it would take more bytes, and products would have wider factors.
  NodeId widened(NodeId id) const {
    while (facts_.uses(id).size() == 1) {
      const NodeId reader = facts_.uses(id)[0].reader;
      if (graph_[reader].op != Op::Cast ||
          size_of(graph_[reader].dtype) <= size_of(graph_[id].dtype))
        break;
      id = reader;
    }
    return id;
  }

  /// Whether the value is nothing but sums in fewer bits, for which nobody else asks: their kernel
  /// then writes fewer bytes, at no cost. Sums of no products that fit a cache may as well go on in
  /// the kernel that reads them.
  bool narrows_sums(NodeId id) const {
    const ir::Node& node = graph_[id];
    if (node.op != Op::Cast)
      return false;
    const NodeId sums = facts_.view(node.inputs[0]).base;
    const double bytes = elements_of(node.shape) * static_cast<double>(size_of(graph_[sums].dtype));
    return stored_[sums] && graph_[sums].op == Op::ReduceSum &&
           (facts_.product_of(sums) != ir::kNoNode || bytes > kCachedBytes) &&
           facts_.uses(sums).size() == 1 && size_of(node.dtype) < size_of(graph_[sums].dtype) &&
           elements_of(graph_[sums].shape) == elements_of(node.shape);
  }

  /// How many times a product that reads the value reads an element of either factor, at least.
  double reads_by_products(NodeId id) const {
    double most = 0;
    for (const Use& use : facts_.uses(id)) {
      if (!facts_.is_product(use.reader))
        continue;
      double largest = 1;
      for (NodeId input : graph_[use.reader].inputs)
        largest = std::max(largest, elements_of(graph_[facts_.view(input).base].shape));
      most = std::max(most, elements_of(graph_[use.reader].shape) / largest);
    }
    return most;
  }

  bool is_float_of_16_bits(NodeId id) const {
    return is_float(graph_[id].dtype) && size_of(graph_[id].dtype) == 2;
  }

  /// How many times products read an element of the value of 16 bits, widened, as a factor. Others
  /// are converted on their way into a product whether they are stored or not.
  double reads_as_factor(NodeId made) const {
    double most = 0;
    if (!is_float_of_16_bits(made))
      return 0;
    for (const Use& use : facts_.uses(made))
      if (graph_[use.reader].op == Op::Cast &&
          size_of(graph_[use.reader].dtype) > size_of(graph_[made].dtype))
        most = std::max(most, reads_by_products(use.reader));
    return most;
  }

  /// Whether the value is made of indices, constants and single numbers alone, so that making it
  /// takes no reads.
  bool is_of_indices(NodeId made) const {
    const Cone& cone = cones_[made];
    return cone.large.empty() && std::all_of(cone.small.begin(), cone.small.end(), [&](NodeId id) {
             return elements_of(graph_[id].shape) == 1;
           });
  }

  /// Whether making such a value in each reader costs less than storing it once and reading it.
  /// `id`: the value as readers see it.
  bool pays_to_recompute(NodeId made, NodeId id) const {
    const double size = elements_of(graph_[made].shape);
    std::map<NodeId, double> points; // by reader
    for (const Use& use : facts_.uses(id)) {
      if (facts_.is_product(use.reader)) // which would make it for each block that it packs
        return false;
      const ir::Node& reader = graph_[use.reader];
      double& most = points[use.reader];
      most = std::max(most, elements_of(graph_[reader.inputs[use.operand]].shape));
    }
    double all = 0;
    for (const auto& [reader, count] : points)
      all += count;
    const double width = static_cast<double>(size_of(graph_[id].dtype));
    // What fits a cache comes from memory once for each reader, however often it is read.
    const double reads =
        width * size <= kCachedBytes ? static_cast<double>(points.size()) * size : all;
    return cones_[made].flops * (all - size) <= kFlopsPerByte * width * (size + reads);
  }

  bool inlines(NodeId made) const {
    const NodeId id = widened(made);
    // The conversion is decided with the value: a kernel that stored what it widens would write,
    // and products would read, twice the bytes.
    const Cone& cone = cones_[made];
    const double widening = id == made ? 0 : 1, flops = cone.flops + widening,
                 flops_by_use = cone.flops_by_use + widening;
    const auto& uses = facts_.uses(id);
    if (uses.empty() || !may_inline(made))
      return false;
    if (fuse_ && only_widens(made) && is_float_of_16_bits(graph_[made].inputs[0]))
      return true;
    if (cone.large.empty() && cone.small.empty() && flops <= kCheapLeafFlops)
      return true;
    if (fuse_ && is_of_indices(made) && (flops <= kFlopsOfLoad || pays_to_recompute(made, id)))
      return true;
    // A scatter that sees how its index is bounded knows which updates never meet.
    if (fuse_ && bounds_.contains(made) && flops <= kCheapFlops)
      return true;
    if (!fuse_ || reads_as_factor(made) >= kManyReads || narrows_sums(made))
      return false;
    if (choices_.windows_stored && !only_widens(made) && packings(id) >= kOverlap)
      return false;
    if (holds_up_tiles(made, id))
      return false;
    const std::set<NodeId> readers = [&] {
      std::set<NodeId> r;
      for (const Use& use : uses)
        r.insert(use.reader);
      return r;
    }();
    if (readers.size() > 1) {
      // Each product packs it anew, as each step of a loop over time does with its weights.
      const auto products = std::count_if(readers.begin(), readers.end(),
                                          [&](NodeId reader) { return facts_.is_product(reader); });
      const double bytes =
          elements_of(graph_[id].shape) * static_cast<double>(size_of(graph_[id].dtype));
      const double times =
          std::max(repeats(id), bytes <= kCachedBytes ? static_cast<double>(products) : 1);
      return cone.large.size() <= 1 && times * flops_by_use <= kCheapFlops;
    }
    const NodeId reader = *readers.begin();
    if (facts_.is_product(reader))
      return flops <= kPrologueFlops && !cone.ends_reduction;
    if (info_of(graph_[reader].op).cls == OpClass::Scatter && uses[0].operand == 0)
      return false;
    if (choices_.concatenated_in_place && graph_[reader].op == Op::Select &&
        is_concatenation(graph_[reader]) && pays_in_concatenation(made, id, reader))
      return true;
    return repeats(id) <= 1 || repeats(id) * flops <= kCheapFlops || flops <= 1;
  }

  /// Whether a product that reads the value as `id` makes it so often that matrix units wait for
  /// it.
  bool holds_up_tiles(NodeId made, NodeId id) const {
    const Cone& cone = cones_[made];
    const auto loads = double(cone.large.size() + cone.small.size());
    return choices_.factors_stored && graph_[id].dtype == DType::F32 &&
           cone.flops + kFlopsOfFurtherLoad * (loads - 1) > kTilePrologueFlops &&
           reads_by_products(id) >= kManyReads;
  }

  /// Whether making a value that is concatenated at each point of the concatenation, also where
  /// another one is chosen, costs less than writing it and reading it again. A product copies
  /// concatenated values from where they lie, unless they are few, or stored together as its
  /// factor.
  bool pays_in_concatenation(NodeId made, NodeId id, NodeId reader) const {
    const double size = elements_of(graph_[id].shape), all = elements_of(graph_[reader].shape);
    if (packed_bytes(reader) > kFewPackedBytes && reads_as_factor(reader) < kManyReads)
      return false;
    return cones_[made].flops * (all - size) <=
           kFlopsPerByte * static_cast<double>(size_of(graph_[id].dtype)) * 2 * size;
  }

  /// Bytes of the value that products pack, each as often as they do; 0: none reads it, not even by
  /// way of conversions.
  double packed_bytes(NodeId id) const {
    for (;;) {
      const auto& uses = facts_.uses(id);
      if (std::any_of(uses.begin(), uses.end(),
                      [&](const Use& use) { return facts_.is_product(use.reader); }))
        return packings(id) * elements_of(graph_[id].shape) *
               static_cast<double>(size_of(graph_[id].dtype));
      if (uses.size() != 1 || graph_[uses[0].reader].op != Op::Cast)
        return 0;
      id = uses[0].reader;
    }
  }

  /// Whether the value is what memory holds, in more bits.
  bool only_widens(NodeId made) const {
    const ir::Node& node = graph_[made];
    if (node.op != Op::Cast)
      return false;
    const NodeId base = facts_.view(node.inputs[0]).base;
    return (stored_[base] || graph_[base].op == Op::Input) &&
           size_of(node.dtype) > size_of(graph_[base].dtype);
  }

  /// How many times a product packs an element of the value, on average: more than once where it
  /// reads overlapping windows.
  double packings(NodeId id) const {
    double most = 1;
    for (const Use& use : facts_.uses(id)) {
      if (!facts_.is_product(use.reader))
        continue;
      const NodeId operand = graph_[use.reader].inputs[std::size_t(use.operand)];
      const std::vector<bool>& depends = facts_.depends(operand);
      Shape box;
      for (std::size_t i = 0; i < depends.size(); ++i)
        if (depends[i])
          box.push_back(graph_[operand].shape[i]);
      most = std::max(most, elements_of(box));
    }
    return most / std::max(1.0, elements_of(graph_[id].shape));
  }

  /// How many points of the largest reader read one element of the value. Contractions read each
  /// element about once, when packing.
  double repeats(NodeId id) const {
    double most = 1;
    const double size = std::max(1.0, elements_of(graph_[id].shape));
    for (const Use& use : facts_.uses(id)) {
      if (facts_.is_product(use.reader))
        continue;
      const ir::Node& reader = graph_[use.reader];
      double points = elements_of(graph_[reader.inputs[use.operand]].shape);
      if (const auto joined = joined_.find(use.reader); joined != joined_.end() && use.operand != 0)
        points /= joined->second;
      most = std::max(most, points / size);
    }
    return most;
  }

  const GraphFacts& facts_;
  const ir::Graph& graph_;
  const bool fuse_;
  const PartitionChoices& choices_;
  std::vector<bool> stored_;
  std::vector<Cone> cones_;
  std::set<NodeId> bounds_;         ///< conditions that bound the indices of scatters
  std::map<NodeId, double> joined_; ///< concatenations that scatters read: values in each
  std::vector<NodeId> seen_;        ///< by node: the last value in whose cone it was counted
};

} // namespace

std::vector<bool> choose_stored(const GraphFacts& facts, bool fuse,
                                const PartitionChoices& choices) {
  return Chooser(facts, fuse, choices).run();
}

std::vector<Recomputed> recomputed_values(const GraphFacts& facts,
                                          const std::vector<bool>& stored) {
  const ir::Graph& graph = facts.graph();
  // Additions of values that are made of indices, constants and single numbers; below 0: of others.
  std::vector<double> flops(graph.size(), -1);
  std::vector<bool> apart(graph.size(), false); // read by what is none of them
  for (NodeId id = 0; id < graph.size(); ++id) {
    const ir::Node& node = graph[id];
    if (is_movement(node.op))
      continue;
    const bool number = elements_of(node.shape) == 1;
    if (stored[id] || node.op == Op::Input ||
        !(is_elementwise(node.op) || info_of(node.op).cls == OpClass::Source)) {
      flops[id] = number ? 0 : -1;
    } else {
      flops[id] = info_of(node.op).flops;
      for (NodeId input : node.inputs) {
        const double from = flops[facts.view(input).base];
        flops[id] = from < 0 || flops[id] < 0 ? -1 : flops[id] + from;
      }
    }
    for (NodeId input : node.inputs)
      if (flops[id] < 0 || stored[id])
        apart[facts.view(input).base] = true;
  }
  std::vector<Recomputed> found;
  for (NodeId id = 0; id < graph.size(); ++id)
    if (apart[id] && !stored[id] && flops[id] > 1 && elements_of(graph[id].shape) > 1) {
      std::set<NodeId> readers;
      for (const Use& use : facts.uses(id))
        readers.insert(use.reader);
      found.push_back({id, flops[id], readers.size()});
    }
  return found;
}

const Shape& frame_of(const ir::Graph& graph, NodeId stored) {
  const ir::Node& node = graph[stored];
  switch (info_of(node.op).cls) {
  case OpClass::Reduce:
  case OpClass::Sort:
    return graph[node.inputs[0]].shape;
  case OpClass::Scatter:
    return graph[node.inputs[2]].shape;
  default:
    return node.shape;
  }
}

namespace {

/// Collects the reads of one cone.
class ReadCollector {
public:
  ReadCollector(const GraphFacts& facts, const std::vector<bool>& stored)
      : facts_(facts), graph_(facts.graph()), stored_(stored) {}

  void operand(NodeId id, const IndexMap& map) {
    value(facts_.view(id).base, facts_.view_through(id, map));
  }

  /// Reads of node `id` itself, its points being map(frame point).
  void inside(NodeId id, const IndexMap& map) {
    const ir::Node& node = graph_[id];
    flops += info_of(node.op).flops;
    switch (info_of(node.op).cls) {
    case OpClass::Source:
      break;
    case OpClass::Gather: {
      found.push_back({facts_.view(node.inputs[0]).base, map, true});
      const std::size_t axis = node.attrs.axes[0];
      IndexMap index = map;
      index.coords.assign(map.coords.begin() + axis,
                          map.coords.begin() + axis + graph_[node.inputs[1]].shape.size());
      operand(node.inputs[1], index);
      break;
    }
    default:
      for (NodeId input : node.inputs)
        operand(input, map);
    }
  }

  std::vector<Read> found;
  double flops = 0;

  /// What was asked of the values that are stored or not, each once.
  std::vector<std::pair<NodeId, bool>> asked() const {
    std::vector<std::pair<NodeId, bool>> all;
    for (const auto& [base, map] : seen_) // sorted
      if (graph_[base].op != Op::Input && (all.empty() || all.back().first != base))
        all.emplace_back(base, stored_[base]);
    return all;
  }

private:
  void value(NodeId base, const IndexMap& map) {
    if (!seen_.insert({base, map.hash()}).second)
      return;
    if (stored_[base] || graph_[base].op == Op::Input)
      found.push_back({base, map, false});
    else
      inside(base, map);
  }

  const GraphFacts& facts_;
  const ir::Graph& graph_;
  const std::vector<bool>& stored_;
  std::set<std::pair<NodeId, std::uint64_t>> seen_;
};

/// Adds what a stored node reads and computes for the points of its frame.
void collect(ReadCollector& collector, const GraphFacts& facts, NodeId id) {
  const ir::Graph& graph = facts.graph();
  const ir::Node& node = graph[id];
  const IndexMap frame = IndexMap::identity(frame_of(graph, id));
  switch (info_of(node.op).cls) {
  case OpClass::Reduce:
  case OpClass::Scan:
  case OpClass::Sort:
    for (const NodeId operand : node.inputs)
      collector.operand(operand, frame);
    break;
  case OpClass::Scatter: {
    collector.found.push_back({facts.view(node.inputs[0]).base, frame, true});
    const std::size_t axis = node.attrs.axes[0];
    IndexMap index = frame;
    index.coords.assign(frame.coords.begin() + axis,
                        frame.coords.begin() + axis + graph[node.inputs[1]].shape.size());
    collector.operand(node.inputs[1], index);
    collector.operand(node.inputs[2], frame);
    break;
  }
  default:
    collector.inside(id, frame);
  }
}

/// What is known of the nodes where exactly these values are stored; null: nothing.
const ConeReads* known_reads(const std::deque<ConeReads>& cones, const std::vector<bool>& stored) {
  const auto is_same = [&](const ConeReads& cone) {
    return std::ranges::all_of(
        cone.stored, [&](const auto& value) { return stored[value.first] == value.second; });
  };
  const auto found = std::find_if(cones.rbegin(), cones.rend(), is_same); // the latest first
  return found == cones.rend() ? nullptr : &*found;
}

} // namespace

std::span<const Read> reads_of(const GraphFacts& facts, const std::vector<bool>& stored, NodeId id,
                               double* flops) {
  std::deque<ConeReads>& cones = facts.cones({id});
  const ConeReads* cone = known_reads(cones, stored);
  if (cone == nullptr) {
    ReadCollector collector(facts, stored);
    collect(collector, facts, id);
    cone = &cones.emplace_back(
        ConeReads{collector.asked(), std::move(collector.found), collector.flops});
  }
  if (flops != nullptr)
    *flops = cone->work;
  return cone->reads;
}

double flops_together(const GraphFacts& facts, const std::vector<bool>& stored,
                      const std::vector<NodeId>& nodes) {
  if (nodes.size() == 1) {
    double flops = 0;
    reads_of(facts, stored, nodes[0], &flops);
    return flops * elements_of(frame_of(facts.graph(), nodes[0]));
  }
  std::deque<ConeReads>& cones = facts.cones(nodes);
  if (const ConeReads* cone = known_reads(cones, stored))
    return cone->work;
  std::vector<std::pair<Shape, ReadCollector>> frames;
  for (const NodeId id : nodes) {
    const Shape& frame = frame_of(facts.graph(), id);
    auto same = std::ranges::find_if(frames, [&](const auto& f) { return f.first == frame; });
    if (same == frames.end()) {
      frames.emplace_back(frame, ReadCollector(facts, stored));
      same = frames.end() - 1;
    }
    collect(same->second, facts, id);
  }
  ConeReads together;
  for (const auto& [frame, collector] : frames) {
    together.work += collector.flops * elements_of(frame);
    const auto asked = collector.asked();
    together.stored.insert(together.stored.end(), asked.begin(), asked.end());
  }
  return cones.emplace_back(std::move(together)).work;
}

} // namespace egret::compiler
