#include "models/language/decoder.h"

#include "egret/functional.h"

#include <cmath>

namespace egret::models::language {

namespace {

/// The forward of one call.
class Forward {
public:
  Forward(const Decoder& decoder, const Weights& weights, const Tensor& tokens, Cache* cache)
      : decoder_(decoder), c_(decoder.config), weights_(weights), tokens_(tokens), cache_(cache),
        count_(tokens.shape()[0]), places_(positions(count_)) {
    if (cache_ != nullptr)
      places_ = places_ + cache_->length;
    if (weights_.rotary)
      angles_ = angles(*weights_.rotary, c_.rotary);
    sliding_angles_ =
        weights_.sliding_rotary ? angles(*weights_.sliding_rotary, *c_.sliding_rotary) : angles_;
    const Expr held = cache_ != nullptr ? cache_->layers[0].keys.shape()[1] : count_;
    const Tensor keys = positions(held), queries = places_.unsqueeze(-1);
    seen_ = keys <= queries; // [tokens, keys]
    if (c_.window > 0)
      seen_by_sliding_ = seen_ & (keys > queries - c_.window);
  }

  Tensor run() const {
    Tensor x = embedding(weights_.embedding, tokens_);
    if (c_.embedding_scale != 1)
      x = x * c_.embedding_scale;
    if (weights_.positions)
      x = x + embedding(*weights_.positions, places_);
    for (std::size_t i = 0; i < weights_.layers.size(); ++i) {
      const LayerWeights& layer = weights_.layers[i];
      x = x + normalized(layer.attention_end_norm, attention(i, normalized(layer.input_norm, x)));
      x = x + normalized(layer.mlp_end_norm, feed_forward(layer, normalized(layer.mlp_norm, x)));
    }
    return normalized(weights_.norm, x);
  }

private:
  struct Angles {
    Tensor cosine, sine; ///< f32 [tokens, pairs]
  };

  Angles angles(const Tensor& frequencies, const Rotary& rotary) const {
    const Tensor angle = places_.to(DType::F32).unsqueeze(-1) * frequencies;
    return {cos(angle) * rotary.factor, sin(angle) * rotary.factor};
  }

  Tensor normalized(const NormWeights& norm, const Tensor& x) const {
    if (norm.bias)
      return layer_norm(x, norm.weight, *norm.bias, c_.norm_eps);
    Tensor weight = norm.weight.to(DType::F32);
    if (decoder_.norm_plus_one)
      weight = weight + 1;
    return rms_norm(x.to(DType::F32), weight, c_.norm_eps).to(x.dtype());
  }
  Tensor normalized(const std::optional<NormWeights>& norm, const Tensor& x) const {
    return norm ? normalized(*norm, x) : x;
  }

  /// [heads, tokens, head_size] from [tokens, heads · head_size].
  Tensor by_head(const Tensor& x, std::int64_t heads,
                 const std::optional<NormWeights>& norm) const {
    const bool whole = decoder_.norm_whole_heads;
    const Tensor y = (whole ? normalized(norm, x) : x).reshape({count_, heads, c_.head_size});
    return (whole ? y : normalized(norm, y)).transpose(0, 1);
  }

  /// Rotary embedding (Su et al. 2021) of the first dims of each head.
  Tensor rotated(const Tensor& x, const Rotary& rotary, const Angles& angles) const {
    const auto pairs = static_cast<std::int64_t>(rotary.frequencies.size());
    if (pairs == 0)
      return x;
    const Tensor wide = x.to(DType::F32);
    const Shape& shape = wide.shape();
    const Tensor first = wide.narrow(-1, 0, 2 * pairs);
    Tensor a, b;
    if (rotary.interleaved) {
      const Tensor split = first.reshape({shape[0], shape[1], pairs, 2});
      a = split.select(-1, 0);
      b = split.select(-1, 1);
    } else {
      a = first.narrow(-1, 0, pairs);
      b = first.narrow(-1, pairs, pairs);
    }
    const Tensor u = a * angles.cosine - b * angles.sine, v = a * angles.sine + b * angles.cosine;
    Tensor y = rotary.interleaved ? stack({u, v}, -1).reshape({shape[0], shape[1], 2 * pairs})
                                  : cat({u, v}, -1);
    if (2 * pairs < c_.head_size)
      y = cat({y, wide.narrow(-1, 2 * pairs, c_.head_size - 2 * pairs)}, -1);
    return y.to(x.dtype());
  }

