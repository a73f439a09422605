// Sorting and what rests on order. NaN is larger than any number; -0 equals 0. Every sort is
// stable.
//
// Positions come from one kernel of integer keys in the order of the values; values are gathered,
// so gradients go back to where they came from.
#pragma once

#include "egret/functional/reductions.h"
#include "egret/tensor.h"

#include <initializer_list>
#include <span>

namespace egret {

struct Sorted {
  Tensor values, indices; ///< i64 positions along the axis
};
/// Sorted along an axis; Error(Axis) for one that is out of range.
Sorted sort(const Operand& a, std::int64_t axis = -1, bool descending = false);
/// sort()'s positions, i64.
Tensor argsort(const Operand& a, std::int64_t axis = -1, bool descending = false);
/// The k largest (or smallest) elements along an axis, in order; Error(Value) unless k is from 0 to
/// the axis's size.
Sorted topk(const Operand& a, std::int64_t k, std::int64_t axis = -1, bool largest = true);
/// The k-th smallest element along an axis, k from 1. Error(Value) unless 1 <= k <= size,
/// Error(Shape) for an empty axis.
Sorted kthvalue(const Operand& a, std::int64_t k, std::int64_t axis = -1, bool keepdim = false);
/// The lower one of two in the middle; NaN where there is one.
Sorted median(const Operand& a, std::int64_t axis, bool keepdim = false);
Tensor median(const Operand& a); ///< of all elements
/// The value that stands most often along an axis, the smallest of those, and its last position.
Sorted mode(const Operand& a, std::int64_t axis = -1, bool keepdim = false);
/// The same of the elements that are no NaN; NaN (the first one) where there are no others.
Sorted nanmedian(const Operand& a, std::int64_t axis, bool keepdim = false);
Tensor nanmedian(const Operand& a); ///< of all elements

/// What a quantile is that lies between two elements: a line between them, one of them (of two that
/// are equally near the one at an even place), or their mean.
enum class QuantileBetween { Linear, Lower, Higher, Nearest, Midpoint };
/// Quantile q along an axis, which leaves the shape or stays with size 1: element q (size - 1) of
/// the sorted line, in the dtype of floats, f32 of integers; NaN where there is a NaN. Of several
/// q, one result behind the other along a new first axis. Error(Value) for q outside of 0..1,
/// Error(Shape) for an empty axis.
Tensor quantile(const Operand& a, double q, std::int64_t axis, bool keepdim = false,
                QuantileBetween between = QuantileBetween::Linear);
Tensor quantile(const Operand& a, std::span<const double> q, std::int64_t axis,
                bool keepdim = false, QuantileBetween between = QuantileBetween::Linear);
Tensor quantile(const Operand& a, std::initializer_list<double> q, std::int64_t axis,
                bool keepdim = false, QuantileBetween between = QuantileBetween::Linear);
/// The same of the elements that are no NaN; NaN where there are no others.
Tensor nanquantile(const Operand& a, double q, std::int64_t axis, bool keepdim = false,
                   QuantileBetween between = QuantileBetween::Linear);
Tensor nanquantile(const Operand& a, std::span<const double> q, std::int64_t axis,
                   bool keepdim = false, QuantileBetween between = QuantileBetween::Linear);
Tensor nanquantile(const Operand& a, std::initializer_list<double> q, std::int64_t axis,
                   bool keepdim = false, QuantileBetween between = QuantileBetween::Linear);

/// For each value the first position (i64) at which it could stand in a sorted line: before equal
/// ones, or behind them with `right`. A search by halves. `line` is a vector, or has the values'
/// dims but for the last. `sorter`, integers of the line's shape: argsort() of a line that is not
/// sorted itself. Error(Shape) where shapes do not fit, Error(DType) for a sorter of no integers.
Tensor searchsorted(const Operand& line, const Operand& values, bool right = false,
                    const Operand& sorter = {});
/// searchsorted with boundaries as the vector, whose values come first.
Tensor bucketize(const Operand& values, const Operand& boundaries, bool right = false);

} // namespace egret
