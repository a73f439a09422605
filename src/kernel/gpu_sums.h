// The sums of a block's tile in the registers of its threads: how they are spread, added to and
// handed on.
#pragma once

#include "kernel/gpu_contraction_side.h"

#include <functional>
#include <memory>
#include <span>

namespace egret::kernel {

/// A tile of the result.
struct GpuTile {
  Point batch; ///< with the batch axes set
  Expr first_row, first_column;
  Expr number; ///< in the order of tiles
  Expr share;  ///< of the depth, where blocks share it
};

/// The tiles of a result in the order in which blocks take them: groups of `group` tiles along the
/// rows go along the columns together, so that what they read stays in the second cache.
class TileOrder {
public:
  TileOrder(const ContractionForm& form, int bm, int bn, std::int64_t group);
  Expr count() const { return f_.batch.extent * down_ * across_; }
  GpuTile at(const Region& region, const Expr& number) const;

private:
  const ContractionForm& f_;
  int bm_, bn_;
  Expr down_, across_;
  std::int64_t group_ = 1; ///< divides down_
};

class GpuSums {
public:
  virtual ~GpuSums() = default;
  void clear();
  /// Applies the maps that follow and stores all outputs.
  virtual void deliver(const GpuTile& tile) = 0;
  /// Where sets of warps share the depth: adds up what they have, in their order. The first set has
  /// the sums then.
  void join();
  /// Where this thread is one of the set that has the sums.
  std::vector<Guard> has_sums() const;
  /// Puts the sums into memory from `offset` on, bm * bn elements in an order of their own.
  void save(int buffer, const Expr& offset);
  /// Sums that were put into memory: those of every `step`-th share from `begin` to `end`, which is
  /// at most `most`, each from offset_of(share) on.
  struct SavedShares {
    int buffer = -1;
    Expr begin, end, most;
    std::int64_t step = 1;
    std::function<Expr(const Expr& share)> offset_of;
  };
  /// Adds them to these, one after the other, while those of several shares are on their way.
  void restore(const SavedShares& shares);
  /// Of the sets of warps, that of this thread.
  const Expr& set() const { return set_; }

protected:
  GpuSums(Emitter& emitter, const ContractionForm& form, const GpuTiles& tiles);
  void make_variables(int count, int lanes);
  void restore(int buffer, const Expr& offset);
  Expr slot(const Expr& offset, int variable) const;

  Emitter& e_;
  ProgramBuilder& b_;
  const ContractionForm& f_;
  const GpuTiles& t_;
  Expr thread_, warp_row_, warp_column_, lane_; ///< this thread's place
  Expr set_;                                    ///< of warps that have all of a tile
  int joined_ = -1; ///< in shared memory: sums of the sets that others add to theirs
  std::vector<VarId> variables_;
  int lanes_ = 1; ///< of a variable
};

/// Sums that threads add to from shared memory.
class RingSums : public GpuSums {
public:
  using GpuSums::GpuSums;
  /// Adds the products of one piece of the ring.
  virtual void add(const Expr& stage) = 0;
};

/// By fused multiply-adds or by `mma`, as the tiles' unit asks.
std::unique_ptr<RingSums> make_sums(Emitter& emitter, const ContractionForm& form,
                                    const GpuTiles& tiles, const SharedSide& left,
                                    const SharedSide& right);

/// Hands on fragments of 16 rows by 8 columns, as matrix instructions leave them: four sums of each
/// in every lane, two neighbours in row lane / 4, and two in the row eight below.
class Fragments {
public:
  /// `warps`: of the block; each has a piece of its own when results are staged.
  Fragments(Emitter& emitter, const ContractionForm& form, const GpuTiles& tiles);
  /// Results of `variables`, neighbours along the columns, whose first element is (row, column).
  void deliver(const GpuTile& tile, const Expr& row, const Expr& column,
               std::span<const VarId> variables);

private:
  struct Staging {
    int buffer = -1, columns = 0, pitch = 0;
  };
  void direct(const GpuTile& tile, const Expr& row, const Expr& column, std::span<const VarId> v);
  void staged(const GpuTile& tile, const Expr& row, const Expr& column, std::span<const VarId> v);
  void sums_first(const GpuTile& tile, const Expr& row, const Expr& column,
                  std::span<const VarId> v);
  /// Shared memory for 16 rows of each warp.
  Staging rows_of(const std::string& name, DType type);
  Expr begin_of(const Staging& s) const; ///< of this warp's rows
  /// Where a pair of this lane's sums lies: of row lane / 4, or eight below it.
  Expr pair_in(const Staging& s, int half, std::size_t fragment) const;

  /// Neighbours of a row that this lane stores at once.
  struct Stored {
    Expr down, right;
    int lanes;
    std::vector<Guard> exists; ///< not beyond the last of the warp's
  };
  /// Those of number `first` + lane, of rows of `columns`.
  Stored stored(int first, int columns, int lanes) const;
  ValueId load(const Staging& s, const Stored& v);
  /// How many are stored at once, of elements of `bytes`: neighbours in all `outputs`.
  int lanes_of(std::span<const int> outputs, std::size_t bytes, const GpuTile& tile,
               const Expr& row, const Expr& column, int columns) const;

  Emitter& e_;
  ProgramBuilder& b_;
  const ContractionForm& f_;
  const GpuTiles& t_;
  Expr warp_, lane_;
  bool across_ = true;           ///< outputs are contiguous along the columns
  std::vector<Staging> staging_; ///< by output; empty when results are stored directly
  Staging sums_;                 ///< where not results but the sums themselves are collected
};

/// All that is made of `sums`, neighbours of a row from (row, column) on: the values of all outputs
/// at the point, which is given back. `where`: guards beside the tile's.
struct Delivery {
  Point point;
  std::vector<Value> values; ///< by output
};
Delivery results_of(Emitter& emitter, const ContractionForm& form, const GpuTile& tile,
                    const Expr& row, const Expr& column, ValueId sums,
                    const std::vector<Guard>& where = {});
/// The point of `lanes` elements of a row, with masks where they may lie outside.
Point point_at(const Region& region, const ContractionForm& form, const GpuTile& tile,
               const Expr& row, const Expr& column, int lanes);

} // namespace egret::kernel