  Tensor attention(std::size_t i, const Tensor& x) const {
    const LayerWeights& layer = weights_.layers[i];
    const bool sliding = c_.sliding[i];
    const Rotary& rotary = sliding && c_.sliding_rotary ? *c_.sliding_rotary : c_.rotary;
    const Angles& angles = sliding ? sliding_angles_ : angles_;
    const Tensor q = rotated(by_head(layer.query(x), c_.heads, layer.query_norm), rotary, angles);
    Tensor k = rotated(by_head(layer.key(x), c_.kv_heads, layer.key_norm), rotary, angles);
    Tensor v = by_head(layer.value(x), c_.kv_heads, {});
    if (cache_ != nullptr) {
      nn::KeyValueCache& held = cache_->layers[i];
      held.keys.assign(index_put(held.keys, places_, k, 1));
      held.values.assign(index_put(held.values, places_, v, 1));
      k = held.keys;
      v = held.values;
    }
    const Tensor mixed = scaled_dot_product_attention(q, k, v,
                                                      {.mask = sliding ? seen_by_sliding_ : seen_,
                                                       .scale = c_.attention_scale,
                                                       .softcap = c_.attention_softcap});
    return layer.output(mixed.transpose(0, 1).reshape({count_, c_.heads * c_.head_size}));
  }

  Tensor feed_forward(const LayerWeights& layer, const Tensor& x) const {
    if (layer.experts)
      return mixture(*layer.experts, x);
    const Tensor up = (*layer.up)(x);
    const Tensor hidden =
        layer.gate ? activate(c_.activation, (*layer.gate)(x)) * up : activate(c_.activation, up);
    return (*layer.down)(hidden);
  }

  /// Mixture of experts (Shazeer et al. 2017): all experts, those that are not chosen weighted 0.
  Tensor mixture(const ExpertWeights& experts, const Tensor& x) const {
    const Tensor chances = softmax(linear(x, experts.router).to(DType::F32), -1);
    // An expert is chosen if fewer than experts_used come before it, lower numbers first among
    // equals.
    const Tensor its = chances.unsqueeze(-1), other = chances.unsqueeze(-2);
    const Tensor number = arange(c_.experts);
    const Tensor before = (other > its) | ((other == its) & (number < number.unsqueeze(-1)));
    Tensor shares = where(before.sum(-1) < c_.experts_used, chances, 0.0); // [tokens, experts]
    if (c_.normalize_experts)
      shares = shares / shares.sum(-1, true);
    const Tensor weight = shares.transpose(0, 1).unsqueeze(-1); // [experts, tokens, 1]
    const Tensor all = x.unsqueeze(0);
    const Tensor hidden = activate(c_.activation, matmul(all, experts.gate.transpose())) *
                          matmul(all, experts.up.transpose());
    const Tensor out = matmul(hidden, experts.down.transpose()); // [experts, tokens, width]
    return (out.to(DType::F32) * weight).sum(0).to(x.dtype());
  }

  const Decoder& decoder_;
  const LanguageConfig& c_;
  const Weights& weights_;
  const Tensor& tokens_;
  Cache* cache_;
  Expr count_;
  Tensor places_; ///< [tokens]: position of each
  Angles angles_, sliding_angles_;
  Tensor seen_, seen_by_sliding_;
};

} // namespace

Cache Decoder::cache(std::int64_t capacity, DType dtype) const {
  Cache cache;
  const Shape shape = {config.kv_heads, capacity, config.head_size};
  for (std::int64_t i = 0; i < config.layers; ++i)
    cache.layers.push_back({zeros(shape, dtype), zeros(shape, dtype)});
  cache.length = scalar(0);
  return cache;
}

Tensor Decoder::hidden(const Weights& weights, const Tensor& tokens, Cache* cache) const {
  Tensor x = Forward(*this, weights, tokens, cache).run();
  if (cache != nullptr)
    cache->length += extent(tokens.shape()[0]);
  return x;
}

Tensor Decoder::logits(const Weights& weights, const Tensor& hidden) const {
  Tensor y =
      (weights.head ? (*weights.head)(hidden) : linear(hidden, weights.embedding)).to(DType::F32);
  if (config.logit_softcap)
    y = tanh(y * (1 / *config.logit_softcap)) * *config.logit_softcap;
  return y;
}

} // namespace egret::models::language
