#include "models/language/decoder.h"

#include "egret/functional.h"

#include <cmath>

namespace egret::models::language {

namespace {

/// The forward of one call.
class Forward {
public:
  Forward(const Decoder& decoder, const Weights& weights, const Tensor& tokens,
          const CachePlace* place, const PackedRows* packed)
      : decoder_(decoder), c_(decoder.config), weights_(weights), tokens_(tokens), place_(place),
        rows_(tokens.shape()[0]), count_(tokens.shape()[1]),
        places_(packed != nullptr ? packed->positions : positions(count_).unsqueeze(0)) {
    Expr held = count_;
    // Where queries stand among the keys: a text's positions but for packed rows.
    Tensor order = packed != nullptr ? positions(count_).unsqueeze(0) : places_;
    if (place_ != nullptr) {
      order = places_ = places_ + place_->begin.unsqueeze(-1);
      held = place_->table.shape()[1] * place_->block;
      put_at_ = place_->put_at.reshape({rows_ * count_});
    }
    if (weights_.rotary)
      angles_ = angles(*weights_.rotary, c_.rotary);
    sliding_angles_ =
        weights_.sliding_rotary ? angles(*weights_.sliding_rotary, *c_.sliding_rotary) : angles_;
    const Tensor keys = positions(held), queries = order.unsqueeze(1).unsqueeze(-1);
    seen_ = keys <= queries; // [rows, 1, tokens, keys]
    if (packed != nullptr) {
      const Tensor texts = packed->texts.unsqueeze(1);
      seen_ = seen_ & (texts.unsqueeze(-1) == texts.unsqueeze(-2));
    }
    if (c_.window > 0)
      seen_by_sliding_ = seen_ & (keys > queries - c_.window);
  }

  Tensor run() const {
    Tensor x = rows_at(weights_.embedding, tokens_.reshape({rows_ * count_}), decoder_.dtype);
    if (c_.embedding_scale != 1)
      x = x * c_.embedding_scale;
    if (weights_.positions)
      x = x + embedding(*weights_.positions,
                        broadcast_to(places_, {rows_, count_}).reshape({rows_ * count_}));
    for (std::size_t i = 0; i < weights_.layers.size(); ++i) {
      const LayerWeights& layer = weights_.layers[i];
      x = x + normalized(layer.attention_end_norm, attention(i, normalized(layer.input_norm, x)));
      x = x + normalized(layer.mlp_end_norm, feed_forward(layer, normalized(layer.mlp_norm, x)));
    }
    return normalized(weights_.norm, x);
  }

private:
  struct Angles {
    Tensor cosine, sine; ///< f32 [rows, 1, tokens, pairs]
  };

  Angles angles(const Tensor& frequencies, const Rotary& rotary) const {
    const Tensor angle = places_.to(DType::F32).unsqueeze(1).unsqueeze(-1) * frequencies;
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

  /// [rows, heads, tokens, head_size] from [rows · tokens, heads · head_size].
  Tensor by_head(const Tensor& x, std::int64_t heads,
                 const std::optional<NormWeights>& norm) const {
    const bool whole = decoder_.norm_whole_heads;
    const Tensor y =
        (whole ? normalized(norm, x) : x).reshape({rows_, count_, heads, c_.head_size});
    return (whole ? y : normalized(norm, y)).transpose(1, 2);
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
      const Tensor split = first.reshape({shape[0], shape[1], shape[2], pairs, 2});
      a = split.select(-1, 0);
      b = split.select(-1, 1);
    } else {
      a = first.narrow(-1, 0, pairs);
      b = first.narrow(-1, pairs, pairs);
    }
    const Tensor u = a * angles.cosine - b * angles.sine, v = a * angles.sine + b * angles.cosine;
    Tensor y = rotary.interleaved
                   ? stack({u, v}, -1).reshape({shape[0], shape[1], shape[2], 2 * pairs})
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
    if (place_ != nullptr) {
      CacheLayer& held = place_->cache.layers[i];
      k = cached(held.keys, k);
      v = cached(held.values, v);
    }
    const Tensor mixed = scaled_dot_product_attention(q, k, v,
                                                      {.mask = sliding ? seen_by_sliding_ : seen_,
                                                       .scale = c_.attention_scale,
                                                       .softcap = c_.attention_softcap});
    return layer.output(mixed.transpose(1, 2).reshape({rows_ * count_, c_.heads * c_.head_size}));
  }

  /// Puts new keys or values [rows, kv_heads, tokens, head_size] into the cache; those of the rows'
  /// blocks then [rows, kv_heads, positions, head_size].
  Tensor cached(CachedVectors& held, const Tensor& fresh) const {
    Tensor rows = fresh.transpose(0, 1).reshape({c_.kv_heads, rows_ * count_, c_.head_size});
    if (held.scales) {
      const Tensor wide = rows.to(DType::F32);
      const Tensor scale = abs(wide).max(-1, true) * (1.0 / 127);
      held.scales->assign(index_put(*held.scales, put_at_, scale, 1));
      rows = round(where(scale > 0, wide / scale, 0.0));
    }
    held.values.assign(index_put(held.values, put_at_, rows.to(held.values.dtype()), 1));
    if (!held.scales)
      return seen_of(held.values).to(decoder_.dtype);
    return (seen_of(held.values).to(DType::F32) * seen_of(*held.scales)).to(decoder_.dtype);
  }
  /// The blocks of each row [rows, kv_heads, positions, ...].
  Tensor seen_of(const Tensor& held) const {
    const std::int64_t block = place_->block;
    const Tensor blocks = held.reshape({c_.kv_heads, held.size(1) / block, block, held.size(-1)});
    return take(blocks, place_->table, 1)
        .transpose(0, 1)
        .reshape({rows_, c_.kv_heads, place_->table.shape()[1] * block, held.size(-1)});
  }

