// Regions that sort: their form, and the words by which their elements are compared.
#pragma once

#include "kernel/emit.h"
#include "kernel/region.h"

#include <optional>
#include <vector>

namespace egret::kernel {

/// A region of one sort and nothing else.
struct SortForm {
  int stage = 0;
  int axis = 0;          ///< that is sorted along
  std::vector<int> rows; ///< the other axes
  Expr row_count;
  Expr length;                 ///< of a row
  Expr kept;                   ///< of each sorted row, the first so many are wanted
  DType word = DType::U32;     ///< keys as unsigned integers of 32 or 64 bits in the same order
  int bits = 32;               ///< of the word that may differ
  DType position = DType::I32; ///< in which a position along the axis fits
};

std::optional<SortForm> sort_form(const Region& region);

/// The number of an element's row, and the point of element `at` of row `row`.
Point point_of_row(const Region& region, const SortForm& form, const Expr& row, const Expr& at);

/// The key of the element at a point as a word, one lane.
ValueId key_word(Emitter& emitter, const SortForm& form, const Point& point);

/// Digit of a word from bit `shift` (a word) on, as i32.
ValueId digit_of(ProgramBuilder& b, ValueId word, ValueId shift, int bits);

/// Stores `position` as element `place` of a sorted row, where the guards hold and the output wants
/// it.
void store_position(Emitter& emitter, const SortForm& form, const Expr& row, const Expr& place,
                    ValueId position, const std::vector<Guard>& mask);

} // namespace egret::kernel
