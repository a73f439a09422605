#include "autodiff/long_rules.h"

#include <limits>

namespace egret::autodiff {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<Expr> zeros(std::size_t rank) {
  return std::vector<Expr>(rank, Expr(0));
}

/// `a` moved by `distance` along its last axis, to the front if negative; `fill` comes in.
Value shifted(Value a, std::int64_t distance, double fill) {
  const Shape shape = a.shape();
  std::vector<Expr> before = zeros(shape.size()), after = before, begin = before, end = shape;
  if (distance > 0) {
    before.back() = distance;
  } else {
    after.back() = begin.back() = -distance;
    end.back() = shape.back() - distance;
  }
  return shrink(pad(a, before, after, fill), begin, end);
}

/// Along the last axis, the product of all elements before each.
Value product_before(Value a) {
  return shifted(scan(Op::ScanProd, a, static_cast<std::int64_t>(a.rank()) - 1), 1, 1);
}

/// Along the last axis, s[k] = g[k] + x[k+1] s[k+1].
Value sums_behind(Value g, Value x) {
  const std::int64_t last = static_cast<std::int64_t>(g.rank()) - 1;
  return flip(linear_scan(flip(g, {last}), flip(shifted(x, -1, 0), {last}), last), {last});
}

/// A value for each element of the index, repeated over the other dims of the updates.
Value over_updates(Value by_index, const Shape& updates, std::int64_t axis) {
  const Shape index = by_index.shape();
  Shape shape(updates.size(), Expr(1));
  std::copy(index.begin(), index.end(), shape.begin() + axis);
  return expand(reshape(by_index, shape), updates);
}

/// Each element that attains the maximum gets an equal share of g: g / count, where attained.
struct ScatterMaxShares {
  Value of_data, of_updates, share;

  explicit ScatterMaxShares(const Site& s) {
    const std::int64_t axis = s.attrs.axes[0];
    of_data = equal(s.a, s.y);
    of_updates = equal(s.c, gather(s.y, s.b, axis));
    const Value count = scatter(Op::ScatterAdd, cast(of_data, s.g.dtype()), s.b,
                                cast(of_updates, s.g.dtype()), axis);
    share = s.g / count;
  }
};

} // namespace

/// g / count of largest elements, where x is largest.
Value reduce_max_rule(const Site& s) {
  const Shape shape = s.a.shape();
  const Value largest = equal(s.a, unreduce(s.y, shape, s.attrs.axes));
  const Value share = s.g / sum(cast(largest, s.g.dtype()), s.attrs.axes);
  return select(largest, unreduce(share, shape, s.attrs.axes), full_like(s.a, 0));
}

/// g times the product of all other elements, which is the product of those before and of those
/// behind: right with zeros.
Value reduce_prod_rule(const Site& s) {
  const Shape shape = s.a.shape();
  const Value x = with_axes_last(s.a, s.attrs.axes);
  const Axes last{static_cast<std::int64_t>(x.rank()) - 1};
  const Value others = product_before(x) * flip(product_before(flip(x, last)), last);
  return unreduce(s.g, shape, s.attrs.axes) * with_axes_back(others, shape, s.attrs.axes);
}

/// Each gradient goes to the element that first reached the running maximum.
Value scan_max_rule(const Site& s) {
  const Shape shape = s.a.shape();
  const Value x = with_axes_last(s.a, s.attrs.axes), y = with_axes_last(s.y, s.attrs.axes);
  const Value place = numbers(*s.a.graph, x.shape());
  const Value is_new = less(shifted(y, 1, -kInfinity), x);
  const Value source = scan(Op::ScanMax, select(is_new, place, full_like(place, -1)),
                            static_cast<std::int64_t>(x.rank()) - 1);
  const Shape flat{element_count(shape)};
  const Value g = reshape(with_axes_last(s.g, s.attrs.axes), flat);
  const Value sums = scatter(Op::ScatterAdd, full_like(g, 0), reshape(source, flat), g, 0);
  return with_axes_back(reshape(sums, x.shape()), shape, s.attrs.axes);
}

