// What generators of streams have in common: which tiles count for some rows, and sums that are
// scaled as a maximum grows.
#pragma once

#include "kernel/emit.h"
#include "kernel/stream_form.h"

#include <optional>

namespace egret::kernel {

/// The largest value of a bound (see StreamForm::bounds) over `rows` rows from `first_row` on and
/// `places` places from `first_place` on; nothing when it is not known. `batch`: a point with the
/// batch axes set.
std::optional<Expr> largest_bound(const Region& region, const StreamForm& form, const Expr& bound,
                                  const Point& batch, const Expr& first_row, int rows,
                                  const Expr& first_place, int places);

/// Tiles of `places` places, from `begin` to `end`, beyond which no point of these rows counts.
struct TileRange {
  Expr begin, end;
};
TileRange tiles_that_count(const Region& region, const StreamForm& form, const Point& batch,
                           const Expr& first_row, int rows, int places);

/// Tiles between these, of those that exist, have no point that does not count or does not exist.
TileRange tiles_that_are_whole(const Region& region, const StreamForm& form, const Point& batch,
                               const Expr& first_row, int rows, int places);

/// For sums of exp(x - m) in f32 while m, the largest x so far, grows.
/// m, but 0 in place of the lowest number, from which nothing can be subtracted: no point counted
/// yet.
ValueId or_zero(ProgramBuilder& b, ValueId maximum);
/// exp(before - now), and 1 where they are equal, also when both are infinite. `quick`: by the
/// approximate power of 2, as the exponentials that it scales.
ValueId rescale(ProgramBuilder& b, ValueId before, ValueId now, bool quick = false);
/// The sum, but no number where m is the lowest number, as the formula says.
ValueId unless_lowest(ProgramBuilder& b, ValueId maximum, ValueId sum);

} // namespace egret::kernel
