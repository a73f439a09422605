#include "compiler/recompute_in_readers.h"

#include "compiler/inlining.h"
#include "compiler/regions.h"
#include "compiler/search/machine.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace egret::compiler {

using ir::NodeId;

namespace {

/// Partitions that are tried beside the first one.
constexpr int kMostTries = 8;

/// Of a GPU's thread that computes one point, seconds for each addition, and how many of them end
/// within a launch that does nothing else: what there are more of, a small launch takes longer,
/// however many threads there are. (On an H200 two rotations by position in each point of a
/// concatenation, 196 additions for their angles, made a launch of 1.2 us one of 3.7.)
constexpr double kThreadSeconds = 5e-9, kHiddenFlops = 100;

/// A target's figures.
struct Costs {
  Machine machine;
  double thread_seconds = 0; ///< of an addition, for the launch that waits for it
};

/// What the kernels of a partition read, write and compute.
class Traffic {
public:
  Traffic(const GraphFacts& facts, const Partition& partition, const Costs& costs)
      : facts_(facts), graph_(facts.graph()), partition_(partition), machine_(costs.machine),
        thread_seconds_(costs.thread_seconds), kept_(kept_values(facts, partition)),
        reads_(graph_.size()), flops_(graph_.size(), 0), group_of_(graph_.size(), -1) {
    for (std::size_t g = 0; g < partition.groups.size(); ++g)
      for (const Member& m : partition.groups[g].members) {
        if (!m.remade)
          group_of_[m.node] = static_cast<int>(g);
        if (reads_[m.node].empty())
          reads_[m.node] = distinct_reads(m.node);
      }
    members_.resize(partition.groups.size());
    for (std::size_t g = 0; g < partition.groups.size(); ++g) {
      members_[g] = partition.groups[g].members.size();
      for (const Member& m : partition.groups[g].members)
        for (const NodeId base : reads_[m.node])
          ++loads_[{static_cast<int>(g), base}];
    }
  }

  /// Seconds of all launches by a roofline: bytes that reach memory, and arithmetic.
  double seconds() const {
    double bytes = 0, flops = 0, of_points = 0;
    for (std::size_t g = 0; g < partition_.groups.size(); ++g) {
      double of_point = 0;
      std::vector<NodeId> nodes;
      for (const Member& m : partition_.groups[g].members) {
        nodes.push_back(m.node);
        of_point = std::max(of_point, flops_[m.node]);
        bytes += kept_[m.node] && !m.remade ? bytes_of(m.node) : 0;
      }
      flops += flops_together(facts_, partition_.stored, nodes);
      of_points += seconds_beyond(of_point);
    }
    for (const auto& [load, times] : loads_)
      if (is_far(load.first, load.second))
        bytes += bytes_of(load.second);
    return seconds_of(bytes, flops) + of_points +
           machine_.launch_seconds * static_cast<double>(partition_.groups.size());
  }

  /// The work of a point of the stored value that takes most.
  double largest() const {
    return flops_.empty() ? 0 : *std::max_element(flops_.begin(), flops_.end());
  }

  /// Values that are cheaper to recompute, each given those found before it. Readers come first.
  std::set<NodeId> cheaper_recomputed(const PartitionChoices& choices) {
    find_readers();
    std::set<NodeId> found;
    for (NodeId id = static_cast<NodeId>(graph_.size()); id-- > 0;)
      if (may_recompute(id, choices) && gain(id) > 0) {
        found.insert(id);
        recompute(id);
      }
    return found;
  }

private:
  /// By which a point of so many additions prolongs a launch.
  double seconds_beyond(double flops) const {
    return thread_seconds_ * std::max(0.0, flops - kHiddenFlops);
  }
  double points_of(NodeId id) const { return elements_of(frame_of(graph_, id)); }
  double bytes_of(NodeId id) const {
    return elements_of(graph_[id].shape) * static_cast<double>(size_of(graph_[id].dtype));
  }
  double seconds_of(double bytes, double flops) const {
    return bytes / machine_.bytes_per_second + flops / machine_.flops_per_second;
  }
  /// Whether a group reads a value from memory.
  bool is_far(int group, NodeId base) const {
    return !partition_.stored[base] || group_of_[base] != group;
  }

