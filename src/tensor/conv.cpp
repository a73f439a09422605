// Convolutions and their transposes.
#include "support/fail.h"
#include "tensor/spatial.h"

namespace egret {

using namespace detail;

namespace detail {

Batched batched(const Tensor& a, std::size_t spatial, const char* who) {
  Access::held(a, who);
  const auto rank = static_cast<std::size_t>(a.rank());
  if (rank != spatial + 2 && rank != spatial + 1)
    fail(ErrorKind::Shape,
         "{}: got {}; it must be [batch, channels, {} spatial], or without a batch", who,
         shape_of(a), spatial);
  const bool added = rank == spatial + 1;
  return {added ? unsqueeze(a, 0) : a, added};
}

std::vector<std::int64_t> per_axis(const PerAxis& values, std::size_t spatial, std::int64_t lowest,
                                   const char* what, const char* who) {
  std::vector<std::int64_t> list = values.values();
  if (list.size() == 1)
    list.assign(spatial, list[0]);
  if (list.size() != spatial)
    fail(ErrorKind::Value, "{}: {} has {} values; one, or one for each of {} axes, is needed", who,
         what, list.size(), spatial);
  // So that a padded axis times another one fits 64 bits.
  constexpr std::int64_t kMost = std::int64_t{1} << 29;
  for (std::int64_t value : list)
    if (value < lowest || value > kMost)
      fail(ErrorKind::Value, "{}: {} is {}; it must be from {} to {}", who, what, value, lowest,
           kMost);
  return list;
}

} // namespace detail

namespace {

// Sizes and the product's dtype, checked.
struct Site {
  Batched operand;
  DType type;
  std::int64_t groups, outputs; ///< outputs: of one group
  std::vector<std::int64_t> stride, padding, dilation, kernel;
};

Site checked(const Tensor& a, const Tensor& weight, const Tensor& bias, std::size_t spatial,
             std::int64_t groups, bool transposed, const char* who) {
  Site site{.operand = batched(a, spatial, who),
            .type = {},
            .groups = groups,
            .outputs = 0,
            .stride = {},
            .padding = {},
            .dilation = {},
            .kernel = {}};
  Access::held(weight, who);
  if (static_cast<std::size_t>(weight.rank()) != spatial + 2)
    fail(ErrorKind::Shape, "{}: weight is {}; it must have {} axes", who, shape_of(weight),
         spatial + 2);
  if (groups < 1)
    fail(ErrorKind::Value, "{}: {} groups; there is at least 1", who, groups);
  site.type = promote(a.dtype(), weight.dtype());
  if (site.type == DType::Bool)
    fail(ErrorKind::DType, "{}: takes numbers, got bool; convert with to(DType::F32)", who);
  const std::int64_t channels = site.operand.a.size(1), first = weight.size(0),
                     second = weight.size(1);
  const bool fits = transposed ? first == channels && channels % groups == 0
                               : second * groups == channels && first % groups == 0;
  if (!fits)
    fail(ErrorKind::Shape, "{}: weight {} does not fit {} in {} groups; it must be {}", who,
         shape_of(weight), shape_of(a), groups,
         transposed ? "[channels, outputs/groups, kernel...], channels in whole groups"
                    : "[outputs, channels/groups, kernel...], outputs in whole groups");
  site.outputs = transposed ? second : first / groups;
  for (std::size_t i = 0; i < spatial; ++i) {
    site.kernel.push_back(weight.size(static_cast<std::int64_t>(i) + 2));
    if (site.kernel.back() < 1)
      fail(ErrorKind::Shape, "{}: weight {} has an empty kernel", who, shape_of(weight));
  }
  if (bias.defined() && bias.shape() != Shape{Expr(site.outputs * groups)})
    fail(ErrorKind::Shape, "{}: bias {} does not fit weight {}; it must be [{}]", who,
         shape_of(bias), shape_of(weight), site.outputs * groups);
  return site;
}

// Adds the bias along the channels, in the type of the result.
Tensor biased(const Tensor& y, const Tensor& bias, std::size_t spatial) {
  if (!bias.defined())
    return y;
  Shape line(spatial + 1, Expr(1));
  line[0] = bias.shape()[0];
  return y + reshape(bias, line);
}

Tensor conv(const Tensor& operand, const Tensor& kernel, const Tensor& offset,
            const ConvOptions& options, std::size_t spatial, const char* who) {
  const Tensor a = product_operand(operand), weight = product_operand(kernel);
  const Tensor bias = product_operand(offset);
  Site site = checked(a, weight, bias, spatial, options.groups, false, who);
  site.stride = per_axis(options.stride, spatial, 1, "stride", who);
  site.padding = per_axis(options.padding, spatial, 0, "padding", who);
  site.dilation = per_axis(options.dilation, spatial, 1, "dilation", who);
  const DType wide = accumulator_of(site.type);
  const std::int64_t groups = site.groups, inner = weight.size(1);

  // Windows of each axis: [batch, groups, channels, (count, kernel)...].
  const Expr batch = site.operand.a.shape()[0];
  Shape grouped = {batch, Expr(groups), Expr(inner)};
  grouped.insert(grouped.end(), site.operand.a.shape().begin() + 2, site.operand.a.shape().end());
  Tensor x = reshape(site.operand.a.to(wide), grouped);
  Shape counts;
  std::vector<WindowedAxis> lines;
  for (std::size_t i = 0; i < spatial; ++i) {
    const auto axis = static_cast<std::int64_t>(i + 3);
    const Windows w{site.kernel[i], site.stride[i], site.dilation[i]};
    std::int64_t before = site.padding[i], after = before;
    if (options.same) {
      if (w.stride != 1)
        fail(ErrorKind::Value, "{}: stride {} with padding that keeps the sizes; it must be 1", who,
             w.stride);
      before = (w.span() - 1) / 2;
      after = w.span() - 1 - before;
    }
    const std::int64_t padded = x.size(axis) + before + after;
    if (padded < w.span())
      fail(ErrorKind::Shape, "{}: the kernel spans {} elements and axis {} of {}, padded, has {}",
           who, w.span(), static_cast<std::int64_t>(i) - static_cast<std::int64_t>(spatial),
           shape_of(a), padded);
    lines.push_back({w, before, after});
    counts.push_back(w.count(padded));
  }
  x = windows_of(x, 3, lines, Scalar::of(wide, std::int64_t{0}), who);

  // Both operands in the box [batch, groups, outputs, count..., channels, kernel...].
  std::vector<std::int64_t> order = {0, 1}, summed;
  for (std::size_t i = 0; i < spatial; ++i)
    order.push_back(static_cast<std::int64_t>(2 * i + 3));
  order.push_back(2);
  for (std::size_t i = 0; i < spatial; ++i)
    order.push_back(static_cast<std::int64_t>(2 * i + 4));
  x = unsqueeze(permute(x, order), 2);
  Shape box = x.shape();
  box[2] = site.outputs;
  Shape line = {Expr(1), Expr(groups), Expr(site.outputs)};
  line.resize(3 + spatial, Expr(1));
  line.insert(line.end(), weight.shape().begin() + 1, weight.shape().end());
  for (std::size_t i = 0; i <= spatial; ++i)
    summed.push_back(static_cast<std::int64_t>(3 + spatial + i));
  const Tensor products = binary(Op::Mul, broadcast_to(x, box, who),
                                 broadcast_to(reshape(weight.to(wide), line), box, who), who);
  Shape out = {batch, Expr(groups * site.outputs)};
  out.insert(out.end(), counts.begin(), counts.end());
  const Tensor y = reshape(reduce(Op::ReduceSum, products, summed, false, who).to(site.type), out);
  return site.operand.result(biased(y, bias, spatial));
}

Tensor conv_transpose(const Tensor& operand, const Tensor& kernel, const Tensor& offset,
                      const ConvTransposeOptions& options, std::size_t spatial, const char* who) {
  const Tensor a = product_operand(operand), weight = product_operand(kernel);
  const Tensor bias = product_operand(offset);
  Site site = checked(a, weight, bias, spatial, options.groups, true, who);
  site.stride = per_axis(options.stride, spatial, 1, "stride", who);
  site.padding = per_axis(options.padding, spatial, 0, "padding", who);
  site.dilation = per_axis(options.dilation, spatial, 1, "dilation", who);
  const auto extra = per_axis(options.output_padding, spatial, 0, "output_padding", who);
  const DType wide = accumulator_of(site.type);
  const Scalar zero = Scalar::of(wide, std::int64_t{0});
  const std::int64_t groups = site.groups, inner = weight.size(0) / groups;
  const Shape& shape = site.operand.a.shape();

  // Where windows overlap and the kernel is a multiple of the stride, a result is a sum over the
  // elements that reach it: element s * q + r is that of a[q - d * j] * weight[r + s * j] over j.
  // Else products are placed, and those that meet are added.
  struct Line {
    bool sums;
    std::int64_t taps, phases;         ///< taps * phases: the kernel
    WindowedAxis read, placed;         ///< of the operand, of the products
    std::int64_t place = 0, phase = 0; ///< axes of the products
  };
  std::vector<Line> lines;
  Shape left = {shape[0], Expr(groups), Expr(inner)};
  Shape right = {Expr(groups), Expr(inner), Expr(site.outputs)};
  left.insert(left.end(), shape.begin() + 2, shape.end());
  for (std::size_t i = 0; i < spatial; ++i) {
    const std::int64_t k = site.kernel[i], s = site.stride[i], d = site.dilation[i],
                       p = site.padding[i], n = site.operand.a.size(std::int64_t(i) + 2);
    if (extra[i] >= std::max(s, d))
      fail(ErrorKind::Value,
           "{}: output_padding is {}; it must be less than stride or dilation ({})", who, extra[i],
           std::max(s, d));
    if (n < 1)
      fail(ErrorKind::Shape, "{}: {} has an empty spatial axis", who, shape_of(a));
    if (Windows{k, s, d}.extent(n) - 2 * p + extra[i] < 1)
      fail(ErrorKind::Shape, "{}: padding of {} leaves nothing of axis {} of {}", who, p,
           static_cast<std::int64_t>(i) - static_cast<std::int64_t>(spatial), shape_of(a));
    Line line{false, 1, k, {{1}}, {{k, s, d}, p, p - extra[i]}};
    if (k > s && k % s == 0 && (s == 1 || d == 1)) {
      // Of what is taken away, whole strides are not computed.
      const Windows taps{k / s, 1, d};
      const std::int64_t front = p / s, back = std::max<std::int64_t>(p - extra[i], 0) / s;
      line = {true,
              k / s,
              s,
              {taps, taps.span() - 1 - front, taps.span() - 1 - back},
              {{s, s}, p - front * s, p - extra[i] - back * s}};
    }
    lines.push_back(line);
    right.insert(right.end(), {Expr(line.taps), Expr(line.phases)});
  }
  // [batch, groups, channels, (place, tap)...] and [groups, channels, outputs, (tap, phase)...].
  std::vector<WindowedAxis> read, placed;
  std::vector<std::int64_t> flipped;
  for (std::size_t i = 0; i < spatial; ++i) {
    read.push_back(lines[i].read);
    placed.push_back(lines[i].placed);
    if (lines[i].sums)
      flipped.push_back(static_cast<std::int64_t>(2 * i + 3));
  }
  Tensor x = windows_of(reshape(site.operand.a.to(wide), left), 3, read, zero, who);
  Tensor w = reshape(weight.to(wide), right);
  if (!flipped.empty())
    w = flip(w, flipped);
  // Both in the box [batch, groups, outputs, phases..., places..., channels, taps...]; phases of
  // products that are placed stand behind their places.
  std::vector<std::int64_t> x_order = {0, 1}, w_order = {0, 2}, x_ones = {2}, w_ones = {0}, summed,
                            y_order = {0, 1, 2};
  std::int64_t axes = 3;
  const auto phase = [&](std::size_t i) {
    w_order.push_back(static_cast<std::int64_t>(2 * i + 4));
    x_ones.push_back(axes);
    lines[i].phase = axes++;
  };
  for (std::size_t i = 0; i < spatial; ++i)
    if (lines[i].sums)
      phase(i);
  for (std::size_t i = 0; i < spatial; ++i) {
    x_order.push_back(static_cast<std::int64_t>(2 * i + 3));
    w_ones.push_back(axes);
    lines[i].place = axes++;
    if (!lines[i].sums)
      phase(i);
    y_order.insert(y_order.end(), {lines[i].place, lines[i].phase});
  }
  x_order.push_back(2);
  w_order.push_back(1);
  summed.push_back(axes++);
  for (std::size_t i = 0; i < spatial; ++i) {
    x_order.push_back(static_cast<std::int64_t>(2 * i + 4));
    w_order.push_back(static_cast<std::int64_t>(2 * i + 3));
    summed.push_back(axes++);
  }
  x = permute(x, x_order);
  w = permute(w, w_order);
  for (const std::int64_t axis : x_ones)
    x = unsqueeze(x, axis);
  for (const std::int64_t axis : w_ones)
    w = unsqueeze(w, axis);
  const Shape box = broadcast_shapes(x.shape(), w.shape(), who);
  const Tensor products =
      binary(Op::Mul, broadcast_to(x, box, who), broadcast_to(w, box, who), who);
  const Tensor y =
      folded(permute(reduce(Op::ReduceSum, products, summed, false, who), y_order), 3, placed, who);
  Shape out = {shape[0], Expr(groups * site.outputs)};
  out.insert(out.end(), y.shape().begin() + 3, y.shape().end());
  return site.operand.result(biased(reshape(y.to(site.type), out), bias, spatial));
}

} // namespace

Tensor conv1d(const Operand& a, const Operand& weight, const Operand& bias,
              const ConvOptions& options) {
  return conv(a, weight, bias, options, 1, "conv1d");
}
Tensor conv2d(const Operand& a, const Operand& weight, const Operand& bias,
              const ConvOptions& options) {
  return conv(a, weight, bias, options, 2, "conv2d");
}
Tensor conv3d(const Operand& a, const Operand& weight, const Operand& bias,
              const ConvOptions& options) {
  return conv(a, weight, bias, options, 3, "conv3d");
}

Tensor conv_transpose1d(const Operand& a, const Operand& weight, const Operand& bias,
                        const ConvTransposeOptions& options) {
  return conv_transpose(a, weight, bias, options, 1, "conv_transpose1d");
}
Tensor conv_transpose2d(const Operand& a, const Operand& weight, const Operand& bias,
                        const ConvTransposeOptions& options) {
  return conv_transpose(a, weight, bias, options, 2, "conv_transpose2d");
}
Tensor conv_transpose3d(const Operand& a, const Operand& weight, const Operand& bias,
                        const ConvTransposeOptions& options) {
  return conv_transpose(a, weight, bias, options, 3, "conv_transpose3d");
}

} // namespace egret
