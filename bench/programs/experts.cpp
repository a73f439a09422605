// Mixtures of experts, and weights and activations of few bits.
#include "programs.h"

#include <cmath>
#include <limits>

namespace egret::programs {

namespace {

/// Every expert on every token, and the two best of each token kept.
Tensors dense_experts(const Tensors& t) { // x [n, d], gate [e, d], up [e, d, h], down [e, h, d]
  const Tensor logits = linear(t[0], t[1]);
  const Tensor least = topk(logits, 2).values.narrow(1, 1, 1);
  const Tensor chances =
      softmax(where(logits >= least, logits, -std::numeric_limits<double>::infinity()));
  const Tensor h = silu(einsum("nd,edh->enh", {t[0], t[2]}));
  const Tensor y = einsum("enh,ehd->end", {h, t[3]});
  return {(y * chances.transpose().unsqueeze(-1)).sum(0)};
}

/// Tokens sent to places of limited number by products with one-hot masks (Lepikhin et al. 2021).
Tensors dispatched_experts(const Tensors& t) {
  const std::int64_t n = t[0].size(0), e = t[1].size(0), capacity = 2 * n / e;
  const Tensor chances = softmax(linear(t[0], t[1]));
  const Tensor chosen = argmax(chances, 1);
  const Tensor mask = one_hot(chosen, e);
  const Tensor place = ((cumsum(mask, 0) - 1) * mask).sum(1).to(DType::I64);
  const Tensor dispatch = mask.unsqueeze(2) * one_hot(place, capacity).unsqueeze(1); // [n, e, c]
  const Tensor sent = einsum("nec,nd->ecd", {dispatch, t[0]});
  const Tensor y = matmul(relu(matmul(sent, t[2])), t[3]);
  return {einsum("nec,ecd->nd", {dispatch, y}) * chances.max(1, true)};
}

/// The weights of each token's expert gathered: for few tokens.
Tensors gathered_experts(const Tensors& t) {
  const Sorted best = topk(linear(t[0], t[1]), 2);
  const Tensor chances = softmax(best.values);
  Tensor sum = zeros_like(t[0]);
  for (std::int64_t i = 0; i < 2; ++i) {
    const Tensor expert = best.indices.select(1, i);
    const Tensor h = silu(matmul(t[0].unsqueeze(1), take(t[2], expert, 0)));
    sum = sum + matmul(h, take(t[3], expert, 0)).squeeze(1) * chances.narrow(1, i, 1);
  }
  return {sum};
}

Tensors soft_experts(const Tensors& t) { // Puigcerver et al. 2024; phi [d, e s]
  const std::int64_t e = t[2].size(0);
  const Tensor logits = matmul(t[0], t[1]);
  const Tensor slots = matmul(softmax(logits, 0).transpose(), t[0]).reshape({e, -1, t[0].size(1)});
  const Tensor y = matmul(gelu(matmul(slots, t[2])), t[3]).reshape({-1, t[0].size(1)});
  return {matmul(softmax(logits, 1), y)};
}

void add_mixtures(Programs& p) {
  const std::int64_t n = p.size(512, 12), d = p.size(128, 8), e = p.size(8, 4), h = p.size(256, 10);
  const auto inputs = [=](std::int64_t tokens) {
    return std::vector<Input>{data({tokens, d}), weight({e, d}, d), weight({e, d, h}, d),
                              weight({e, h, d}, h)};
  };
  p.add("experts/dense_top_2", inputs(n), dense_experts);
  p.train("experts/dense_top_2_train", inputs(n),
          [](const Tensors& t) { return with_gradients(dense_experts(t)[0].square().mean(), t); });
  p.add("experts/dispatched", inputs(n), dispatched_experts);
  p.train("experts/dispatched_train", inputs(n), [](const Tensors& t) {
    return with_gradients(dispatched_experts(t)[0].square().mean(), t);
  });
  p.add("experts/gathered", inputs(p.size(8, 3)), gathered_experts);
  p.add("experts/soft",
        {data({n, d}), weight({d, e * 16}, d), weight({e, d, h}, d), weight({e, h, d}, h)},
        soft_experts);
  p.train("experts/balance_loss_train",
          {data({p.size(8192, 30), d}), weight({p.size(64, 6), d}, d)}, [](const Tensors& t) {
            const Tensor chances = softmax(linear(t[0], t[1]));
            const std::int64_t count = t[1].size(0);
            const Tensor used = one_hot(argmax(chances, 1), count).mean(0);
            return with_gradients((used * chances.mean(0)).sum() * static_cast<double>(count), t);
          });
}

void add_quantized(Programs& p) {
  const std::int64_t m = p.size(16, 3), k = p.size(1024, 64), n = p.size(2048, 24);
  p.add("quantized/int8_channels",
        {data({m, k}), whole({n, k}, 256, DType::U8), data({n, 1}, DType::F32, 0.005, 0.01)},
        [](const Tensors& t) -> Tensors {
          const Tensor w = (t[1].to(DType::F32) - 128) * t[2];
          return {linear(t[0], w)};
        });
  p.add("quantized/int8_channels_bf16",
        {data({m, k}, DType::BF16), whole({n, k}, 256, DType::U8),
         data({n}, DType::BF16, 0.005, 0.01)},
        [](const Tensors& t) -> Tensors {
          return {linear(t[0], t[1].to(DType::BF16) - 128) * t[2]};
        });
  const auto groups_of_32 = [](const Tensor& packed, const Tensor& scale) {
    const Tensor both = stack({packed & 15, packed >> 4}, -1);
    const Tensor values = both.reshape({packed.size(0), -1, 32}).to(scale.dtype()) - 8;
    return (values * scale.unsqueeze(-1)).reshape({packed.size(0), -1});
  };
  p.add(
      "quantized/int4_groups",
      {data({m, k}), whole({n, k / 2}, 256, DType::U8), data({n, k / 32}, DType::F32, 0.02, 0.04)},
      [=](const Tensors& t) -> Tensors { return {linear(t[0], groups_of_32(t[1], t[2]))}; });
  p.add("quantized/int4_groups_bf16",
        {data({1, k}, DType::BF16), whole({n, k / 2}, 256, DType::U8),
         data({n, k / 32}, DType::BF16, 0.02, 0.04)},
        [=](const Tensors& t) -> Tensors { return {linear(t[0], groups_of_32(t[1], t[2]))}; });
  p.add("quantized/table_of_16",
        {data({m, k}), whole({n, k / 2}, 256, DType::U8), data({16}),
         data({n, k / 64}, DType::F32, 0.02, 0.04)},
        [](const Tensors& t) -> Tensors {
          const Tensor codes = stack({t[1] >> 4, t[1] & 15}, -1).reshape({t[1].size(0), -1, 64});
          const Tensor w = take(t[2], codes, 0) * t[3].unsqueeze(-1);
          return {linear(t[0], w.reshape({t[1].size(0), -1}))};
        });
  p.add("quantized/ternary", {data({m, k}), data({n, k})}, [](const Tensors& t) -> Tensors {
    const Tensor scale = abs(t[1]).mean() + 1e-5;
    return {linear(t[0], round(clamp(t[1] / scale, -1, 1))) * scale};
  });
  p.add("quantized/round_rows", {data({p.size(4096, 9), p.size(1024, 20)})},
        [](const Tensors& t) -> Tensors {
          const Tensor scale = abs(t[0]).max(1, true) / 127 + 1e-8;
          return {floor(t[0] / scale + 0.5).to(DType::I8), scale};
        });
  p.add("quantized/dynamic_int8",
        {data({p.size(256, 5), p.size(512, 32)}),
         whole({p.size(512, 16), p.size(512, 32)}, 255, DType::U8)},
        [](const Tensors& t) -> Tensors {
          const Tensor scale = abs(t[0]).max(1, true) / 127 + 1e-8;
          const Tensor q = floor(t[0] / scale + 0.5).to(DType::I8);
          const Tensor w = t[1].to(DType::I32) - 127;
          return {matmul(q.to(DType::I32), w.transpose()).to(DType::F32) * scale};
        });
  p.train("quantized/fake_train",
          {data({p.size(512, 6), p.size(512, 32)}),
           weight({p.size(512, 16), p.size(512, 32)}, p.size(512, 32))},
          [](const Tensors& t) { // the gradient passes the rounding unchanged
            const Tensor scale = abs(t[1].detach()).max(1, true) / 7;
            const Tensor rounded = clamp(floor(t[1] / scale + 0.5), -7, 7) * scale;
            const Tensor w = t[1] + (rounded - t[1]).detach();
            return with_gradients(tanh(linear(t[0], w)).square().mean(), t);
          });
  p.add("quantized/cache_int8",
        {data({p.size(4, 1), p.size(8, 2), 1, p.size(64, 8)}),
         whole({p.size(4, 1), p.size(8, 2), p.size(2048, 20), p.size(64, 8)}, 256, DType::U8),
         whole({p.size(4, 1), p.size(8, 2), p.size(2048, 20), p.size(64, 8)}, 256, DType::U8),
         data({p.size(4, 1), p.size(8, 2), p.size(2048, 20), 1}, DType::F32, 0.005, 0.01)},
        [](const Tensors& t) -> Tensors {
          const Tensor k = (t[1].to(DType::F32) - 128) * t[3],
                       v = (t[2].to(DType::F32) - 128) * t[3];
          const Tensor s =
              matmul(t[0], k.transpose()) / std::sqrt(static_cast<double>(t[0].size(-1)));
          return {matmul(softmax(s), v)};
        });
}

} // namespace

void add_experts(Programs& p) {
  add_mixtures(p);
  add_quantized(p);
}

} // namespace egret::programs