  std::set<NodeId> distinct_reads(NodeId id) {
    std::set<NodeId> bases;
    for (const Read& read : reads_of(facts_, partition_.stored, id, &flops_[id])) {
      bases.insert(read.base);
      ++places_[{id, read.base}];
      if (read.indirect)
        tables_.insert(read.base);
    }
    return bases;
  }

  void find_readers() {
    readers_.resize(graph_.size());
    for (std::size_t g = 0; g < partition_.groups.size(); ++g)
      for (const Member& m : partition_.groups[g].members)
        for (const NodeId base : reads_[m.node])
          if (partition_.stored[base])
            readers_[base].emplace_back(static_cast<int>(g), m.node);
    is_factor_.assign(graph_.size(), false);
    for (NodeId id = static_cast<NodeId>(graph_.size()); id-- > 0;)
      for (const Use& use : facts_.uses(id))
        is_factor_[id] = is_factor_[id] || facts_.is_product(use.reader) ||
                         (!partition_.stored[use.reader] && is_factor_[use.reader]);
  }

  bool may_recompute(NodeId id, const PartitionChoices& choices) const {
    const OpClass cls = info_of(graph_[id].op).cls;
    const bool elementwise = cls != OpClass::Source && cls != OpClass::Reduce &&
                             cls != OpClass::Scan && cls != OpClass::Sort &&
                             cls != OpClass::Scatter && graph_[id].op != Op::Input &&
                             !is_movement(graph_[id].op);
    return elementwise && partition_.stored[id] && group_of_[id] >= 0 && !facts_.is_output(id) &&
           !facts_.is_product(id) && !tables_.contains(id) && !choices.stored.contains(id) &&
           !choices.recomputed.contains(id) && // asked for, and stored all the same
           !is_factor_[id];
  }

  /// Seconds saved when readers compute the value.
  double gain(NodeId id) const {
    const int home = group_of_[id];
    const double bytes = bytes_of(id), elements = elements_of(graph_[id].shape);
    std::set<int> others;
    std::map<std::pair<int, double>, double>
        places_of;                 // by kernel and points, which compute it once
    std::map<int, double> longest; // by kernel, by how much its points take longer
    for (const auto& [group, reader] : readers_[id]) {
      const double places = places_.at({reader, id});
      if (flops_[reader] + places * flops_[id] > kLargestKernel)
        return -1;
      double& most = places_of[{group, points_of(reader)}];
      most = std::max(most, places);
      double& more = longest[group];
      more = std::max(more, seconds_beyond(flops_[reader] + places * flops_[id]) -
                                seconds_beyond(flops_[reader]));
      if (group != home)
        others.insert(group);
    }
    double points = 0;
    for (const auto& [of, places] : places_of)
      points += of.second * places;
    if (others.empty()) // it is written by nobody
      return -1;
    double saved = bytes * (1 + static_cast<double>(others.size()));
    for (const NodeId base : reads_[id]) {
      const bool alone = loads_.at({home, base}) == 1 && !reads_at_home(id);
      if (alone && is_far(home, base))
        saved += bytes_of(base);
      for (const int group : others)
        if (!loads_.contains({group, base}))
          saved -= bytes_of(base);
      if (partition_.stored[base] && !kept_[base]) // its kernel now writes it
        saved -= bytes_of(base);
    }
    const double launches = members_[static_cast<std::size_t>(home)] == 1 ? 1 : 0;
    double waits = launches > 0 ? seconds_beyond(flops_[id]) : 0;
    for (const int group : others)
      waits -= longest.at(group);
    return seconds_of(saved, flops_[id] * (elements - points)) + waits +
           launches * machine_.launch_seconds;
  }

  bool reads_at_home(NodeId id) const {
    return std::any_of(readers_[id].begin(), readers_[id].end(),
                       [&](const auto& reader) { return reader.first == group_of_[id]; });
  }

