#include "kernel/gpu_few_rows.h"

#include "kernel/analysis.h"
#include "kernel/contraction_pack.h"

#include <algorithm>

namespace egret::kernel {

FoundContraction find_few_rows(const Region& region) {
  FoundContraction found = find_contraction(region, true, true);
  if (!found.ok)
    return found;
  const auto few = [](const AxisGroup& g) {
    return g.extent.constant() && g.extent.value() <= kMostFewRows;
  };
  if (!few(found.form.rows) && few(found.form.columns) && found.form.columns.slices == 1) {
    std::swap(found.form.rows, found.form.columns);
    std::swap(found.form.left, found.form.right);
  }
  if (!found.form.rows.extent.constant() || found.form.columns.axes.empty())
    found = {false, {}, "it has no known number of rows, or no columns"};
  return found;
}

DType matrix_type(const Region& region, const ContractionForm& form) {
  return factor_of(region, form, form.right).dtype;
}

Point FewRows::of_row(const GpuTile& tile, const Expr& row) const {
  Point p = tile.batch;
  if (!f_.rows.axes.empty())
    put_index(p, r_, f_.rows, tile.first_row + row);
  p.mask = unproved({{tile.first_row + row, Expr(0), f_.rows.extent}});
  return p;
}

Point FewRows::of_column(const GpuTile& tile, const Expr& column, int lanes) const {
  Point p = tile.batch;
  const Expr first = tile.first_column + column;
  if (along_depth_) {
    put_index(p, r_, f_.columns, first);
    p.mask = {f_.columns.inside(first)};
  } else {
    put_lanes(p, r_, f_.columns, first, lanes);
    p.mask = lanes_inside(f_.columns, first, lanes);
  }
  return p;
}

Point FewRows::of_column_within(const GpuTile& tile, const Expr& column) const {
  Point p = tile.batch;
  put_index_within(p, r_, f_.columns, tile.first_column + column);
  return p;
}

ValueId FewRows::factor(const ContractionForm& form, const Side& side, Point p, const Expr& k,
                        int lanes) {
  const Factor made = factor_of(r_, form, side);
  p.lanes = lanes;
  std::vector<Guard> inside;
  if (along_depth_) {
    put_lanes(p, r_, f_.depth, k, lanes);
    inside = lanes_inside(f_.depth, k, lanes);
  } else {
    put_index(p, r_, f_.depth, k);
    inside = {{k, Expr(0), f_.depth.extent}};
  }
  p.mask.insert(p.mask.end(), inside.begin(), inside.end());
  ValueId v = b_.cast(e_.value(form.stage, made.value, p).id, f_.accumulator);
  inside = unproved(std::move(inside));
  if (!made.is_padded_load && !inside.empty()) { // of what is not there, anything could be made
    const int n = std::max(b_.type_of(v).lanes, along_depth_ ? lanes : 1);
    v = b_.apply(Op::Select, f_.accumulator,
                 {b_.splat(b_.test(inside, n), n), b_.splat(v, n),
                  b_.constant(Scalar::of(f_.accumulator, 0.0), n)});
  }
  return v;
}

ValueId FewRows::fma(ValueId a, ValueId b, ValueId c) {
  if (is_float(f_.accumulator))
    return b_.fma(a, b, c);
  return b_.apply(Op::Add, f_.accumulator, {c, b_.apply(Op::Mul, f_.accumulator, {a, b})});
}

ValueId FewRows::dot(ValueId x, ValueId w, int lanes, ValueId sum) {
  for (int l = 0; l < lanes; ++l)
    sum = fma(b_.extract(x, l), b_.extract(w, l), sum);
  return sum;
}

void FewRows::each_result(const GpuTile& tile, int rows, int columns, const Expr& thread,
                          int threads, const SumAt& sum_at,
                          const std::function<Expr(const Expr&)>& column_at) {
  const auto slices = int(f_.columns.slices);
  const int places = columns / slices, count = rows * places;
  for (int first = 0; first < count; first += threads) {
    const Expr number = thread + Expr(first);
    b_.when({{number, Expr(0), Expr(count)}}, [&] {
      const Expr row = floordiv(number, places), at = floormod(number, places), run(f_.columns.run);
      const Expr column = floordiv(at, run) * run * Expr(slices) + floormod(at, run);
      const Point p = point_at(r_, f_, tile, row, column_at ? column_at(column) : column, 1);
      std::vector<ValueId> sums;
      for (std::size_t i = 0; i < forms_.size(); ++i) {
        sums.clear();
        for (int s = 0; s < slices; ++s)
          sums.push_back(sum_at(int(i), row * Expr(columns) + column + Expr(s) * run));
        if (i + 1 < forms_.size())
          e_.provide(forms_[i].stage, p,
                     {e_.convert({sums[0], f_.accumulator},
                                 r_.stages[std::size_t(forms_[i].stage)].yield_dtypes[0])});
      }
      store_results(e_, forms_.back(), p, sums);
    });
  }
}

} // namespace egret::kernel
