#include "compiler/batching.h"

#include "compiler/prepare_outputs.h"
#include "compiler/search/candidates.h"
#include "compiler/search/cost_model.h"
#include "kernel/equal_forms.h"
#include "kernel/families.h"
#include "kernel/parts.h"
#include "support/fail.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <queue>
#include <set>

namespace egret::compiler {

using ir::NodeId;

namespace {

/// A kernel is small while it takes less than so many launches that do nothing; and where there are
/// at least kMany that differ in their sizes only on a CPU, where the larger ones keep their speed.
constexpr double kSmall = 8, kSmallOfMany = 16;
constexpr std::size_t kMany = 4;
/// Parts of a batch that have codes of their own, compiled as one kernel; and forms of a larger
/// one.
constexpr std::size_t kMostParts = 16, kMostForms = 16;
/// Terms of a sum that a block adds up about as fast as several would.
constexpr double kMostTermsOfBlock = 1 << 16;
/// Operands and outputs of a launch: at the most, and dims and scalars that they leave space for.
constexpr std::size_t kMostArguments = 8192, kOtherArguments = 64;
/// Values between kernels that a batch reads or makes wait for it, or for their readers. They
/// should still be in the cache then: this share of the second level.
constexpr std::int64_t kWaitingShare = 2;

/// Batches are looked for among so many kernels that follow each other: what reaches what among
/// them takes the square of their number in bits.
constexpr std::size_t kWindow = 1024;

/// A set of the numbers below a bound, a bit for each.
class Numbers {
public:
  explicit Numbers(std::size_t bound) : words_((bound + 63) / 64, 0) {}
  bool has(std::size_t i) const { return (words_[i / 64] >> (i % 64)) & 1; }
  void add(std::size_t i) { words_[i / 64] |= std::uint64_t{1} << (i % 64); }
  void remove(std::size_t i) { words_[i / 64] &= ~(std::uint64_t{1} << (i % 64)); }
  void add(const Numbers& other) {
    for (std::size_t w = 0; w < words_.size(); ++w)
      words_[w] |= other.words_[w];
  }

private:
  std::vector<std::uint64_t> words_;
};

/// Which kernels must run before which others.
class KernelEdges {
public:
  explicit KernelEdges(std::size_t size) : next_(size) {}

  void add(std::size_t from, std::size_t to) { next_[from].insert(to); }
  std::size_t size() const { return next_.size(); }
  const std::set<std::size_t>& after(std::size_t i) const { return next_[i]; }

  /// Kernels in an order that respects all edges, ties by number.
  std::vector<std::size_t> sorted() const {
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
    return order;
  }

private:
  std::vector<std::set<std::size_t>> next_;
};

/// What reaches what by edges, while kernels are put together.
class Reach {
public:
  explicit Reach(const KernelEdges& edges) : from_(edges.size(), Numbers(edges.size())) {
    const std::vector<std::size_t> order = edges.sorted();
    for (std::size_t i = order.size(); i-- > 0;)
      for (std::size_t t : edges.after(order[i]))
        extend(order[i], t);
  }

  bool operator()(std::size_t from, std::size_t to) const { return from_[from].has(to); }

  /// `from` runs before `to` from now on, which does not reach it.
  void connect(std::size_t from, std::size_t to) {
    for (std::size_t i = 0; i < from_.size(); ++i)
      if (i == from || from_[i].has(from))
        extend(i, to);
  }

  /// `second` runs with `first` from now on, which neither reaches.
  void merge(std::size_t first, std::size_t second) {
    Numbers both = from_[first];
    both.add(from_[second]);
    both.remove(first);
    both.remove(second);
    for (std::size_t i = 0; i < from_.size(); ++i) {
      const bool own = i == first || i == second;
      if (!own && !from_[i].has(first) && !from_[i].has(second))
        continue;
      from_[i].add(both);
      if (!own) {
        from_[i].add(first);
        from_[i].add(second);
      }
    }
  }

private:
  void extend(std::size_t i, std::size_t to) {
    from_[i].add(to);
    from_[i].add(from_[to]);
  }

