// Regions whose reductions all run over the same axes, as passes over those axes: which stage is
// computed in which pass, what is stored when, and which values are worth keeping from one pass to
// the next.
#pragma once

#include "kernel/region.h"

#include <map>
#include <string>
#include <vector>

namespace egret::kernel {

struct Passes {
  std::vector<int> parallel, reduced;       ///< region axes
  int count = 0;                            ///< passes over the reduced axes
  std::vector<std::vector<int>> reductions; ///< by pass: stages finished at its end
  std::vector<std::vector<int>> outputs;    ///< by pass: outputs over all axes that it stores
  std::vector<int>
      point_outputs;      ///< outputs over the parallel axes, stored after the last reduction
  std::vector<int> level; ///< by stage: the first pass that may compute it
  /// By pass: reductions over the parallel axes (sums of columns) of what it visits, carried from
  /// row to row; and the outputs over the reduced axes that are made of them.
  std::vector<std::vector<int>> carried;
  std::vector<int> column_outputs;
  bool carries() const { return !column_outputs.empty(); }
  /// Whether a pass needs the results of another one, or stores along the reduced axes.
  bool waits() const { return count != 1 || !outputs[0].empty(); }
  /// By stage: of a sum made in the pass of a maximum that scales it (is_scaled_by), that maximum;
  /// else -1.
  std::vector<int> scaled_by;
  /// By stage: of a spread made in the pass of the sum for its mean (is_spread_of), that sum; else
  /// -1.
  std::vector<int> mean_of;
  /// The same by spread, for Emitter::means.
  std::map<int, int> means() const;
  /// Whether a stage is such a sum or such a maximum.
  bool is_in_pair(int stage) const;
  std::string reason; ///< why the region is not of this form; empty when it is
};

/// Which sums go along with what they depend on, instead of waiting for it: those that a maximum
/// scales; and spreads with their means, too.
enum class Online : std::uint8_t { No, Scaled, Spreads };

/// Regions with sums of columns beside their rows are taken only where the caller `carries` them.
Passes plan_passes(const Region& region, bool carries = false, Online online = Online::No);

/// The parallel axis along which vectors suit the region best, of those along which all outputs
/// vary; -1: there is none.
int column_axis(const Region& region, const Passes& passes);

/// Arithmetic of each pass at one of its points, values counted in the pass that may compute them
/// first.
std::vector<double> flops_by_pass(const Region& region, const Passes& passes);

/// Maps over all axes that several passes need and that cost at least `least_flops` additions to
/// compute again, with the pass that makes them. What they need is then no longer computed in later
/// passes.
struct Kept {
  int stage, pass;
};
std::vector<Kept> worth_keeping(const Region& region, const Passes& passes, double least_flops);

} // namespace egret::kernel
