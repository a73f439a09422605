#include "compiler/partition.h"

#include "compiler/chunks.h"
#include "compiler/inlining.h"
#include "compiler/join.h"
#include "compiler/streaming.h"
#include "support/fail.h"
#include "support/hash.h"

#include <algorithm>
#include <list>
#include <map>
#include <queue>
#include <set>

namespace egret::compiler {

using ir::NodeId;

namespace {

constexpr int kNone = -1;
/// Of kernels that read the same array: values that one of them stores at most, and how many others
/// in a row one is tried with in vain.
constexpr std::size_t kMostSiblings = 16;
constexpr int kSiblingTries = 64;
/// Kernels that a search for a path between two visits at most; beyond, there may be one.
constexpr std::size_t kMostVisits = 4096;

class Partitioner {
public:
  Partitioner(const GraphFacts& facts, bool fuse, const StreamingRules* streams,
              const PartitionChoices& choices)
      : facts_(facts), graph_(facts.graph()), fuse_(fuse), streams_(streams), choices_(choices) {}

  Partition run() {
    stored_ = choose_stored(facts_, fuse_, choices_);
    reads_.resize(graph_.size());
    readers_.resize(graph_.size());
    group_of_.assign(graph_.size(), kNone);
    remade_.assign(graph_.size(), false);
    if (fuse_ && streams_ != nullptr)
      take_streams();
    for (NodeId id = 0; id < graph_.size(); ++id) {
      if (!stored_[id])
        continue;
      double flops = 0;
      reads_[id] = reads_of(facts_, stored_, id, &flops);
      if (!remade_[id])
        add_reader(id, id);
      if (remade_[id] || group_of_[id] != kNone)
        continue;
      group_of_[id] = static_cast<int>(groups_.size());
      groups_.push_back(group_of_one(facts_, id));
      groups_.back().flops = flops;
    }
    alive_.assign(groups_.size(), true);
    rank_groups();
    if (fuse_) {
      // A contraction's epilogue saves the most, so it chooses first.
      sweep([](const Group& producer) { return producer.kind == GroupKind::Contraction; });
      while (sweep([](const Group&) { return true; })) {
      }
      if (choices_.siblings)
        join_siblings();
    }
    return finish();
  }

private:
  void take_streams() {
    groups_ = find_streaming_groups(facts_, *streams_, stored_);
    for (std::size_t g = 0; g < groups_.size(); ++g)
      for (const Member& m : groups_[g].members) {
        if (m.remade)
          remade_[m.node] = true;
        else
          group_of_[m.node] = static_cast<int>(g);
      }
  }

  /// Notes what `node` reads as read by `reader`, looking through values that are remade.
  void add_reader(NodeId node, NodeId reader) {
    for (const Read& read : reads_[node])
      if (remade_[read.base])
        add_reader(read.base, reader);
      else
        readers_[read.base].push_back(reader);
  }

  bool depends_directly(int later, int earlier) const {
    for (const Member& m : groups_[later].members)
      for (const Read& read : reads_[m.node])
        if (stored_[read.base] && group_of_[read.base] == earlier)
          return true;
    return false;
  }

  std::set<int> consumers_of(int g) const {
    std::set<int> result;
    for (const Member& m : groups_[g].members)
      for (NodeId reader : readers_[m.node]) // of what is remade there are none
        if (group_of_[reader] != g)
          result.insert(group_of_[reader]);
    return result;
  }

  /// Is there a path from `from` to `to` that is longer than the direct read?
  bool reaches_around(int from, int to) const {
    // Marks instead of a set for each group: of a long loop, paths visit thousands of groups.
    if (visited_.size() < groups_.size())
      visited_.resize(groups_.size(), 0);
    const int visit = ++visits_;
    std::size_t seen = 0;
    std::vector<int> work;
    bool found = false; // a read of `to` by way of others
    const auto follow = [&](int g) {
      for (const Member& m : groups_[g].members)
        for (NodeId reader : readers_[m.node]) {
          const int next = group_of_[reader];
          if (next == to)
            found = found || g != from;
          else if (next != g && rank_[next] < rank_[to] && visited_[next] != visit) {
            visited_[next] = visit;
            ++seen;
            work.push_back(next);
          }
        }
    };
    follow(from);
    while (!work.empty() && !found) {
      if (seen > kMostVisits)
        return true;
      const int g = work.back();
      work.pop_back();
      follow(g);
    }
    return found;
  }

  /// Numbers all groups so that reads go from smaller to larger; ties go by the earliest node.
  void rank_groups() {
    rank_.assign(groups_.size(), 0);
    std::vector<std::set<int>> next(groups_.size());
    std::vector<int> waiting(groups_.size(), 0);
    for (std::size_t g = 0; g < groups_.size(); ++g)
      if (alive_[g]) {
        next[g] = consumers_of(static_cast<int>(g));
        for (int c : next[g])
          ++waiting[c];
      }
    auto later = [&](int a, int b) {
      return groups_[a].members[0].node > groups_[b].members[0].node;
    };
    std::priority_queue<int, std::vector<int>, decltype(later)> ready(later);
    std::size_t alive = 0;
    for (std::size_t g = 0; g < groups_.size(); ++g)
      if (alive_[g]) {
        ++alive;
        if (waiting[g] == 0)
          ready.push(static_cast<int>(g));
      }
    order_.clear();
    while (!ready.empty()) {
      const int g = ready.top();
      ready.pop();
      rank_[g] = static_cast<int>(order_.size());
      order_.push_back(g);
      for (int c : next[g])
        if (--waiting[c] == 0)
          ready.push(c);
    }
    ensure(order_.size() == alive, "partition: kernels read each other in a cycle");
  }

