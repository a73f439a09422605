#include "compiler/arena_offsets.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace egret::compiler {

namespace {

constexpr std::int64_t kAlignment = 64;

std::int64_t place_in(std::vector<Piece>& pieces, const std::vector<std::size_t>& order) {
  std::int64_t total = 0;
  std::vector<std::size_t> placed; // by offset
  for (const std::size_t p : order) {
    Piece& piece = pieces[p];
    std::int64_t at = 0;
    for (const std::size_t q : placed) {
      const Piece& other = pieces[q];
      if (other.last < piece.first || piece.last < other.first)
        continue;
      if (at + piece.bytes <= other.offset)
        break;
      at = std::max(at, other.offset + other.bytes);
    }
    piece.offset = at;
    total = std::max(total, at + piece.bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), p,
                                   [&](std::size_t a, std::size_t b) {
                                     return pieces[a].offset < pieces[b].offset;
                                   }),
                  p);
  }
  return total;
}

std::int64_t most_alive(const std::vector<Piece>& pieces) {
  std::vector<std::pair<int, std::int64_t>> changes;
  for (const Piece& piece : pieces) {
    changes.emplace_back(piece.first, piece.bytes);
    changes.emplace_back(piece.last + 1, -piece.bytes);
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

std::int64_t place(std::vector<Piece>& pieces) {
  // What stands first in an order has the largest of one of these.
  const auto bytes = [](const Piece& p) { return static_cast<double>(p.bytes); };
  const auto life = [](const Piece& p) { return static_cast<double>(p.last) - p.first + 1; };
  const std::function<double(const Piece&)> keys[] = {
      bytes,
      [&](const Piece& p) { return bytes(p) * life(p); },
      life,
      [](const Piece& p) { return -static_cast<double>(p.first); },
      [](const Piece& p) { return static_cast<double>(p.last); },
  };
  const std::int64_t bound = most_alive(pieces);
  std::int64_t least = INT64_MAX;
  std::vector<Piece> best;
  std::vector<std::size_t> order(pieces.size());
  for (const auto& key : keys) {
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      const double x = key(pieces[a]), y = key(pieces[b]);
      return x != y ? x > y : pieces[a].bytes > pieces[b].bytes;
    });
    const std::int64_t total = place_in(pieces, order);
    if (total < least) {
      least = total;
      best = pieces;
    }
    if (least == bound)
      break;
  }
  pieces = std::move(best);
  return least;
}

} // namespace egret::compiler
