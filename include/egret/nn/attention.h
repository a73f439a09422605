// Attention and transformer layers, with the names of PyTorch's parameters.
#pragma once

#include "egret/nn/layers.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace egret::nn {

/// Keys and values that attention has made, so that a text that grows gives it new positions only.
struct KeyValueCache {
  Tensor keys, values; ///< [batch, kv_heads, capacity, width / heads]
  EGRET_FIELDS(keys, values)
};

/// Attention with several heads (Vaswani et al. 2017). With kv_heads == heads, parameters have the
/// names and shapes of torch.nn.MultiheadAttention.
struct MultiHeadAttention {
  Tensor in_proj_weight; ///< [width + 2 width kv_heads / heads, width]: queries, keys, values
  Tensor in_proj_bias;   ///< as many
  Linear out_proj;       ///< [width, width]
  std::int64_t heads = 1;
  bool causal = false; ///< position i sees positions up to i only
  /// Heads of keys and values: heads / kv_heads of the queries' share one (Ainslie et al. 2023).
  std::int64_t kv_heads = 1;

  MultiHeadAttention() = default;
  /// kv_heads 0: as many as heads. Error(Value) when heads do not divide width, or kv_heads heads.
  MultiHeadAttention(std::int64_t width, std::int64_t heads, Generator& generator,
                     bool causal = false, std::int64_t kv_heads = 0);
  /// Self-attention: [batch, positions, width] (or without batch) to the same. `mask` as
  /// AttentionOptions says, for [batch, heads, positions, positions].
  Tensor operator()(const Operand& x, const Operand& mask = {}) const;
  /// Queries from x [batch, positions, width], keys and values from memory [batch, others, width].
  Tensor across(const Operand& x, const Operand& memory, const Operand& mask = {}) const;
  /// An empty cache for extend(), of the dtype of the weights.
  KeyValueCache cache(const Expr& batch, std::int64_t capacity) const;
  /// Causal self-attention of the positions `begin` (an integer of rank 0: data) and on, x [batch,
  /// positions, width], to themselves and to those in the cache before them; their keys and values
  /// are put there. What lies beyond the capacity is not kept. Error(Value) when not causal.
  Tensor extend(const Operand& x, KeyValueCache& cache, const Operand& begin) const;
  EGRET_FIELDS(in_proj_weight, in_proj_bias, out_proj, heads, causal, kv_heads)

private:
  struct Parts {
    Tensor q, k, v; ///< [batch, heads or kv_heads, positions, width / heads]
  };
  Parts project(const Operand& x) const;
  Tensor attend(const Parts& parts, const Operand& mask, bool causal) const;
};

struct TransformerBlockOptions {
  std::int64_t width = 0, heads = 1;
  std::int64_t hidden = 0; ///< of the feed-forward part; 0: 4 width
  double dropout = 0;
  Activation activation = Activation::GeluTanh;
  bool causal = true;
  bool norm_first = true;    ///< norms before each part, else after the sum behind it
  std::int64_t kv_heads = 0; ///< 0: as many as heads
};

/// x + attention(norm1(x)), then x + linear2(activation(linear1(norm2(x)))); without norm_first
/// norm1(x + attention(x)), then norm2(x + ...). Parameters have the names and shapes of
/// torch.nn.TransformerEncoderLayer.
struct TransformerBlock {
  MultiHeadAttention self_attn;
  Linear linear1, linear2;
  LayerNorm norm1, norm2;
  Dropout dropout;
  Activation activation = Activation::GeluTanh;
  bool norm_first = true;

  TransformerBlock() = default;
  TransformerBlock(const TransformerBlockOptions& options, Generator& generator);
  Tensor operator()(const Operand& x, Generator* generator = nullptr,
                    const Operand& mask = {}) const;
  /// Of new positions behind those in a cache, as MultiHeadAttention::extend, without dropout.
  Tensor extend(const Operand& x, KeyValueCache& cache, const Operand& begin) const;
  EGRET_FIELDS(self_attn, linear1, linear2, norm1, norm2, dropout, activation, norm_first)
};

/// A TransformerBlock with attention to a memory between its parts. Parameters have the names and
/// shapes of torch.nn.TransformerDecoderLayer.
struct TransformerDecoderBlock {
  MultiHeadAttention self_attn, multihead_attn;
  Linear linear1, linear2;
  LayerNorm norm1, norm2, norm3;
  Dropout dropout;
  Activation activation = Activation::GeluTanh;
  bool norm_first = true;

  TransformerDecoderBlock() = default;
  TransformerDecoderBlock(const TransformerBlockOptions& options, Generator& generator);
  /// x [batch, positions, width], memory [batch, others, width]. `memory_mask`: of the attention to
  /// the memory.
  Tensor operator()(const Operand& x, const Operand& memory, Generator* generator = nullptr,
                    const Operand& memory_mask = {}) const;
  EGRET_FIELDS(self_attn, multihead_attn, linear1, linear2, norm1, norm2, norm3, dropout,
               activation, norm_first)
};

/// Blocks one after the other, then a norm when they begin with theirs.
struct TransformerEncoder {
  std::vector<TransformerBlock> layers;
  std::optional<LayerNorm> norm;

  TransformerEncoder() = default;
  TransformerEncoder(std::int64_t count, const TransformerBlockOptions& options,
                     Generator& generator);
  Tensor operator()(const Operand& x, Generator* generator = nullptr,
                    const Operand& mask = {}) const;
  EGRET_FIELDS(layers, norm)
};

struct TransformerDecoder {
  std::vector<TransformerDecoderBlock> layers;
  std::optional<LayerNorm> norm;

  TransformerDecoder() = default;
  TransformerDecoder(std::int64_t count, const TransformerBlockOptions& options,
                     Generator& generator);
  Tensor operator()(const Operand& x, const Operand& memory, Generator* generator = nullptr,
                    const Operand& memory_mask = {}) const;
  EGRET_FIELDS(layers, norm)
};

} // namespace egret::nn
