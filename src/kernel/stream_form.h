// Regions that go through products without storing them: which axes are rows, which is gone along,
// and what is summed in which pass.
#pragma once

#include "kernel/contraction_form.h"

#include <optional>
#include <string>
#include <vector>

namespace egret::kernel {

struct StreamForm {
  AxisGroup batch, rows, places;
  /// score[batch, row, place] = sum over depth of left[batch, row, depth] * right[batch, place,
  /// depth], made anew for every tile.
  std::vector<ContractionForm> products;
  /// sum over places of left[batch, row, place] * right[batch, place, column], the left side being
  /// made of scores: the columns are the form's depth, the places its columns.
  std::vector<ContractionForm> sums;
  std::vector<int> row_stages; ///< reductions over the places that leave one value a row
  int passes = 0;              ///< over the places
  std::vector<int> level;      ///< by stage: the pass that makes its result
  /// Pairs of row stages in one pass: a maximum, and a sum of which a larger maximum changes the
  /// scale only. By stage of the sum; -1 for all others.
  std::vector<int> scaled_by;
  /// Over the region's axes: where one of them is negative, a point adds nothing to any sum.
  std::vector<Expr> bounds;
  DType element = DType::BF16; ///< of all factors
};

struct FoundStream {
  bool ok = false;
  StreamForm form;
  std::string reason;
};
FoundStream find_stream(const Region& region);

/// The places of a pass's products and sums: stages that a stage's value is made of, at the same
/// point.
std::vector<bool> stages_under(const Region& region, int stage);

/// See StreamForm::bounds.
std::vector<Expr> stream_bounds(const Region& region, const std::vector<int>& reductions);

/// Whether the terms of the sum `stage` are exp(x - m) times something, m being the result of stage
/// `maximum`, that of x: when m becomes m', what was summed is scaled by exp(m - m').
bool is_scaled_by(const Region& region, int stage, int maximum);

} // namespace egret::kernel
