// An order is walked with so many bytes at hand. Where they do not suffice, the value leaves whose
// bytes for the time until it is needed are worth most for what making it again costs (a walk with
// eviction, as Kirisame et al. 2021, "Dynamic Tensor Rematerialization", but with the future
// known). A value that is needed and not there is recomputed, and before it its operands.
#include "compiler/recompute.h"

#include "support/fail.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace egret::compiler {

namespace {

constexpr int kNever = std::numeric_limits<int>::max();
constexpr double kCannot = std::numeric_limits<double>::infinity();
/// Launches of a sequence, in multiples of those of the graph: a walk that needs more gives up.
constexpr std::size_t kMostLaunches = 6;

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

class Walk {
public:
  /// `patience`: the power of the time until a value is needed in what its leaving is worth.
  Walk(const LaunchGraph& graph, const Sequence& order, std::int64_t budget, double patience)
      : graph_(graph), order_(order), budget_(budget), patience_(patience),
        uses_(graph.values.size()), next_(graph.values.size(), 0),
        ends_(graph.launches.size(), kNever), done_(graph.launches.size(), false),
        there_(graph.values.size(), false), pins_(graph.values.size(), 0),
        need_(graph.values.size(), kNever), seen_(graph.values.size(), 0) {
    for (std::size_t i = 0; i < order.size(); ++i) {
      const auto& launch = graph.launches[at(order[i])];
      for (const int v : launch.reads)
        uses_[at(v)].push_back(static_cast<int>(i));
      for (const int reader : launch.after)
        ends_[at(reader)] = std::min(ends_[at(reader)], static_cast<int>(i));
    }
    // What a launch needs of others must be there to be made, too.
    for (const int k : order)
      for (const int v : graph.launches[at(k)].reads)
        if (const int writer = graph.values[at(v)].writer; graph.launches[at(writer)].again)
          ends_[at(k)] = std::min(ends_[at(k)], ends_[at(writer)]);
  }

  /// Nothing: so few bytes do not suffice.
  std::optional<Sequence> run() {
    for (now_ = 0; at(now_) < order_.size(); ++now_)
      if (!launch(order_[at(now_)], true))
        return std::nullopt;
    return std::move(sequence_);
  }

private:
  std::int64_t bytes(int v) const { return graph_.values[at(v)].bytes; }

  /// In the order for the first time, or again.
  bool launch(int k, bool first) {
    if (sequence_.size() >= kMostLaunches * graph_.launches.size() + 64)
      return false;
    const auto& launched = graph_.launches[at(k)];
    std::vector<int> pinned;
    const auto pin = [&](int v) {
      ++pins_[at(v)];
      pinned.push_back(v);
    };
    const auto finish = [&](bool well) {
      for (const int v : pinned)
        --pins_[at(v)];
      return well;
    };
    std::vector<int> missing;
    for (const int v : launched.reads)
      if (there_[at(v)])
        pin(v);
      else
        missing.push_back(v);
    for (const int v : missing) {
      const int writer = graph_.values[at(v)].writer;
      const bool can = graph_.launches[at(writer)].again && now_ < ends_[at(writer)];
      if (!there_[at(v)] && !(can && launch(writer, false)))
        return finish(false);
      pin(v);
    }
    if (first) {
      done_[at(k)] = true;
      for (const int v : launched.reads)
        ++next_[at(v)];
    }
    std::vector<bool> fresh;
    for (const int v : launched.writes) {
      fresh.push_back(!there_[at(v)]);
      if (fresh.back())
        used_ += bytes(v);
      there_[at(v)] = true;
      pin(v);
    }
    if (!launched.may_take.empty()) {
      find_needs();
      take_over(launched, fresh);
    }
    std::int64_t working = 0;
    for (const std::int64_t workspace : launched.workspaces)
      working += workspace;
    if (!make_room(budget_ - working))
      return finish(false);
    sequence_.push_back(k);
    return finish(true);
  }

  /// Memory of what is not read any more goes to what is made of it.
  void take_over(const LaunchGraph::Launch& launched, std::vector<bool> fresh) {
    for (const auto& [write, read] : launched.may_take)
      if (fresh[at(write)] && there_[at(read)] && pins_[at(read)] == 1 &&
          need_[at(read)] == kNever) {
        fresh[at(write)] = false;
        leave(read);
      }
  }

  void leave(int v) {
    there_[at(v)] = false;
    used_ -= bytes(v);
  }

  /// When each value is needed next: by a launch of the order, or to make what has left.
  void find_needs() {
    for (std::size_t v = 0; v < need_.size(); ++v)
      need_[v] = at(next_[v]) < uses_[v].size() ? uses_[v][at(next_[v])] : kNever;
    for (std::size_t i = order_.size(); i-- > 0;) {
      if (!done_[at(order_[i])])
        continue;
      const auto& launch = graph_.launches[at(order_[i])];
      int soonest = kNever;
      for (const int v : launch.writes)
        if (!there_[at(v)])
          soonest = std::min(soonest, need_[at(v)]);
      for (const int v : launch.reads)
        need_[at(v)] = std::min(need_[at(v)], soonest);
    }
  }

