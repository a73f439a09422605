// The associative scan over a combination of the user's.
#include "egret/functional/reductions.h"

#include "support/fail.h"
#include "tensor/windows.h"

namespace egret {

using namespace detail;

namespace {

constexpr const char* kWho = "associative_scan";

using Tensors = std::vector<Tensor>;

class Scan {
public:
  Scan(const Combine& combine, std::int64_t axis) : combine_(combine), axis_(axis) {}

  /// Pairs of neighbours are combined and scanned, which gives every second result; each of the
  /// others combines the one before with its own element.
  Tensors operator()(const Tensors& x) const {
    const std::int64_t n = x[0].size(axis_), pairs = n / 2;
    if (n < 2)
      return x;
    const Tensors odd = (*this)(combined(every_second(x, 0, pairs), every_second(x, 1, pairs)));
    const std::int64_t others = (n - 1) / 2;
    const Tensors even =
        others > 0 ? combined(mapped(odd, [&](const Tensor& t) { return part(t, 0, others); }),
                              every_second(x, 2, others))
                   : Tensors();
    Tensors result;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const Tensor first = part(x[i], 0, 1);
      result.push_back(interleaved(others > 0 ? cat({first, even[i]}, axis_) : first, odd[i], n));
    }
    return result;
  }

private:
  template <class F>
  static Tensors mapped(const Tensors& x, F&& f) {
    Tensors y;
    for (const Tensor& t : x)
      y.push_back(f(t));
    return y;
  }

  Tensor part(const Tensor& t, std::int64_t begin, std::int64_t length) const {
    return cut(t, axis_, begin, length, kWho);
  }

  /// `count` elements, every second one from `begin` on.
  Tensors every_second(const Tensors& x, std::int64_t begin, std::int64_t count) const {
    return mapped(x, [&](const Tensor& t) {
      std::vector<Index> where(static_cast<std::size_t>(axis_), Index(Slice::all()));
      where.push_back(Slice(begin, begin + 2 * count - 1, 2));
      return t.index(where);
    });
  }

  /// a0, b0, a1, b1 ... n in all; `a` has as many as `b`, or one more.
  Tensor interleaved(const Tensor& a, const Tensor& b, std::int64_t n) const {
    const Scalar zero = Scalar::of(b.dtype(), std::int64_t{0});
    const Tensor other = framed(b, axis_, 0, n % 2, zero, kWho);
    Shape shape = a.shape();
    shape[static_cast<std::size_t>(axis_)] = n + n % 2;
    return part(reshape(stack({a, other}, axis_ + 1), shape), 0, n);
  }

  Tensors combined(const Tensors& before, const Tensors& after) const {
    const Tensors result = combine_(before, after);
    if (result.size() != before.size())
      fail(ErrorKind::Shape, "{}: combine gives {} tensors of {}", kWho, result.size(),
           before.size());
    for (std::size_t i = 0; i < result.size(); ++i) {
      Access::held(result[i], kWho);
      if (result[i].shape() != before[i].shape())
        fail(ErrorKind::Shape, "{}: combine makes {} of {} in tensor {}; it must keep the shape",
             kWho, shape_of(result[i]), shape_of(before[i]), i);
      if (result[i].dtype() != before[i].dtype())
        fail(ErrorKind::DType, "{}: combine makes {} of {} in tensor {}; it must keep the dtype",
             kWho, name_of(result[i].dtype()), name_of(before[i].dtype()), i);
    }
    return result;
  }

  const Combine& combine_;
  std::int64_t axis_;
};

} // namespace

std::vector<Tensor> associative_scan(const Combine& combine, const std::vector<Tensor>& tensors,
                                     std::int64_t axis, bool reverse) {
  if (!combine)
    fail(ErrorKind::Value, "{}: combine is empty", kWho);
  if (tensors.empty())
    fail(ErrorKind::Value, "{}: no tensors are given", kWho);
  for (const Tensor& t : tensors)
    Access::held(t, kWho);
  const Tensor& first = tensors[0];
  const std::int64_t along = axis_of(axis, first.rank(), first.shape(), kWho);
  const Expr& size = first.shape()[static_cast<std::size_t>(along)];
  if (!size.is_constant())
    fail(ErrorKind::Shape, "{}: axis {} of {}; its size must be a known number", kWho, axis,
         shape_of(first));
  for (const Tensor& t : tensors)
    if (along >= t.rank() || !(t.shape()[static_cast<std::size_t>(along)] == size))
      fail(ErrorKind::Shape, "{}: {} and {} differ along axis {}", kWho, shape_of(first),
           shape_of(t), along);
  Tensors x;
  for (const Tensor& t : tensors)
    x.push_back(reverse ? flip(t, along) : t.clone());
  Tensors y = Scan(combine, along)(x);
  if (reverse)
    for (Tensor& t : y)
      t = flip(t, along);
  return y;
}

Tensor
associative_scan(const std::function<Tensor(const Tensor& before, const Tensor& after)>& combine,
                 const Operand& a, std::int64_t axis, bool reverse) {
  if (!combine)
    fail(ErrorKind::Value, "{}: combine is empty", kWho);
  const Combine of_lists = [&](const Tensors& before, const Tensors& after) {
    return Tensors{combine(before[0], after[0])};
  };
  return associative_scan(of_lists, Tensors{a}, axis, reverse)[0];
}

} // namespace egret
