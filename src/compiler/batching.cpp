#include "compiler/batching.h"

#include "compiler/prepare_outputs.h"
#include "compiler/search/candidates.h"
#include "compiler/search/cost_model.h"
#include "kernel/families.h"
#include "kernel/parts.h"
#include "support/fail.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <queue>
#include <set>

namespace egret::compiler {

using ir::NodeId;

namespace {

/// A kernel is small while it takes less than so many launches that do nothing.
constexpr double kSmall = 8;
/// Parts of a batch, whose code is compiled as one; and operands and outputs of a launch.
constexpr std::size_t kMostParts = 16, kMostArguments = 400;
/// Values between kernels that a batch reads or makes wait for it, or for their readers. They
/// should still be in the cache then: this share of the second level.
constexpr std::int64_t kWaitingShare = 2;

/// Which kernels must run before which others, while kernels are put together.
class Order {
public:
  explicit Order(std::size_t size) : next_(size), reach_(size, std::vector<bool>(size, false)) {}

  void add(std::size_t from, std::size_t to) { next_[from].insert(to); }

  /// Kernels in an order that respects all edges, ties by number; sets what reaches what.
  std::vector<std::size_t> close() {
    std::vector<int> waiting(next_.size(), 0);
    for (const auto& targets : next_)
      for (std::size_t t : targets)
        ++waiting[t];
    std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
    for (std::size_t i = 0; i < next_.size(); ++i)
      if (waiting[i] == 0)
        ready.push(i);
    std::vector<std::size_t> order;
    while (!ready.empty()) {
      order.push_back(ready.top());
      ready.pop();
      for (std::size_t t : next_[order.back()])
        if (--waiting[t] == 0)
          ready.push(t);
    }
    ensure(order.size() == next_.size(), "batching: kernels wait for each other in a cycle");
    for (std::size_t i = order.size(); i-- > 0;)
      for (std::size_t t : next_[order[i]])
        join(reach_[order[i]], t);
    return order;
  }

  bool reaches(std::size_t from, std::size_t to) const { return reach_[from][to]; }

  /// `from` runs before `to` from now on, which does not reach it.
  void connect(std::size_t from, std::size_t to) {
    for (std::size_t i = 0; i < reach_.size(); ++i)
      if (i == from || reach_[i][from])
        join(reach_[i], to);
  }

  /// `second` runs with `first` from now on, which neither reaches.
  void merge(std::size_t first, std::size_t second) {
    for (std::size_t i = 0; i < reach_.size(); ++i)
      if (i == first || i == second || reach_[i][first] || reach_[i][second]) {
        if (i != first && i != second)
          reach_[i][first] = reach_[i][second] = true;
        join(reach_[i], first, second);
      }
  }

private:
  void join(std::vector<bool>& set, std::size_t with) {
    set[with] = true;
    for (std::size_t i = 0; i < set.size(); ++i)
      set[i] = set[i] || reach_[with][i];
  }
  void join(std::vector<bool>& set, std::size_t a, std::size_t b) {
    for (std::size_t i = 0; i < set.size(); ++i)
      set[i] = set[i] || ((reach_[a][i] || reach_[b][i]) && i != a && i != b);
  }

  std::vector<std::set<std::size_t>> next_;
  std::vector<std::vector<bool>> reach_;
};

class Batcher {
public:
  Batcher(const ir::Graph& graph, std::vector<BuiltRegion>& regions,
          const std::vector<OutputSpec>& outputs, const kernel::Target& target)
      : graph_(graph), regions_(regions), outputs_(outputs), target_(target),
        machine_(usual_machine(target)), order_(regions.size()) {
    for (NodeId o : graph.outputs)
      results_.insert(same_memory(graph, o));
  }

