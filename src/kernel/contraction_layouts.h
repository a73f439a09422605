// Orders in memory that sides of contractions may be kept in.
#pragma once

#include "kernel/contraction_form.h"
#include "kernel/layouts.h"
#include "kernel/target.h"

#include <array>
#include <optional>
#include <vector>

namespace egret::kernel {

/// The axes of a side's memory, outermost first, where it is nothing but a load of all of an
/// operand; else nothing.
std::optional<std::vector<int>> memory_of(const Region& region, const ContractionForm& form,
                                          const Side& side);

/// A side in panels of `tile` neighbours along `group`, each with its steps one after the other;
/// 0: one panel. `pairs`: a step has two neighbours along the depth for each. `memory`: of
/// memory_of().
Layout in_panels(const Region& region, const ContractionForm& form, const AxisGroup& group,
                 const std::vector<int>& memory, std::int64_t tile, bool pairs);

/// A side whose neighbours along the depth are neighbours in memory.
Layout along_depth(const Region& region, const ContractionForm& form, const AxisGroup& group,
                   const std::vector<int>& memory);

/// The operand's memory with that axis innermost, whatever else the side reads of it (windows,
/// say); nothing where neighbours along it lie together already, or are not all that lies between
/// two steps of something else.
std::optional<Layout> innermost(const Region& region, const ContractionForm& form, const Side& side,
                                int axis);

/// Whether the steps along some axis are less than what the axes inside of it reach over, as those
/// of overlapping windows are: elements are read by several points. Of sides that are loads.
bool is_windows(const Region& region, const ContractionForm& form, const Side& side);

/// A side that is all of an operand, row by row, with room at the end of each row so that all rows
/// begin at multiples of 16 bytes; nothing where they do, or where there is but one row. `memory`:
/// of memory_of().
std::optional<Layout> with_aligned_rows(const Region& region, const ContractionForm& form,
                                        const Side& side, const std::vector<int>& memory);

/// Of products with windows: an axis of the depth along which both sides could be copied in pieces
/// of 16 bytes if it were innermost in memory, as the channels of a convolution; -1: there is none,
/// or both sides are copied in such pieces as they are, along the depth or along their own axes.
int axis_to_copy_along(const Region& region, const ContractionForm& form);

/// The same where each side may be copied along an axis of its own, of the depth or of its rows or
/// columns, as those of queued products: the axis of the left and of the right side; -1: the side
/// is copied as it is. Nothing where both are, where some side cannot be, and where both are all of
/// an operand in some order whose neighbours, if they are copied together, lie at aligned places.
std::optional<std::array<int, 2>> axes_to_copy_sides_along(const Region& region,
                                                           const ContractionForm& form);

/// The right side in the panels that a CPU would pack it into, of each slice for itself.
std::vector<LayoutWish> panels_of_right(const Region& region, const ContractionForm& form,
                                        const Target& target);

/// The operand that a side is a load of.
int operand_of(const Region& region, const ContractionForm& form, const Side& side);

} // namespace egret::kernel
