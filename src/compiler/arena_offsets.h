// Offsets of memory blocks in one arena: the static memory planning of compilers (dynamic storage
// allocation with known lives), by greedy placement in several orders.
#pragma once

#include <cstdint>
#include <vector>

namespace egret::compiler {

/// Memory of one or several values, one after the other.
struct ArenaBlock {
  std::int64_t bytes = 0, offset = 0;
  int first = 0, last = 0; ///< steps of a sequence between which it is in use, both included
};

/// Gives every block an offset such that those whose lives overlap do not overlap in memory;
/// returns the bytes of all. Each is put at the lowest free offset, in orders by size, by size
/// times life, by life and by its ends; the smallest arena of these is taken (Pisarchyk & Lee 2020,
/// "Efficient Memory Management for Deep Neural Net Inference", compare such orders).
std::int64_t assign_offsets(std::vector<ArenaBlock>& blocks);

/// Bytes as they are placed: a multiple of 64.
std::int64_t rounded(std::int64_t bytes);

} // namespace egret::compiler
