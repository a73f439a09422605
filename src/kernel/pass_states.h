// What the reductions of one pass have seen so far. A sum that a maximum scales goes along with it:
// when the largest value so far grows, what was summed is scaled, so that one pass makes both.
#pragma once

#include "kernel/accumulate.h"
#include "kernel/passes.h"

#include <span>

namespace egret::kernel {

class PassStates {
public:
  /// States have `lanes` lanes, those of a maximum and its sums and of a spread beside its mean
  /// `pair_lanes`: as many, or one.
  PassStates(Emitter& emitter, const Passes& passes, int pass, const Arithmetic& arithmetic,
             const Expr& places, int lanes, int pair_lanes);

  /// Whether points that are added together cost less: a sum goes along with its maximum, or a
  /// spread with its mean.
  bool adds_together() const { return pairs_ || spreads_; }
  Running start();

  /// A point of the pass; `own`: the lanes and threads whose point exists.
  struct Spot {
    const Point* point;
    Expr place; ///< of argmax
    std::span<const Guard> own;
  };
  /// Points of one row, together: a maximum grows once for all of them. `check_mask`: see
  /// Accumulator::add.
  void add(Running& states, std::span<const Spot> spots, bool check_mask);

  Running across_lanes(const Running& states);
  Running across_threads(const Running& states, int threads);
  Running merge(const Running& a, const Running& b);
  /// `next` where the mask holds, else `states`.
  Running keep(const std::vector<Guard>& mask, const Running& next, const Running& states);
  /// Says what the reductions of a row are, of states of one lane that are all of it.
  void provide(const Point& row, const Running& states);

private:
  Accumulator accumulator(std::size_t r, std::size_t y);
  State add_spread(std::size_t r, const State& state, std::span<const Spot> spots, bool check_mask);
  void add_pairs(Running& states, std::span<const Spot> spots, bool check_mask);
  /// All points together, as a state of the pair's lanes.
  State tile(std::size_t r, std::span<const Spot> spots, bool check_mask);
  ValueId times(ValueId sum, ValueId scale);
  /// A sum of `before`, scaled as its maximum became that of `now`.
  State rescaled(std::size_t r, const Running& before, const Running& now);

  Emitter& e_;
  ProgramBuilder& b_;
  const std::vector<int>& stages_;
  std::vector<int> maximum_;  ///< by reduction: the one that scales it, by its place here; -1: none
  std::vector<bool> in_pair_; ///< by reduction
  std::vector<bool> exponentials_; ///< by reduction: a scaled sum of nothing else
  std::vector<bool> spread_;       ///< by reduction: beside its mean
  bool pairs_ = false, spreads_ = false;
  Arithmetic arithmetic_;
  Expr places_;
  int lanes_, pair_lanes_;
};

} // namespace egret::kernel
