// What GPU kernels of products of a few rows with a large matrix have in common.
#pragma once

#include "kernel/contraction_form.h"
#include "kernel/emit.h"
#include "kernel/gpu_sums.h"

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace egret::kernel {

/// Rows that count as few.
inline constexpr int kMostFewRows = 8;
/// Bytes of a thread's access.
inline constexpr int kWidestAccess = 16;

/// The form when the region is a product of few columns, which then are the rows, or of a known
/// number of rows.
FoundContraction find_few_rows(const Region& region);

/// The type in which memory holds the matrix.
DType matrix_type(const Region& region, const ContractionForm& form);

/// Values and results of such products in one kernel: of one, or of several that have all axes in
/// common. Keeps references.
class FewRows {
public:
  /// `along_depth`: lanes of vectors go along the depth, else along the columns.
  FewRows(Emitter& emitter, std::span<const ContractionForm> forms, bool along_depth)
      : e_(emitter), b_(emitter.builder()), r_(emitter.region()), forms_(forms), f_(forms.front()),
        along_depth_(along_depth) {}

  /// A factor in the accumulator's type at depth `k`: `lanes` neighbours along the depth or, of the
  /// matrix, along the columns. 0 where the depth has ended. `p`: the rest of the point, with its
  /// mask.
  ValueId factor(const ContractionForm& form, const Side& side, Point p, const Expr& k, int lanes);
  /// The point of row `row` of a tile, or of its column, for factor().
  Point of_row(const GpuTile& tile, const Expr& row) const;
  Point of_column(const GpuTile& tile, const Expr& column, int lanes) const;
  /// The same with the last column in place of those behind it.
  Point of_column_within(const GpuTile& tile, const Expr& column) const;

  ValueId fma(ValueId a, ValueId b, ValueId c);
  /// sum + the products of all lanes of two vectors, one after the other.
  ValueId dot(ValueId x, ValueId w, int lanes, ValueId sum);
  /// sum + part; only the part where there is no sum yet (-1).
  ValueId sum_with(ValueId sum, ValueId part) {
    return sum < 0 ? part : b_.apply(Op::Add, f_.accumulator, {sum, part});
  }

  /// A product's sum at row * columns + column of a tile.
  using SumAt = std::function<ValueId(int product, const Expr& place)>;
  /// What becomes of the sums of a tile of rows by columns: each of `threads` threads, whose
  /// numbers from 0 on are `thread`, takes the same column of all slices and products. `column_at`:
  /// where a tile's column is, counted from the first one, when they are not neighbours.
  void each_result(const GpuTile& tile, int rows, int columns, const Expr& thread, int threads,
                   const SumAt& sum_at,
                   const std::function<Expr(const Expr& column)>& column_at = {});

private:
  Emitter& e_;
  ProgramBuilder& b_;
  const Region& r_;
  std::span<const ContractionForm> forms_;
  const ContractionForm& f_; ///< for what they have in common
  bool along_depth_;
};

} // namespace egret::kernel
