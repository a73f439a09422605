// One side of a contraction in the shared memory of a block: how a tile of it lies there, and who
// copies what.
#pragma once

#include "kernel/contraction_form.h"
#include "kernel/emit.h"
#include "kernel/gpu_contraction_tiles.h"

#include <functional>
#include <vector>

namespace egret::kernel {

/// Sets the axes of a group at a point to `lanes` neighbours beginning with `first`, a multiple of
/// `lanes`. The vector stays within the innermost axis where that is possible.
void put_lanes(Point& point, const Region& region, const AxisGroup& group, const Expr& first,
               int lanes);

/// Whether indices may lie on both sides of a guard's bound.
bool is_border(const Expr& bound);

/// Guards that tell which of `lanes` neighbours from `first` on (a multiple of `lanes`) lie in the
/// group. Nothing that differs from lane to lane when all or none do.
std::vector<Guard> lanes_inside(const AxisGroup& group, const Expr& first, int lanes);

/// Elements that one asynchronous copy of at most 16 bytes can move along the innermost axis of the
/// group: neighbours at aligned addresses, which are in memory or in a hole as a whole, and in one
/// tensor of a concatenation. 1 where they are no neighbours, 0 where the side is no copy of
/// memory.
int widest_piece(const Region& region, const ContractionForm& form, const Side& side,
                 const AxisGroup& along);

/// Elements of a side that one such copy moves where they lie along the panel in shared memory, in
/// the accumulator's type, as fused multiply-adds read them.
int copied_at_once(const Region& region, const ContractionForm& form, const Side& side,
                   const AxisGroup& group);

/// Neighbours of a factor, along the depth or the panels, from one place on.
struct FactorPlace {
  Expr panel, depth;
  int lanes = 1;
  bool along_depth = false;
  std::vector<Guard> exists = {}; ///< where there is such a place at all
  bool zeros = false;             ///< also behind the last panel, where values may be anything
};
/// Their values as `dtype`; zeros behind the depth's end. `batch`: a point with the batch axes set.
ValueId factor_at(Emitter& emitter, const ContractionForm& form, const AxisGroup& group,
                  const Factor& factor, const Point& batch, const FactorPlace& place, DType dtype);

/// Where they are.
Point point_of_factor(const Region& region, const ContractionForm& form, const AxisGroup& group,
                      const Point& batch, const FactorPlace& place);
/// Loads of tensors that a factor is made of, but for those in arms of choices.
int loads_of(const Region& region, const ContractionForm& form, const Factor& factor);
/// Only loads what they are made of, so that what is loaded for several places is under way at
/// once.
void load_factor(Emitter& emitter, const ContractionForm& form, const AxisGroup& group,
                 const Factor& factor, const Point& batch, const FactorPlace& place);

/// A ring of tiles of `panel` rows (or columns) by `depth` steps. Elements go there by asynchronous
/// copies, from one of several tensors where these are concatenated, or through registers when they
/// must be computed, converted or gathered first.
class SharedSide {
public:
  /// `along_depth`: which neighbours are neighbours in shared memory. `dtype`: of the elements
  /// there.
  SharedSide(Emitter& emitter, const ContractionForm& form, const Side& side,
             const AxisGroup& group, const std::string& name, int panel, bool along_depth,
             DType dtype, const GpuTiles& tiles);

  bool is_async() const { return async_; }
  bool along_depth() const { return along_depth_; }
  int buffer() const { return buffer_; }
  int pitch() const { return pitch_; }
  DType dtype() const { return dtype_; }
  /// Where element (p, k) of the tile in piece `stage` lies.
  Expr at(const Expr& stage, const Expr& p, const Expr& k) const;

  /// Copies the part of the depth beginning with `first_depth` of the panels from `first` on.
  /// `batch`: a point with the batch axes set.
  void copy(const Point& batch, const Expr& first, const Expr& first_depth, const Expr& stage);
  /// The same in two steps, for sides that are not asynchronous.
  std::vector<ValueId> fetch(const Point& batch, const Expr& first, const Expr& first_depth);
  void put(const std::vector<ValueId>& values, const Expr& stage);
  /// Software pipelining of such a side, where registers suffice: what a part of the depth is made
  /// of is loaded before fetch() makes it, and meanwhile held in variables. Finds the loads, before
  /// the loop over the depth.
  void plan_ahead(const Point& batch, const Expr& first);
  bool loads_ahead() const { return !ahead_.empty(); }
  /// Loads what the next fetch() is to be made of.
  void load_ahead(const Point& batch, const Expr& first, const Expr& first_depth);

private:
  struct Chunk { ///< of this thread: its place in the tile, and whether every thread has it
    Expr p, k;
    std::vector<Guard> exists;
  };
  Chunk chunk(int i) const;
  std::int64_t even_run() const;
  std::int64_t run_of_part() const;
  int chunks_of_thread() const;
  int widest_copy() const;
  void copy_piece(const FactorPiece& piece, const std::vector<Point>& points, const Expr& first,
                  const Expr& first_depth, const Expr& stage);
  ValueId value_at(const Point& batch, const Expr& first, const Expr& first_depth, const Chunk& c);
  FactorPlace place_of(const Expr& first, const Expr& first_depth, const Chunk& c) const {
    return {first + c.p, first_depth + c.k, chunk_, along_depth_, c.exists};
  }
  struct Ahead { ///< a load of a chunk of this thread
    int chunk, stage, value;
    VarId variable = -1;
  };
  /// Those loads with their points.
  void each_ahead(const Point& batch, const Expr& first, const Expr& first_depth,
                  const std::function<void(Ahead& load, const Point& point)>& visit);

  Emitter& e_;
  ProgramBuilder& b_;
  const ContractionForm& f_;
  const Side& side_;
  const AxisGroup& group_;
  Factor factor_;
  const GpuTiles& t_;
  int panel_;
  bool along_depth_;
  DType dtype_;
  int pitch_ = 0, buffer_ = -1;
  bool reads_depth_ = false; ///< neighbouring threads take neighbours along the depth
  bool async_ = false;
  int chunk_ = 1;        ///< elements that are copied at once
  std::int64_t run_ = 0; ///< of a part of a line; 0: all of it
  std::vector<Ahead> ahead_;
};

} // namespace egret::kernel