  /// Seconds to make a value again; kCannot when that is not possible.
  double cost(int v) {
    if (seen_[at(v)] == stamp_)
      return 0;
    seen_[at(v)] = stamp_;
    const auto& launch = graph_.launches[at(graph_.values[at(v)].writer)];
    if (!launch.again)
      return kCannot;
    double seconds = launch.seconds;
    for (const int u : launch.reads)
      if (!there_[at(u)])
        seconds += cost(u);
    return seconds;
  }

  bool make_room(std::int64_t room) {
    if (used_ <= room)
      return true;
    find_needs();
    for (std::size_t v = 0; v < there_.size(); ++v)
      if (there_[v] && pins_[v] == 0 && need_[v] == kNever)
        leave(static_cast<int>(v));
    while (used_ > room) {
      int best = -1;
      double least = kCannot;
      for (std::size_t i = 0; i < there_.size(); ++i) {
        const int v = static_cast<int>(i);
        if (!there_[i] || pins_[i] > 0 || bytes(v) == 0 ||
            need_[i] >= ends_[at(graph_.values[i].writer)])
          continue;
        ++stamp_;
        const double worth =
            static_cast<double>(bytes(v)) * std::pow(1.0 + need_[i] - now_, patience_);
        if (const double c = cost(v) / worth; c < least) {
          least = c;
          best = v;
        }
      }
      if (best < 0)
        return false;
      leave(best);
      need_before(best, need_[at(best)]);
    }
    return true;
  }

  /// What has left will be needed at `when`, and so what it is made of.
  void need_before(int v, int when) {
    for (const int u : graph_.launches[at(graph_.values[at(v)].writer)].reads)
      if (when < need_[at(u)]) {
        need_[at(u)] = when;
        if (!there_[at(u)])
          need_before(u, when);
      }
  }

  const LaunchGraph& graph_;
  const Sequence& order_;
  const std::int64_t budget_;
  const double patience_;
  std::vector<std::vector<int>> uses_; ///< of each value, places in the order
  std::vector<int> next_;              ///< of each value, the use that comes next
  /// Of each launch, the place in the order from which on it cannot run again: what it or something
  /// before it reads is overwritten there.
  std::vector<int> ends_;
  std::vector<bool> done_;  ///< by launch
  std::vector<bool> there_; ///< by value
  std::vector<int> pins_;   ///< by value: launches in the making that need it
  std::vector<int> need_;   ///< by value, see find_needs()
  std::vector<std::uint64_t> seen_;
  std::uint64_t stamp_ = 0;
  std::int64_t used_ = 0;
  int now_ = 0;
  Sequence sequence_;
};

Scheduled placed(const LaunchGraph& graph, Sequence sequence,
                 const std::vector<std::pair<int, int>>& apart = {}) {
  Scheduled result{std::move(sequence), {}, 0};
  result.lives = lives_of(graph, result.sequence);
  for (const auto& [first, last] : apart)
    for (ArenaBlock& block : result.lives.blocks)
      if (block.first <= last && block.last >= first) {
        block.first = std::min(block.first, first);
        block.last = std::max(block.last, last);
      }
  result.arena = assign_offsets(result.lives.blocks);
  return result;
}

/// Without the launches again that need not be, the dearest first: what they made stays alive.
Sequence pruned(const LaunchGraph& graph, Sequence sequence, std::int64_t peak) {
  std::vector<std::size_t> again;
  std::vector<bool> seen(graph.launches.size(), false);
  for (std::size_t i = 0; i < sequence.size(); ++i)
    if (const auto k = at(sequence[i]); seen[k])
      again.push_back(i);
    else
      seen[k] = true;
  std::stable_sort(again.begin(), again.end(), [&](std::size_t a, std::size_t b) {
    return graph.launches[at(sequence[a])].seconds > graph.launches[at(sequence[b])].seconds;
  });
  std::vector<bool> gone(sequence.size(), false);
  const auto left = [&] {
    Sequence rest;
    for (std::size_t i = 0; i < sequence.size(); ++i)
      if (!gone[i])
        rest.push_back(sequence[i]);
    return rest;
  };
  for (const std::size_t i : again) {
    gone[i] = true;
    if (lives_of(graph, left()).peak > peak)
      gone[i] = false;
  }
  return left();
}

/// Sequences that were found, and how good they are.
class Found {
public:
  Found(const LaunchGraph& graph, std::int64_t limit) : graph_(graph), limit_(limit) {}