  std::vector<Numbers> from_;
};

class Batcher {
public:
  Batcher(const ir::Graph& graph, std::vector<BuiltRegion>& regions,
          const std::vector<OutputSpec>& outputs, const kernel::Target& target)
      : graph_(graph), regions_(regions), outputs_(outputs), target_(target),
        machine_(usual_machine(target)), joined_(regions.size()), constant_(regions.size()) {
    std::iota(joined_.begin(), joined_.end(), std::size_t{0});
    if (const auto words = static_cast<std::size_t>(target.parameter_bytes) / 8;
        words > kOtherArguments)
      most_arguments_ = std::min(kMostArguments, words - kOtherArguments);
    for (NodeId o : graph.outputs)
      results_.insert(same_memory(graph, o));
    find_constants();
  }

  void run() {
    for (std::size_t begin = 0; begin < regions_.size(); begin += kWindow)
      batch(begin, std::min(begin + kWindow, regions_.size()));
    sort();
  }

private:
  struct Batch {
    std::vector<std::size_t> members;
    std::set<std::uint64_t> forms;
    std::set<NodeId> operands, outputs;
    std::int64_t waiting_bytes = 0;
    bool share_codes = true; ///< those of one form
  };

  /// Kernels that read nothing but numbers and what such kernels store. A program runs them once
  /// and keeps what they store (runtime/constant_steps.h), but not those that share a launch with
  /// others.
  void find_constants() {
    std::set<NodeId> updated, constants; // updated: by scatters, in place
    for (const BuiltRegion& built : regions_)
      for (const kernel::Output& out : built.region.outputs)
        if (out.alias >= 0)
          updated.insert(built.operands[static_cast<std::size_t>(out.alias)]);
    for (std::size_t i = 0; i < regions_.size(); ++i) {
      const BuiltRegion& built = regions_[i];
      bool constant = std::ranges::all_of(
          built.region.axes, [](const kernel::Axis& a) { return a.extent.is_constant(); });
      for (std::size_t o = 0; o < built.operands.size() && constant; ++o)
        constant = built.region.operands[o].role == kernel::Role::Scalar ||
                   constants.contains(built.operands[o]);
      for (const NodeId node : built.outputs)
        constant = constant && !results_.contains(node) && !updated.contains(node);
      if (!constant)
        continue;
      constant_[i] = true;
      constants.insert(built.outputs.begin(), built.outputs.end());
    }
  }

  double seconds_of(std::size_t i) {
    const kernel::Region& region = regions_[i].region;
    const auto [known, fresh] = seconds_.emplace(kernel::hash_of(region), 0);
    if (fresh) {
      const kernel::Lowered part = kernel::lower_part(region, target_);
      known->second = part.ok
                          ? predict(part.program, region, target_, machine_, sizes_to_try(region)) -
                                machine_.launch_seconds
                          : std::numeric_limits<double>::infinity();
    }
    return known->second;
  }

  /// A CPU's launches cost little beside a scatter's updates.
  bool may_be_part(GroupKind kind) const {
    return kind == GroupKind::Map || kind == GroupKind::Reduce ||
           (kind == GroupKind::Scatter && target_.is_gpu());
  }

  /// Kinds that share a launch: an update of a few elements is what a map is to its block.
  static bool go_together(GroupKind a, GroupKind b) {
    return (a == GroupKind::Reduce) == (b == GroupKind::Reduce);
  }

  /// Which kernels from `begin` to `end` are small, and the forms of all. Of those of one form the
  /// larger ones take longer: not each of them has to be predicted.
  std::vector<bool> small_ones(std::size_t begin, std::size_t end) {
    std::map<std::uint64_t, std::vector<std::size_t>> forms;
    for (std::size_t i = begin; i < end; ++i)
      if (may_be_part(regions_[i].kind)) {
        form_[i] = kernel::form_hash(regions_[i].region);
        forms[form_[i]].push_back(i);
      }
    std::vector<bool> small(end - begin, false);
    for (auto& [form, equal] : forms) {
      const bool many = equal.size() >= kMany && !target_.is_gpu();
      const double bound = (many ? kSmallOfMany : kSmall) * machine_.launch_seconds;
      std::map<std::size_t, double> bytes;
      for (const std::size_t i : equal)
        bytes[i] = bytes_of(regions_[i]);
      std::stable_sort(equal.begin(), equal.end(),
                       [&](std::size_t a, std::size_t b) { return bytes[a] < bytes[b]; });
      const auto first_large =
          std::partition_point(equal.rbegin(), equal.rend(), [&](std::size_t i) {
            return seconds_of(i) >= bound;
          }).base();
      for (auto i = equal.begin(); i != first_large; ++i)
        small[*i - begin] = true;
    }
    return small;
  }

