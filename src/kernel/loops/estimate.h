// How long a loop tree should take, from the tree and a description of the machine alone: work of
// each body, bytes that come from each level of memory, registers, lanes and workers.
#pragma once

#include "kernel/loops/tree.h"
#include "kernel/target.h"

#include <optional>
#include <span>
#include <vector>

namespace egret::kernel::loops {

/// A loop around a body, outermost first.
struct LoopAround {
  int axis = 0;
  double trips = 1;
  Bind bind = Bind::Serial;
  bool inside_sum = false; ///< of the body's stage
};

/// A copy near: of an operand, inside of so many of the loops.
struct NearAround {
  int operand = 0;
  std::size_t loops = 0;
};

class Estimator {
public:
  Estimator(const Region& region, const Target& target);

  /// Of a launch. The cost of a body depends on the loops around it alone, so that of a tree is the
  /// sum of its bodies'.
  double seconds(const Tree& tree);

  /// Of a part of a tree, outermost; bodies as set before.
  double part_seconds(const Tree& part) const;

  /// Of all points of one body. `shared`: of the loops, those outermost ones inside of which
  /// results of other stages are made and read. `accumulators`: of each sum.
  double body_seconds(int stage, std::span<const LoopAround> loops,
                      std::span<const NearAround> near, std::size_t shared,
                      double accumulators = 1) const;

  /// Sets which stages have bodies: the others are computed where they are read. seconds() does so
  /// by itself.
  void set_bodies(const Tree& tree);

  /// What an axis's extent counts as: an unknown size has its upper bound, or a thousand or so.
  double extent_of(int axis) const { return extents_[std::size_t(axis)]; }

  /// Elements from one point to the next along an axis, of each access of a stage.
  struct Access {
    std::vector<double> stride; ///< by axis; 0: it does not depend on it
    double bytes = 4;           ///< of an element
    int operand = -1;           ///< -1: of a stage's result
    bool written = false;
    bool leaves = false; ///< to an output
  };
  const std::vector<Access>& accesses(int stage) const {
    return stages_[std::size_t(stage)].accesses;
  }

private:
  /// An accumulation around a body, and the number of loops outside of it.
  struct SumAround {
    int stage = 0;
    std::size_t loops = 0;
    std::int64_t accumulators = 1;
  };
  struct StageCost {
    double flops = 1;
    std::vector<Access> accesses;
  };
  double gpu_body_seconds(int stage, std::span<const LoopAround> loops,
                          std::span<const NearAround> near, std::size_t shared) const;
  /// The same of a stage with matrix loops.
  double gpu_matrix_seconds(int stage, std::span<const LoopAround> loops,
                            std::span<const NearAround> near, std::size_t shared) const;
  double trips_of(const Tree& loop) const;
  void describe(int stage, StageCost& cost, std::vector<bool>& counted,
                const std::vector<bool>& bodies) const;
  double walk(const Tree& tree, std::vector<LoopAround>& loops, std::vector<SumAround>& sums,
              std::vector<NearAround>& near, std::size_t shared) const;
  /// Cycles of a product by tiles of AMX, copies apart; negative: the loops are none.
  double tile_cycles(const StageCost& cost, std::span<const LoopAround> loops,
                     std::span<const NearAround> near) const;
  /// `together`: the loops from there on run at once, whatever they touch.
  double traffic(const StageCost& cost, std::span<const LoopAround> loops, std::size_t shared,
                 double cache, std::size_t together) const;

  const Region& region_;
  const Target& target_;
  std::vector<double> extents_;
  std::vector<StageCost> stages_;
  std::vector<bool> bodies_;
};

} // namespace egret::kernel::loops
