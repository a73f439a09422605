// Interpolation and sampling of images at positions that are data.
#include "programs.h"

namespace egret::programs {

namespace {

void add_sizes(Programs& p) {
  const std::int64_t side = p.size(64, 7), wide = p.size(128, 14);
  const Input image = data({p.size(4, 2), p.size(32, 3), side, side});
  const auto bilinear = [=](const Tensors& t) {
    return interpolate(t[0], {wide, wide}, {.mode = Interpolation::Linear});
  };
  p.add("sampling/bilinear_up", {image},
        [=](const Tensors& t) -> Tensors { return {bilinear(t)}; });
  p.train("sampling/bilinear_up_train", {image},
          [=](const Tensors& t) { return with_gradients(bilinear(t).square().mean(), t); });
  p.add("sampling/bilinear_odd", {image}, [=](const Tensors& t) -> Tensors {
    return {interpolate(t[0], {p.size(91, 11), p.size(37, 5)},
                        {.mode = Interpolation::Linear, .align_corners = true})};
  });
  p.add("sampling/bicubic_up", {image}, [=](const Tensors& t) -> Tensors {
    return {interpolate(t[0], {wide, wide}, {.mode = Interpolation::Cubic})};
  });
  p.add("sampling/nearest_odd", {image}, [=](const Tensors& t) -> Tensors {
    return {interpolate(t[0], {p.size(91, 11), p.size(155, 17)}) * 2};
  });
  p.add("sampling/trilinear",
        {data({1, p.size(8, 2), p.size(16, 3), p.size(32, 4), p.size(32, 5)})},
        [=](const Tensors& t) -> Tensors {
          return {interpolate_by(t[0], {2, 2, 2}, {.mode = Interpolation::Linear})};
        });
  p.add(
      "sampling/pyramid", {data({p.size(2, 1), 3, p.size(256, 16), p.size(256, 16)})},
      [](const Tensors& t) -> Tensors { // the details of each level (Burt and Adelson 1983)
        Tensors levels;
        Tensor image = t[0];
        for (int i = 0; i < 3; ++i) {
          const Tensor coarse = avg_pool2d(image, 2);
          levels.push_back(image - interpolate_by(coarse, {2, 2}, {.mode = Interpolation::Linear}));
          image = coarse;
        }
        levels.push_back(image);
        return levels;
      });
  const std::int64_t c = p.size(32, 4);
  p.add("sampling/pixel_shuffle",
        {data({p.size(4, 1), c, side, side}), weight({c * 4, c, 3, 3}, 9 * c)},
        [](const Tensors& t) -> Tensors {
          return {tanh(pixel_shuffle(conv2d(t[0], t[1], {}, {.padding = 1}), 2))};
        });
  p.add("sampling/reflect_conv", {data({p.size(4, 1), c, side, side}), weight({c, c, 3, 3}, 9 * c)},
        [](const Tensors& t) -> Tensors {
          const Tensor h = pad(t[0], {0, 0, 1, 1}, {0, 0, 1, 1}, PadMode::Reflect);
          return {relu(instance_norm(conv2d(h, t[1])))};
        });
}

void add_grids(Programs& p) {
  const std::int64_t n = p.size(4, 2), c = p.size(16, 3), side = p.size(96, 9), to = p.size(80, 7);
  const std::vector<Input> sampled = {data({n, c, side, side}),
                                      data({n, to, to, 2}, DType::F32, 1.1)};
  p.add("sampling/grid_sample", sampled,
        [](const Tensors& t) -> Tensors { return {grid_sample(t[0], t[1])}; });
  p.train("sampling/grid_sample_train", sampled, [](const Tensors& t) {
    return with_gradients(grid_sample(t[0], t[1]).square().mean(), t);
  });
  p.add("sampling/affine_warp", {data({n, c, side, side}), data({n, 2, 3}, DType::F32, 0.7)},
        [=](const Tensors& t) -> Tensors {
          const Tensor grid = affine_grid(t[1], {n, c, to, to});
          return {grid_sample(t[0], grid, {.padding = GridPadding::Border})};
        });
  p.add(
      "sampling/flow_warp", {data({n, c, side, side}), data({n, 2, side, side}, DType::F32, 3)},
      [=](const Tensors& t) -> Tensors { // by hand: floor, four gathers, weights
        const Tensor y = arange(side, DType::F32).unsqueeze(1) + t[1].select(1, 0);
        const Tensor x = arange(side, DType::F32) + t[1].select(1, 1);
        const Tensor y0 = floor(y), x0 = floor(x);
        const Tensor flat = t[0].reshape({n, c, side * side});
        Tensor sum = zeros({n, c, side * side});
        for (int dy = 0; dy < 2; ++dy)
          for (int dx = 0; dx < 2; ++dx) {
            const Tensor py = clamp(y0 + dy, 0, side - 1), px = clamp(x0 + dx, 0, side - 1);
            const Tensor k = (1 - abs(y - (y0 + dy))) * (1 - abs(x - (x0 + dx)));
            const Tensor index = (py * side + px).to(DType::I64).reshape({n, 1, side * side});
            sum = sum + gather(flat, 2, index.expand({n, c, side * side})) * k.reshape({n, 1, -1});
          }
        return {sum.reshape({n, c, side, side})};
      });
  p.add("sampling/lookup_table_3d",
        {data({p.size(200000, 50), 3}, DType::F32, 0.5, 0.5), data({17, 17, 17, 3})},
        [](const Tensors& t) -> Tensors { // colours through a cube, to the nearest of its cells
          const Tensor cell = round(t[0] * 16).to(DType::I64);
          const Tensor at = (cell.select(1, 0) * 17 + cell.select(1, 1)) * 17 + cell.select(1, 2);
          return {take(t[1].reshape({17 * 17 * 17, 3}), at, 0)};
        });
}

} // namespace

void add_samplings(Programs& p) {
  add_sizes(p);
  add_grids(p);
}

} // namespace egret::programs
