// Sides of queued products: tiles in the swizzled order of tensor maps in shared memory. How they
// get there follows from the side's index map: a strided box by bulk tensor copies, and what is
// none (windows with padding, rows at addresses that the copy engine refuses) by the threads'
// asynchronous copies. Factors of f32 are computed by the threads and stored as three tiles of bf16
// each, whose sum they are.
#pragma once

#include "kernel/contraction_form.h"
#include "kernel/emit.h"
#include "kernel/gpu_contraction_side.h"
#include "kernel/gpu_sums.h"
#include "kernel/gpu_tensor_view.h"

#include <string>
#include <vector>

namespace egret::kernel {

/// One side as pieces of 16, 8 or 4 bytes. Its offset and its guards are sums of a part that the
/// panels' and the batch's axes make and of one that the depth's axes make: the first is computed
/// once a tile, the second once a step.
struct PieceView {
  std::string reason; ///< why there is none
  int operand = -1;
  int lanes = 0;             ///< elements of a piece
  bool transposed = false;   ///< pieces lie along rows or columns, not along the depth
  Expr offset;               ///< over the stage's variables
  std::vector<Guard> guards; ///< from 0 on, likewise; outside of them zeros are read
};

/// Numbers of bf16 whose sum is an f32: 8 bits of its 24 each, with a sign that makes up for one.
inline constexpr int kSplitParts = 3;

struct SwizzledView {
  std::string reason; ///< why there is neither
  bool copied = false;
  /// Parts that a factor's values are split into: values of any stage, instead of copies. 0: none.
  int split = 0;
  Factor factor;                                      ///< of values
  bool along_panels = false;                          ///< neighbours of values lie along the panels
  int tiles() const { return split > 0 ? split : 1; } ///< of a piece of the ring
  bool own_box = false;                               ///< a box of the side's own axes, none joined
  TensorView box;                                     ///< unless it is copied
  PieceView pieces;                                   ///< if it is
};
/// The way of a side in tiles of `panel` elements along the group by kSwizzledRow of the depth.
SwizzledView swizzled_view(const Region& region, const ContractionForm& form, const Side& side,
                           const AxisGroup& group, int panel);

/// Registers that hold parts of a tile's offsets and guards in each of the `threads` that copy, and
/// how many a kernel has for them.
int copy_registers(const SwizzledView& view, int panel, int threads);

/// A side whose values the threads compute and split.
SwizzledView split_view(const Region& region, const ContractionForm& form, const Side& side,
                        int panel);
inline constexpr int kMostCopyRegisters = 72;

/// The form with the axes of rows and of columns in another order where a side can only be copied
/// along another one of them than the last: one whose neighbours are neighbours in memory, as the
/// channels of a convolution's operand where its weight's gradient is made.
ContractionForm ordered_for_pieces(const Region& region, const ContractionForm& form);

/// A ring of tiles of one side. The view, form and tiles must outlive it.
class SwizzledSide {
public:
  SwizzledSide(Emitter& emitter, const ContractionForm& form, const AxisGroup& group,
               const SwizzledView& view, const std::string& name, int panel, const GpuTiles& tiles);

  int buffer() const { return buffer_; }
  bool transposed() const {
    return view_.split > 0 ? view_.along_panels
           : view_.copied  ? view_.pieces.transposed
                           : view_.box.transposed;
  }
  /// Elements between groups of 64, when transposed.
  int group() const { return t_.bk * kSwizzledRow; }
  /// Where element (p, k) of the tile in piece `stage` lies; `p` is a multiple of 64 when
  /// transposed. `part`: of a split value.
  Expr at(const Expr& stage, const Expr& p, const Expr& k, int part = 0) const;

  /// Whether all threads of the producers copy, or one.
  bool copied() const { return view_.copied; }
  bool is_split() const { return view_.split > 0; }
  /// What bulk copies announce for a tile.
  int bulk_bytes() const { return copied() || is_split() ? 0 : panel_ * t_.bk * 2; }
  /// Of a copying thread.
  int registers() const { return copy_registers(view_, panel_, t_.copy_threads()); }

  /// Copies the part of the depth from `depth` on of the panels from `first` on, by one thread; it
  /// counts at barrier `stage` of `barriers`.
  void copy_box(const GpuTile& tile, const Expr& first, const Expr& depth, const Expr& stage,
                int barriers);
  /// The same by each thread of the producers, which then arrives behind its copies.
  void copy_pieces(const GpuTile& tile, const Expr& first, const Expr& depth, const Expr& stage);

  /// One value, in f32.
  ValueId value_at(const GpuTile& tile, const Expr& panel, const Expr& depth);

private:
  friend class SplitTile;
  Expr at_point(const Expr& e, const Point& point) const;
  ValueId sum(const Expr& a, const Expr& b);

  const Region& r_;
  Emitter& e_;
  ProgramBuilder& b_;
  const ContractionForm& form_;
  const AxisGroup& group_of_panels_;
  const SwizzledView& view_;
  int panel_;
  const GpuTiles& t_;
  int buffer_ = -1;
  int map_ = -1;    ///< the tensor map, of a box
  int source_ = -1; ///< the operand's buffer, of pieces
};

/// What a thread of the producers brings of one piece of the ring, where values are split: `count`
/// times eight neighbours.
class SplitTile {
public:
  /// The part of the depth from `depth` on of the panels from `first` on.
  SplitTile(SwizzledSide& side, const GpuTile& tile, const Expr& first, const Expr& depth);
  int count() const { return int(eights_.size()); }
  /// That hold what was loaded for eight of them.
  int registers() const { return registers_; }
  /// Loads what values are made of.
  void load(int number);
  /// Computes and splits them, and stores the parts.
  void put(int number, const Expr& stage) const;

private:
  struct Eight {
    Expr p, k; ///< in the tile
    FactorPlace place;
    VarId loaded = -1; ///< unless it is computed where it is put
  };
  bool load_joined(Eight& eight) const;
  SwizzledSide& side_;
  const Point& batch_;
  std::vector<Eight> eights_;
  int registers_;
};

} // namespace egret::kernel
