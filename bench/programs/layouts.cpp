// Operands that do not lie as they are used: transposed, strided, sliced, flipped, interleaved.
#include "programs.h"

namespace egret::programs {

void add_layouts(Programs& p) {
  const auto n = [&](std::int64_t full, std::int64_t small) { return p.size(full, small); };
  p.add("layout/transposed_operands", {data({n(513, 9), n(700, 11)}), data({n(401, 8), n(513, 9)})},
        [](const Tensors& t) -> Tensors { return {matmul(t[0].transpose(), t[1].transpose())}; });
  p.add("layout/add_transpose",
        {data({n(2000, 20), n(1999, 19)}), data({n(1999, 19), n(2000, 20)})},
        [](const Tensors& t) -> Tensors { return {(t[0] + t[1].transpose()) * 2}; });
  p.add("layout/strided_flipped_product",
        {data({n(1024, 20), n(515, 15)}), data({n(512, 12), n(256, 7)})},
        [](const Tensors& t) -> Tensors {
          return {matmul(t[0][{Slice(0, {}, 2), Slice(3, {})}], flip(t[1], 0))};
        });
  p.add("layout/every_third_row_norm", {data({n(6000, 31), n(512, 10)})},
        [](const Tensors& t) -> Tensors {
          const Tensor rows = t[0][Slice(1, {}, 3)];
          return {(rows - rows.mean(1, true)) / (rows.std(1, true) + 1e-5)};
        });
  p.add("layout/permuted_softmax", {data({n(16, 2), n(64, 5), n(56, 7), n(56, 3)})},
        [](const Tensors& t) -> Tensors {
          return {softmax(t[0].permute({0, 2, 3, 1}))};
        });
  p.add("layout/softmax_of_channels", {data({n(16, 2), n(64, 5), n(56, 7), n(56, 3)})},
        [](const Tensors& t) -> Tensors { return {softmax(t[0], 1)}; });
  p.add("layout/heads_split_merge",
        {data({n(8, 2), n(512, 9), n(768, 12)}), data({n(12, 3), 1, n(64, 4)})},
        [](const Tensors& t) -> Tensors {
          const std::int64_t b = t[0].size(0), s = t[0].size(1), h = t[1].size(0);
          const Tensor heads = t[0].reshape({b, s, h, -1}).transpose(1, 2);
          return {(heads * t[1] + 1).transpose(1, 2).reshape({b, s, -1})};
        });
  p.add("layout/interleave", {data({n(1000, 9), n(1001, 7)}), data({n(1000, 9), n(1001, 7)})},
        [](const Tensors& t) -> Tensors {
          return {stack({t[0], -t[1]}, 2).reshape({t[0].size(0), -1})};
        });
  p.add("layout/rotate_quarter", {data({3, n(1000, 11), n(1200, 14)})},
        [](const Tensors& t) -> Tensors { return {rot90(t[0], 1, 1, 2) * 0.5 + 0.5}; });
  p.add("layout/roll_flip", {data({n(1024, 9), n(1024, 10)})}, [](const Tensors& t) -> Tensors {
    return {roll(flip(t[0], {0, 1}), {17, -5}, {0, 1}) - t[0]};
  });
  p.add("layout/cat_pieces_linear",
        {data({n(512, 6), n(100, 5)}), data({n(512, 6), n(37, 3)}), data({n(512, 6), n(200, 8)}),
         data({n(512, 6), 1}), data({n(512, 6), n(64, 4)}),
         weight({n(128, 6), n(402, 21)}, n(402, 21))},
        [](const Tensors& t) -> Tensors {
          return {relu(linear(cat({t[0], t[1], t[2], t[3], t[4]}, 1), t[5]))};
        });
  p.add("layout/neighbour_differences", {data({n(2048, 12), n(2049, 13)})},
        [](const Tensors& t) -> Tensors {
          const std::int64_t w = t[0].size(1);
          const Tensor d = t[0].narrow(1, 1, w - 1) - t[0].narrow(1, 0, w - 1);
          return {d, d[Slice({}, {}, -1)].sum(0)};
        });
  p.add("layout/even_odd_rope",
        {data({n(4, 1), n(12, 2), n(512, 7), n(64, 6)}), data({n(512, 7), n(32, 3)})},
        [](const Tensors& t) -> Tensors {
          const Tensor even = t[0][{Ellipsis(), Slice(0, {}, 2)}],
                       odd = t[0][{Ellipsis(), Slice(1, {}, 2)}];
          const Tensor c = cos(t[1]), s = sin(t[1]);
          return {stack({even * c - odd * s, even * s + odd * c}, -1).flatten(-2)};
        });
  p.add("layout/batch_matrix_transpose", {data({n(256, 3), n(65, 5), n(129, 6)}, DType::BF16)},
        [](const Tensors& t) -> Tensors { return {t[0].transpose() * 2}; });
  p.add("layout/reverse_cumsum", {data({n(1024, 8), n(1024, 30)})},
        [](const Tensors& t) -> Tensors { return {flip(cumsum(flip(t[0], 1), 1), 1)}; });
  p.add("layout/lower_triangle_product",
        {data({n(600, 13), n(600, 13)}), data({n(600, 13), n(250, 6)})},
        [](const Tensors& t) -> Tensors { return {matmul(tril(t[0]), t[1])}; });
  p.add("layout/strided_slices", {data({n(256, 9), n(1024, 64)})}, [](const Tensors& t) -> Tensors {
    const auto every = [&](std::int64_t first, std::int64_t step) {
      return t[0][{Slice::all(), Slice(first, {}, step)}];
    };
    return {cat({every(0, 2), every(1, 2), every(0, 4)}, 1)};
  });
  p.train("layout/flip_roll_conv_train",
          {data({n(4, 1), n(16, 3), n(28, 8), n(28, 7)}), weight({n(16, 4), n(16, 3), 3, 3}, 144)},
          [](const Tensors& t) {
            const Tensor moved = roll(flip(t[0], 3), {2, -3}, {2, 3});
            const Tensor y = conv2d(moved, t[1], {}, {.padding = 1});
            return with_gradients(y.square().mean(), t);
          });
  p.add("layout/window_partition", {data({n(8, 1), n(56, 14), n(56, 14), n(96, 3)})},
        [](const Tensors& t) -> Tensors {
          const std::int64_t b = t[0].size(0), cells = t[0].size(1) / 7, c = t[0].size(3);
          const Tensor moved = roll(t[0], {-3, -3}, {1, 2});
          const Tensor windows =
              moved.reshape({b, cells, 7, cells, 7, c}).permute({0, 1, 3, 2, 4, 5});
          return {layer_norm(windows.reshape({-1, 49, c}), ones({c}))};
        });
}

} // namespace egret::programs
