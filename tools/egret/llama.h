// Llama's architecture, written from the formulas: one definition for all sizes, element types and
// devices.
#pragma once

#include "egret/tensor.h"
#include "egret/tree.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace egret::tool::llama {

struct Sizes {
  std::int64_t layers, width, heads;
  std::int64_t kv_heads; ///< of keys and values; each serves heads / kv_heads heads
  std::int64_t hidden, vocabulary, context;
  double rope_base = 10000;
  bool tied = true; ///< the head is the embedding's table
  DType dtype = DType::F32;

  std::int64_t of_head() const { return width / heads; }
  std::int64_t kv_width() const { return kv_heads * of_head(); }
  /// Elements of the matrices that a step reads: all but the embedding's table, when it has a head
  /// of its own.
  std::int64_t matrices() const;
  std::int64_t cached() const { return 2 * layers * context * kv_width(); } ///< elements
};

struct Layer {
  Tensor attention_norm, wq, wk, wv, wo, mlp_norm, gate, up, down; ///< matrices are [out, in]
  EGRET_FIELDS(attention_norm, wq, wk, wv, wo, mlp_norm, gate, up, down)
};

struct Weights {
  Tensor embedding;
  std::vector<Layer> layers;
  Tensor norm;
  std::optional<Tensor> head; ///< none when tied
  double rope_base = 10000;
  EGRET_FIELDS(embedding, layers, norm, head, rope_base)
};

/// What a step leaves to the next one.
struct Cache {
  Tensor position;                  ///< of the token that comes next, i64 [1]
  std::vector<Tensor> keys, values; ///< by layer [kv_heads, context, of_head]
  EGRET_FIELDS(position, keys, values)
};

/// The model's weights and where it stands.
struct Decoder {
  Weights weights;
  Cache cache;
  EGRET_FIELDS(weights, cache)
};

/// Random ones, made on the device in use.
Weights make_weights(const Sizes& sizes);
/// With random keys and values at the positions before.
Cache make_cache(const Sizes& sizes, std::int64_t position);

/// Logits [1, vocabulary] of the token behind `token` [1], the next position's. Norms, positions
/// and softmax are computed in f32.
Tensor decode(Decoder& decoder, const Tensor& token);

/// Logits [1, vocabulary] of the token behind all of `tokens` [count], at positions from 0 on, with
/// nothing cached. `of_head`: elements of a head.
Tensor prefill(const Weights& weights, const Tensor& tokens, std::int64_t of_head);

} // namespace egret::tool::llama