  void replace(int first, int second, Group joined) {
    std::stable_sort(joined.members.begin(), joined.members.end(),
                     [](const Member& a, const Member& b) { return a.node < b.node; });
    for (const Member& m : joined.members)
      group_of_[m.node] = first;
    groups_[first] = std::move(joined);
    groups_[second] = Group{};
    alive_[second] = false;
    close_ranks(first, second);
  }

  /// Orders the groups again after `second` went into `first`. Only ranks between the two change:
  /// what reads `first` goes behind it, in the order it had; the rest, among which are those that
  /// feed `second`, stays before it.
  void close_ranks(int first, int second) {
    const int begin = rank_[first], end = rank_[second];
    ensure(begin < end, "partition: a kernel of rank {} joined one of rank {}", begin, end);
    std::set<int> behind;
    std::vector<int> before, after;
    for (int r = begin; r <= end; ++r) {
      const int g = order_[r];
      if (g == kNone || g == second)
        continue;
      if (g != first && !behind.contains(g)) {
        before.push_back(g);
        continue;
      }
      if (g != first)
        after.push_back(g);
      for (int c : consumers_of(g))
        if (c != first && rank_[c] <= end)
          behind.insert(c);
    }
    before.push_back(first);
    before.insert(before.end(), after.begin(), after.end());
    for (int r = begin; r <= end; ++r) {
      const auto i = static_cast<std::size_t>(r - begin);
      order_[r] = i < before.size() ? before[i] : kNone;
      if (i < before.size())
        rank_[before[i]] = r;
    }
  }

  void remember_refusal(int producer, int consumer, const std::string& why) {
    refused_[{groups_[producer].members.back().node, groups_[consumer].members.front().node}] = why;
  }

  /// Whether the choices keep a value of one group from sharing a kernel with one of the other.
  bool kept_apart(const Group& a, const Group& b) const {
    const auto chunk = [&](const Member& m) {
      return choices_.chunks.empty() ? 0 : choices_.chunks[m.node];
    };
    if (choices_.apart.empty() && choices_.chunks.empty())
      return false;
    for (const Member& x : a.members)
      for (const Member& y : b.members)
        if (choices_.apart.contains(std::minmax(x.node, y.node)) || are_apart(chunk(x), chunk(y)))
          return true;
    return false;
  }

  bool may_slice(const Group& g) const {
    return choices_.slices &&
           std::none_of(g.members.begin(), g.members.end(),
                        [&](const Member& m) { return choices_.unsliced.contains(m.node); });
  }

  bool try_join(int producer, int consumer) {
    if (kept_apart(groups_[producer], groups_[consumer])) {
      remember_refusal(producer, consumer,
                       choices_.chunks.empty() ? "the search found them faster apart"
                                               : "they are of different chunks");
      return false;
    }
    Joined joined = join(facts_, reads_, groups_[producer], groups_[consumer], choices_.columns,
                         may_slice(groups_[producer]));
    if (!joined.ok) {
      remember_refusal(producer, consumer, joined.why);
      return false;
    }
    if (is_for_a_later_product(producer, consumer)) {
      remember_refusal(producer, consumer, "a later product takes it along");
      return false;
    }
    if (reaches_around(producer, consumer)) {
      remember_refusal(producer, consumer,
                       "another kernel between them reads the first and feeds the second");
      return false;
    }
    replace(producer, consumer, std::move(joined.group));
    return true;
  }

  /// Of several products whose slices a kernel reads, the last one takes it along: the others may
  /// be made long before, as those of a recurrent net's inputs are.
  bool is_for_a_later_product(int producer, int consumer) const {
    if (groups_[producer].kind != GroupKind::Contraction ||
        groups_[consumer].kind != GroupKind::Map)
      return false;
    std::set<int> products;
    for (const Member& m : groups_[consumer].members)
      for (const Read& read : reads_[m.node])
        if (const int g = group_of_[read.base]; g != kNone && g != consumer &&
                                                groups_[g].kind == GroupKind::Contraction &&
                                                rank_[g] > rank_[producer])
          products.insert(g);
    return std::any_of(products.begin(), products.end(), [&](int g) {
      return !kept_apart(groups_[g], groups_[consumer]) &&
             join(facts_, reads_, groups_[g], groups_[consumer], choices_.columns,
                  may_slice(groups_[g]))
                 .ok;
    });
  }

