// The sums of a tile as queued products leave them: every group of four warps has rows of its own,
// in pieces of 64.
#pragma once

#include "kernel/gpu_sums.h"
#include "kernel/gpu_wgmma.h"
#include "kernel/gpu_wgmma_side.h"

#include <optional>
#include <vector>

namespace egret::kernel {

/// Products of this many rows, and of this many steps along the depth, are one instruction.
inline constexpr int kProductRows = 64, kProductSteps = 16;

class GroupSums : public GpuSums {
public:
  /// `sink`: takes the sums instead of memory.
  GroupSums(Emitter& emitter, const ContractionForm& form, const GpuTiles& tiles, TileSums* sink);

  /// Queues the products of one piece of the ring; the first of a tile, where `part` is 0, begin
  /// anew.
  void add(const SwizzledSide& left, const SwizzledSide& right, const Expr& stage, const Expr& part,
           DType element);

  /// Products of f32 by sums of bf16 ("bf16x9": Henry, Tang and Heinecke, Leveraging the bfloat16
  /// artificial intelligence datatype for higher-precision computations, 2019), of which three that
  /// are below 2^-24 of the whole are left out. Matrix units cut off what they add up, so that only
  /// one piece's products are summed by them, the small ones first: sums of pieces are rounded.
  /// Queues those of one piece, waits, and takes them in.
  void queue_split(const SwizzledSide& left, const SwizzledSide& right, const Expr& stage);
  void wait_split();
  void take_split();
  /// Where a sum is no finite number, all of the thread's over `steps` of the depth from `depth` on
  /// are computed anew by fused multiply-adds: parts of what is infinite, or becomes so when
  /// rounded to bf16, are no numbers.
  void mend_split(SwizzledSide& left, SwizzledSide& right, const GpuTile& tile, const Expr& depth,
                  const Expr& steps);

  void deliver(const GpuTile& tile) override;

private:
  void queue(const SwizzledSide& left, const SwizzledSide& right, const Expr& stage, int left_part,
             int right_part, DType element, const std::vector<VarId>& sums,
             const std::vector<Guard>& added);
  Expr first_row(int piece) const; ///< of this thread's warp

  TileSums* sink_;
  std::optional<Fragments> fragments_;
  int pieces_, across_;
  Expr row_;                 ///< first row of the group
  std::vector<VarId> fresh_; ///< the sums of one piece of the ring
};

} // namespace egret::kernel
