// Offsets in the arena: largest first, each at the lowest place that is free during its whole life.
#include "compiler/plan_builder.h"

#include <algorithm>
#include <numeric>

namespace egret::compiler {

namespace {

constexpr std::int64_t kAlignment = 64;

/// Slots that share one place, as one piece of memory with one life.
struct Piece {
  std::int64_t bytes = 0, offset = 0;
  int first = 0, last = 0;
};

std::int64_t rounded(std::int64_t bytes) {
  return (std::max<std::int64_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
}

} // namespace

void place_slots(kernel::Plan& plan, const std::vector<int>& same_as) {
  std::vector<int> piece_of(plan.slots.size(), -1);
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < plan.slots.size(); ++i) {
    const kernel::Slot& slot = plan.slots[i];
    if (slot.kind != kernel::SlotKind::Arena)
      continue;
    if (same_as[i] >= 0) { // slots come in the order in which they are written
      Piece& piece = pieces[piece_of[i] = piece_of[same_as[i]]];
      piece.last = std::max(piece.last, slot.last_step);
      piece.bytes = std::max(piece.bytes, rounded(slot.bytes.upper()));
    } else {
      piece_of[i] = static_cast<int>(pieces.size());
      pieces.push_back({rounded(slot.bytes.upper()), 0, slot.first_step, slot.last_step});
    }
  }
  std::vector<int> order(pieces.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return pieces[a].bytes > pieces[b].bytes; });

  std::int64_t total = 0;
  std::vector<int> placed; // by offset
  for (int p : order) {
    Piece& piece = pieces[p];
    std::int64_t at = 0;
    for (int q : placed) {
      const Piece& other = pieces[q];
      if (other.last < piece.first || piece.last < other.first)
        continue;
      if (at + piece.bytes <= other.offset)
        break;
      at = std::max(at, other.offset + other.bytes);
    }
    piece.offset = at;
    total = std::max(total, at + piece.bytes);
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), p,
                         [&](int a, int b) { return pieces[a].offset < pieces[b].offset; }),
        p);
  }
  for (std::size_t i = 0; i < plan.slots.size(); ++i)
    if (piece_of[i] >= 0)
      plan.slots[i].offset = Expr(pieces[piece_of[i]].offset);
  plan.arena_bytes = Expr(total);

  std::int64_t bound = 0;
  for (int step = 0; step < static_cast<int>(plan.steps.size()); ++step) {
    std::int64_t alive = 0;
    for (const Piece& piece : pieces)
      if (piece.first <= step && step <= piece.last)
        alive += piece.bytes;
    bound = std::max(bound, alive);
  }
  plan.liveness_bound_bytes = Expr(bound);
}

} // namespace egret::compiler