  template <class Wanted>
  bool sweep(Wanted wanted) {
    bool any = false;
    for (std::size_t at = 0; at < order_.size();) {
      const int g = order_[at];
      if (g == kNone || !wanted(groups_[g])) {
        ++at;
        continue;
      }
      for (bool again = true; again;) {
        again = false;
        std::vector<int> consumers;
        for (int c : consumers_of(g))
          consumers.push_back(c);
        std::sort(consumers.begin(), consumers.end(),
                  [&](int a, int b) { return rank_[a] < rank_[b]; });
        for (int c : consumers)
          if (try_join(g, c)) {
            any = again = true;
            break;
          }
      }
      if (rank_[g] == static_cast<int>(at)) // else it moved back, and another stands here
        ++at;
    }
    return any;
  }

  /// Kernels of one form that read the same large array over the same loops become one.
  void join_siblings() {
    for (NodeId base = 0; base < graph_.size(); ++base) {
      if (!stored_[base] && graph_[base].op != Op::Input)
        continue;
      if (elements_of(graph_[base].shape) < 4096)
        continue;
      std::set<int> reading;
      for (NodeId reader : readers_[base])
        reading.insert(group_of_[reader]);
      std::vector<std::list<int>>
          families; // groups that look alike, in the order of the first ones
      std::map<std::uint64_t, std::size_t> family_of;
      for (int g : reading) {
        const auto [it, fresh] = family_of.emplace(likeness(groups_[g], base), families.size());
        if (fresh)
          families.emplace_back();
        families[it->second].push_back(g);
      }
      for (std::list<int>& family : families)
        join_family(family);
    }
  }

  /// Each with as many of those after it as fit, of which a few are tried.
  void join_family(std::list<int>& family) {
    for (auto i = family.begin(); i != family.end(); ++i) {
      int tries = 0;
      for (auto j = std::next(i); j != family.end() && ++tries <= kSiblingTries;) {
        if (groups_[*i].members.size() + groups_[*j].members.size() > kMostSiblings ||
            !join_pair(*i, *j)) {
          ++j;
          continue;
        }
        if (!alive_[*i])
          *i = *j;
        j = family.erase(j);
        tries = 0;
      }
    }
  }

  bool join_pair(int a, int b) {
    if (rank_[a] > rank_[b])
      std::swap(a, b);
    const Group &x = groups_[a], &y = groups_[b];
    if ((x.kind != GroupKind::Map && x.kind != GroupKind::Reduce) || kept_apart(x, y) ||
        x.flops + y.flops > kLargestKernel || depends_directly(b, a) || reaches_around(a, b))
      return false;
    Group both = x;
    both.members.insert(both.members.end(), y.members.begin(), y.members.end());
    both.flops += y.flops;
    replace(a, b, std::move(both));
    return true;
  }

  /// Of groups that may be siblings: their form, their loops and how they read `base`.
  std::uint64_t likeness(const Group& g, NodeId base) const {
    std::uint64_t h = combine(static_cast<std::uint64_t>(g.kind), g.axes.size());
    for (std::size_t i = 0; i < g.axes.size(); ++i)
      h = combine(combine(h, g.axes[i].hash()), g.reduced[i]);
    for (const std::uint64_t read : reads_alike(g, base))
      h = combine(h, read);
    return h;
  }

  /// How a group reads `base`: the hash of its maps with its own axes as variables.
  std::set<std::uint64_t> reads_alike(const Group& g, NodeId base) const {
    std::set<std::uint64_t> result;
    for (const Member& m : g.members)
      for (const Read& read : reads_[m.node])
        if (read.base == base && !read.indirect) {
          std::vector<Expr> values;
          for (int axis : m.frame)
            values.push_back(axis < 0 ? Expr(0) : Expr::axis(axis, g.axes[axis]));
          result.insert(rebase(read.map, values, g.axes).hash());
        }
    return result;
  }

  Partition finish() {
    rank_groups();
    Partition result;
    result.stored = stored_;
    for (int g : order_)
      result.groups.push_back(std::move(groups_[g]));
    for (const auto& [pair, why] : refused_)
      if (group_of_[pair.first] != group_of_[pair.second])
        result.unfused.push_back({pair.first, pair.second, why});
    return result;
  }

  const GraphFacts& facts_;
  const ir::Graph& graph_;
  const bool fuse_;
  const StreamingRules* streams_; ///< null: none
  const PartitionChoices& choices_;
  std::vector<bool> stored_, remade_;
  std::vector<std::span<const Read>> reads_;
  std::vector<std::vector<NodeId>> readers_;
  std::vector<int> group_of_, rank_;
  std::vector<int> order_; ///< by rank; kNone where a group went into another
  std::vector<Group> groups_;
  std::vector<bool> alive_;
  mutable std::vector<int> visited_; ///< by group: the last search for a path that came by
  mutable int visits_ = 0;           ///< searches for a path
  std::map<std::pair<NodeId, NodeId>, std::string> refused_;
};

} // namespace

Partition partition_greedily(const GraphFacts& facts, bool fuse, const StreamingRules* streams,
                             const PartitionChoices& choices) {
  return Partitioner(facts, fuse, streams, choices).run();
}

} // namespace egret::compiler