  /// Moves the value's work and reads to its readers.
  void recompute(NodeId id) {
    const int home = group_of_[id];
    --members_[static_cast<std::size_t>(home)];
    for (const NodeId base : reads_[id]) {
      if (--loads_[{home, base}] == 0)
        loads_.erase({home, base});
      for (const auto& [group, reader] : readers_[id]) {
        places_[{reader, base}] += places_.at({reader, id}) * places_.at({id, base});
        if (reads_[reader].insert(base).second) {
          ++loads_[{group, base}];
          readers_[base].emplace_back(group, reader);
        }
        kept_[base] = kept_[base] || (partition_.stored[base] && group_of_[base] != group);
      }
      std::erase(readers_[base], std::pair(home, id));
    }
    for (const auto& [group, reader] : readers_[id]) {
      flops_[reader] += places_.at({reader, id}) * flops_[id];
      reads_[reader].erase(id);
      if (const auto load = loads_.find({group, id}); load != loads_.end() && --load->second == 0)
        loads_.erase(load);
    }
  }

  const GraphFacts& facts_;
  const ir::Graph& graph_;
  const Partition& partition_;
  const Machine& machine_;
  const double thread_seconds_;
  std::vector<bool> kept_;
  std::vector<std::set<NodeId>> reads_; ///< by stored node
  /// At how many places a stored node (first) reads another.
  std::map<std::pair<NodeId, NodeId>, double> places_;
  std::vector<double> flops_;                   ///< of one point, by stored node
  std::vector<int> group_of_;                   ///< -1: not stored, or by none of its kernels
  std::vector<std::size_t> members_;            ///< by group
  std::map<std::pair<int, NodeId>, int> loads_; ///< members of a group that read a value
  std::set<NodeId> tables_;                     ///< read at places that are data
  std::vector<std::vector<std::pair<int, NodeId>>> readers_; ///< group and stored node
  std::vector<bool> is_factor_; ///< of a product, by way of values that readers compute
};

class Improver {
public:
  Improver(const GraphFacts& facts, Partition partition, const Costs& costs,
           PartitionChoices choices, const Repartition& repartition)
      : facts_(facts), costs_(costs), repartition_(repartition), partition_(std::move(partition)),
        choices_(std::move(choices)) {
    const Traffic traffic(facts, partition_, costs);
    seconds_ = traffic.seconds();
    largest_ = std::max(traffic.largest(), kLargestKernel);
  }

  Partition run() {
    for (;;) {
      const std::set<NodeId> found =
          Traffic(facts_, partition_, costs_).cheaper_recomputed(choices_);
      const std::vector<NodeId> values(found.begin(), found.end());
      if (values.empty() || !take(values))
        return std::move(partition_);
    }
  }

private:
  /// Takes the values, or of halves those that make the program faster; whether it took any.
  bool take(std::span<const NodeId> values) {
    if (tries_ >= kMostTries)
      return false;
    ++tries_;
    PartitionChoices choices = choices_;
    choices.recomputed.insert(values.begin(), values.end());
    // What readers compute now stays so: else other values of the same cones would be stored
    // instead.
    for (NodeId id = 0; id < partition_.stored.size(); ++id)
      if (!partition_.stored[id])
        choices.recomputed.insert(id);
    Partition partition = repartition_(choices);
    if (partition.stored == partition_.stored) // none of them has an effect, nor have fewer
      return false;
    const Traffic traffic(facts_, partition, costs_);
    const double seconds = traffic.seconds();
    if (seconds < seconds_ && traffic.largest() <= largest_) {
      partition_ = std::move(partition);
      choices_ = std::move(choices);
      seconds_ = seconds;
      return true;
    }
    if (values.size() == 1)
      return false;
    const bool last = take(values.subspan(values.size() / 2));
    return take(values.first(values.size() / 2)) || last;
  }

  const GraphFacts& facts_;
  const Costs& costs_;
  const Repartition& repartition_;
  Partition partition_;
  PartitionChoices choices_;
  double seconds_ = 0;
  double largest_ = 0; ///< work of a point that no kernel may exceed
  int tries_ = 0;
};

} // namespace

Partition with_recomputed_values(const GraphFacts& facts, const kernel::Target& target,
                                 const PartitionChoices& choices, const Repartition& repartition) {
  const Costs costs{usual_machine(target), target.is_gpu() ? kThreadSeconds : 0};
  return Improver(facts, repartition(choices), costs, choices, repartition).run();
}

} // namespace egret::compiler
