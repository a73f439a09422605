#include "compiler/arena_offsets.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace egret::compiler {

namespace {

constexpr std::int64_t kAlignment = 64;

std::int64_t place_in(std::vector<ArenaBlock>& blocks, const std::vector<std::size_t>& order) {
  std::int64_t total = 0;
  std::vector<std::size_t> placed; // by offset
  for (const std::size_t p : order) {
    ArenaBlock& block = blocks[p];
    std::int64_t at = 0;
    for (const std::size_t q : placed) {
      const ArenaBlock& other = blocks[q];
      if (other.last < block.first || block.last < other.first)
        continue;
      if (at + block.bytes <= other.offset)
        break;
      at = std::max(at, other.offset + other.bytes);
    }
    block.offset = at;
    total = std::max(total, at + block.bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), p,
                                   [&](std::size_t a, std::size_t b) {
                                     return blocks[a].offset < blocks[b].offset;
                                   }),
                  p);
  }
  return total;
}

std::int64_t most_alive(const std::vector<ArenaBlock>& blocks) {
  std::vector<std::pair<int, std::int64_t>> changes;
  for (const ArenaBlock& block : blocks) {
    changes.emplace_back(block.first, block.bytes);
    changes.emplace_back(block.last + 1, -block.bytes);
  }
  std::sort(changes.begin(), changes.end()); // of one place, what leaves comes first
  std::int64_t alive = 0, most = 0;
  for (const auto& [at, bytes] : changes)
    most = std::max(most, alive += bytes);
  return most;
}

} // namespace

std::int64_t rounded(std::int64_t bytes) {
  return (std::max<std::int64_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
}

std::int64_t assign_offsets(std::vector<ArenaBlock>& blocks) {
  // What stands first in an order has the largest of one of these.
  const auto bytes = [](const ArenaBlock& p) { return static_cast<double>(p.bytes); };
  const auto life = [](const ArenaBlock& p) { return static_cast<double>(p.last) - p.first + 1; };
  const std::function<double(const ArenaBlock&)> keys[] = {
      bytes,
      [&](const ArenaBlock& p) { return bytes(p) * life(p); },
      life,
      [](const ArenaBlock& p) { return -static_cast<double>(p.first); },
      [](const ArenaBlock& p) { return static_cast<double>(p.last); },
  };
  const std::int64_t bound = most_alive(blocks);
  std::int64_t least = INT64_MAX;
  std::vector<ArenaBlock> best;
  std::vector<std::size_t> order(blocks.size());
  for (const auto& key : keys) {
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      const double x = key(blocks[a]), y = key(blocks[b]);
      return x != y ? x > y : blocks[a].bytes > blocks[b].bytes;
    });
    const std::int64_t total = place_in(blocks, order);
    if (total < least) {
      least = total;
      best = blocks;
    }
    if (least == bound)
      break;
  }
  blocks = std::move(best);
  return least;
}

} // namespace egret::compiler
