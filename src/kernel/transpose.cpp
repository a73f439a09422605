#include "kernel/transpose.h"

#include "support/fail.h"

#include <algorithm>

namespace egret::kernel {

std::vector<ValueId> transpose_block(ProgramBuilder& b, std::vector<ValueId> rows) {
  int n = int(rows.size());
  ensure(n > 0 && b.type_of(rows[0]).lanes == n, "transpose: {} rows of {} lanes", n,
         n ? b.type_of(rows[0]).lanes : 0);
  // Machines interleave the lanes of two registers within 16 bytes by one instruction, and move
  // pieces of 16 bytes by one. First those: at distance d, the off-diagonal d x d blocks of each
  // 2d x 2d block change places; a lane whose number has bit d comes from the other row of the
  // pair.
  const int piece = std::clamp(int(16 / size_of(b.type_of(rows[0]).dtype)), 1, n);
  const auto of_pair = [&](int i, int j, const auto& lane) {
    std::vector<int> from;
    for (int l = 0; l < n; ++l)
      from.push_back(lane(l));
    return b.shuffle(rows[std::size_t(i)], rows[std::size_t(j)], std::move(from));
  };
  for (int d = n / 2; d >= piece; d /= 2)
    for (int i = 0; i < n; ++i)
      if (!(i & d)) {
        const ValueId u = of_pair(i, i + d, [&](int l) { return l & d ? n + l - d : l; });
        const ValueId v = of_pair(i, i + d, [&](int l) { return l & d ? n + l : l + d; });
        rows[std::size_t(i)] = u;
        rows[std::size_t(i + d)] = v;
      }
  // Then within the pieces: as many interleavings of the first half of `piece` rows with the second
  // as it has bits are a transposition.
  for (int bits = 1; bits < piece; bits *= 2) {
    std::vector<ValueId> next;
    for (int i = 0; i < n; ++i) {
      const int in_piece = i % piece, first = i - in_piece + in_piece / 2, half = piece / 2;
      next.push_back(of_pair(first, first + half, [&](int l) {
        const int at = l % piece / 2 + (in_piece % 2 ? half : 0) + l / piece * piece;
        return l % 2 ? n + at : at;
      }));
    }
    rows = std::move(next);
  }
  return rows;
}

} // namespace egret::kernel