  Tensor feed_forward(const LayerWeights& layer, const Tensor& x) const {
    if (layer.experts)
      return mixture(*layer.experts, x);
    const Tensor up = (*layer.up)(x);
    const Tensor hidden =
        layer.gate ? activate(c_.activation, (*layer.gate)(x)) * up : activate(c_.activation, up);
    return (*layer.down)(hidden);
  }

  /// Mixture of experts (Shazeer et al. 2017). Few tokens read the experts that they chose, more
  /// tokens all of them, those that are not chosen weighted 0.
  Tensor mixture(const ExpertWeights& experts, const Tensor& x) const {
    const Tensor chances = softmax(linear(x, experts.router).to(DType::F32), -1);
    const Expr tokens = rows_ * count_;
    if (tokens.is_constant() && tokens.value() * c_.experts_used < c_.experts)
      return few_experts(experts, x, chances, tokens.value());
    // An expert is chosen if fewer than experts_used come before it, lower numbers first among
    // equals.
    const Tensor its = chances.unsqueeze(-1), other = chances.unsqueeze(-2);
    const Tensor number = arange(c_.experts);
    const Tensor before = (other > its) | ((other == its) & (number < number.unsqueeze(-1)));
    Tensor shares = where(before.sum(-1) < c_.experts_used, chances, 0.0); // [tokens, experts]
    if (c_.normalize_experts)
      shares = shares / shares.sum(-1, true);
    const Tensor weight = shares.transpose(0, 1).unsqueeze(-1); // [experts, tokens, 1]
    const Tensor out = expert_outputs(experts.gate, experts.up, experts.down, x.unsqueeze(0));
    return (out.to(DType::F32) * weight).sum(0).to(x.dtype());
  }

  Tensor few_experts(const ExpertWeights& experts, const Tensor& x, const Tensor& chances,
                     std::int64_t tokens) const {
    const Sorted best = topk(chances, c_.experts_used); // lower numbers first among equals
    Tensor shares = best.values;                        // [tokens, used]
    if (c_.normalize_experts)
      shares = shares / shares.sum(-1, true);
    const std::int64_t used = c_.experts_used, count = tokens * used;
    const Tensor chosen = best.indices.reshape({count});
    const Tensor each = expand(x.unsqueeze(1), {tokens, used, c_.width});
    const Tensor out = expert_outputs(experts.gate.at(chosen), experts.up.at(chosen),
                                      experts.down.at(chosen), each.reshape({count, 1, c_.width}));
    return (out.reshape({tokens, used, c_.width}).to(DType::F32) * shares.unsqueeze(-1))
        .sum(1)
        .to(x.dtype());
  }

  /// [matrices, tokens, width] of x [matrices or 1, tokens, width].
  Tensor expert_outputs(const ExpertMatrix& gate, const ExpertMatrix& up, const ExpertMatrix& down,
                        const Tensor& x) const {
    return down(activate(c_.activation, gate(x)) * up(x));
  }

  const Decoder& decoder_;
  const LanguageConfig& c_;
  const Weights& weights_;
  const Tensor& tokens_;
  const CachePlace* place_;
  Expr rows_, count_;
  Tensor places_; ///< [rows, tokens] (without a cache [1, tokens]): position of each
  Tensor put_at_; ///< [rows · tokens]: row of each in the cache
  Angles angles_, sliding_angles_;
  Tensor seen_, seen_by_sliding_;
};

} // namespace

Tensor ExpertMatrix::operator()(const Tensor& x) const {
  const Tensor y = matmul(x, dense(weight, x.dtype()).transpose());
  return update ? y + (*update)(x) : y;
}

ExpertMatrix ExpertMatrix::at(const Tensor& index) const {
  ExpertMatrix some{taken(weight, index), update, module};
  if (some.update)
    for (Tensor* each : {&some.update->a, &some.update->b})
      *each = take(*each, index, 0);
  return some;
}

Cache Decoder::cache(std::int64_t positions, DType of) const {
  Cache cache;
  const auto vectors = [&] {
    CachedVectors made{zeros({config.kv_heads, positions, config.head_size}, of), {}};
    if (!is_float(of))
      made.scales = zeros({config.kv_heads, positions, 1});
    return made;
  };
  for (std::int64_t i = 0; i < config.layers; ++i)
    cache.layers.push_back({vectors(), vectors()});
  return cache;
}

Tensor Decoder::hidden(const Weights& weights, const Tensor& tokens,
                       const CachePlace* place) const {
  return Forward(*this, weights, tokens, place, nullptr).run();
}

Tensor Decoder::hidden(const Weights& weights, const Tensor& tokens,
                       const PackedRows& packed) const {
  return Forward(*this, weights, tokens, nullptr, &packed).run();
}

Tensor Decoder::logits(const Weights& weights, const Tensor& hidden) const {
  Tensor y = (weights.head ? (*weights.head)(hidden)
                           : linear(hidden, dense(weights.embedding, hidden.dtype())))
                 .to(DType::F32);
  if (config.logit_softcap)
    y = tanh(y * (1 / *config.logit_softcap)) * *config.logit_softcap;
  return y;
}

} // namespace egret::models::language
