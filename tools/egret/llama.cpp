#include "llama.h"

#include "bench.h"

#include "egret/functional.h"

#include <cmath>

namespace egret::tool::llama {

using bench::random_tensor;

std::int64_t Sizes::matrices() const {
  return layers * (2 * width * width + 2 * width * kv_width() + 3 * width * hidden) +
         vocabulary * width;
}

Weights make_weights(const Sizes& s) {
  std::uint64_t seed = 1;
  auto matrix = [&](std::int64_t out, std::int64_t in) {
    return random_tensor({out, in}, seed++, s.dtype, 1 / std::sqrt(static_cast<double>(in)));
  };
  auto vector = [&] { return random_tensor({s.width}, seed++, s.dtype); };
  Weights w;
  w.rope_base = s.rope_base;
  w.embedding = matrix(s.vocabulary, s.width);
  for (std::int64_t i = 0; i < s.layers; ++i) {
    Layer l;
    l.attention_norm = vector();
    l.wq = matrix(s.width, s.width);
    l.wk = matrix(s.kv_width(), s.width);
    l.wv = matrix(s.kv_width(), s.width);
    l.wo = matrix(s.width, s.width);
    l.mlp_norm = vector();
    l.gate = matrix(s.hidden, s.width);
    l.up = matrix(s.hidden, s.width);
    l.down = matrix(s.width, s.hidden);
    w.layers.push_back(std::move(l));
  }
  w.norm = vector();
  if (!s.tied)
    w.head = matrix(s.vocabulary, s.width);
  return w;
}

Cache make_cache(const Sizes& s, std::int64_t position) {
  Cache c;
  c.position = full({1}, position, DType::I64);
  c.position.eval();
  for (std::int64_t i = 0; i < s.layers; ++i) {
    auto seed = static_cast<std::uint64_t>(1000 + 2 * i);
    c.keys.push_back(random_tensor({s.kv_heads, s.context, s.of_head()}, seed, s.dtype));
    c.values.push_back(random_tensor({s.kv_heads, s.context, s.of_head()}, seed + 1, s.dtype));
  }
  return c;
}

namespace {

Tensor rms_normalized(const Tensor& x, const Tensor& weight) {
  const Tensor wide = x.to(DType::F32);
  return (wide * rsqrt((wide * wide).mean(-1, true) + 1e-5) * weight.to(DType::F32)).to(x.dtype());
}

/// Rotary position embedding: pairs (i, i + d/2) of each head turn by position / base^(2i/d).
Tensor rotated(const Tensor& x, const Tensor& position, double base) {
  const std::int64_t half = x.size(-1) / 2;
  Tensor frequency =
      exp(arange(half).to(DType::F32) * (-std::log(base) / static_cast<double>(half)));
  Tensor angle = position.to(DType::F32) * frequency;
  Tensor c = cos(angle), s = sin(angle);
  const Tensor wide = x.to(DType::F32);
  Tensor a = wide.narrow(-1, 0, half), b = wide.narrow(-1, half, half);
  return cat({a * c - b * s, a * s + b * c}, -1).to(x.dtype());
}

/// A layer behind its attention.
Tensor with_mlp(const Tensor& x, const Layer& l) {
  const Tensor n = rms_normalized(x, l.mlp_norm);
  const Tensor g = matmul(n, l.gate.transpose());
  return x + matmul(g * sigmoid(g) * matmul(n, l.up.transpose()), l.down.transpose());
}

/// Attention from scores that are not scaled yet; those that are not `seen` count for nothing.
Tensor mixed_values(const Tensor& raw, const Tensor& seen, const Tensor& values) {
  const Tensor scores =
      where(seen, raw.to(DType::F32) / std::sqrt(static_cast<double>(values.size(-1))), -1e30);
  const Tensor e = exp(scores - scores.max(-1, true));
  return matmul((e / e.sum(-1, true)).to(values.dtype()), values);
}

Tensor logits_of(const Weights& w, const Tensor& x) {
  return matmul(rms_normalized(x, w.norm), (w.head ? *w.head : w.embedding).transpose());
}

} // namespace

Tensor decode(Decoder& decoder, const Tensor& token) {
  const Weights& w = decoder.weights;
  Cache& cache = decoder.cache;
  const std::int64_t kv_heads = cache.keys[0].size(0), context = cache.keys[0].size(1),
                     of_head = cache.keys[0].size(2);
  Tensor x = embedding(w.embedding, token); // [1, width]
  Tensor seen = arange(context) <= cache.position;
  for (std::size_t i = 0; i < w.layers.size(); ++i) {
    const Layer& l = w.layers[i];
    const Tensor n = rms_normalized(x, l.attention_norm);
    // [kv_heads, heads that share a key, of_head]
    auto projected = [&](const Tensor& weight) {
      return matmul(n, weight.transpose()).reshape({kv_heads, -1, of_head});
    };
    Tensor q = rotated(projected(l.wq), cache.position, w.rope_base);
    cache.keys[i] = index_put(cache.keys[i], cache.position,
                              rotated(projected(l.wk), cache.position, w.rope_base), 1);
    cache.values[i] = index_put(cache.values[i], cache.position, projected(l.wv), 1);
    const Tensor mixed = mixed_values(matmul(q, cache.keys[i].transpose()), seen, cache.values[i]);
    x = with_mlp(x + matmul(mixed.reshape({1, -1}), l.wo.transpose()), l);
  }
  cache.position = cache.position + 1;
  return logits_of(w, x);
}

Tensor prefill(const Weights& w, const Tensor& tokens, std::int64_t of_head) {
  const std::int64_t count = tokens.size(0), kv_heads = w.layers.at(0).wk.size(0) / of_head;
  const Tensor position = arange(count).reshape({count, 1});
  const Tensor seen = arange(count) <= position;
  Tensor x = embedding(w.embedding, tokens);
  for (const Layer& l : w.layers) {
    const Tensor n = rms_normalized(x, l.attention_norm);
    // [kv_heads, heads that share a key, count, of_head]
    auto projected = [&](const Tensor& weight) {
      return matmul(n, weight.transpose())
          .reshape({count, kv_heads, -1, of_head})
          .permute({1, 2, 0, 3});
    };
    const Tensor q = rotated(projected(l.wq), position, w.rope_base),
                 k = rotated(projected(l.wk), position, w.rope_base);
    const Tensor mixed = mixed_values(matmul(q, k.transpose()), seen, projected(l.wv));
    x = with_mlp(x + matmul(mixed.permute({2, 0, 1, 3}).reshape({count, -1}), l.wo.transpose()), l);
  }
  return logits_of(w, x.narrow(0, count - 1, 1));
}

} // namespace egret::tool::llama
