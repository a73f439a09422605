// Windows: pooling, depthwise convolutions, stencils, interpolation; and convolutions.
#include "sweep/sweep.h"

#include "egret/functional.h"

#include <algorithm>
#include <cmath>

namespace egret::tool::sweep {

namespace {

using Sizes = std::vector<std::int64_t>;

/// Spatial sizes with a product of about `most`, each at least `least`.
Sizes spatial(Dice& dice, std::int64_t axes, double most, std::int64_t least) {
  Sizes sizes;
  const auto side =
      static_cast<std::int64_t>(std::pow(std::max(1.0, most), 1.0 / static_cast<double>(axes)));
  for (std::int64_t i = 0; i < axes; ++i)
    sizes.push_back(dice.size(least, std::max(least, side)));
  return sizes;
}

struct Windows {
  Sizes kernel, stride, padding, dilation;
};

/// Of one axis each, with kernels of at most `most`; windows fit into sizes of `extent` and more.
Windows windows(Dice& dice, std::int64_t axes, std::int64_t most, bool pooling) {
  Windows w;
  const std::int64_t kernel = dice.whole(1, most), stride = dice.whole(1, 3),
                     dilation = dice.chance(0.2) ? 2 : 1;
  const bool square = dice.chance(0.7);
  for (std::int64_t i = 0; i < axes; ++i) {
    w.kernel.push_back(square ? kernel : dice.whole(1, most));
    w.stride.push_back(square ? stride : dice.whole(1, 3));
    w.dilation.push_back(dilation);
    w.padding.push_back(dice.whole(0, pooling ? w.kernel.back() / 2 : w.kernel.back() - 1));
  }
  return w;
}

/// The smallest size that any of these windows fits into.
std::int64_t extent(const Windows& w) {
  std::int64_t most = 1;
  for (std::size_t i = 0; i < w.kernel.size(); ++i)
    most = std::max(most, (w.kernel[i] - 1) * w.dilation[i] + 1);
  return most;
}

Sizes results(const Sizes& sizes, const Windows& w) {
  Sizes result;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    result.push_back(
        (sizes[i] + 2 * w.padding[i] - w.dilation[i] * (w.kernel[i] - 1) - 1) / w.stride[i] + 1);
  return result;
}

void put(Json& parameters, const Windows& w) {
  parameters["kernel"] = w.kernel;
  parameters["stride"] = w.stride;
  parameters["padding"] = w.padding;
  parameters["dilation"] = w.dilation;
}

DType window_dtype(Dice& dice) {
  return dice.one_of<DType>({DType::F32, DType::F32, DType::BF16});
}

Tensor convolved(const Json& p, const Tensors& in) {
  ConvOptions options;
  options.stride = sizes_of(p.at("stride"));
  options.padding = sizes_of(p.at("padding"));
  options.dilation = sizes_of(p.at("dilation"));
  options.groups = p.at("groups").get<std::int64_t>();
  const Tensor bias = in.size() > 2 ? in[2] : Tensor();
  switch (p.at("kernel").size()) {
  case 1:
    return conv1d(in[0], in[1], bias, options);
  case 2:
    return conv2d(in[0], in[1], bias, options);
  default:
    return conv3d(in[0], in[1], bias, options);
  }
}

Tensor pooled(const Json& p, const Tensor& a) {
  const PerAxis kernel = sizes_of(p.at("kernel"));
  const std::size_t axes = p.at("kernel").size();
  if (p.at("op") == "max_pool") {
    MaxPoolOptions options;
    options.stride = sizes_of(p.at("stride"));
    options.padding = sizes_of(p.at("padding"));
    options.dilation = sizes_of(p.at("dilation"));
    return axes == 1   ? max_pool1d(a, kernel, options)
           : axes == 2 ? max_pool2d(a, kernel, options)
                       : max_pool3d(a, kernel, options);
  }
  AvgPoolOptions options;
  options.stride = sizes_of(p.at("stride"));
  options.padding = sizes_of(p.at("padding"));
  return axes == 1   ? avg_pool1d(a, kernel, options)
         : axes == 2 ? avg_pool2d(a, kernel, options)
                     : avg_pool3d(a, kernel, options);
}

/// The sum of each element and its neighbours along the last axes, without the edges.
Tensor stencil(const Tensor& a, std::int64_t axes) {
  const Tensor shrunk = [&] {
    Tensor t = a;
    for (std::int64_t axis = a.rank() - axes; axis < a.rank(); ++axis)
      t = t.narrow(axis, 1, a.size(axis) - 2);
    return t;
  }();
  Tensor sum = shrunk * -2.0 * static_cast<double>(axes);
  for (std::int64_t axis = a.rank() - axes; axis < a.rank(); ++axis)
    for (const std::int64_t begin : {0, 2}) {
      Tensor t = a;
      for (std::int64_t other = a.rank() - axes; other < a.rank(); ++other)
        t = t.narrow(other, other == axis ? begin : 1, a.size(other) - 2);
      sum = sum + t;
    }
  return sum;
}

} // namespace

Json draw_window(Dice& dice, const Limits& limits) {
  const auto op =
      dice.one_of<std::string>({"max_pool", "avg_pool", "depthwise", "stencil", "interpolate"});
  const std::int64_t axes = dice.whole(1, op == "interpolate" ? 2 : 3);
  Windows w = windows(dice, axes, axes == 1 ? 16 : axes == 2 ? 7 : 3, op.ends_with("pool"));
  if (op == "avg_pool")
    w.dilation.assign(w.dilation.size(), 1);
  const std::int64_t least = op == "stencil" ? 3 : extent(w);
  const double elements = limits.bytes / 4 / 6;
  const std::int64_t channels = dice.size(1, 128), batch = dice.size(1, 16);
  Sizes sizes =
      spatial(dice, axes, std::max(8.0, elements / static_cast<double>(channels * batch)), least);
  Sizes shape = {batch, channels};
  shape.insert(shape.end(), sizes.begin(), sizes.end());
  while (static_cast<double>(product(shape)) > elements && shape[0] * shape[1] > 1)
    (shape[0] > shape[1] ? shape[0] : shape[1]) /= 2;
  const DType dtype = window_dtype(dice);
  Json p = {{"inputs", Json::array({input(dice, shape, dtype, {0.15, 0.1})})}, {"op", op}};
  if (op.ends_with("pool"))
    put(p, w);
  if (op == "depthwise") {
    put(p, w);
    p["groups"] = shape[1];
    Sizes weight = {shape[1], 1};
    weight.insert(weight.end(), w.kernel.begin(), w.kernel.end());
    p["inputs"].push_back(input(weight, dtype));
  }
  if (op == "stencil")
    p["axes"] = axes;
  if (op == "interpolate") {
    for (std::int64_t& size : sizes)
      size = dice.size(1, 2 * size);
    p["sizes"] = sizes;
  }
  return p;
}

Program window(const Json& p) {
  Program program;
  const auto op = p.at("op").get<std::string>();
  program.run = [p, op](const Tensors& in) -> Tensors {
    if (op.ends_with("pool"))
      return {pooled(p, in[0])};
    if (op == "stencil")
      return {stencil(in[0], p.at("axes").get<std::int64_t>())};
    if (op == "interpolate")
      return {interpolate(in[0], sizes_of(p.at("sizes")), {.mode = Interpolation::Linear})};
    if (op != "depthwise")
      fail_unknown(op);
    Json sampled = p; // of some channels only, when a part is verified
    sampled["groups"] = in[0].size(1);
    return {convolved(sampled, in)};
  };
  const Json& inputs = p.at("inputs");
  program.lines = {{{0}, {0}}, {{1}, {1}}};
  if (op == "depthwise") {
    program.lines = {{{0, -1}, {0}}, {{1, 0}, {1}}};
    const Sizes shape = sizes_of(inputs[0].at("shape"));
    const Windows w{sizes_of(p.at("kernel")), sizes_of(p.at("stride")), sizes_of(p.at("padding")),
                    sizes_of(p.at("dilation"))};
    program.flops =
        2.0 * static_cast<double>(product(w.kernel) * shape[0] * shape[1] *
                                  product(results({shape.begin() + 2, shape.end()}, w)));
  }
  return program;
}

Json draw_convolution(Dice& dice, const Limits& limits) {
  const std::int64_t axes = dice.one_of<std::int64_t>({1, 2, 2, 2, 3});
  const Windows w = windows(dice, axes, axes == 1 ? 9 : axes == 2 ? 7 : 3, false);
  const std::int64_t groups = dice.chance(0.2) ? dice.whole(2, 4) : 1;
  const std::int64_t inputs = groups * dice.size(1, 256 / groups),
                     outputs = groups * dice.size(1, 256 / groups), batch = dice.size(1, 16);
  // Of one position of the result: what the flops allow.
  const double each =
      2.0 * static_cast<double>(batch * outputs * (inputs / groups) * product(w.kernel));
  const double positions =
      std::min(limits.flops / each,
               limits.bytes / 12 / static_cast<double>(batch * std::max(inputs, outputs)));
  Sizes shape = {batch, inputs};
  const Sizes sizes = spatial(dice, axes, positions, extent(w));
  shape.insert(shape.end(), sizes.begin(), sizes.end());
  Sizes weight = {outputs, inputs / groups};
  weight.insert(weight.end(), w.kernel.begin(), w.kernel.end());
  const double work = each * static_cast<double>(product(results(sizes, w)));
  if (work > limits.flops) // windows that only fit into larger sizes
    shape[0] = std::max<std::int64_t>(
        1, static_cast<std::int64_t>(static_cast<double>(batch) * limits.flops / work));
  const DType dtype = window_dtype(dice);
  Json p = {{"inputs", Json::array({input(dice, shape, dtype, {0.2, 0}), input(weight, dtype)})}};
  if (dice.chance(0.5))
    p["inputs"].push_back(input({outputs}, dtype));
  put(p, w);
  p["groups"] = groups;
  return p;
}

Program convolution(const Json& p) {
  Program program;
  program.run = [p](const Tensors& in) { return Tensors{convolved(p, in)}; };
  const Json& inputs = p.at("inputs");
  const Sizes shape = sizes_of(inputs[0].at("shape")), weight = sizes_of(inputs[1].at("shape"));
  const Windows w{sizes_of(p.at("kernel")), sizes_of(p.at("stride")), sizes_of(p.at("padding")),
                  sizes_of(p.at("dilation"))};
  program.flops = 2.0 * static_cast<double>(shape[0] * product(weight) *
                                            product(results({shape.begin() + 2, shape.end()}, w)));
  program.products = dtype_of(inputs[0]);
  program.lines.push_back({{0, -1}, {0}});
  if (p.at("groups") == 1)
    program.lines.push_back({{-1, 0}, {1}});
  for (Lines& lines : program.lines)
    lines.inputs.resize(inputs.size(), lines.inputs[1]);
  return program;
}

} // namespace egret::tool::sweep
