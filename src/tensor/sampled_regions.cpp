// Samples of images between their pixels: means over regions, and convolutions of samples that
// move.
#include "egret/functional/indices.h"
#include "egret/functional/vision.h"

#include "support/fail.h"
#include "tensor/spatial.h"

#include <cmath>

namespace egret {

using namespace detail;

namespace {

// The pixels of a line below and above each position, -1 for one that is not there, and the part of
// the one above.
struct Beside {
  Tensor low, high; ///< i64
  Tensor part;
};

Tensor inside(const Tensor& at, std::int64_t n) {
  return (at >= 0) & (at < static_cast<double>(n));
}

// 0 outside.
Beside open_line(const Tensor& x, std::int64_t n) {
  const Tensor in = (x > -1) & (x < static_cast<double>(n));
  const Tensor at = where(in, x, 0);
  const Tensor low = floor(at.detach());
  const auto pixel = [&](const Tensor& p) {
    return where(in & inside(p, n), p.to(DType::I64), -1);
  };
  return {pixel(low), pixel(low + 1), at - low};
}

// The edge repeats for one pixel, 0 beyond it.
Beside closed_line(const Tensor& x, std::int64_t n) {
  const Tensor in = (x >= -1) & (x <= static_cast<double>(n));
  const Tensor at = clamp(where(in, x, 0), 0, static_cast<double>(n - 1));
  const Tensor low = floor(at), high = minimum(low + 1, static_cast<double>(n - 1));
  const auto pixel = [&](const Tensor& p) { return where(in, p.to(DType::I64), -1); };
  return {pixel(low), pixel(high), at - low};
}

// Rows of [images * height * width, channels] between pixels, one for each element of the box to
// which the others broadcast; `image` numbers the images, -1 for one that is not there.
Tensor samples(const Tensor& rows, const Tensor& image, const Beside& y, const Beside& x,
               std::int64_t height, std::int64_t width) {
  const auto corner = [&](const Tensor& v, const Tensor& u, const Tensor& weight) {
    const Tensor there = (image >= 0) & (v >= 0) & (u >= 0);
    const Tensor index = where(there, (image * height + v) * width + u, -1);
    return take(rows, index, 0) * unsqueeze(weight, -1);
  };
  const Tensor b = y.part, r = x.part, t = 1 - b, l = 1 - r;
  return corner(y.low, x.low, t * l) + corner(y.low, x.high, t * r) + corner(y.high, x.low, b * l) +
         corner(y.high, x.high, b * r);
}

void require_images(const Tensor& a, const char* who) {
  Access::held(a, who);
  require_float(a, who);
  if (a.rank() != 4)
    fail(ErrorKind::Shape, "{}: got {}; it must be [batch, channels, height, width]", who,
         shape_of(a));
}

// The middle of each sample of each bin along an axis: [n, bins * ratio].
Tensor sample_places(const Tensor& begin, const Tensor& length, std::int64_t bins,
                     std::int64_t ratio) {
  const Tensor bin = unsqueeze(length, 1) * (1 / static_cast<double>(bins));
  const Tensor i = iota(bins * ratio, begin.dtype());
  const Tensor whole =
      floor(i * (1 / static_cast<double>(ratio)) + 0.25 / static_cast<double>(ratio));
  const Tensor rest = i - whole * static_cast<double>(ratio) + 0.5;
  return unsqueeze(begin, 1) + whole * bin + rest * bin / static_cast<double>(ratio);
}

} // namespace

Tensor roi_align(const Operand& a, const Operand& boxes, const PerAxis& sizes,
                 const RoiAlignOptions& options, const Operand& images) {
  constexpr const char* who = "roi_align";
  require_images(a, who);
  Access::held(boxes, who);
  if (boxes.dtype() != a.dtype())
    fail(ErrorKind::DType, "{}: images of {} and boxes of {}; dtypes must be equal", who,
         name_of(a.dtype()), name_of(boxes.dtype()));
  const std::int64_t columns = images.defined() ? 4 : 5;
  if (boxes.rank() != 2 || boxes.size(1) != columns)
    fail(ErrorKind::Shape, "{}: boxes {}; they must be [n, {}]{}", who, shape_of(boxes), columns,
         columns == 5 ? ", the number of the image first" : "");
  if (options.sampling_ratio < 1 || options.sampling_ratio > 64)
    fail(ErrorKind::Value, "{}: a sampling ratio of {}; it must be from 1 to 64", who,
         options.sampling_ratio);
  if (!std::isfinite(options.spatial_scale))
    fail(ErrorKind::Value, "{}: a spatial scale of {}; it must be finite", who,
         options.spatial_scale);
  const auto bins = per_axis(sizes, 2, 1, "size", who);
  const std::int64_t height = a.size(2), width = a.size(3), ratio = options.sampling_ratio;
  if (height < 1 || width < 1)
    fail(ErrorKind::Shape, "{}: images {} are empty", who, shape_of(a));
  const Tensor x = widened(a), places = widened(boxes).detach();
  Tensor image;
  if (images.defined()) {
    require_integer(images, who, "the images' numbers");
    if (images.shape() != Shape{boxes.shape()[0]})
      fail(ErrorKind::Shape, "{}: images {} do not fit boxes {}; they must be [n]", who,
           shape_of(images), shape_of(boxes));
    image = images.to(DType::I64);
  } else {
    image = places.select(1, 0).to(DType::I64);
  }
  image = where((image >= 0) & (image < number_of(a.shape()[0], DType::I64)), image, -1);
  const double shift = options.aligned ? 0.5 : 0;
  const auto corner = [&](std::int64_t i) {
    return places.select(1, columns - 4 + i) * options.spatial_scale - shift;
  };
  const auto along = [&](std::int64_t i, std::int64_t n) {
    const Tensor begin = corner(i), length = corner(i + 2) - begin;
    return sample_places(begin, options.aligned ? length : maximum(length, 1), n, ratio);
  };
  const Tensor u = unsqueeze(along(0, bins[1]), 1), v = unsqueeze(along(1, bins[0]), 2);
  const Expr n = boxes.shape()[0], channels = a.shape()[1];
  const Tensor rows = reshape(permute(x, {0, 2, 3, 1}), {a.shape()[0] * height * width, channels});
  const Tensor all = samples(rows, reshape(image, {n, 1, 1}), closed_line(v, height),
                             closed_line(u, width), height, width);
  const Tensor split = reshape(all, {n, bins[0], ratio, bins[1], ratio, channels});
  return rounded_to(permute(mean(split, {2, 4}), {0, 3, 1, 2}), a.dtype());
}

namespace {

struct DeformSite {
  std::vector<std::int64_t> stride, padding, dilation, kernel, sizes;
  std::int64_t parts, groups;
};

DeformSite checked(const Tensor& a, const Tensor& offset, const Tensor& weight, const Tensor& bias,
                   const DeformConvOptions& o, const char* who) {
  require_images(a, who);
  for (const Tensor* t : {&offset, &weight}) {
    Access::held(*t, who);
    if (t->rank() != 4)
      fail(ErrorKind::Shape, "{}: {} {}; it must have four axes", who,
           t == &offset ? "offset" : "weight", shape_of(*t));
  }
  DeformSite s{per_axis(o.stride, 2, 1, "stride", who),
               per_axis(o.padding, 2, 0, "padding", who),
               per_axis(o.dilation, 2, 1, "dilation", who),
               {weight.size(2), weight.size(3)},
               {},
               0,
               0};
  for (const Tensor* t : {&offset, &weight, &bias, &o.mask})
    if (t->defined() && t->dtype() != a.dtype())
      fail(ErrorKind::DType, "{}: operands of {} and {}; dtypes must be equal", who,
           name_of(a.dtype()), name_of(t->dtype()));
  const std::int64_t channels = a.size(1), taps = s.kernel[0] * s.kernel[1];
  s.groups = weight.size(1) > 0 ? channels / weight.size(1) : 0;
  if (taps < 1 || s.groups < 1 || channels != s.groups * weight.size(1) ||
      weight.size(0) % s.groups != 0)
    fail(ErrorKind::Shape,
         "{}: weight {} does not fit {}; it must be [outputs, channels/groups, kernel...], outputs "
         "in whole groups",
         who, shape_of(weight), shape_of(a));
  for (std::size_t i = 0; i < 2; ++i) {
    const std::int64_t n = a.size(static_cast<std::int64_t>(i) + 2);
    const Windows windows{s.kernel[i], s.stride[i], s.dilation[i]};
    const std::int64_t padded = n + 2 * s.padding[i];
    if (padded < windows.span() || n < 1)
      fail(ErrorKind::Shape, "{}: the kernel of {} does not fit images {}", who, shape_of(weight),
           shape_of(a));
    s.sizes.push_back(windows.count(padded));
  }
  s.parts = offset.size(1) / (2 * taps);
  const auto fits = [&](const Tensor& t, std::int64_t each) {
    return t.rank() == 4 &&
           t.shape() == Shape{a.shape()[0], each * taps * s.parts, s.sizes[0], s.sizes[1]};
  };
  if (s.parts < 1 || channels % s.parts != 0 || !fits(offset, 2))
    fail(ErrorKind::Shape,
         "{}: offset {} does not fit {}; it must be [batch, 2 * parts * {}, {}, {}], channels in "
         "whole parts",
         who, shape_of(offset), shape_of(a), taps, s.sizes[0], s.sizes[1]);
  if (o.mask.defined() && !fits(o.mask, 1))
    fail(ErrorKind::Shape, "{}: mask {} does not fit offset {}; it must be [batch, {}, {}, {}]",
         who, shape_of(o.mask), shape_of(offset), s.parts * taps, s.sizes[0], s.sizes[1]);
  if (bias.defined() && bias.shape() != Shape{weight.shape()[0]})
    fail(ErrorKind::Shape, "{}: bias {} does not fit weight {}; it must be [{}]", who,
         shape_of(bias), shape_of(weight), weight.size(0));
  return s;
}

} // namespace

Tensor deform_conv2d(const Operand& a, const Operand& offset, const Operand& weight,
                     const Operand& bias, const DeformConvOptions& options) {
  constexpr const char* who = "deform_conv2d";
  const DeformSite s = checked(a, offset, weight, bias, options, who);
  const Expr batch = a.shape()[0];
  const std::int64_t height = a.size(2), width = a.size(3), kh = s.kernel[0], kw = s.kernel[1];
  const std::int64_t taps = kh * kw, per_part = a.size(1) / s.parts, h = s.sizes[0], w = s.sizes[1];
  const Tensor x = widened(a), moved = reshape(widened(offset), {batch, s.parts, taps, 2, h, w});
  // Where samples stand without offsets, [taps, h] and [taps, w].
  const auto grid = [&](std::size_t i, const Tensor& tap) {
    const Tensor out = iota(s.sizes[i], DType::I64) * s.stride[i] - s.padding[i];
    return (unsqueeze(tap * s.dilation[i], 1) + out).to(x.dtype());
  };
  const Tensor tap = iota(taps, DType::I64);
  const Tensor y = moved.select(3, 0) + unsqueeze(grid(0, floor_divide(tap, kw)), 2);
  const Tensor u = moved.select(3, 1) + unsqueeze(grid(1, tap % kw), 1);
  // Each part of the channels of each image is one of the images that are sampled.
  const Expr count = batch * s.parts;
  const Tensor rows =
      reshape(permute(reshape(x, {batch, s.parts, per_part, height, width}), {0, 1, 3, 4, 2}),
              {count * height * width, per_part});
  const Tensor image = reshape(positions(count), {batch, s.parts, 1, 1, 1});
  Tensor columns = samples(rows, image, open_line(y, height), open_line(u, width), height, width);
  if (options.mask.defined())
    columns = columns * unsqueeze(reshape(widened(options.mask), {batch, s.parts, taps, h, w}), -1);
  // [batch, groups, channels of a group * taps, h w]
  columns = permute(columns, {0, 1, 5, 2, 3, 4});
  const std::int64_t inner = weight.size(1) * taps, outputs = weight.size(0) / s.groups;
  columns = reshape(columns, {batch, s.groups, inner, h * w});
  const Tensor kernel = reshape(widened(weight), {s.groups, outputs, inner});
  Tensor result = reshape(matmul(kernel, columns), {batch, weight.shape()[0], h, w});
  if (bias.defined())
    result = result + reshape(widened(bias), {weight.shape()[0], 1, 1});
  return rounded_to(result, a.dtype());
}

} // namespace egret
