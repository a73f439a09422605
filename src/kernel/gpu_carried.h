// Sums of columns that are made beside rows on a GPU: every thread carries those of its columns
// from row to row of its block's share. What the blocks have is combined in a fixed order:
// neighbouring shares by the last block of their group, the groups by the last of all.
#pragma once

#include "kernel/accumulate.h"
#include "kernel/passes.h"

#include <functional>

namespace egret::kernel {

class CarriedSums {
public:
  /// Of how rows lie in the threads: thread `thread` of `threads` has vector turn * threads +
  /// thread of each row in each of `turns` turns, `lanes` columns each. `shares` of the rows are
  /// done independently.
  struct Layout {
    Expr thread;
    int threads = 0, lanes = 1;
    std::int64_t turns = 0, shares = 0;
  };
  CarriedSums(Emitter& emitter, const Passes& passes, const Arithmetic& arithmetic,
              const Layout& layout);

  /// Before the first row of a share.
  void begin();
  /// What a pass gives at a point of the row; `turn` is the vector's.
  void add(int pass, std::int64_t turn, const Point& point);
  /// After the last row of share number `share`; `columns` gives the points of a turn's vector.
  void finish(const Expr& share, const std::function<Point(std::int64_t turn)>& columns,
              CachePolicy policy);

private:
  struct Sum {
    int stage, yield, pass;
    std::vector<StateVariables> states; ///< by turn
    std::vector<int> shares, groups;    ///< workspaces of what these have
  };
  Accumulator accumulator(const Sum& sum);
  Expr place(const Expr& number, std::int64_t turn) const;
  void save(const std::vector<int> Sum::*memory, const Expr& number);
  /// The states of [first, first + most), of which those from `end` on do not exist.
  void restore(const std::vector<int> Sum::*memory, const Expr& first, std::int64_t most,
               const Expr& end);
  void deliver(const std::function<Point(std::int64_t turn)>& columns, CachePolicy policy);

  Emitter& e_;
  ProgramBuilder& b_;
  const Passes& passes_;
  Arithmetic arithmetic_;
  Layout at_;
  Expr rows_;
  std::int64_t together_ = 1, groups_ = 1; ///< shares of a group, and groups
  int arrivals_ = -1;
  std::vector<Sum> sums_;
};

} // namespace egret::kernel
