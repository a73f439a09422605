// Functions that rearrange: padding with elements of the tensor itself, rolls, rotations,
// diagonals.
#include "support/fail.h"
#include "tensor/windows.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace egret {

using namespace detail;

namespace {

std::size_t place(std::int64_t axis) {
  return static_cast<std::size_t>(axis);
}

Tensor zero_of(const Tensor& a) {
  return constant(Scalar::of(a.dtype(), std::int64_t{0}));
}

// What stands in front of an axis (or behind it) in the mode.
Tensor edge(const Tensor& a, std::int64_t axis, std::int64_t amount, bool front, PadMode mode) {
  const std::int64_t n = a.size(axis);
  const std::int64_t most = mode == PadMode::Reflect ? n - 1 : n;
  if (mode == PadMode::Replicate ? n == 0 : amount > most)
    fail(ErrorKind::Value,
         "pad: {} elements of axis {} of {} are not there to pad with; at most {}", amount, axis,
         shape_of(a), std::max<std::int64_t>(0, most));
  switch (mode) {
  case PadMode::Reflect:
    return flip(cut(a, axis, front ? 1 : n - 1 - amount, amount, "pad"), axis);
  case PadMode::Circular:
    return cut(a, axis, front ? n - amount : 0, amount, "pad");
  default: {
    Shape shape = a.shape();
    shape[place(axis)] = amount;
    return expand(cut(a, axis, front ? 0 : n - 1, 1, "pad"), shape);
  }
  }
}

std::vector<Tensor> with_rank(std::span<const Tensor> tensors, std::size_t rank, const char* who) {
  std::vector<Tensor> result;
  for (const Tensor& t : tensors) {
    Access::held(t, who);
    Tensor x = t;
    if (x.shape().empty())
      x = reshape(x, {1});
    if (rank >= 2 && x.shape().size() == 1)
      x = unsqueeze(x, 0);
    if (rank >= 3 && x.shape().size() == 2)
      x = unsqueeze(x, 2);
    result.push_back(x);
  }
  return result;
}

std::int64_t checked_factor(const Tensor& a, std::int64_t factor, const char* who) {
  Access::held(a, who);
  if (a.rank() < 3)
    fail(ErrorKind::Shape, "{}: got {}; it must be [.., channels, height, width]", who,
         shape_of(a));
  if (factor < 1)
    fail(ErrorKind::Value, "{}: the factor is {}; it must be positive", who, factor);
  constexpr std::int64_t kMost = 1 << 20; // the results of more cannot be stored
  if (factor > kMost)
    fail(ErrorKind::Value, "{}: the factor is {}; at most {} is possible", who, factor, kMost);
  return factor;
}

} // namespace

Tensor tile(const Operand& a, std::vector<std::int64_t> times) {
  Access::held(a, "tile");
  while (times.size() < a.shape().size())
    times.insert(times.begin(), 1);
  return repeat(a, std::move(times));
}

Tensor repeat_interleave(const Operand& a, std::int64_t times, std::int64_t axis) {
  Access::held(a, "repeat_interleave");
  axis = axis_of(axis, a.rank(), a.shape(), "repeat_interleave");
  if (times < 0)
    fail(ErrorKind::Value, "repeat_interleave: {} times; the number must not be negative", times);
  Shape one = a.shape(), whole = a.shape();
  one.insert(one.begin() + axis + 1, Expr(1));
  Shape grown = one;
  grown[place(axis) + 1] = times;
  return named("repeat_interleave", [&] {
    whole[place(axis)] = whole[place(axis)] * times;
    return reshape(expand(reshape(a, one), grown), whole);
  });
}

