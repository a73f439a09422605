// What the order of launches and the memory of a plan depend on, and nothing else: which values
// each launch reads and writes, how large they are, and what must not run again.
#pragma once

#include "compiler/arena_offsets.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace egret::compiler {

struct LaunchGraph {
  /// A value that some launch writes.
  struct Value {
    std::int64_t bytes = 0; ///< in the arena, rounded(); 0: it has memory of its own
    int writer = -1;        ///< place in `launches`
  };
  struct Launch {
    std::vector<int> reads, writes; ///< values, each once
    /// A place in `writes` and a value among `reads` whose memory it may take over, if nobody reads
    /// that after this launch.
    std::vector<std::pair<int, int>> may_take;
    std::vector<std::int64_t> workspaces; ///< bytes in the arena while it runs, rounded()
    std::vector<int> after; ///< launches that read what this one overwrites: never after it
    double seconds = 0;     ///< what running it again would take
    bool again = true;      ///< it may: it overwrites nothing that it needs
  };
  std::vector<Value> values;
  std::vector<Launch> launches;
};

/// Launches in the order in which they run. A launch that occurs again makes its values anew, with
/// the same bits; a read is of what was made last.
using Sequence = std::vector<int>;

/// Who lives when in a sequence.
struct Lives {
  /// A value as one launch makes it.
  struct Version {
    int value = -1;
    int first = 0, last = 0; ///< places in the sequence: made, read last
    int over = -1;           ///< version whose memory it takes over
    int block = -1;          ///< -1: it has memory of its own
  };
  std::vector<Version> versions;
  std::vector<std::vector<int>> reads, writes; ///< versions, as in Launch, by place in the sequence
  std::vector<std::vector<int>> workspaces;    ///< blocks, by place in the sequence
  std::vector<ArenaBlock> blocks;
  std::int64_t peak = 0; ///< the most bytes alive at a time: no arena can be smaller
};
Lives lives_of(const LaunchGraph& graph, const Sequence& sequence);

/// Orders in which each launch runs once, the one with the least peak first.
std::vector<Sequence> orders_of(const LaunchGraph& graph);

/// The graph in which a launch that overwrites something also waits, where it can, for those that
/// read what was made of it. In its orders values can be recomputed for as long as they are needed.
LaunchGraph overwriting_late(const LaunchGraph& graph);

} // namespace egret::compiler