/// Element k gets the product of x before k, times the sum over i >= k of g[i] times the product of
/// x[k+1..i]. That sum is s[k] = g[k] + x[k+1] s[k+1]. Nothing is divided, so zeros are right
/// at every order of differentiation.
Value scan_prod_rule(const Site& s) {
  const Shape shape = s.a.shape();
  const DType type = s.a.dtype();
  const DType wide = type == DType::BF16 || type == DType::F16 ? DType::F32 : type;
  const auto lines = [&](Value a) { return cast(with_axes_last(a, s.attrs.axes), wide); };
  const Value total = shifted(lines(s.y), 1, 1) * sums_behind(lines(s.g), lines(s.a));
  return with_axes_back(cast(total, type), shape, s.attrs.axes);
}

/// Of h[i] = x[i] h[i-1] + b[i]: g by h[k] alone and by way of those behind it.
Value scan_linear_term_rule(const Site& s) {
  const auto lines = [&](Value a) { return with_axes_last(a, s.attrs.axes); };
  return with_axes_back(sums_behind(lines(s.g), lines(s.b)), s.a.shape(), s.attrs.axes);
}

Value scan_linear_factor_rule(const Site& s) {
  const auto lines = [&](Value a) { return with_axes_last(a, s.attrs.axes); };
  const Value share = sums_behind(lines(s.g), lines(s.b)) * shifted(lines(s.y), 1, 0);
  return with_axes_back(share, s.a.shape(), s.attrs.axes);
}

/// g at the place of an update that is the last one there, 0 for those that were overwritten.
Value scatter_set_rule(const Site& s) {
  const std::int64_t axis = s.attrs.axes[0];
  const Expr length = s.a.shape()[static_cast<std::size_t>(axis)];
  const Value number = numbers(*s.a.graph, s.b.shape());
  const Value nobody = full(*s.a.graph, {length}, DType::I64, -1);
  const Value last = gather(scatter(Op::ScatterSet, nobody, s.b, number, 0), s.b, 0);
  const Value from_g = gather(s.g, s.b, axis);
  return select(over_updates(equal(last, number), from_g.shape(), axis), from_g,
                full_like(from_g, 0));
}

Value scatter_max_data_rule(const Site& s) {
  const ScatterMaxShares shares(s);
  return select(shares.of_data, shares.share, full_like(shares.share, 0));
}

Value scatter_max_updates_rule(const Site& s) {
  const ScatterMaxShares shares(s);
  const Value share = gather(shares.share, s.b, s.attrs.axes[0]);
  return select(shares.of_updates, share, full_like(share, 0));
}

Value permute_rule(const Site& s) {
  Axes inverse(s.attrs.axes.size());
  for (std::size_t i = 0; i < inverse.size(); ++i)
    inverse[static_cast<std::size_t>(s.attrs.axes[i])] = static_cast<std::int64_t>(i);
  return permute(s.g, inverse);
}

Value expand_rule(const Site& s) {
  const Shape from = s.a.shape(), to = s.g.shape();
  Axes repeated;
  for (std::size_t i = 0; i < from.size(); ++i)
    if (!(from[i] == to[i]))
      repeated.push_back(static_cast<std::int64_t>(i));
  return reshape(sum(s.g, repeated), from);
}

Value pad_rule(const Site& s) {
  std::vector<Expr> end = s.a.shape();
  for (std::size_t i = 0; i < end.size(); ++i)
    end[i] = s.attrs.before[i] + end[i];
  return shrink(s.g, s.attrs.before, end);
}

Value shrink_rule(const Site& s) {
  std::vector<Expr> after = s.a.shape();
  for (std::size_t i = 0; i < after.size(); ++i)
    after[i] = after[i] - s.attrs.shape[i];
  return pad(s.g, s.attrs.before, after, 0);
}

} // namespace egret::autodiff