Tensor repeat_interleave(const Operand& a, const Operand& counts, std::int64_t axis,
                         std::int64_t total) {
  constexpr const char* who = "repeat_interleave";
  Access::held(a, who);
  Access::held(counts, who);
  axis = axis_of(axis, a.rank(), a.shape(), who);
  require_integer(counts, who, "counts");
  const Expr& n = a.shape()[place(axis)];
  if (counts.rank() != 1 || !broadcasts_to(counts.shape(), {n}))
    fail(ErrorKind::Shape, "{}: counts {} do not fit axis {} of {}; they must be [{}] or [1]", who,
         shape_of(counts), axis, shape_of(a), n.str());
  if (total < 0)
    fail(ErrorKind::Value, "{}: a total of {}; the number must not be negative", who, total);
  return named(who, [&] {
    const Tensor each = broadcast_to(maximum(counts.to(DType::I64), 0), {n}, who);
    // The element of a result is the first whose repetitions end behind it; none of them, n, is out
    // of range and reads 0.
    const Tensor index = searchsorted(cumsum(each, 0), iota(total, DType::I64), true);
    return take(a, index, axis);
  });
}

Tensor pad(const Operand& a, std::vector<std::int64_t> before, std::vector<std::int64_t> after,
           PadMode mode) {
  Access::held(a, "pad");
  const std::size_t rank = a.shape().size();
  if (before.size() != rank || after.size() != rank)
    fail(ErrorKind::Shape, "pad: [{}] before and [{}] after for {}; one for each axis is needed",
         fmt::join(before, ","), fmt::join(after, ","), shape_of(a));
  Tensor result = a.clone();
  for (std::size_t i = 0; i < rank; ++i) {
    const auto axis = static_cast<std::int64_t>(i);
    if (before[i] < 0 || after[i] < 0)
      fail(ErrorKind::Value, "pad: [{}] before and [{}] after: amounts must not be negative",
           fmt::join(before, ","), fmt::join(after, ","));
    std::vector<Tensor> pieces;
    if (before[i] > 0)
      pieces.push_back(edge(result, axis, before[i], true, mode));
    pieces.push_back(result);
    if (after[i] > 0)
      pieces.push_back(edge(result, axis, after[i], false, mode));
    if (pieces.size() > 1)
      result = cat(pieces, axis);
  }
  return result;
}

Tensor flatten(const Operand& a, std::int64_t first, std::int64_t last) {
  return a.flatten(first, last);
}

Tensor unflatten(const Operand& a, std::int64_t axis, const Shape& dims) {
  Access::held(a, "unflatten");
  const std::size_t at = place(axis_of(axis, a.rank(), a.shape(), "unflatten"));
  Shape shape(a.shape().begin(), a.shape().begin() + static_cast<std::ptrdiff_t>(at));
  const Tensor line = reshape(broadcast_to(zero_of(a), {a.shape()[at]}, "unflatten"), dims);
  shape.insert(shape.end(), line.shape().begin(), line.shape().end());
  shape.insert(shape.end(), a.shape().begin() + static_cast<std::ptrdiff_t>(at) + 1,
               a.shape().end());
  return reshape(a, shape);
}

Tensor movedim(const Operand& a, const std::vector<std::int64_t>& from,
               const std::vector<std::int64_t>& to) {
  Access::held(a, "movedim");
  if (from.size() != to.size())
    fail(ErrorKind::Axis, "movedim: {} axes to {} places; as many are needed", from.size(),
         to.size());
  axes_of(from, a.shape(), "movedim"); // each once
  axes_of(to, a.shape(), "movedim");
  std::vector<std::int64_t> order(a.shape().size(), -1), rest;
  std::vector<bool> moved(order.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    const auto axis = axis_of(from[i], a.rank(), a.shape(), "movedim");
    order[place(axis_of(to[i], a.rank(), a.shape(), "movedim"))] = axis;
    moved[place(axis)] = true;
  }
  std::size_t next = 0;
  for (std::int64_t& axis : order)
    if (axis < 0) {
      while (moved[next])
        ++next;
      axis = static_cast<std::int64_t>(next++);
    }
  return permute(a, std::move(order));
}

Tensor movedim(const Operand& a, std::int64_t from, std::int64_t to) {
  return movedim(a, std::vector{from}, std::vector{to});
}

Tensor swapaxes(const Operand& a, std::int64_t first, std::int64_t second) {
  return transpose(a, first, second);
}

Tensor broadcast_to(const Operand& a, const Shape& shape) {
  return expand(a, shape);
}