  void run() {
    std::vector<bool> small(regions_.size());
    for (std::size_t i = 0; i < regions_.size(); ++i)
      small[i] = is_small(regions_[i]);
    if (std::count(small.begin(), small.end(), true) < 2)
      return;
    link();
    for (std::size_t i : order_.close())
      if (small[i])
        place(i);
    unite();
  }

private:
  struct Batch {
    std::vector<std::size_t> members;
    std::set<NodeId> operands, outputs;
    std::int64_t waiting_bytes = 0;
  };

  bool is_small(const BuiltRegion& built) {
    if (built.kind != GroupKind::Map && built.kind != GroupKind::Reduce)
      return false;
    const auto [known, fresh] = small_.emplace(kernel::hash_of(built.region), false);
    if (fresh) {
      const kernel::Lowered part = kernel::lower_part(built.region, target_);
      known->second = part.ok && predict(part.program, built.region, target_, machine_,
                                         sizes_to_try(built.region)) -
                                         machine_.launch_seconds <
                                     kSmall * machine_.launch_seconds;
    }
    return known->second;
  }

  /// Reads, and of a state first all who read what is overwritten. Where that cannot be, because a
  /// reader needs something of the writer's, the plan writes elsewhere and copies.
  void link() {
    std::map<NodeId, std::size_t> writer;
    for (std::size_t i = 0; i < regions_.size(); ++i)
      for (NodeId node : regions_[i].outputs)
        writer[node] = i;
    for (std::size_t i = 0; i < regions_.size(); ++i)
      for (NodeId node : regions_[i].operands)
        if (auto w = writer.find(node); w != writer.end() && w->second != i)
          order_.add(w->second, i);
    Order reads = order_;
    reads.close();
    std::vector<std::pair<std::size_t, std::size_t>> before;
    for (std::size_t o = 0; o < outputs_.size(); ++o) {
      if (outputs_[o].state_input < 0)
        continue;
      const NodeId old = graph_.inputs()[static_cast<std::size_t>(outputs_[o].state_input)];
      const std::size_t w = writer.at(same_memory(graph_, graph_.outputs[o]));
      for (std::size_t i = 0; i < regions_.size(); ++i)
        if (i != w && contains(regions_[i].operands, old))
          before.emplace_back(i, w);
    }
    for (const auto& [reader, w] : before)
      if (!reads.reaches(w, reader)) {
        order_.add(reader, w);
        reads.connect(reader, w);
      }
  }

  static bool contains(const std::vector<NodeId>& list, NodeId node) {
    return std::find(list.begin(), list.end(), node) != list.end();
  }

  /// Into the first batch that takes it, or a new one.
  void place(std::size_t i) {
    for (Batch& batch : batches_)
      if (takes(batch, i)) {
        order_.merge(batch.members.front(), i);
        add(batch, i);
        return;
      }
    add(batches_.emplace_back(), i);
  }

  bool takes(const Batch& batch, std::size_t i) const {
    const std::size_t first = batch.members.front();
    const BuiltRegion& built = regions_[i];
    return batch.members.size() < kMostParts && regions_[first].kind == built.kind &&
           !order_.reaches(first, i) && !order_.reaches(i, first) &&
           batch.operands.size() + batch.outputs.size() + built.operands.size() +
                   built.outputs.size() <=
               kMostArguments &&
           batch.waiting_bytes + waiting_bytes(built) <= target_.l2_bytes / kWaitingShare;
  }

  void add(Batch& batch, std::size_t i) {
    batch.members.push_back(i);
    batch.operands.insert(regions_[i].operands.begin(), regions_[i].operands.end());
    batch.outputs.insert(regions_[i].outputs.begin(), regions_[i].outputs.end());
    batch.waiting_bytes += waiting_bytes(regions_[i]);
  }

