// Regions that multiply and sum: which axes are rows, columns, depth and batch, and how the two
// sides lie in memory.
#pragma once

#include "kernel/region.h"

#include <optional>
#include <string>
#include <vector>

namespace egret::kernel {

/// Region axes seen as one index in row-major order, the last one varying fastest. With slices the
/// index goes along `run` elements of the first slice, the same elements of the second, and so on,
/// then along the next `run` of each; generators choose the run.
struct AxisGroup {
  std::vector<int> axes; ///< without that of the slices' numbers
  Expr extent;           ///< the product of theirs, times the number of slices
  int slice_axis = -1;   ///< the one that numbers the slices
  std::int64_t slices = 1, run = 1;
  /// The innermost axis counts `padded` places, of which the first `places` exist: whole vectors,
  /// which do not go over its end. 0: all its places.
  std::int64_t padded = 0, places = 0;

  /// The place within a slice of an index, or of the first of some that are in one run.
  Expr place(const Expr& index) const {
    return slices == 1 ? index : floordiv(index, run * slices) * Expr(run) + floormod(index, run);
  }
  Expr slice_extent() const { return slices == 1 ? extent : floordiv(extent, slices); }
  /// Holds where there is an element of that index.
  Guard inside(const Expr& index) const { return {place(index), Expr(0), slice_extent()}; }
};

/// One factor of the product. Its panel axes are the rows (left) or the columns (right).
struct Side {
  /// Along which index neighbours are neighbours in memory.
  enum class Order : std::uint8_t { Panel, Depth, Neither };
  int value = -1; ///< of the reducing stage's body
  Order order = Order::Neither;
  /// The element is just loaded, in the accumulator's type and without holes: it can be read again
  /// and again where it is.
  bool plain = false;
  std::int64_t panel_stride = 0, depth_stride = 0; ///< of the innermost axes; 0: no constant
  /// The panel's innermost axis, of several, is a multiple of so many elements long: vectors of
  /// other lengths go over its end. 0: one axis.
  std::int64_t run = 0;
  /// Memory holds panels of so many neighbours, one step of the depth after the other, which may be
  /// read where they are like packed ones; 0: it does not. The last panel is whole.
  std::int64_t tile = 0;
  bool pairs = false; ///< such a step is two of the depth, which alternate
  /// Numbers of 16 bits, without holes; two neighbours along the depth are one word of memory.
  bool words = false;
};

/// result[batch, row, column] = sum over depth of left[batch, row, depth] * right[batch, column,
/// depth], followed by maps of the result. The columns are those along which the outputs are
/// contiguous, if any. Maps may combine slices of the result along one axis of the columns.
struct ContractionForm {
  int stage = 0; ///< the one that reduces
  AxisGroup batch, rows, columns, depth;
  Side left, right;
  DType accumulator = DType::F32; ///< a register type
  double epilogue_flops = 0;      ///< of one element, in additions
};

/// A load of a tensor without indirection, whose holes are filled with zeros, and where a factor is
/// that load: of a concatenation, in the box of one tensor. Guards are over the stage's variables.
struct FactorPiece {
  int load = -1;
  std::vector<Guard> where;
};

/// One factor as it comes from memory, before it is widened to the accumulator's type.
struct Factor {
  int value = -1; ///< of the reducing stage's body
  DType dtype = DType::F32;
  /// Nothing but a load of a tensor, without holes or indirection.
  bool is_load = false;
  /// The same, but there may be holes that are filled with zeros.
  bool is_padded_load = false;
  /// The factor is one of these at each point, chosen by indices alone; empty: it is something
  /// else. Of a padded load, one that is everywhere.
  std::vector<FactorPiece> pieces;
};
/// The factor of a side without conversions that lose nothing.
Factor factor_of(const Region& region, const ContractionForm& form, const Side& side);

/// What pairs are made of: the same, where integers are summed without conversions of integers that
/// lose nothing, and as i16 where they are computed and known to fit (integer_range.h).
Factor paired_factor_of(const Region& region, const ContractionForm& form, const Side& side);

/// The form of a region, or the reason why it has none.
struct FoundContraction {
  bool ok = false;
  ContractionForm form;
  std::string reason;
};
/// `vectors`: also products of a vector with a matrix, as one row without axes; `slices`: also maps
/// of the result's slices.
FoundContraction find_contraction(const Region& region, bool vectors = false, bool slices = false);

/// The form whose columns, of several axes, have their innermost one padded to whole vectors;
/// nothing where it needs no padding, or its size is not known.
std::optional<ContractionForm> with_whole_vectors(const Region& region, const ContractionForm& form,
                                                  int lanes);

/// What a symbolic extent is taken for when sizes are chosen.
std::int64_t usual_size(const Expr& extent);

} // namespace egret::kernel