std::vector<Tensor> broadcast_tensors(std::span<const Tensor> tensors) {
  Shape shape;
  for (const Tensor& t : tensors)
    shape = broadcast_shapes(shape, Access::raw(t, "broadcast_tensors")->form.shape,
                             "broadcast_tensors");
  std::vector<Tensor> result;
  for (const Tensor& t : tensors)
    result.push_back(expand(t, shape));
  return result;
}

std::vector<Tensor> unbind(const Operand& a, std::int64_t axis) {
  Access::held(a, "unbind");
  axis = axis_of(axis, a.rank(), a.shape(), "unbind");
  require_parts(a.size(axis), "unbind");
  std::vector<Tensor> result;
  for (std::int64_t i = 0; i < a.size(axis); ++i)
    result.push_back(a.select(axis, i));
  return result;
}

Tensor hstack(std::span<const Tensor> tensors) {
  const auto list = with_rank(tensors, 1, "hstack");
  return join(list, !list.empty() && list[0].rank() > 1 ? 1 : 0, "hstack");
}
Tensor vstack(std::span<const Tensor> tensors) {
  return join(with_rank(tensors, 2, "vstack"), 0, "vstack");
}
Tensor dstack(std::span<const Tensor> tensors) {
  return join(with_rank(tensors, 3, "dstack"), 2, "dstack");
}
Tensor column_stack(std::span<const Tensor> tensors) {
  std::vector<Tensor> columns;
  for (const Tensor& t : tensors) {
    Access::held(t, "column_stack");
    columns.push_back(t.rank() < 2 ? t.reshape({-1, 1}) : t);
  }
  return join(columns, 1, "column_stack");
}
Tensor column_stack(std::initializer_list<Operand> tensors) {
  return column_stack(std::vector<Tensor>(tensors.begin(), tensors.end()));
}

Tensor fliplr(const Operand& a) {
  Access::held(a, "fliplr");
  return flip(a, axis_of(1, a.rank(), a.shape(), "fliplr"));
}
Tensor flipud(const Operand& a) {
  Access::held(a, "flipud");
  return flip(a, axis_of(0, a.rank(), a.shape(), "flipud"));
}

Tensor atleast_1d(const Operand& a) {
  Access::held(a, "atleast_1d");
  return a.rank() < 1 ? unsqueeze(a, 0) : a.clone();
}
Tensor atleast_2d(const Operand& a) {
  Access::held(a, "atleast_2d");
  return a.rank() < 2 ? unsqueeze(atleast_1d(a), 0) : a.clone();
}
Tensor atleast_3d(const Operand& a) {
  Access::held(a, "atleast_3d");
  return a.rank() < 3 ? unsqueeze(atleast_2d(a), -1) : a.clone();
}

Tensor hstack(std::initializer_list<Operand> tensors) {
  return hstack(std::vector<Tensor>(tensors.begin(), tensors.end()));
}
Tensor vstack(std::initializer_list<Operand> tensors) {
  return vstack(std::vector<Tensor>(tensors.begin(), tensors.end()));
}
Tensor dstack(std::initializer_list<Operand> tensors) {
  return dstack(std::vector<Tensor>(tensors.begin(), tensors.end()));
}

Tensor roll(const Operand& a, const std::vector<std::int64_t>& shifts,
            const std::vector<std::int64_t>& axes) {
  Access::held(a, "roll");
  if (axes.empty() && shifts.size() == 1)
    return reshape(roll(a.flatten(), shifts, {0}), a.shape());
  if (axes.size() != shifts.size())
    fail(ErrorKind::Value, "roll: {} shifts for {} axes; as many are needed", shifts.size(),
         axes.size());
  Tensor result = a.clone();
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::int64_t axis = axis_of(axes[i], a.rank(), a.shape(), "roll");
    const std::int64_t n = a.size(axis);
    const std::int64_t shift = n == 0 ? 0 : (shifts[i] % n + n) % n;
    if (shift != 0)
      result = cat(
          {cut(result, axis, n - shift, shift, "roll"), cut(result, axis, 0, n - shift, "roll")},
          axis);
  }
  return result;
}

