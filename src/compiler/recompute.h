// Launches under a memory limit: values are given up while they are not needed and made anew by
// another launch of their kernel, so that their bits stay the same.
#pragma once

#include "compiler/launch_graph.h"

#include <optional>

namespace egret::compiler {

/// A sequence with its memory.
struct Scheduled {
  Sequence sequence;
  Lives lives; ///< with places
  std::int64_t arena = 0;
};

/// The order with the least peak, each launch once.
Scheduled scheduled(const LaunchGraph& graph);

/// The sequence of least added time that was found whose arena is at most `limit` bytes. `plain` is
/// scheduled(graph). Error(Memory) with the least arena that was found when none is so small; a
/// limit of that many bytes can be met.
Scheduled scheduled_within(const LaunchGraph& graph, const Scheduled& plain, std::int64_t limit);

/// Seconds of all launches beyond the first of each.
double added_seconds(const LaunchGraph& graph, const Sequence& sequence);

} // namespace egret::compiler
