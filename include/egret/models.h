// Whole models, made of the layers of nn.h.
#pragma once

#include "egret/nn.h"

#include <cstdint>
#include <optional>
#include <string>
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

struct ResNetOptions {
  std::int64_t classes = 1000;
  std::int64_t width = 64; ///< channels of the first layer; each next one has twice as many
  std::vector<std::int64_t> blocks = {2, 2, 2, 2}; ///< of each layer: ResNet-18
  std::vector<std::int64_t> widths = {};           ///< channels of each layer, instead of `width`
  std::int64_t stem = 0;                           ///< channels before the first layer; 0: `width`
  bool bottleneck = false; ///< blocks of three convolutions, whose results have four times `width`
  std::int64_t groups = 1; ///< of the middle one (ResNeXt, Xie et al. 2017)
  std::int64_t group_width = 64; ///< channels of a group where a layer's width is 64
};

/// Two or three convolutions with norms, added to their input: relu(x + norm(conv(relu(norm(conv(
/// x)))))). Of two the first one has the stride, of three the middle one.
struct ResidualBlock {
  nn::Conv2d conv1, conv2;
  nn::BatchNorm bn1, bn2;
  std::optional<nn::Conv2d> conv3;
  std::optional<nn::BatchNorm> bn3;
  std::optional<nn::Sequential<nn::Conv2d, nn::BatchNorm>> downsample; ///< when sizes change

  ResidualBlock() = default;
  /// `width` is that of the layer. Of `options` those of blocks count.
  ResidualBlock(std::int64_t inputs, std::int64_t width, std::int64_t stride, Generator& generator,
                const ResNetOptions& options = {});
  Tensor operator()(const Operand& x, Generator* generator = nullptr) const;
  EGRET_FIELDS(conv1, bn1, conv2, bn2, conv3, bn3, downsample)
};

/// A residual network for images [batch, 3, height, width] (He et al. 2016). Parameters have the
/// names of torchvision's.
struct ResNet {
  nn::Conv2d conv1;
  nn::BatchNorm bn1;
  nn::MaxPool2d maxpool{3, {.stride = 2, .padding = 1}};
  std::vector<std::vector<ResidualBlock>> layers;
  nn::Linear fc;

  ResNet() = default;
  /// Error(Value) for sizes that are not positive, and widths that are not as many as blocks.
  ResNet(const ResNetOptions& options, Generator& generator);
  /// Logits [batch, classes]. A generator is given while it trains.
  Tensor operator()(const Operand& images, Generator* generator = nullptr) const;
  /// What the last layer's channels are on average, [batch, channels].
  Tensor features(const Operand& images, Generator* generator = nullptr) const;
  template <class V>
  void visit(V& v) {
    v("conv1", conv1);
    v("bn1", bn1);
    v("maxpool", maxpool);
    for (std::size_t i = 0; i < layers.size(); ++i)
      v("layer" + std::to_string(i + 1), layers[i]);
    v("fc", fc);
  }
};

/// What a Gpt has made of the positions that it was given, for more of them: state in place.
struct GptCache {
  std::vector<nn::KeyValueCache> layers;
  Tensor length; ///< i64, rank 0: positions that it holds; set to 0 to begin anew
  EGRET_FIELDS(layers, length)
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
  Tensor operator()(const Operand& tokens, Generator* generator = nullptr) const;
  /// An empty cache for texts of up to `capacity` tokens (0: the context). Error(Value) for more
  /// than the context.
  GptCache cache(const Expr& batch = 1, std::int64_t capacity = 0) const;
  /// Logits [batch, positions, vocabulary] of tokens [batch, positions] behind those that the cache
  /// holds, which holds them too afterwards: a token costs as much as the capacity is long, not a
  /// forward of the whole text. The length is data, so one compiled function serves all of them;
  /// who calls counts: logits of tokens beyond the capacity are of no use. Error(Shape) for more
  /// tokens at once than the capacity.
  Tensor extend(const Operand& tokens, GptCache& cache) const;
  EGRET_FIELDS(token_embedding, position_embedding, dropout, blocks, norm, head)

private:
  void require_tokens(const Operand& tokens, std::int64_t most, const char* what) const;
  Tensor logits(const Operand& x) const;
};

} // namespace egret::models