Tensor rot90(const Operand& a, std::int64_t turns, std::int64_t first, std::int64_t second) {
  Access::held(a, "rot90");
  first = axis_of(first, a.rank(), a.shape(), "rot90");
  second = axis_of(second, a.rank(), a.shape(), "rot90");
  if (first == second)
    fail(ErrorKind::Axis, "rot90: axis {} is given twice for {}; a turn needs two", first,
         shape_of(a));
  switch ((turns % 4 + 4) % 4) {
  case 0:
    return a.clone();
  case 1:
    return transpose(flip(a, second), first, second);
  case 2:
    return flip(a, {first, second});
  default:
    return flip(transpose(a, first, second), second);
  }
}

Tensor unfold(const Operand& a, std::int64_t axis, std::int64_t length, std::int64_t step) {
  Access::held(a, "unfold");
  axis = axis_of(axis, a.rank(), a.shape(), "unfold");
  if (length < 1 || step < 1)
    fail(ErrorKind::Value, "unfold: windows of {} every {} elements; both must be positive", length,
         step);
  if (length > a.size(axis))
    fail(ErrorKind::Shape, "unfold: windows of {} do not fit axis {} of {}", length, axis,
         shape_of(a));
  // A step beyond the axis leaves one window, as one of the axis' size does.
  const WindowedAxis line{{length, std::min(step, a.size(axis))}};
  const Scalar none = Scalar::of(a.dtype(), std::int64_t{0});
  return movedim(windows_of(a, axis, {line}, none, "unfold"), axis + 1, -1);
}

Tensor diagonal(const Operand& a, std::int64_t offset, std::int64_t first, std::int64_t second) {
  Access::held(a, "diagonal");
  first = axis_of(first, a.rank(), a.shape(), "diagonal");
  second = axis_of(second, a.rank(), a.shape(), "diagonal");
  if (first == second)
    fail(ErrorKind::Axis, "diagonal: axis {} is given twice for {}; name two", first, shape_of(a));
  Tensor x = movedim(a, {first, second}, {-2, -1});
  const std::int64_t r = x.rank() - 2, c = x.rank() - 1;
  offset = std::clamp(offset, -x.size(r), x.size(c)); // none lies further out
  const std::int64_t down = std::max<std::int64_t>(0, -offset),
                     right = std::max<std::int64_t>(0, offset);
  const std::int64_t n = std::max<std::int64_t>(0, std::min(x.size(r) - down, x.size(c) - right));
  Shape shape(x.shape().begin(), x.shape().end() - 2);
  if (n == 0) {
    shape.push_back(0);
    return broadcast_to(zero_of(a), shape, "diagonal");
  }
  x = cut(cut(x, r, down, n, "diagonal"), c, right, n, "diagonal");
  // With n zeros behind, rows of n + 1 elements begin on the diagonal.
  Shape flat = shape, rows = shape;
  flat.push_back(n * n);
  rows.insert(rows.end(), {Expr(n), Expr(n + 1)});
  const Scalar zero = Scalar::of(a.dtype(), std::int64_t{0});
  x = reshape(framed(reshape(x, flat), r, 0, n, zero, "diagonal"), rows);
  shape.push_back(n);
  return reshape(cut(x, c, 0, 1, "diagonal"), shape);
}

Tensor diag_embed(const Operand& a, std::int64_t offset) {
  Access::held(a, "diag_embed");
  if (a.rank() < 1)
    fail(ErrorKind::Shape, "diag_embed: got a single number; the last axis is what is embedded");
  const std::int64_t r = a.rank() - 1, c = a.rank(), n = a.size(r);
  const Scalar zero = Scalar::of(a.dtype(), std::int64_t{0});
  Shape shape(a.shape().begin(), a.shape().end() - 1);
  std::int64_t side = 0; // of the matrix
  if (offset == std::numeric_limits<std::int64_t>::min() ||
      __builtin_add_overflow(n, std::abs(offset), &side))
    fail(ErrorKind::Value, "diag_embed: a diagonal {} of {} is too far out", offset, shape_of(a));
  Tensor x;
  if (n == 0) {
    shape.insert(shape.end(), {Expr(0), Expr(0)});
    x = broadcast_to(zero_of(a), shape, "diag_embed");
  } else {
    x = framed(unsqueeze(a, -1), c, 0, n, zero, "diag_embed");
    Shape flat = shape;
    flat.push_back(n * (n + 1));
    shape.insert(shape.end(), {Expr(n), Expr(n)});
    x = reshape(cut(reshape(x, flat), r, 0, n * n, "diag_embed"), shape);
  }
  const std::int64_t down = std::max<std::int64_t>(0, -offset),
                     right = std::max<std::int64_t>(0, offset);
  return named("diag_embed", [&] {
    x = framed(x, r, down, right, zero, "diag_embed");
    return framed(x, c, right, down, zero, "diag_embed");
  });
}

