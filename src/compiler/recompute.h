// Launches under a memory limit: values are given up while they are not needed and made anew by
// another launch of their kernel, so that their bits stay the same.
#pragma once

#include "compiler/launch_graph.h"

#include "egret/error.h"

#include <optional>
#include <string_view>
#include <variant>

namespace egret::compiler {

/// A sequence with its memory.
struct Scheduled {
  Sequence sequence;
  Lives lives; ///< with places
  std::int64_t arena = 0;
};

/// No sequence within a limit was found.
struct OverLimit {
  std::int64_t least = 0; ///< bytes of a limit that can be met
  std::int64_t plain = 0; ///< bytes of the arena without a limit
};

/// What the caller of the compiler is told when no plan meets its limit. A limit of `least` bytes
/// can be met.
class LimitError : public Error {
public:
  /// `plain`: bytes of the arena without a limit; `more`: for people, ends the message.
  LimitError(std::int64_t limit, std::int64_t least, std::int64_t plain,
             std::string_view more = {});
  std::int64_t least() const noexcept { return least_; }
  std::int64_t plain() const noexcept { return plain_; }

private:
  std::int64_t least_, plain_;
};

/// The order with the least peak, each launch once.
Scheduled scheduled(const LaunchGraph& graph);

/// The same sequence, where what the launches between the places of each range write shares memory
/// with nothing else that they touch.
Scheduled placed_apart(const LaunchGraph& graph, Sequence sequence,
                       const std::vector<std::pair<int, int>>& ranges);

/// The sequence of least added time that was found whose arena is at most `limit` bytes. `plain` is
/// scheduled(graph).
std::variant<Scheduled, OverLimit> scheduled_within(const LaunchGraph& graph,
                                                    const Scheduled& plain, std::int64_t limit);

/// Seconds of all launches beyond the first of each.
double added_seconds(const LaunchGraph& graph, const Sequence& sequence);

} // namespace egret::compiler
