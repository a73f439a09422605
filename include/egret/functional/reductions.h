// Functions along axes: reductions, scans, softmax.
#pragma once

#include "egret/tensor.h"

#include <functional>
#include <optional>
#include <vector>

namespace egret {

// `axes`: none means all; negative ones count from the end; Error(Axis) for one that is out of
// range or given twice. Reduced axes leave the shape, or stay with size 1 with `keepdim`. f16 and
// bf16 are computed in f32 and rounded once.

/// The sum, 0 of nothing: floats keep their dtype (f32 within Autocast), signed integers and bools
/// give i64, unsigned integers u64.
Tensor sum(const Operand& a, const Axes& axes = {}, bool keepdim = false);
/// The mean, in the dtype of floats, f32 of integers and bools; NaN of nothing.
Tensor mean(const Operand& a, const Axes& axes = {}, bool keepdim = false);
/// Sum of squared distances from the mean over (count - correction); its root. Dtypes as mean().
Tensor var(const Operand& a, const Axes& axes = {}, bool keepdim = false, double correction = 1);
Tensor stddev(const Operand& a, const Axes& axes = {}, bool keepdim = false, double correction = 1);
/// The product, 1 of nothing; dtypes as sum().
Tensor prod(const Operand& a, const Axes& axes = {}, bool keepdim = false);
/// The largest (smallest), in a's dtype. Error(Shape) where a reduced axis is empty.
Tensor max(const Operand& a, const Axes& axes = {}, bool keepdim = false); ///< NaN wins
Tensor min(const Operand& a, const Axes& axes = {}, bool keepdim = false);
/// Position (i64) of the first largest (smallest) element; of the flattened tensor without an axis.
/// Error(Shape) for an empty axis.
Tensor argmax(const Operand& a, std::optional<std::int64_t> axis = {}, bool keepdim = false);
Tensor argmin(const Operand& a, std::optional<std::int64_t> axis = {}, bool keepdim = false);
/// bool: whether any (every) element is not 0; false (true) of nothing.
Tensor any(const Operand& a, const Axes& axes = {}, bool keepdim = false);
Tensor all(const Operand& a, const Axes& axes = {}, bool keepdim = false);
/// (Σ|a|^p)^(1/p): the largest |a| for p = inf, the smallest for -inf, how many are not 0 for p =
/// 0. The gradient at 0 is 0.
Tensor norm(const Operand& a, const Axes& axes = {}, bool keepdim = false, double p = 2);
/// Sums (products) of elements 0..i; dtypes as sum(). Parts of the axis are combined, so a product
/// is right only where those of neighbours do not overflow: 0 before them gives NaN then.
Tensor cumsum(const Operand& a, std::int64_t axis);
Tensor cumprod(const Operand& a, std::int64_t axis);
/// h[i] = factor[i] h[i-1] + term[i] along an axis, h[-1] being `initial`, or 0: leaky averages,
/// discounted sums, state spaces. `reverse`: from the last element on, h[i] = factor[i] h[i+1] +
/// term[i]. Factor and term are broadcast against each other and give shape and dtype (f32 of
/// integers); `initial` is broadcast to the shape without the axis. Sums in f32 where the dtype has
/// 16 bits. Few long lines are scanned in parts, which are maps h -> a h + b, so a result is right
/// only where products of neighbouring factors do not overflow. Error(Axis), Error(Shape).
Tensor linear_recurrence(const Operand& factor, const Operand& term, std::int64_t axis = 0,
                         bool reverse = false, const std::optional<Operand>& initial = {});
/// Along one axis, in the dtype of floats, f32 of integers.
Tensor softmax(const Operand& a, std::int64_t axis = -1);
Tensor log_softmax(const Operand& a, std::int64_t axis = -1);
/// log of the sum of exp over one or several axes, without overflow; -inf of nothing. Dtypes as
/// softmax().
Tensor logsumexp(const Operand& a, const Axes& axes = -1, bool keepdim = false);

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
/// log of the cumulative sum of exp, without overflow: two scans.
Tensor logcumsumexp(const Operand& a, std::int64_t axis);

/// Combines the elements of several tensors at neighbouring positions: `before` and `after` hold
/// the same positions of each of them, and so does the result, with their shapes and dtypes.
using Combine = std::function<std::vector<Tensor>(const std::vector<Tensor>& before,
                                                  const std::vector<Tensor>& after)>;
/// What `combine`, which must be associative, makes of elements 0, 1 .. i along an axis, or with
/// `reverse` of the last one, the one before it .. i, in this order: x0, combine(x0, x1),
/// combine(combine(x0, x1), x2) ... The tensors have one size along the axis. By pairs of
/// neighbours, then pairs of those (Blelloch 1990): 2 log2(n) steps and 2 n combinations, each step
/// one call for many positions. With before = {a, b} and after = {c, d}, {a c, b c + d} makes h[i]
/// = a[i] h[i-1] + b[i], a linear recurrence. Error(Axis) for an axis that is out of range,
/// Error(Shape) for sizes that differ or are symbolic, or where `combine` gives other shapes or
/// another number of tensors, Error(DType) where it gives other dtypes, Error(Value) without
/// tensors or `combine`.
std::vector<Tensor> associative_scan(const Combine& combine, const std::vector<Tensor>& tensors,
                                     std::int64_t axis = 0, bool reverse = false);
/// The same of one tensor.
Tensor
associative_scan(const std::function<Tensor(const Tensor& before, const Tensor& after)>& combine,
                 const Operand& a, std::int64_t axis = 0, bool reverse = false);

/// What a step of a loop gives: the state for the next step, and the step's outputs.
struct ScanStep {
  std::vector<Tensor> state, outputs;
};
/// A loop's last state, and the outputs of all steps, each along a new first axis.
struct ScanResult {
  std::vector<Tensor> state, outputs;
};
struct ScanOptions {
  bool reverse = false; ///< from the last index to the first; outputs stay where their inputs are
  std::optional<std::int64_t> length = {}; ///< of the loop, where `xs` is empty
};
/// A loop over the first axis of `xs` (jax.lax.scan): step(state, xs[t]) for t = 0, 1 .. n-1, each
/// with the state that the one before it gave. Every step gives a state of the shapes and dtypes of
/// the first one, and outputs of the same shapes and dtypes. `step` runs once for each t, or once
/// where there is none, to see what outputs there would be. Gradients go through state, outputs and
/// whatever else `step` reads. Within a compiled function products of `xs` alone become one of all
/// steps, linear recurrences one kernel, and other steps, on a GPU, chains of launches. The graph
/// holds all steps, which share the code of kernels: to compile it takes some milliseconds a step
/// (on one core, of a small LSTM 5, and 20 with gradients), so that loops over many thousands of
/// steps are better cut into calls of one compiled function, state in and state out.
/// Error(Shape) for lengths that differ or are symbolic, or where shapes change from step to step;
/// Error(DType) where dtypes do; Error(Value) without `step`, or without `xs` and `length`.
ScanResult scan(const std::function<ScanStep(const std::vector<Tensor>& state,
                                             const std::vector<Tensor>& x)>& step,
                const std::vector<Tensor>& state, const std::vector<Tensor>& xs,
                const ScanOptions& options = {});
/// The same with one tensor each, whose outputs are the states: h[t] = step(h[t-1], xs[t]).
Tensor scan(const std::function<Tensor(const Tensor& state, const Tensor& x)>& step,
            const Operand& state, const Operand& xs, const ScanOptions& options = {});

/// Differences of neighbours along an axis, `times` over; of bools whether they differ. Nothing is
/// left of an axis of at most `times` elements. Error(Value) for a negative number of times, or one
/// above 1024 that leaves something.
Tensor diff(const Operand& a, std::int64_t times = 1, std::int64_t axis = -1);
/// The integral along an axis by trapezoids of width dx, or between the points x (of a's shape, or
/// a vector along the axis); and those up to each place but the first.
Tensor trapezoid(const Operand& a, double dx = 1, std::int64_t axis = -1);
Tensor trapezoid(const Operand& a, const Operand& x, std::int64_t axis = -1);
Tensor cumulative_trapezoid(const Operand& a, double dx = 1, std::int64_t axis = -1);
Tensor cumulative_trapezoid(const Operand& a, const Operand& x, std::int64_t axis = -1);
struct GradientOptions {
  std::vector<double> spacing = {1};    ///< between neighbours: one for all axes, or one for each
  std::vector<Tensor> coordinates = {}; ///< instead of it, a vector of positions for each axis
  Axes axes = {};
  int edge_order = 1; ///< 2: the ends by three elements
};
/// The derivative along each axis, in a's shape (torch.gradient, numpy.gradient): central
/// differences, of second order also where distances differ, one-sided at both ends. In the dtype
/// of floats, f32 of integers. Error(Shape) for an axis of less than edge_order + 1 elements and
/// for coordinates that do not fit, Error(Value) for a spacing of 0 and other edge orders.
std::vector<Tensor> gradient(const Operand& a, const GradientOptions& options = {});
/// How many elements lie in each of `bins` equal parts of low..high, high included, in a's dtype;
/// low == high: of the range of the elements. Others and NaN do not count.
Tensor histc(const Operand& a, std::int64_t bins = 100, double low = 0, double high = 0);
/// How many elements, or the sum of `weights` (of a's shape) of those, lie between neighbours of
/// ascending `edges` [n + 1], the last one included: [n], f32, of f64 f64. Others and NaN do not
/// count. `density`: over the total and the widths, so that the integral is 1. Without gradients.
Tensor histogram(const Operand& a, const Operand& edges, const Operand& weights = {},
                 bool density = false);
/// The covariances [n, n] of variables a [n, observations], over observations - correction; and
/// those divided by the deviations.
Tensor cov(const Operand& a, double correction = 1);
Tensor corrcoef(const Operand& a);
struct MinMax {
  Tensor min, max;
};
/// amin() and amax().
MinMax aminmax(const Operand& a, const Axes& axes = {}, bool keepdim = false);

} // namespace egret
