// Axes, pieces of them and the loops over those, while sizes are being chosen.
#pragma once

#include "loops/options.h"
#include "loops/sizes.h"

#include <optional>
#include <vector>

namespace egret::loops {

/// What is still to be gone through along an axis, in steps of 1.
struct Span {
  int axis = 0;
  double n = 1;        ///< iterations, about
  Expr extent;         ///< likewise, exactly
  bool whole = true;   ///< all of the axis: it may be split with a rest
  bool masked = false; ///< loops outside go too far
  friend bool operator==(const Span&, const Span&) = default;
};

/// A loop that was decided on.
struct Made {
  int axis = 0;
  Expr extent;
  std::int64_t step = 1;
  kernel::Bind bind = kernel::Bind::Serial;
  double trips = 1;
};

/// A split of a span: loops over pieces outside, the piece inside.
struct Split {
  std::optional<Made> outer;
  Span inner;
};

/// Nothing where the factor does not fit.
std::optional<Split> split(const kernel::Region& region, const Span& span, std::int64_t factor);

/// A loop over all of it.
Made whole(const Span& span, kernel::Bind bind = kernel::Bind::Serial);

/// The loops, first outermost, around a tree.
TreePtr around(const std::vector<Made>& loops, TreePtr inside);

/// The best of each way stay, all in order.
void keep_best(std::vector<Sized>& list, std::size_t keep);

/// Trees one after the other: the first of each list, and for each list with another of its own.
void join_nests(const std::vector<std::vector<Sized>>& each, std::vector<Sized>& all);

/// The same for a GPU: which loops blocks, warps and lanes go through.
std::vector<Sized> gpu_sizes_of(const kernel::Region& region, const kernel::Target& target,
                                const std::vector<Nest>& nests, const Estimator& estimator,
                                const SizesOptions& options, std::size_t& points);

} // namespace egret::loops
