// A step of a language model that reads all of its weights for one token: Llama's architecture with
// 110 million parameters, written from the formulas.
#include "bench.h"

#include "egret/compile.h"
#include "egret/functional.h"

#include <cmath>
#include <memory>
#include <vector>

namespace egret::tool::bench {

namespace {

struct Sizes {
  std::int64_t layers, width, heads, hidden, vocabulary, context;
  std::int64_t of_head() const { return width / heads; }
};

/// That of the 110-million-parameter checkpoints trained on short stories (llama2.c).
constexpr Sizes k110m{12, 768, 12, 2048, 32000, 1024};
/// One that the reference can do.
constexpr Sizes kSmall{2, 32, 4, 48, 64, 16};

struct Layer {
  Tensor attention_norm, wq, wk, wv, wo, mlp_norm, gate, up, down;
  EGRET_FIELDS(attention_norm, wq, wk, wv, wo, mlp_norm, gate, up, down)
};

struct Weights {
  Tensor embedding; ///< of tokens; the head's too
  std::vector<Layer> layers;
  Tensor norm;
  EGRET_FIELDS(embedding, layers, norm)
};

/// What a step leaves to the next one.
struct Cache {
  Tensor position;                  ///< of the token that comes next, i64 [1]
  std::vector<Tensor> keys, values; ///< by layer [heads, context, of_head]
  EGRET_FIELDS(position, keys, values)
};

/// The model's weights and where it stands.
struct Decoder {
  Weights weights;
  Cache cache;
  EGRET_FIELDS(weights, cache)
};

Weights make_weights(const Sizes& s) {
  std::uint64_t seed = 1;
  auto matrix = [&](std::int64_t out, std::int64_t in) {
    return random_tensor({out, in}, seed++, DType::F32, 1 / std::sqrt(static_cast<double>(in)));
  };
  Weights w;
  w.embedding = matrix(s.vocabulary, s.width);
  for (std::int64_t i = 0; i < s.layers; ++i) {
    Layer l;
    l.attention_norm = random_tensor({s.width}, seed++);
    l.wq = matrix(s.width, s.width);
    l.wk = matrix(s.width, s.width);
    l.wv = matrix(s.width, s.width);
    l.wo = matrix(s.width, s.width);
    l.mlp_norm = random_tensor({s.width}, seed++);
    l.gate = matrix(s.hidden, s.width);
    l.up = matrix(s.hidden, s.width);
    l.down = matrix(s.width, s.hidden);
    w.layers.push_back(std::move(l));
  }
  w.norm = random_tensor({s.width}, seed++);
  return w;
}

/// With random keys and values at the positions before.
Cache make_cache(const Sizes& s, std::int64_t position) {
  Cache c;
  c.position = full({1}, position, DType::I64);
  c.position.eval();
  for (std::int64_t i = 0; i < s.layers; ++i) {
    auto seed = static_cast<std::uint64_t>(1000 + 2 * i);
    c.keys.push_back(random_tensor({s.heads, s.context, s.of_head()}, seed));
    c.values.push_back(random_tensor({s.heads, s.context, s.of_head()}, seed + 1));
  }
  return c;
}

Tensor rms_normalized(const Tensor& x, const Tensor& weight) {
  return x * rsqrt((x * x).mean(-1, true) + 1e-5) * weight;
}

/// Rotary position embedding: pairs (i, i + d/2) of each head turn by position / 10000^(2i/d).
Tensor rotated(const Tensor& x, const Tensor& position) {
  const std::int64_t half = x.size(-1) / 2;
  Tensor frequency =
      exp(arange(half).to(DType::F32) * (-std::log(10000.0) / static_cast<double>(half)));
  Tensor angle = position.to(DType::F32) * frequency;
  Tensor c = cos(angle), s = sin(angle);
  Tensor a = x.narrow(-1, 0, half), b = x.narrow(-1, half, half);
  return cat({a * c - b * s, a * s + b * c}, -1);
}

/// Logits of the token behind `token`, the next position's.
Tensor decode(Decoder& decoder, const Tensor& token) {
  const Weights& w = decoder.weights;
  Cache& cache = decoder.cache;
  const std::int64_t heads = cache.keys[0].size(0), context = cache.keys[0].size(1),
                     of_head = cache.keys[0].size(2), width = heads * of_head;
  Tensor x = embedding(w.embedding, token); // [1, width]
  Tensor seen = arange(context) <= cache.position;
  for (std::size_t i = 0; i < w.layers.size(); ++i) {
    const Layer& l = w.layers[i];
    Tensor n = rms_normalized(x, l.attention_norm);
    auto projected = [&](const Tensor& weight) {
      return matmul(n, weight.transpose()).reshape({heads, 1, of_head});
    };
    Tensor q = rotated(projected(l.wq), cache.position);
    cache.keys[i] =
        index_put(cache.keys[i], cache.position, rotated(projected(l.wk), cache.position), 1);
    cache.values[i] = index_put(cache.values[i], cache.position, projected(l.wv), 1);
    Tensor scores = matmul(q, cache.keys[i].transpose()) / std::sqrt(static_cast<double>(of_head));
    scores = where(seen, scores, -1e30);
    Tensor e = exp(scores - scores.max(-1, true));
    Tensor mixed = matmul(e / e.sum(-1, true), cache.values[i]).reshape({1, width});
    x = x + matmul(mixed, l.wo.transpose());
    n = rms_normalized(x, l.mlp_norm);
    Tensor g = matmul(n, l.gate.transpose());
    x = x + matmul(g * sigmoid(g) * matmul(n, l.up.transpose()), l.down.transpose());
  }
  cache.position = cache.position + 1;
  return matmul(rms_normalized(x, w.norm), w.embedding.transpose());
}

/// The logits of two steps and what they left in the caches, one after the other.
Tensor after_two_steps(const Sizes& sizes, const Tensor& token) {
  Decoder d{make_weights(sizes), make_cache(sizes, sizes.context / 2)};
  std::vector<Tensor> parts = {decode(d, token).flatten()};
  parts.push_back(decode(d, token).flatten());
  for (std::size_t i = 0; i < d.cache.keys.size(); ++i) {
    parts.push_back(d.cache.keys[i].flatten());
    parts.push_back(d.cache.values[i].flatten());
  }
  return cat(parts);
}

Case decode_case(const std::string& name, const Sizes& sizes) {
  using Step = Compiled<Tensor (*)(Decoder&, const Tensor&)>;
  // Timed steps go on until the context is full; then the last position is written again.
  auto decoder = std::make_shared<Decoder>(Decoder{make_weights(sizes), make_cache(sizes, 0)});
  auto step = std::make_shared<Step>(compile(&decode, {.name = name}));
  Tensor token = full({1}, std::int64_t(7), DType::I64);
  token.eval();
  const std::int64_t last = sizes.context - 1;
  auto at = std::make_shared<std::int64_t>(0);
  Case c;
  c.run = [=] {
    if (++*at > last) {
      decoder->cache.position.assign(last);
      decoder->cache.position.eval();
    }
    return std::vector<Tensor>{(*step)(*decoder, token)};
  };
  c.check = [=](const std::vector<Tensor>& outputs) {
    // A small model beside the reference; the full one beside the same step op by op.
    auto actual = after_two_steps(kSmall, token).to_vector<double>();
    Check check =
        compare(actual, by_reference([&] { return after_two_steps(kSmall, token); }), 1e-5);
    auto by_ops = compile(&decode, {.name = name + ", op by op", .fuse = false});
    Decoder one{decoder->weights, make_cache(sizes, 100)};
    Decoder other{decoder->weights, make_cache(sizes, 100)};
    check.include(compare((*step)(one, token).to_vector<double>(),
                          by_ops(other, token).to_vector<double>(), 1e-4));
    check.include(compare(one.cache.keys.back().to_vector<double>(),
                          other.cache.keys.back().to_vector<double>(), 1e-4));
    auto logits = outputs[0].to_vector<float>();
    for (float v : logits)
      check.ok = check.ok && std::isfinite(v);
    return check;
  };
  const double matrices = static_cast<double>(
      sizes.layers * (4 * sizes.width * sizes.width + 3 * sizes.width * sizes.hidden) +
      sizes.vocabulary * sizes.width);
  const auto cached = static_cast<double>(2 * sizes.layers * sizes.context * sizes.width);
  c.flops = 2 * (matrices + cached);
  c.bytes = 4 * (matrices + cached);
  return c;
}

} // namespace

std::vector<Workload> llama_workloads() {
  return {{"llama_110m_decode_f32",
           "Llama's architecture, 110M parameters: a token at batch 1, 1024 positions cached",
           "f32", Limit::Read, [] { return decode_case("llama_110m_decode_f32", k110m); }}};
}

} // namespace egret::tool::bench
