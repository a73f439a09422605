#include "kernel/stream_rows.h"

#include "kernel/analysis.h"

#include <limits>

namespace egret::kernel {

namespace {

/// A bound's slope along the places, when these are one axis and the slope is a number.
std::optional<std::int64_t> slope_along_places(const Region& region, const StreamForm& form,
                                               const Expr& bound) {
  if (form.places.axes.size() != 1)
    return std::nullopt;
  const int axis = form.places.axes[0];
  const auto slope = coefficient_of(bound, Expr::axis(axis, region.axes[std::size_t(axis)].extent));
  return slope ? slope->constant() : std::nullopt;
}

/// The largest value at place 0 over some rows.
std::optional<Expr> largest_over_rows(const Region& region, const StreamForm& form,
                                      const Expr& bound, const Point& batch, const Expr& first_row,
                                      int rows) {
  const int axis = form.rows.axes.back();
  const Expr& extent = region.axes[std::size_t(axis)].extent;
  const Expr variable = Expr::axis(axis, extent);
  const auto slope = coefficient_of(bound, variable);
  if (!slope || !slope->is_constant())
    return std::nullopt;
  const bool alone = form.rows.axes.size() == 1;
  if (!alone && extent.divisor() % rows != 0)
    return std::nullopt;
  const Expr first = alone ? first_row : floormod(first_row, extent);
  const Expr row = slope->value() > 0 ? first + Expr(rows - 1) : first;
  bool known = true;
  const Expr most = substitute(bound, [&](const Expr& v) -> std::optional<Expr> {
    if (v == variable)
      return row;
    for (std::size_t a = 0; a < region.axes.size(); ++a)
      if (v == Expr::axis(int(a), region.axes[a].extent)) {
        if (contains(form.batch.axes, int(a)))
          return batch.at[a];
        if (contains(form.places.axes, int(a)))
          return Expr(0);
        known = false; // another of the rows' axes
      }
    return std::nullopt;
  });
  return known ? std::optional(most) : std::nullopt;
}

ValueId number(ProgramBuilder& b, double x) {
  return b.constant(Scalar::of(DType::F32, x));
}

ValueId where_lowest(ProgramBuilder& b, ValueId maximum, double there, ValueId otherwise) {
  const ValueId lowest = b.constant(identity_of(Monoid::Max, DType::F32));
  const ValueId is_lowest = b.apply(Op::Eq, DType::Bool, {maximum, lowest});
  return b.apply(Op::Select, DType::F32, {is_lowest, number(b, there), otherwise});
}

} // namespace

std::optional<Expr> largest_bound(const Region& region, const StreamForm& form, const Expr& bound,
                                  const Point& batch, const Expr& first_row, int rows,
                                  const Expr& first_place, int places) {
  const auto slope = slope_along_places(region, form, bound);
  if (!slope)
    return std::nullopt;
  const auto most = largest_over_rows(region, form, bound, batch, first_row, rows);
  if (!most)
    return std::nullopt;
  const Expr place = *slope > 0 ? first_place + Expr(places - 1) : first_place;
  return *most + Expr(*slope) * place;
}

TileRange tiles_that_count(const Region& region, const StreamForm& form, const Point& batch,
                           const Expr& first_row, int rows, int places) {
  TileRange range{Expr(0), ceildiv(form.places.extent, places)};
  for (const Expr& bound : form.bounds) {
    const auto slope = slope_along_places(region, form, bound);
    if (!slope || *slope == 0)
      continue;
    const auto most = largest_over_rows(region, form, bound, batch, first_row, rows);
    if (!most)
      continue;
    if (*slope < 0)
      range.end = min(range.end, floordiv(floordiv(*most, -*slope), places) + Expr(1));
    else
      range.begin = max(range.begin, floordiv(floordiv(-*most, *slope), places));
  }
  range.end = max(range.end, range.begin);
  return range;
}

TileRange tiles_that_are_whole(const Region& region, const StreamForm& form, const Point& batch,
                               const Expr& first_row, int rows, int places) {
  TileRange range{Expr(0), floordiv(form.places.extent, places)};
  for (const Expr& bound : form.bounds) {
    const auto slope = slope_along_places(region, form, bound);
    const auto most = largest_over_rows(region, form, Expr(0) - bound, batch, first_row, rows);
    if (!slope || !most || *slope == 0)
      return {Expr(0), Expr(0)};
    const Expr least = Expr(0) - *most; // of the bound, at place 0
    if (*slope < 0)
      range.end = min(range.end, floordiv(floordiv(least, -*slope) + Expr(1), places));
    else
      range.begin = max(range.begin, ceildiv(ceildiv(*most, *slope), places));
  }
  return range;
}

ValueId or_zero(ProgramBuilder& b, ValueId maximum) {
  return where_lowest(b, maximum, 0, maximum);
}

ValueId rescale(ProgramBuilder& b, ValueId before, ValueId now, bool quick) {
  const ValueId same = b.apply(Op::Eq, DType::Bool, {before, now});
  const ValueId minus = b.apply(Op::Mul, DType::F32, {now, number(b, -1)});
  const ValueId change = b.apply(Op::Add, DType::F32, {before, minus});
  const ValueId power =
      quick
          ? b.quick(Op::Exp2, b.apply(Op::Mul, DType::F32, {change, number(b, 1.4426950408889634)}))
          : b.apply(Op::Exp, DType::F32, {change});
  return b.apply(Op::Select, DType::F32, {same, number(b, 1), power});
}

ValueId unless_lowest(ProgramBuilder& b, ValueId maximum, ValueId sum) {
  return where_lowest(b, maximum, std::numeric_limits<double>::quiet_NaN(), sum);
}

} // namespace egret::kernel
