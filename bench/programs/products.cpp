// Products of matrices at sizes of no power of two, and what stands around them.
#include "programs.h"

#include <cmath>

namespace egret::programs {

void add_products(Programs& p) {
  const auto n = [&](std::int64_t full, std::int64_t small) { return p.size(full, small); };
  p.add("product/odd",
        {data({n(1000, 20), n(777, 13)}), weight({n(777, 13), n(333, 7)}, n(777, 13))},
        [](const Tensors& t) -> Tensors { return {matmul(t[0], t[1])}; });
  p.add("product/odd_bf16",
        {data({n(999, 21), n(1001, 19)}, DType::BF16),
         weight({n(1001, 19), n(1003, 23)}, n(1001, 19), DType::BF16)},
        [](const Tensors& t) -> Tensors { return {gelu(matmul(t[0], t[1]))}; });
  p.add("product/batched_7x13", {data({n(8192, 9), 7, 13}), data({n(8192, 9), 13, 7})},
        [](const Tensors& t) -> Tensors { return {matmul(t[0], t[1])}; });
  p.add("product/batched_3x3_chain",
        {data({n(32768, 9), 3, 3}), data({n(32768, 9), 3, 3}), data({n(32768, 9), 3})},
        [](const Tensors& t) -> Tensors {
          return {matmul(matmul(t[0], t[1]), t[2].unsqueeze(-1)).squeeze(-1)};
        });
  p.add("product/matvec", {data({n(4096, 30), n(4099, 31)}), data({n(4099, 31)})},
        [](const Tensors& t) -> Tensors { return {matmul(t[0], t[1])}; });
  p.add("product/vecmat", {data({n(4099, 31), n(2050, 30)}), data({n(4099, 31)})},
        [](const Tensors& t) -> Tensors { return {matmul(t[1], t[0])}; });
  p.add("product/skinny", {data({3, n(4096, 40)}), weight({n(4096, 40), n(1025, 17)}, n(4096, 40))},
        [](const Tensors& t) -> Tensors { return {relu(matmul(t[0], t[1]))}; });
  p.add("product/tall_gram", {data({n(20000, 50), n(96, 7)})}, [](const Tensors& t) -> Tensors {
    return {matmul(t[0].transpose(), t[0]) / static_cast<double>(t[0].size(0))};
  });
  p.add("product/inner_long", {data({n(24, 3), n(100000, 70)}), data({n(100000, 70), n(24, 4)})},
        [](const Tensors& t) -> Tensors { return {matmul(t[0], t[1])}; });
  p.add("product/einsum_heads",
        {data({n(8, 2), n(65, 5), n(12, 3), n(48, 4)}),
         data({n(8, 2), n(197, 6), n(12, 3), n(48, 4)})},
        [](const Tensors& t) -> Tensors {
          return {einsum("bihd,bjhd->bhij", {t[0], t[1]})};
        });
  p.add(
      "product/three_factors",
      {data({n(700, 11), n(300, 9)}), data({n(300, 9), n(500, 10)}), data({n(500, 10), n(60, 5)})},
      [](const Tensors& t) -> Tensors { return {matmul(matmul(t[0], t[1]), t[2])}; });
  p.add("product/bilinear",
        {data({n(128, 4), n(64, 5)}), data({n(128, 4), n(48, 6)}),
         data({n(32, 3), n(64, 5), n(48, 6)})},
        [](const Tensors& t) -> Tensors { return {bilinear(t[0], t[1], t[2])}; });
  const std::int64_t c = n(300, 9);
  p.add("product/complex", {data({c, c}), data({c, c}), data({c, c}), data({c, c})},
        [](const Tensors& t) -> Tensors {
          return {matmul(t[0], t[2]) - matmul(t[1], t[3]), matmul(t[0], t[3]) + matmul(t[1], t[2])};
        });
  p.add("product/complex_interleaved",
        {data({n(1000, 5), n(200, 7), 2}), data({n(1000, 5), n(200, 7), 2})},
        [](const Tensors& t) -> Tensors {
          const Tensor a = t[0].select(2, 0), b = t[0].select(2, 1), x = t[1].select(2, 0),
                       y = t[1].select(2, 1);
          return {stack({a * x - b * y, a * y + b * x}, -1)};
        });
  const std::int64_t d = n(512, 12), rows = n(1024, 10);
  p.train(
      "product/low_rank_train",
      {data({rows, d}), weight({d, d}, d), weight({8, d}, d), weight({d, 8}, 8), data({rows, d})},
      [](const Tensors& t) {
        const Tensor y = linear(t[0], t[1]) + linear(linear(t[0], t[2]), t[3]) * 2;
        return with_gradients(mse_loss(y, t[4]), {t[2], t[3]});
      });
  p.add("product/normalized_similarity",
        {data({n(1000, 11), n(100, 7)}), data({n(1500, 13), n(100, 7)})},
        [](const Tensors& t) -> Tensors {
          const Tensor s = matmul(normalize(t[0]), normalize(t[1]).transpose());
          return {s.max(1), argmax(s, 0)};
        });
  p.add("product/f64",
        {data({n(257, 9), n(301, 8)}, DType::F64), data({n(301, 8), n(129, 7)}, DType::F64)},
        [](const Tensors& t) -> Tensors { return {matmul(t[0], t[1])}; });
  p.add("product/tensordot",
        {data({n(40, 3), n(30, 4), n(50, 5)}), data({n(50, 5), n(30, 4), n(70, 6)})},
        [](const Tensors& t) -> Tensors {
          return {tensordot(t[0], t[1], {1, 2}, {1, 0})};
        });
  p.add("product/power_iteration", {data({n(700, 15), n(500, 12)}), data({n(500, 12)})},
        [](const Tensors& t) -> Tensors {
          Tensor v = t[1], u;
          for (int i = 0; i < 4; ++i) {
            u = matmul(t[0], v);
            u = u / (norm(u) + 1e-12);
            v = matmul(u, t[0]);
            v = v / (norm(v) + 1e-12);
          }
          return {t[0] / dot(u, matmul(t[0], v))};
        });
}

} // namespace egret::programs
