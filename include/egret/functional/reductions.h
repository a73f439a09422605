// Functions along axes: reductions, scans, softmax.
#pragma once

#include "egret/tensor.h"

#include <optional>

namespace egret {

Tensor sum(const Operand& a, const Axes& axes = {}, bool keepdim = false);
Tensor mean(const Operand& a, const Axes& axes = {}, bool keepdim = false);
/// Sum of squared distances from the mean over (count - correction).
Tensor var(const Operand& a, const Axes& axes = {}, bool keepdim = false, double correction = 1);
Tensor stddev(const Operand& a, const Axes& axes = {}, bool keepdim = false, double correction = 1);
Tensor prod(const Operand& a, const Axes& axes = {}, bool keepdim = false);
Tensor max(const Operand& a, const Axes& axes = {}, bool keepdim = false); ///< NaN wins
Tensor min(const Operand& a, const Axes& axes = {}, bool keepdim = false);
Tensor argmax(const Operand& a, std::optional<std::int64_t> axis = {},
              bool keepdim = false); ///< i64, first one
Tensor argmin(const Operand& a, std::optional<std::int64_t> axis = {}, bool keepdim = false);
Tensor any(const Operand& a, const Axes& axes = {}, bool keepdim = false);
Tensor all(const Operand& a, const Axes& axes = {}, bool keepdim = false);
/// (Σ|a|^p)^(1/p): the largest |a| for p = inf, the smallest for -inf, how many are not 0 for p =
/// 0. The gradient at 0 is 0.
Tensor norm(const Operand& a, const Axes& axes = {}, bool keepdim = false, double p = 2);
Tensor cumsum(const Operand& a, std::int64_t axis);
Tensor cumprod(const Operand& a, std::int64_t axis);
Tensor softmax(const Operand& a, std::int64_t axis = -1);
Tensor log_softmax(const Operand& a, std::int64_t axis = -1);
Tensor logsumexp(const Operand& a, std::int64_t axis = -1, bool keepdim = false);

Tensor amax(const Operand& a, const Axes& axes = {}, bool keepdim = false); ///< max
Tensor amin(const Operand& a, const Axes& axes = {}, bool keepdim = false); ///< min
struct Moments {
  Tensor spread, mean; ///< spread: the variance or the deviation
};
Moments var_mean(const Operand& a, const Axes& axes = {}, bool keepdim = false,
                 double correction = 1);
Moments std_mean(const Operand& a, const Axes& axes = {}, bool keepdim = false,
                 double correction = 1);
Tensor count_nonzero(const Operand& a, const Axes& axes = {}, bool keepdim = false); ///< i64
Tensor nansum(const Operand& a, const Axes& axes = {}, bool keepdim = false); ///< NaN counts as 0
Tensor nanmean(const Operand& a, const Axes& axes = {},
               bool keepdim = false); ///< of what is no NaN

/// What is along an axis up to and with each position, and where (i64) it was met last.
struct Extreme {
  Tensor values, indices;
};
Extreme cummax(const Operand& a, std::int64_t axis);
Extreme cummin(const Operand& a, std::int64_t axis);
/// log of the cumulative sum of exp, without overflow: log2(n) steps.
Tensor logcumsumexp(const Operand& a, std::int64_t axis);

/// Differences of neighbours along an axis, `times` over; of bools whether they differ.
Tensor diff(const Operand& a, std::int64_t times = 1, std::int64_t axis = -1);
/// The integral along an axis by trapezoids of width dx, or between the points x (of a's shape, or
/// a vector along the axis); and those up to each place but the first.
Tensor trapezoid(const Operand& a, double dx = 1, std::int64_t axis = -1);
Tensor trapezoid(const Operand& a, const Operand& x, std::int64_t axis = -1);
Tensor cumulative_trapezoid(const Operand& a, double dx = 1, std::int64_t axis = -1);
Tensor cumulative_trapezoid(const Operand& a, const Operand& x, std::int64_t axis = -1);
/// How many elements lie in each of `bins` equal parts of low..high, high included, in a's dtype;
/// low == high: of the range of the elements. Others and NaN do not count.
Tensor histc(const Operand& a, std::int64_t bins = 100, double low = 0, double high = 0);
/// The covariances [n, n] of variables a [n, observations], over observations - correction; and
/// those divided by the deviations.
Tensor cov(const Operand& a, double correction = 1);
Tensor corrcoef(const Operand& a);
struct MinMax {
  Tensor min, max;
};
MinMax aminmax(const Operand& a, const Axes& axes = {}, bool keepdim = false);

} // namespace egret
