// The decoder-only transformer, written with the public functions: weights as a tree, one forward
// for all architectures.
#pragma once

#include "egret/language_model.h"
#include "egret/tree.h"
#include "models/language/matrix.h"

#include <optional>
#include <vector>

namespace egret::models::language {

struct NormWeights {
  Tensor weight;
  std::optional<Tensor> bias; ///< with it the mean is subtracted too (LayerNorm)
  EGRET_FIELDS(weight, bias)
};

/// A matrix of each expert of a layer.
struct ExpertMatrix {
  Matrix weight;                     ///< [experts, out, in]
  std::optional<nn::LowRank> update; ///< of each, added to what the matrix gives
  std::string module = {};           ///< as of Projection, with "{}" for the expert's number
  /// [matrices, tokens, out] of x [matrices or 1, tokens, in].
  Tensor operator()(const Tensor& x) const;
  /// Those of the experts at `index` [matrices].
  ExpertMatrix at(const Tensor& index) const;
  EGRET_FIELDS(weight, update)
};

struct ExpertWeights {
  Tensor router;         ///< [experts, width]
  ExpertMatrix gate, up; ///< to hidden
  ExpertMatrix down;     ///< back to width
  EGRET_FIELDS(router, gate, up, down)
};

/// A layer; what its architecture lacks is empty.
struct LayerWeights {
  std::optional<NormWeights> input_norm, attention_end_norm, mlp_norm, mlp_end_norm;
  Projection query, key, value, output;
  std::optional<NormWeights> query_norm, key_norm;
  std::optional<Projection> gate, up, down;
  std::optional<ExpertWeights> experts;
  EGRET_FIELDS(input_norm, attention_end_norm, mlp_norm, mlp_end_norm, query, key, value, output,
               query_norm, key_norm, gate, up, down, experts)
};

struct Weights {
  Matrix embedding;                ///< [vocabulary, width]
  std::optional<Tensor> positions; ///< [context, width]
  std::vector<LayerWeights> layers;
  NormWeights norm;
  std::optional<Projection> head;               ///< none: the embedding's table
  std::optional<Tensor> rotary, sliding_rotary; ///< f32: frequencies
  EGRET_FIELDS(embedding, positions, layers, norm, head, rotary, sliding_rotary)
};

/// Keys or values of the positions read so far, state in place. Positions lie in blocks, which
/// follow each other.
struct CachedVectors {
  Tensor values;                ///< [kv_heads, blocks · positions of a block, head_size]
  std::optional<Tensor> scales; ///< f32 [kv_heads, blocks · positions of a block, 1], of integers
  EGRET_FIELDS(values, scales)
};
struct CacheLayer {
  CachedVectors keys, values;
  EGRET_FIELDS(keys, values)
};
struct Cache {
  std::vector<CacheLayer> layers;
  EGRET_FIELDS(layers)
};

/// Where new tokens and those before them stand in a cache.
struct CachePlace {
  Cache& cache;
  std::int64_t block; ///< positions of a block
  Tensor begin;       ///< i64 [rows]: positions that are there before the new ones
  Tensor put_at;      ///< i64 [rows, tokens]: rows of the cache that take the new ones; -1: none
  /// i64 [rows, blocks]: the blocks of each row's positions in order, at least those of the
  /// positions there and of the new ones; others are read, and count for nothing.
  Tensor table;
};

/// Several texts in each row, one after the other: a token sees those before it of its own text.
struct PackedRows {
  Tensor positions; ///< i64 [rows, tokens]: of each token in its text
  Tensor texts;     ///< i64 [rows, tokens]: a number of its text that no other of the row has
};

/// What the forward needs beside the tensors.
struct Decoder {
  LanguageConfig config;
  DType dtype = DType::F32;      ///< of hidden states
  bool norm_plus_one = false;    ///< norms multiply by 1 + weight
  bool norm_whole_heads = false; ///< norms of queries and keys see all heads at once

  /// Of so many positions in a float, or in I8: integers with a scale for each head and position.
  Cache cache(std::int64_t positions, DType of) const;
  /// Hidden states [rows · tokens, width] behind the last norm, of tokens [rows, tokens] that
  /// follow those in the cache (which holds them too afterwards), or that stand alone without one.
  Tensor hidden(const Weights& weights, const Tensor& tokens, const CachePlace* place) const;
  /// Of rows that hold several texts.
  Tensor hidden(const Weights& weights, const Tensor& tokens, const PackedRows& packed) const;
  /// Logits f32 [..., vocabulary].
  Tensor logits(const Weights& weights, const Tensor& hidden) const;
};

} // namespace egret::models::language
