#include "kernel/transpose.h"

#include "support/fail.h"

namespace egret::kernel {

std::vector<ValueId> transpose_block(ProgramBuilder& b, std::vector<ValueId> rows) {
  int n = int(rows.size());
  ensure(n > 0 && b.type_of(rows[0]).lanes == n, "transpose: {} rows of {} lanes", n,
         n ? b.type_of(rows[0]).lanes : 0);
  // Recursive quadrants: at distance d, the off-diagonal d x d blocks of each 2d x 2d block change
  // places. A lane whose number has bit d comes from the other row of the pair.
  for (int d = n / 2; d >= 1; d /= 2)
    for (int i = 0; i < n; ++i) {
      if (i & d)
        continue;
      std::vector<int> upper, lower;
      for (int l = 0; l < n; ++l) {
        upper.push_back(l & d ? n + l - d : l);
        lower.push_back(l & d ? n + l : l + d);
      }
      ValueId u = b.shuffle(rows[i], rows[i + d], upper);
      ValueId v = b.shuffle(rows[i], rows[i + d], lower);
      rows[i] = u;
      rows[i + d] = v;
    }
  return rows;
}

} // namespace egret::kernel