Tensor diag(const Operand& a, std::int64_t offset) {
  Access::held(a, "diag");
  if (a.rank() != 1 && a.rank() != 2)
    fail(ErrorKind::Shape, "diag: got {}; a vector or a matrix is needed (diagonal, diag_embed)",
         shape_of(a));
  return a.rank() == 1 ? diag_embed(a, offset) : diagonal(a, offset);
}

std::vector<Tensor> meshgrid(std::span<const Tensor> lines, bool xy) {
  std::vector<std::size_t> axes;
  for (std::size_t i = 0; i < lines.size(); ++i)
    axes.push_back(i);
  if (xy && axes.size() >= 2)
    std::swap(axes[0], axes[1]);
  Shape box(lines.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (Access::raw(lines[i], "meshgrid")->form.shape.size() > 1)
      fail(ErrorKind::Shape, "meshgrid: got {}; vectors are needed", shape_of(lines[i]));
    box[axes[i]] = element_count(lines[i].shape());
  }
  std::vector<Tensor> result;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    Shape line(lines.size(), Expr(1));
    line[axes[i]] = box[axes[i]];
    result.push_back(expand(reshape(lines[i], line), box));
  }
  return result;
}

Tensor logspace(double begin, double end, std::int64_t count, double base, DType dtype) {
  if (!(base > 0))
    fail(ErrorKind::Value, "logspace: base {}; it must be positive", base);
  const DType wide = dtype == DType::F64 ? DType::F64 : DType::F32;
  const Tensor steps = linspace(begin, end, count, wide);
  return pow(broadcast_to(constant(wide, base), steps.shape(), "logspace"), steps).to(dtype);
}

Tensor pixel_shuffle(const Operand& a, std::int64_t factor) {
  const std::int64_t f = checked_factor(a, factor, "pixel_shuffle");
  const std::int64_t c = a.size(-3), h = a.size(-2), w = a.size(-1), rank = a.rank();
  if (c % (f * f) != 0)
    fail(ErrorKind::Shape, "pixel_shuffle: {} channels of {} are no multiple of {}", c, shape_of(a),
         f * f);
  Shape split(a.shape().begin(), a.shape().end() - 3), whole = split;
  split.insert(split.end(), {Expr(c / (f * f)), Expr(f), Expr(f), Expr(h), Expr(w)});
  whole.insert(whole.end(), {Expr(c / (f * f)), Expr(h * f), Expr(w * f)});
  // [c, fh, fw, h, w] to [c, h, fh, w, fw]
  const std::int64_t b = rank - 3;
  return reshape(
      movedim(reshape(a, split), {b + 1, b + 2, b + 3, b + 4}, {b + 2, b + 4, b + 1, b + 3}),
      whole);
}

Tensor pixel_unshuffle(const Operand& a, std::int64_t factor) {
  const std::int64_t f = checked_factor(a, factor, "pixel_unshuffle");
  const std::int64_t c = a.size(-3), h = a.size(-2), w = a.size(-1), rank = a.rank();
  if (h % f != 0 || w % f != 0)
    fail(ErrorKind::Shape, "pixel_unshuffle: {} by {} of {} is no multiple of {}", h, w,
         shape_of(a), f);
  Shape split(a.shape().begin(), a.shape().end() - 3), whole = split;
  split.insert(split.end(), {Expr(c), Expr(h / f), Expr(f), Expr(w / f), Expr(f)});
  whole.insert(whole.end(), {Expr(c * f * f), Expr(h / f), Expr(w / f)});
  const std::int64_t b = rank - 3;
  return reshape(
      movedim(reshape(a, split), {b + 2, b + 4, b + 1, b + 3}, {b + 1, b + 2, b + 3, b + 4}),
      whole);
}

} // namespace egret
