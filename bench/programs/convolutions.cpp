// Blocks of convolutional networks.
#include "programs.h"

namespace egret::programs {

namespace {

Tensor conv3x3(const Tensor& x, const Tensor& w) {
  return conv2d(x, w, {}, {.padding = 1});
}

/// Batch normalization by the batch's own statistics, as users write it.
Tensor normalized(const Tensor& x, const Tensor& scale, const Tensor& shift) {
  const Tensor m = x.mean({0, 2, 3}, true);
  const Tensor v = (x - m).square().mean({0, 2, 3}, true);
  return (x - m) * rsqrt(v + 1e-5) * scale.reshape({1, -1, 1, 1}) + shift.reshape({1, -1, 1, 1});
}

Tensors residual(const Tensors& t) {
  Tensor h = relu(normalized(conv3x3(t[0], t[1]), t[2], t[3]));
  h = normalized(conv3x3(h, t[4]), t[5], t[6]);
  return {relu(h + t[0])};
}

Tensors unet(const Tensors& t) {
  const Tensor skip = relu(conv3x3(t[0], t[1]));
  const Tensor below = relu(conv3x3(max_pool2d(skip, 2), t[2]));
  const Tensor up = interpolate_by(below, {2, 2});
  return {relu(conv3x3(cat({skip, up}, 1), t[3]))};
}

Tensors separable(const Tensors& t) {
  const std::int64_t channels = t[0].size(1);
  Tensor h = conv2d(t[0], t[1], {}, {.padding = 1, .groups = channels});
  h = relu6(normalized(h, t[2], t[3]));
  return {relu6(conv2d(h, t[4]))};
}

/// A program of its outputs, or of the gradients of the mean of their squares.
Run trained(Tensors (*forward)(const Tensors&)) {
  return [forward](const Tensors& t) { return with_gradients(forward(t)[0].square().mean(), t); };
}

void add_blocks(Programs& p) {
  const std::int64_t c = p.size(64, 8), side = p.size(28, 10), batch = p.size(8, 2);
  const std::vector<Input> residual_inputs = {data({batch, c, side, side}),
                                              weight({c, c, 3, 3}, 9 * c),
                                              data({c}, DType::F32, 0.5, 1),
                                              data({c}),
                                              weight({c, c, 3, 3}, 9 * c),
                                              data({c}, DType::F32, 0.5, 1),
                                              data({c})};
  p.add("conv/residual_block", residual_inputs, residual);
  p.train("conv/residual_block_train", residual_inputs, trained(residual));

  const std::int64_t u = p.size(32, 4), wide = p.size(64, 12);
  const std::vector<Input> unet_inputs = {
      data({p.size(4, 1), 16, wide, wide}), weight({u, 16, 3, 3}, 144),
      weight({2 * u, u, 3, 3}, 9 * u), weight({u, 3 * u, 3, 3}, 27 * u)};
  p.add("conv/unet_block", unet_inputs, unet);
  p.train("conv/unet_block_train", unet_inputs, trained(unet));

  const std::int64_t d = p.size(96, 6);
  const std::vector<Input> separable_inputs = {
      data({batch, d, p.size(56, 9), p.size(56, 9)}), weight({d, 1, 3, 3}, 9),
      data({d}, DType::F32, 0.5, 1), data({d}), weight({2 * d, d, 1, 1}, d)};
  p.add("conv/depthwise_separable", separable_inputs, separable);
  p.train("conv/depthwise_separable_train", separable_inputs, trained(separable));

  const std::int64_t s = p.size(128, 16);
  p.add("conv/squeeze_excite",
        {data({batch, s, side, side}), weight({s / 4, s}, s), weight({s, s / 4}, s / 4),
         weight({s, s, 1, 1}, s)},
        [](const Tensors& t) -> Tensors {
          const Tensor pooled = t[0].mean({2, 3});
          const Tensor gate = sigmoid(linear(relu(linear(pooled, t[1])), t[2]));
          return {relu(conv2d(t[0] * gate.unsqueeze(-1).unsqueeze(-1), t[3]))};
        });
}

void add_kinds(Programs& p) {
  const std::int64_t c = p.size(48, 6), side = p.size(64, 12);
  p.add("conv/dilated",
        {data({p.size(4, 1), c, side, side}), weight({c, c, 3, 3}, 9 * c),
         weight({c, c, 3, 3}, 9 * c)},
        [](const Tensors& t) -> Tensors {
          const Tensor a = relu(conv2d(t[0], t[1], {}, {.padding = 2, .dilation = 2}));
          return {relu(conv2d(a, t[2], {}, {.padding = 4, .dilation = 4})) + t[0]};
        });

  const std::int64_t g = p.size(128, 16);
  p.train("conv/grouped_train",
          {data({p.size(8, 1), g, p.size(28, 7), p.size(28, 7)}),
           weight({g, g / 8, 3, 3}, 9 * g / 8), data({g})},
          [](const Tensors& t) {
            const Tensor y = gelu(conv2d(t[0], t[1], t[2], {.padding = 1, .groups = 8}));
            return with_gradients(y.square().mean(), t);
          });

  const auto transposed = [](const Tensors& t) {
    return relu(conv_transpose2d(t[0], t[1], t[2], {.stride = 2, .padding = 1}));
  };
  const std::int64_t up = p.size(64, 6), out = p.size(32, 4), at = p.size(32, 7);
  const std::vector<Input> transposed_inputs = {data({p.size(4, 1), up, at, at}),
                                                weight({up, out, 4, 4}, 4 * up), data({out})};
  p.add("conv/transposed", transposed_inputs,
        [=](const Tensors& t) -> Tensors { return {transposed(t)}; });
  p.train("conv/transposed_train", transposed_inputs,
          [=](const Tensors& t) { return with_gradients(transposed(t).square().mean(), t); });

  const std::int64_t lines = p.size(64, 8);
  p.add("conv/one_d",
        {data({p.size(16, 2), lines, p.size(1999, 51)}), weight({lines, lines, 7}, 7 * lines),
         weight({lines, lines, 7}, 7 * lines)},
        [](const Tensors& t) -> Tensors {
          return {gelu(conv1d(gelu(conv1d(t[0], t[1], {}, {.padding = 3})), t[2]))};
        });
  const std::int64_t wave = p.size(32, 4);
  p.add("conv/gated_causal_1d",
        {data({p.size(8, 2), wave, p.size(4096, 64)}), weight({2 * wave, wave, 2}, 2 * wave),
         weight({wave, wave, 1}, wave)},
        [](const Tensors& t) -> Tensors {
          const Tensor padded = pad(t[0], {0, 0, 8}, {0, 0, 0});
          const std::vector<Tensor> halves = chunk(conv1d(padded, t[1], {}, {.dilation = 8}), 2, 1);
          return {conv1d(tanh(halves[0]) * sigmoid(halves[1]), t[2]) + t[0]};
        });

  const auto volume = [](const Tensors& t) {
    return relu(conv3d(t[0], t[1], t[2], {.padding = 1}));
  };
  const std::int64_t v = p.size(16, 3), depth = p.size(16, 5), wide = p.size(32, 7);
  const std::vector<Input> volume_inputs = {data({2, v, depth, wide, wide}),
                                            weight({2 * v, v, 3, 3, 3}, 27 * v), data({2 * v})};
  p.add("conv/three_d", volume_inputs, [=](const Tensors& t) -> Tensors { return {volume(t)}; });
  p.train("conv/three_d_train", volume_inputs,
          [=](const Tensors& t) { return with_gradients(volume(t).square().mean(), t); });
}

void add_shapes(Programs& p) {
  const std::int64_t c = p.size(64, 8), side = p.size(56, 9);
  p.add(
      "conv/channels_last",
      {data({p.size(4, 1), side, side, c}, DType::BF16), weight({c, c, 3, 3}, 9 * c, DType::BF16)},
      [](const Tensors& t) -> Tensors {
        return {relu(conv3x3(t[0].permute({0, 3, 1, 2}), t[1])).permute({0, 2, 3, 1})};
      });
  p.add("conv/bf16_block",
        {data({p.size(8, 1), c, p.size(28, 6), p.size(28, 6)}, DType::BF16),
         weight({c, c, 3, 3}, 9 * c, DType::BF16), weight({c, c, 1, 1}, c, DType::BF16)},
        [](const Tensors& t) -> Tensors {
          return {relu(conv2d(silu(conv3x3(t[0], t[1])), t[2]) + t[0])};
        });
  const std::int64_t w = p.size(64, 6), side_2 = p.size(28, 7);
  p.train("conv/bf16_3x3_train",
          {data({p.size(8, 2), w, side_2, side_2}, DType::BF16),
           weight({w, w, 3, 3}, 9 * w, DType::BF16), data({w}, DType::BF16)},
          [](const Tensors& t) {
            const Tensor y = conv2d(t[0], t[1], t[2], {.padding = 1});
            return with_gradients(y.to(DType::F32).square().mean(), t);
          });
  p.add("conv/bf16_5x5_stride_2",
        {data({p.size(4, 2), w / 2, p.size(57, 11), p.size(61, 13)}, DType::BF16),
         weight({p.size(48, 5), w / 2, 5, 5}, 25 * w / 2, DType::BF16),
         data({p.size(48, 5)}, DType::BF16)},
        [](const Tensors& t) -> Tensors {
          return {relu(conv2d(t[0], t[1], t[2], {.stride = 2, .padding = 2}))};
        });
  p.add("conv/bf16_three_d",
        {data({1, p.size(16, 3), p.size(8, 4), side_2, side_2}, DType::BF16),
         weight({p.size(32, 5), p.size(16, 3), 3, 3, 3}, p.size(432, 81), DType::BF16)},
        [](const Tensors& t) -> Tensors { return {conv3d(t[0], t[1], {}, {.padding = 1})}; });
  const std::int64_t image = p.size(224, 33);
  p.add(
      "conv/stride_3",
      {data({p.size(8, 1), 3, image, image}), weight({40, 3, 5, 5}, 75), data({40})},
      [](const Tensors& t) -> Tensors { return {silu(conv2d(t[0], t[1], t[2], {.stride = 3}))}; });
  p.add("conv/stem_7x7",
        {data({p.size(4, 1), 3, image, image}), weight({p.size(64, 8), 3, 7, 7}, 147)},
        [](const Tensors& t) -> Tensors {
          const Tensor h = relu(conv2d(t[0], t[1], {}, {.stride = 2, .padding = 3}));
          return {max_pool2d(h, 3, {.stride = 2, .padding = 1})};
        });
  p.add("conv/odd_channels",
        {data({p.size(4, 1), 37, p.size(45, 8), p.size(51, 9)}), weight({53, 37, 3, 3}, 333),
         data({53})},
        [](const Tensors& t) -> Tensors { return {leaky_relu(conv2d(t[0], t[1], t[2]))}; });
  p.add("conv/patchify",
        {data({p.size(8, 1), 3, p.size(224, 32), p.size(224, 32)}),
         weight({p.size(384, 24), 768}, 768)},
        [](const Tensors& t) -> Tensors {
          const std::int64_t n = t[0].size(0), cells = t[0].size(2) / 16;
          const Tensor patches = t[0].reshape({n, 3, cells, 16, cells, 16})
                                     .permute({0, 2, 4, 1, 3, 5})
                                     .reshape({n, cells * cells, 768});
          return {linear(patches, t[1])};
        });
}

/// Images of short rows, of which a vector holds several or a part of one.
void add_small_images(Programs& p) {
  const std::int64_t c = p.size(64, 5), batch = p.size(16, 2);
  p.add("conv/kernel_5_on_14",
        {data({batch, c / 2, p.size(14, 6), p.size(14, 6)}), weight({c, c / 2, 5, 5}, 25 * c / 2)},
        [](const Tensors& t) -> Tensors { return {relu(conv2d(t[0], t[1], {}, {.padding = 2}))}; });
  const std::vector<Input> on_7 = {data({batch, c, p.size(7, 5), p.size(7, 5)}),
                                   weight({2 * c, c, 3, 3}, 9 * c)};
  const auto on_7_of = [](const Tensors& t) -> Tensors { return {relu(conv3x3(t[0], t[1]))}; };
  p.add("conv/kernel_3_on_7", on_7, on_7_of);
  p.train("conv/kernel_3_on_7_train", on_7, trained(on_7_of));
  p.add("conv/separated_7x7",
        {data({p.size(4, 1), c, p.size(28, 9), p.size(28, 10)}), weight({c, c, 1, 7}, 7 * c),
         weight({c, c, 7, 1}, 7 * c)},
        [](const Tensors& t) -> Tensors {
          const Tensor h = relu(conv2d(t[0], t[1], {}, {.padding = {0, 3}}));
          return {relu(conv2d(h, t[2], {}, {.padding = {3, 0}}))};
        });
  p.train("conv/channels_last_train",
          {data({p.size(4, 1), p.size(28, 7), p.size(28, 6), c}), weight({c, c, 3, 3}, 9 * c),
           data({c})},
          [](const Tensors& t) {
            const Tensor y = conv3x3(t[0].permute({0, 3, 1, 2}), t[1]).permute({0, 2, 3, 1});
            return with_gradients(relu(y + t[2]).square().mean(), t);
          });
}

} // namespace

void add_convolutions(Programs& p) {
  add_blocks(p);
  add_kinds(p);
  add_shapes(p);
  add_small_images(p);
}

} // namespace egret::programs
