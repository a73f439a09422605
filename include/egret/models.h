// Whole models, made of the layers of nn.h.
#pragma once

#include "egret/nn.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace egret::models {

struct GptOptions {
  std::int64_t vocabulary = 256;
  std::int64_t context = 128; ///< most positions
  std::int64_t layers = 4;
  std::int64_t width = 128;
  std::int64_t heads = 4;
  double dropout = 0;
  bool tied = false; ///< the output uses the token embedding's table
};

/// A decoder-only transformer with learned positions and norms before each part (Radford et al.
/// 2019). Matrices start normal with deviation 0.02, those that end a residual part with 0.02/√(2
/// layers), biases at 0.
struct Gpt {
  nn::Embedding token_embedding;    ///< weight [vocabulary, width]
  nn::Embedding position_embedding; ///< weight [context, width]
  nn::Dropout dropout;
  std::vector<nn::TransformerBlock> blocks;
  nn::LayerNorm norm;
  std::optional<nn::Linear> head; ///< without bias; none when tied

  Gpt() = default;
  Gpt(const GptOptions& options, Generator& generator);
  /// Integers [batch, positions] to logits [batch, positions, vocabulary]; position i depends on
  /// positions up to i only. Error(Shape) for more positions than the context. Dropout when a
  /// generator is given.
  Tensor operator()(const Tensor& tokens, Generator* generator = nullptr) const;
  EGRET_FIELDS(token_embedding, position_embedding, dropout, blocks, norm, head)
};

} // namespace egret::models