  double bytes_of(const BuiltRegion& built) const {
    double bytes = 0;
    for (const std::vector<NodeId>* list : {&built.operands, &built.outputs})
      for (NodeId node : *list)
        bytes += elements_of(graph_[node].shape) * static_cast<double>(size_of(graph_[node].dtype));
    return bytes;
  }

  /// Among the kernels from `begin` to `end`.
  void batch(std::size_t begin, std::size_t end) {
    const std::vector<bool> small = small_ones(begin, end);
    if (std::count(small.begin(), small.end(), true) < 2)
      return;
    begin_ = begin;
    const KernelEdges edges = linked(end - begin);
    reach_.emplace(edges);
    batches_.clear();
    for (const std::size_t i : edges.sorted())
      if (small[i])
        place(begin + i);
    unite();
  }

  /// Reads, and of an input that is overwritten first all who read it. Where that cannot be,
  /// because a reader needs something of the writer's, the plan writes elsewhere and copies.
  /// Kernels are numbered from the window's begin.
  KernelEdges linked(std::size_t count) const {
    KernelEdges edges(count);
    std::map<NodeId, std::size_t> writer;
    std::map<NodeId, std::vector<std::size_t>> readers;
    for (std::size_t i = 0; i < count; ++i)
      for (NodeId node : regions_[begin_ + i].outputs)
        writer[node] = i;
    for (std::size_t i = 0; i < count; ++i)
      for (NodeId node : regions_[begin_ + i].operands) {
        readers[node].push_back(i);
        if (auto w = writer.find(node); w != writer.end() && w->second != i)
          edges.add(w->second, i);
      }
    Reach reads(edges);
    for (std::size_t o = 0; o < outputs_.size(); ++o) {
      if (outputs_[o].overwritten() < 0)
        continue;
      const NodeId old = graph_.inputs()[static_cast<std::size_t>(outputs_[o].overwritten())];
      const auto w = writer.find(same_memory(graph_, graph_.outputs[o]));
      if (w == writer.end())
        continue;
      for (const std::size_t reader : readers[old])
        if (reader != w->second && !reads(w->second, reader)) {
          edges.add(reader, w->second);
          reads.connect(reader, w->second);
        }
    }
    return edges;
  }

  /// Into the first batch that takes it, or a new one.
  void place(std::size_t i) {
    for (Batch& batch : batches_)
      if (takes(batch, i)) {
        reach_->merge(batch.members.front() - begin_, i - begin_);
        add(batch, i);
        return;
      }
    add(batches_.emplace_back(), i);
  }

  bool takes(const Batch& batch, std::size_t i) const {
    const std::size_t first = batch.members.front();
    const BuiltRegion& built = regions_[i];
    if (batch.members.size() >= kMostParts &&
        !(batch.share_codes && shares_code(built) &&
          (batch.forms.size() < kMostForms || batch.forms.contains(form_.at(i)))))
      return false;
    return go_together(regions_[first].kind, built.kind) && constant_[first] == constant_[i] &&
           !(*reach_)(first - begin_, i - begin_) && !(*reach_)(i - begin_, first - begin_) &&
           batch.operands.size() + batch.outputs.size() + built.operands.size() +
                   built.outputs.size() <=
               most_arguments_ &&
           batch.waiting_bytes + waiting_bytes(built) <= target_.l2_bytes / kWaitingShare;
  }