  /// Walks an order with a budget; gives the arena, or nothing where it does not suffice.
  std::optional<std::int64_t> attempt(const Sequence& order, std::int64_t budget, double patience) {
    std::optional<Sequence> sequence = Walk(graph_, order, budget, patience).run();
    if (!sequence)
      return std::nullopt;
    Scheduled walked = placed(graph_, std::move(*sequence));
    const std::int64_t arena = walked.arena;
    least_ = std::min(least_, arena);
    const double seconds = added_seconds(graph_, walked.sequence);
    if (arena <= limit_ && (!best_ || seconds < best_seconds_)) {
      best_ = std::move(walked);
      best_seconds_ = seconds;
    }
    return arena;
  }

  bool met() const { return best_.has_value(); }
  std::int64_t least() const { return least_; }

  /// The best one, without what it need not do again.
  Scheduled take() {
    for (const std::int64_t peak :
         {limit_, best_->lives.peak + (limit_ - best_->lives.peak) / 2, best_->lives.peak})
      if (Scheduled fewer = placed(graph_, pruned(graph_, best_->sequence, peak));
          fewer.arena <= limit_)
        return fewer;
    return std::move(*best_);
  }

private:
  const LaunchGraph& graph_;
  const std::int64_t limit_;
  std::optional<Scheduled> best_;
  double best_seconds_ = 0;
  std::int64_t least_ = std::numeric_limits<std::int64_t>::max();
};

/// No sequence has a smaller peak: what the largest launch works with.
std::int64_t largest_launch(const LaunchGraph& graph) {
  std::int64_t most = 0;
  for (const auto& launch : graph.launches) {
    std::int64_t all = 0;
    for (const int v : launch.reads)
      all += graph.values[at(v)].bytes;
    for (const int v : launch.writes)
      all += launch.may_take.empty() ? graph.values[at(v)].bytes : 0;
    for (const std::int64_t workspace : launch.workspaces)
      all += workspace;
    most = std::max(most, all);
  }
  return most;
}

/// Tries the same budgets whatever the limit is, so that what is least does not depend on it.
void try_all_budgets(const LaunchGraph& graph, const std::vector<Sequence>& orders, Found& found) {
  constexpr int kHalvings = 10;
  for (const Sequence& order : orders)
    for (const double patience : {1.0, 0.0}) {
      std::int64_t too_few = largest_launch(graph) - 1, enough = lives_of(graph, order).peak;
      for (int i = 0; i < kHalvings && enough - too_few > 1; ++i) {
        const std::int64_t middle = too_few + (enough - too_few) / 2;
        (found.attempt(order, middle, patience) ? enough : too_few) = middle;
      }
    }
}

} // namespace

LimitError::LimitError(std::int64_t limit, std::int64_t least, std::int64_t plain,
                       std::string_view more)
    : Error(ErrorKind::Memory,
            fmt::format("compile: memory_limit: {} bytes do not hold the intermediate values; the "
                        "least that was found is {} bytes{}",
                        limit, least, more)),
      least_(least), plain_(plain) {}

double added_seconds(const LaunchGraph& graph, const Sequence& sequence) {
  double seconds = 0;
  std::vector<bool> seen(graph.launches.size(), false);
  for (const int k : sequence) {
    seconds += seen[at(k)] ? graph.launches[at(k)].seconds : 0;
    seen[at(k)] = true;
  }
  return seconds;
}

Scheduled scheduled(const LaunchGraph& graph) {
  return placed(graph, orders_of(graph).front());
}

Scheduled placed_apart(const LaunchGraph& graph, Sequence sequence,
                       const std::vector<std::pair<int, int>>& ranges) {
  return placed(graph, std::move(sequence), ranges);
}

std::variant<Scheduled, OverLimit> scheduled_within(const LaunchGraph& graph,
                                                    const Scheduled& plain, std::int64_t limit) {
  std::vector<Sequence> orders = orders_of(graph);
  for (Sequence& order : orders_of(overwriting_late(graph)))
    if (std::find(orders.begin(), orders.end(), order) == orders.end())
      orders.push_back(std::move(order));
  Found found(graph, limit);
  // What lies between others is lost: an arena may need somewhat more than is alive at a time.
  for (const Sequence& order : orders)
    for (const double patience : {1.0, 0.5, 0.0})
      for (const int percent : {100, 98, 95, 90, 85}) {
        const auto arena =
            found.attempt(order, limit / 100 * percent + limit % 100 * percent / 100, patience);
        if (!arena || *arena <= limit)
          break;
      }
  if (found.met())
    return found.take();
  Found any(graph, limit);
  try_all_budgets(graph, orders, any);
  if (any.met())
    return any.take();
  return OverLimit{std::min(plain.arena, any.least()), plain.arena};
}

} // namespace egret::compiler