  /// Of what lies in the plan's own memory.
  std::int64_t waiting_bytes(const BuiltRegion& built) const {
    double bytes = 0;
    auto count = [&](NodeId node) {
      bytes += elements_of(graph_[node].shape) * static_cast<double>(size_of(graph_[node].dtype));
    };
    for (NodeId node : built.operands)
      if (graph_[node].op != Op::Input)
        count(node);
    for (NodeId node : built.outputs)
      if (!results_.contains(node))
        count(node);
    return static_cast<std::int64_t>(std::min(bytes, 1e15));
  }

  /// The batch as one region; nothing where parts see an operand in different ways.
  std::optional<BuiltRegion> united(const Batch& batch) const {
    BuiltRegion whole;
    whole.kind = regions_[batch.members.front()].kind;
    for (std::size_t i : batch.members) {
      const BuiltRegion& built = regions_[i];
      std::vector<int> operands;
      for (std::size_t o = 0; o < built.operands.size(); ++o) {
        const auto at = std::find(whole.operands.begin(), whole.operands.end(), built.operands[o]);
        const kernel::Operand& operand = built.region.operands[o];
        operands.push_back(static_cast<int>(at - whole.operands.begin()));
        if (at == whole.operands.end()) {
          whole.operands.push_back(built.operands[o]);
          whole.region.operands.push_back(operand);
          continue;
        }
        const kernel::Operand& known =
            whole.region.operands[static_cast<std::size_t>(operands.back())];
        if (!(known.shape == operand.shape) || !(known.layout == operand.layout) ||
            known.alignment != operand.alignment)
          return std::nullopt;
      }
      kernel::add_part(whole.region, built.region, operands);
      whole.outputs.insert(whole.outputs.end(), built.outputs.begin(), built.outputs.end());
    }
    whole.region.name = fmt::format("batch_of_{}_{}", batch.members.size(),
                                    regions_[batch.members.front()].region.name);
    return whole;
  }

  void unite() {
    std::vector<std::size_t> joined(regions_.size());
    for (std::size_t i = 0; i < regions_.size(); ++i)
      joined[i] = i;
    for (const Batch& batch : batches_) {
      if (batch.members.size() < 2)
        continue;
      auto whole = united(batch);
      if (!whole)
        continue;
      kernel::verify(whole->region);
      const kernel::Chosen chosen = kernel::lower_greedily(whole->region, target_);
      if (chosen.schedule.generator != kernel::batch_generator().name())
        continue;
      for (std::size_t i : batch.members)
        joined[i] = batch.members.front();
      regions_[batch.members.front()] = std::move(*whole);
    }
    sort(joined);
  }

  /// Leaves one region for each number in `joined`, in an order that respects reads.
  void sort(const std::vector<std::size_t>& joined) {
    std::vector<BuiltRegion> left;
    for (std::size_t i = 0; i < regions_.size(); ++i)
      if (joined[i] == i)
        left.push_back(std::move(regions_[i]));
    std::map<NodeId, std::size_t> writer;
    for (std::size_t i = 0; i < left.size(); ++i)
      for (NodeId node : left[i].outputs)
        writer[node] = i;
    Order order(left.size());
    for (std::size_t i = 0; i < left.size(); ++i)
      for (NodeId node : left[i].operands)
        if (auto w = writer.find(node); w != writer.end() && w->second != i)
          order.add(w->second, i);
    regions_.clear();
    for (std::size_t i : order.close())
      regions_.push_back(std::move(left[i]));
  }

  const ir::Graph& graph_;
  std::vector<BuiltRegion>& regions_;
  const std::vector<OutputSpec>& outputs_;
  const kernel::Target& target_;
  const Machine machine_;
  Order order_;
  std::set<NodeId> results_;            ///< of the graph
  std::map<std::uint64_t, bool> small_; ///< by region
  std::vector<Batch> batches_;
};

} // namespace

void batch_small_kernels(const ir::Graph& graph, std::vector<BuiltRegion>& regions,
                         const std::vector<OutputSpec>& outputs, const kernel::Target& target) {
  Batcher(graph, regions, outputs, target).run();
}

} // namespace egret::compiler
