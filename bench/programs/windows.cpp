// Pooling, filters of images and stencils.
#include "programs.h"

namespace egret::programs {

namespace {

/// The image moved by (dy, dx) with its border repeated.
Tensor moved(const Tensor& padded, std::int64_t border, std::int64_t dy, std::int64_t dx) {
  const std::int64_t h = padded.size(-2) - 2 * border, w = padded.size(-1) - 2 * border;
  return padded.narrow(-2, border + dy, h).narrow(-1, border + dx, w);
}

Tensor bordered(const Tensor& image, std::int64_t border) { // [n, h, w]
  return pad(image, {0, border, border}, {0, border, border}, PadMode::Replicate);
}

void add_pools(Programs& p) {
  const Input image = data({p.size(16, 2), p.size(64, 3), p.size(56, 9), p.size(56, 11)});
  p.train("window/max_pool_train", {image}, [](const Tensors& t) {
    return with_gradients(max_pool2d(t[0], 3, {.stride = 2, .padding = 1}).square().mean(), t);
  });
  p.train("window/avg_pool_train", {image}, [](const Tensors& t) {
    return with_gradients(tanh(avg_pool2d(t[0], 2)).square().mean(), t);
  });
  p.train("window/adaptive_avg_pool_train", {image}, [](const Tensors& t) {
    return with_gradients(adaptive_avg_pool2d(t[0], 7).square().mean(), t);
  });
  p.add("window/adaptive_max_pool", {image}, [](const Tensors& t) -> Tensors {
    return {adaptive_max_pool2d(t[0], {5, 6})};
  });
  p.add("window/global_pool_head", {image, weight({10, p.size(128, 6)}, p.size(128, 6))},
        [](const Tensors& t) -> Tensors {
          const Tensor both = cat({t[0].mean({2, 3}), t[0].max({2, 3})}, 1);
          return {softmax(linear(both, t[1]))};
        });
  p.add("window/max_pool_3d",
        {data({2, p.size(16, 3), p.size(32, 8), p.size(48, 9), p.size(48, 10)})},
        [](const Tensors& t) -> Tensors { return {max_pool3d(t[0], 2)}; });
  p.add("window/local_response_norm",
        {data({p.size(8, 2), p.size(64, 7), p.size(32, 5), p.size(32, 5)})},
        [](const Tensors& t) -> Tensors { return {local_response_norm(t[0], 5)}; });
  p.add("window/local_variance", {image}, [](const Tensors& t) -> Tensors {
    const auto smooth = [](const Tensor& a) {
      return avg_pool2d(a, 5, {.stride = 1, .padding = 2, .count_include_pad = false});
    };
    const Tensor m = smooth(t[0]);
    return {(t[0] - m) / sqrt(relu(smooth(t[0].square()) - m.square()) + 1e-3)};
  });
  p.add("window/open_close", {data({p.size(4, 1), 1, p.size(512, 20), p.size(512, 21)})},
        [](const Tensors& t) -> Tensors {
          const auto dilate = [](const Tensor& a) {
            return max_pool2d(a, 5, {.stride = 1, .padding = 2});
          };
          const auto erode = [&](const Tensor& a) { return -dilate(-a); };
          return {erode(dilate(dilate(erode(t[0]))))};
        });
}

void add_filters(Programs& p) {
  const std::int64_t h = p.size(512, 14), w = p.size(512, 17);
  p.add("window/gaussian_blur", {data({p.size(4, 2), h, w})}, [](const Tensors& t) -> Tensors {
    const double taps[] = {0.06136, 0.24477, 0.38774, 0.24477, 0.06136};
    const Tensor padded = bordered(t[0], 2);
    Tensor rows = padded.narrow(1, 0, t[0].size(1)) * taps[0];
    for (int i = 1; i < 5; ++i)
      rows = rows + padded.narrow(1, i, t[0].size(1)) * taps[i];
    Tensor sum = rows.narrow(2, 0, t[0].size(2)) * taps[0];
    for (int i = 1; i < 5; ++i)
      sum = sum + rows.narrow(2, i, t[0].size(2)) * taps[i];
    return {sum};
  });
  p.add("window/sobel", {data({p.size(4, 1), 1, h, w})}, [](const Tensors& t) -> Tensors {
    const Tensor kernel = tensor({{{{1.0, 0.0, -1.0}, {2.0, 0.0, -2.0}, {1.0, 0.0, -1.0}}}});
    const Tensor x = conv2d(t[0], kernel, {}, {.padding = 1});
    const Tensor y = conv2d(t[0], kernel.transpose(), {}, {.padding = 1});
    return {sqrt(x.square() + y.square() + 1e-6)};
  });
  p.add("window/bilateral", {data({p.size(2, 1), p.size(256, 12), p.size(256, 13)})},
        [](const Tensors& t) -> Tensors {
          const Tensor padded = bordered(t[0], 2);
          Tensor sum = zeros_like(t[0]), weights = zeros_like(t[0]);
          for (int dy = -2; dy <= 2; ++dy)
            for (int dx = -2; dx <= 2; ++dx) {
              const Tensor other = moved(padded, 2, dy, dx);
              const Tensor k = exp(-(other - t[0]).square() * 2 - (dx * dx + dy * dy) * 0.1);
              sum = sum + k * other;
              weights = weights + k;
            }
          return {sum / weights};
        });
  p.add("window/moving_average", {data({p.size(256, 5), p.size(8192, 200)})},
        [=](const Tensors& t) -> Tensors {
          const std::int64_t width = p.size(64, 8), n = t[0].size(1);
          const Tensor sums = pad(cumsum(t[0], 1), {0, 1}, {0, 0});
          return {(sums.narrow(1, width, n + 1 - width) - sums.narrow(1, 0, n + 1 - width)) /
                  static_cast<double>(width)};
        });
  p.add("window/unfold_statistics", {data({p.size(512, 5), p.size(2048, 70)})},
        [](const Tensors& t) -> Tensors {
          const Tensor frames = unfold(t[0], 1, 32, 8);
          return {frames.mean(-1), frames.max(-1), frames.var(-1)};
        });
}

Tensor alive(const Tensor& cells) { // a torus of zeros and ones
  Tensor around = zeros_like(cells);
  for (int dy = -1; dy <= 1; ++dy)
    for (int dx = -1; dx <= 1; ++dx)
      if (dy != 0 || dx != 0)
        around = around + roll(cells, {dy, dx}, {0, 1});
  return ((around == 3) | ((around == 2) & (cells == 1))).to(cells.dtype());
}

void add_stencils(Programs& p) {
  const std::int64_t side = p.size(1024, 18);
  for (const DType dtype : {DType::I32, DType::U8})
    p.add(dtype == DType::I32 ? "window/game_of_life" : "window/game_of_life_u8",
          {whole({side, side}, 2, dtype)}, [](const Tensors& t) -> Tensors {
            Tensor cells = t[0];
            for (int i = 0; i < 4; ++i)
              cells = alive(cells);
            return {cells};
          });
  p.add("window/jacobi", {data({side, side}), data({side, side})}, [](const Tensors& t) -> Tensors {
    Tensor x = t[0];
    for (int i = 0; i < 8; ++i) {
      const Tensor q = pad(x, {1, 1}, {1, 1});
      x = (moved(q, 1, -1, 0) + moved(q, 1, 1, 0) + moved(q, 1, 0, -1) + moved(q, 1, 0, 1) - t[1]) *
          0.25;
    }
    return {x, abs(x - t[0]).max()};
  });
  p.add("window/heat_3d", {data({p.size(96, 7), p.size(128, 8), p.size(128, 9)})},
        [](const Tensors& t) -> Tensors {
          Tensor u = t[0];
          for (int i = 0; i < 2; ++i) {
            Tensor sum = u * -6;
            for (int axis = 0; axis < 3; ++axis)
              sum = sum + roll(u, {1}, {axis}) + roll(u, {-1}, {axis});
            u = u + sum * 0.1;
          }
          return {u};
        });
  p.train("window/total_variation_train", {data({p.size(8, 1), 3, p.size(256, 9), p.size(256, 8)})},
          [](const Tensors& t) {
            const Tensor dy = diff(t[0], 1, 2), dx = diff(t[0], 1, 3);
            return with_gradients(sqrt(dy.square() + 1e-4).mean() + sqrt(dx.square() + 1e-4).mean(),
                                  t);
          });
}

} // namespace

void add_windows(Programs& p) {
  add_pools(p);
  add_filters(p);
  add_stencils(p);
}

} // namespace egret::programs
