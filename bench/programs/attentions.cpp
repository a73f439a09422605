// Variants of attention, from the formula.
#include "programs.h"

#include <cmath>
#include <limits>

namespace egret::programs {

namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

Tensor scores_of(const Tensor& q, const Tensor& k) {
  return matmul(q, k.transpose()) / std::sqrt(static_cast<double>(q.size(-1)));
}

Tensor seen_before(const Tensor& scores) {
  return causal_mask(scores.size(-2), scores.size(-1));
}

Tensors causal(const Tensors& t) {
  const Tensor s = scores_of(t[0], t[1]);
  return {matmul(softmax(where(seen_before(s), s, kNever)), t[2])};
}

Tensors plain(const Tensors& t) {
  return {matmul(softmax(scores_of(t[0], t[1])), t[2])};
}

Tensors alibi(const Tensors& t) {
  const std::int64_t heads = t[0].size(1), n = t[0].size(2);
  const Tensor slopes = exp2((arange(heads, DType::F32) + 1) * (-8.0 / static_cast<double>(heads)));
  const Tensor line = arange(n, DType::F32);
  const Tensor distance = line.unsqueeze(0) - line.unsqueeze(1);
  const Tensor s = scores_of(t[0], t[1]) + slopes.reshape({-1, 1, 1}) * distance;
  return {matmul(softmax(where(seen_before(s), s, kNever)), t[2])};
}

Tensors sliding(const Tensors& t) {
  const Tensor s = scores_of(t[0], t[1]);
  const Tensor line = arange(t[0].size(2));
  const Tensor back = line.unsqueeze(1) - line.unsqueeze(0);
  return {matmul(softmax(where((back >= 0) & (back < t[0].size(2) / 4), s, kNever)), t[2])};
}

Tensors grouped(const Tensors& t) { // fewer heads of keys and values
  const std::int64_t times = t[0].size(1) / t[1].size(1);
  return causal({t[0], repeat_interleave(t[1], times, 1), repeat_interleave(t[2], times, 1)});
}

Tensors softcapped(const Tensors& t) {
  const Tensor s = tanh(scores_of(t[0], t[1]) / 30) * 30;
  return {matmul(softmax(where(seen_before(s), s, kNever)), t[2])};
}

Tensors documents(const Tensors& t) { // t[3]: where a new document begins, [b, n]
  const Tensor number = cumsum(t[3], 1);
  const Tensor same = number.unsqueeze(2) == number.unsqueeze(1);
  const Tensor s = scores_of(t[0], t[1]);
  return {matmul(softmax(where(same.unsqueeze(1) & seen_before(s), s, kNever)), t[2])};
}

Tensors relative(const Tensors& t) { // t[3]: [heads, 2 n - 1]
  const std::int64_t n = t[0].size(2);
  const Tensor line = arange(n);
  const Tensor index = line.unsqueeze(0) - line.unsqueeze(1) + (n - 1);
  return {matmul(softmax(scores_of(t[0], t[1]) + take(t[3], index, 1)), t[2])};
}

Tensors linear_attention(const Tensors& t) {
  const Tensor q = elu(t[0]) + 1, k = elu(t[1]) + 1;
  const Tensor state = matmul(k.transpose(), t[2]);
  const Tensor norm = matmul(q, k.sum(2).unsqueeze(-1));
  return {matmul(q, state) / (norm + 1e-6)};
}

Tensors causal_linear(const Tensors& t) { // by cumulative sums of outer products
  const Tensor k = elu(t[1]) + 1, q = elu(t[0]) + 1;
  const Tensor state = cumsum(k.unsqueeze(-1) * t[2].unsqueeze(-2), 2);
  const Tensor norm = (q * cumsum(k, 2)).sum(-1, true);
  return {(q.unsqueeze(-1) * state).sum(-2) / (norm + 1e-6)};
}

Tensors latent(const Tensors& t) { // keys and values from one narrow vector (DeepSeek-V2's way)
  const Tensor k = matmul(t[1].unsqueeze(1), t[2]), v = matmul(t[1].unsqueeze(1), t[3]);
  return causal({t[0], k, v});
}

Run trained(Tensors (*forward)(const Tensors&), std::size_t by) {
  return [=](const Tensors& t) {
    return with_gradients(forward(t)[0].square().mean(), some(t, 0, by));
  };
}

std::vector<Input> heads(std::int64_t b, std::int64_t h, std::int64_t n, std::int64_t d,
                         DType dtype = DType::F32) {
  return std::vector<Input>(3, data({b, h, n, d}, dtype, 1.5));
}

void add_variants(Programs& p) {
  const std::int64_t b = p.size(2, 1), h = p.size(8, 2), n = p.size(512, 17), d = p.size(64, 8);
  const std::vector<Input> f32 = heads(b, h, n, d), bf16 = heads(b, h, n, d, DType::BF16);
  const auto with = [](std::vector<Input> inputs, const Input& more) {
    inputs.push_back(more);
    return inputs;
  };
  p.add("attention/causal", f32, causal);
  p.add("attention/causal_bf16", bf16, causal);
  p.train("attention/causal_train", f32, trained(causal, 3));
  p.train("attention/causal_bf16_train", bf16, trained(causal, 3));
  p.add("attention/alibi", f32, alibi);
  p.train("attention/alibi_train", f32, trained(alibi, 3));
  p.add("attention/sliding_window", f32, sliding);
  p.train("attention/sliding_window_train", f32, trained(sliding, 3));
  const Input shared = data({b, h / 2, n, d}, DType::BF16, 1.5);
  p.add("attention/grouped_bf16", {bf16[0], shared, shared}, grouped);
  p.train("attention/grouped_bf16_train", {bf16[0], shared, shared}, trained(grouped, 3));
  p.add("attention/softcap", f32, softcapped);
  p.train("attention/softcap_train", f32, trained(softcapped, 3));
  p.add("attention/documents", with(f32, whole({b, n}, 2)), documents);
  p.train("attention/documents_train", with(f32, whole({b, n}, 2)), trained(documents, 3));
  p.train("attention/relative_bias_train", with(f32, data({h, 2 * n - 1})), trained(relative, 4));
  const Input text = data({b, h, p.size(77, 7), d});
  p.add("attention/cross", {f32[0], text, text}, plain);
  p.train("attention/cross_train", {f32[0], text, text}, trained(plain, 3));
  p.add("attention/head_80", heads(b, h, n, p.size(80, 10)), causal);
  p.train("attention/head_96_bf16_train", heads(b, h, n, p.size(96, 12), DType::BF16),
          trained(causal, 3));
  p.add("attention/linear", f32, linear_attention);
  p.train("attention/linear_train", f32, trained(linear_attention, 3));
  p.add("attention/causal_linear", heads(1, h, p.size(256, 9), p.size(32, 4)), causal_linear);
  p.add("attention/latent",
        {data({b, h, n, d}), data({b, n, p.size(48, 5)}), weight({h, p.size(48, 5), d}, 48),
         weight({h, p.size(48, 5), d}, 48)},
        latent);
  p.add("attention/windows_of_49",
        with(heads(p.size(64, 3), p.size(6, 2), 49, p.size(32, 4)), data({p.size(6, 2), 97})),
        relative);
}

void add_decoding(Programs& p) {
  const std::int64_t h = p.size(16, 4), past = p.size(4095, 30), d = p.size(128, 8),
                     b = p.size(4, 2);
  // The cache, one token more, and how many tokens of the cache count for each text.
  const auto decode = [](const Tensors& t) -> Tensors {
    const std::int64_t shared = t[0].size(1) / t[1].size(1);
    const Tensor k = cat({t[1], t[3]}, 2), v = cat({t[2], t[4]}, 2);
    const Tensor s = scores_of(t[0], repeat_interleave(k, shared, 1));
    const Tensor place = arange(k.size(2));
    const Tensor counts = (place < t[5].unsqueeze(1)) | (place == k.size(2) - 1);
    const Tensor chances = softmax(where(counts.unsqueeze(1).unsqueeze(1), s, kNever));
    return {matmul(chances, repeat_interleave(v, shared, 1))};
  };
  for (const DType dtype : {DType::F32, DType::BF16}) {
    const std::int64_t kv = dtype == DType::F32 ? h / 2 : h / 4;
    const Input cache = data({b, kv, past, d}, dtype, 1.5), fresh = data({b, kv, 1, d}, dtype, 1.5);
    p.add(dtype == DType::F32 ? "attention/decode" : "attention/decode_grouped_bf16",
          {data({b, h, 1, d}, dtype, 1.5), cache, cache, fresh, fresh, whole({b}, past)}, decode);
  }
}

Tensors block(const Tensors& t) { // x, norm, qkv, out, norm, up, down
  const std::int64_t b = t[0].size(0), n = t[0].size(1), d = t[0].size(2), h = 4;
  const auto split = [&](const Tensor& a) { return a.reshape({b, n, h, d / h}).transpose(1, 2); };
  const std::vector<Tensor> qkv = chunk(linear(rms_norm(t[0], t[1]), t[2]), 3, 2);
  const Tensor q = rope(split(qkv[0]), arange(n)), k = rope(split(qkv[1]), arange(n));
  const Tensor a = causal({q, k, split(qkv[2])})[0];
  const Tensor x = t[0] + linear(a.transpose(1, 2).reshape({b, n, d}), t[3]);
  return {x + linear(gelu(linear(rms_norm(x, t[4]), t[5])), t[6])};
}

void add_blocks(Programs& p) {
  for (const DType dtype : {DType::F32, DType::BF16}) {
    const std::int64_t d = p.size(256, 16), n = p.size(256, 9);
    const std::vector<Input> inputs = {
        data({p.size(2, 1), n, d}, dtype), data({d}, dtype, 0.2, 1), weight({3 * d, d}, d, dtype),
        weight({d, d}, d, dtype),          data({d}, dtype, 0.2, 1), weight({4 * d, d}, d, dtype),
        weight({d, 4 * d}, 4 * d, dtype)};
    const std::string name = dtype == DType::F32 ? "attention/block" : "attention/block_bf16";
    p.add(name, inputs, block);
    p.train(name + "_train", inputs, trained(block, 7));
  }
}

} // namespace

void add_attentions(Programs& p) {
  add_variants(p);
  add_decoding(p);
  add_blocks(p);
}

} // namespace egret::programs
