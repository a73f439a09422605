// Steps of an unrolled loop, h = a h + b, become one scan over all steps; and what the steps make
// is made for all of them at once.
#pragma once

#include "egret/ir.h"

namespace egret::compiler {

/// The graph in which
///
/// - values h_t = a_t h_(t-1) + b_t of eight or more steps, a_t and b_t being made of index t (or
///   -t) of the same values (Step), or being the same in all steps, are slices of one linear scan,
///   or of a sum's where there is no a_t, of which only the last element may be wanted
/// - concatenations and sums of values of eight or more steps are made of the values of all steps.
///
/// Values change by rounding: types of 16 bits are rounded after the scan, no longer in each step.
ir::Graph roll_recurrences(const ir::Graph& graph);

} // namespace egret::compiler