  /// Whether it may be of many that have one code. Sizes that are known only when it runs are in no
  /// table. Of reductions the code depends on the sizes (how many threads share a row): on a GPU a
  /// block takes each row of those that are no longer than is good for one.
  bool shares_code(const BuiltRegion& built) const {
    if (!std::ranges::all_of(built.region.axes,
                             [](const kernel::Axis& a) { return a.extent.is_constant(); }))
      return false;
    if (built.kind == GroupKind::Map)
      return true;
    return built.kind == GroupKind::Reduce && target_.is_gpu() &&
           std::ranges::all_of(built.region.stages, [&](const kernel::Stage& stage) {
             double terms = 1;
             for (const int a : stage.over)
               terms *= static_cast<double>(built.region.axes[std::size_t(a)].extent.value());
             return terms <= kMostTermsOfBlock;
           });
  }

  void add(Batch& batch, std::size_t i) {
    batch.members.push_back(i);
    batch.share_codes = batch.share_codes && shares_code(regions_[i]);
    batch.forms.insert(form_.at(i));
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
      if (built.kind == GroupKind::Scatter)
        whole.kind = GroupKind::Scatter;
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
    for (const Batch& batch : batches_) {
      if (unite(batch) || batch.members.size() <= kMostParts)
        continue;
      for (std::size_t i = 0; i < batch.members.size(); i += kMostParts) { // codes of their own
        Batch some;
        for (std::size_t m = i; m < std::min(i + kMostParts, batch.members.size()); ++m)
          add(some, batch.members[m]);
        unite(some);
      }
    }
  }

  bool unite(const Batch& batch) {
    if (batch.members.size() < 2)
      return false;
    auto whole = united(batch);
    if (!whole)
      return false;
    if (!is_one_launch(whole->region))
      return false;
    for (std::size_t i : batch.members)
      joined_[i] = batch.members.front();
    regions_[batch.members.front()] = std::move(*whole);
    return true;
  }

  /// Whether a batch's own generator makes the kernel that the model likes best.
  bool is_one_launch(const kernel::Region& whole) {
    const auto [known, fresh] = one_launch_.emplace(kernel::hash_of(whole), false);
    if (fresh) {
      kernel::verify(whole);
      const kernel::Chosen chosen = kernel::lower_greedily(whole, target_);
      known->second = chosen.schedule.generator == kernel::batch_generator().name();
    }
    return known->second;
  }

  /// Leaves one region for each number in `joined_`, in an order that respects reads.
  void sort() {
    std::vector<BuiltRegion> left;
    for (std::size_t i = 0; i < regions_.size(); ++i)
      if (joined_[i] == i)
        left.push_back(std::move(regions_[i]));
    std::map<NodeId, std::size_t> writer;
    for (std::size_t i = 0; i < left.size(); ++i)
      for (NodeId node : left[i].outputs)
        writer[node] = i;
    KernelEdges edges(left.size());
    for (std::size_t i = 0; i < left.size(); ++i)
      for (NodeId node : left[i].operands)
        if (auto w = writer.find(node); w != writer.end() && w->second != i)
          edges.add(w->second, i);
    regions_.clear();
    for (std::size_t i : edges.sorted())
      regions_.push_back(std::move(left[i]));
  }

  const ir::Graph& graph_;
  std::vector<BuiltRegion>& regions_;
  const std::vector<OutputSpec>& outputs_;
  const kernel::Target& target_;
  const Machine machine_;
  std::size_t begin_ = 0;                       ///< of the window at hand
  std::optional<Reach> reach_;                  ///< in the window, numbered from its begin
  std::vector<std::size_t> joined_;             ///< by region: the one that it went into
  std::vector<bool> constant_;                  ///< by region
  std::set<NodeId> results_;                    ///< of the graph
  std::map<std::uint64_t, double> seconds_;     ///< of a part, by its region's hash
  std::map<std::uint64_t, bool> one_launch_;    ///< by hash, as the steps of a loop are alike
  std::map<std::size_t, std::uint64_t> form_;   ///< of regions that may be parts
  std::size_t most_arguments_ = kMostArguments; ///< of a launch
  std::vector<Batch> batches_;                  ///< of the window at hand
};

} // namespace

void batch_small_kernels(const ir::Graph& graph, std::vector<BuiltRegion>& regions,
                         const std::vector<OutputSpec>& outputs, const kernel::Target& target) {
  Batcher(graph, regions, outputs, target).run();
}

} // namespace egret::compiler
