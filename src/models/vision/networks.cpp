#include "models/vision/networks.h"

#include "egret/functional.h"

namespace egret::models::vision {

namespace {

constexpr double kEps = 1e-6; // of ConvNeXt's norms

Tensor channels_last(const Tensor& x) {
  return x.permute({0, 2, 3, 1});
}
Tensor channels_first(const Tensor& x) {
  return x.permute({0, 3, 1, 2});
}

ChannelLinear channel_linear(std::int64_t in, std::int64_t out, bool spatial, Generator& g) {
  const nn::Linear layer(in, out, g);
  return {spatial ? layer.weight.reshape({out, in, 1, 1}) : layer.weight, *layer.bias};
}

} // namespace

Tensor ResponseNorm::operator()(const Tensor& x) const {
  const Tensor norms = sqrt((x * x).sum({1, 2}, true)); // [batch, 1, 1, channels]
  return x + x * (norms / (norms.mean(-1, true) + kEps)) * weight + bias;
}

Tensor ChannelLinear::operator()(const Tensor& x) const {
  return linear(x, weight.reshape({weight.size(0), weight.size(1)}), bias);
}

Tensor ConvNextBlock::operator()(const Tensor& x) const {
  Tensor y = gelu(fc1(norm(channels_last(conv_dw(x)))));
  if (grn)
    y = (*grn)(y);
  y = fc2(y);
  return x + channels_first(gamma ? y * *gamma : y);
}

ConvNext::ConvNext(const ConvNextOptions& o, Generator& g)
    : stem(3, o.widths[0], 4, g, {.stride = 4}), stem_norm(o.widths[0], kEps),
      norm(o.widths.back(), kEps) {
  for (std::size_t i = 0; i < o.depths.size(); ++i) {
    const std::int64_t width = o.widths[i];
    ConvNextStage stage;
    if (i > 0) {
      stage.norm.emplace(o.widths[i - 1], kEps);
      stage.downsample.emplace(o.widths[i - 1], width, 2, g, ConvOptions{.stride = 2});
    }
    for (std::int64_t j = 0; j < o.depths[i]; ++j) {
      ConvNextBlock block;
      if (o.response_norm)
        block.grn = ResponseNorm{zeros({4 * width}), zeros({4 * width})};
      else
        block.gamma = ones({width});
      block.conv_dw = nn::Conv2d(width, width, 7, g, {.padding = 3, .groups = width});
      block.norm = nn::LayerNorm(width, kEps);
      block.fc1 = channel_linear(width, 4 * width, o.spatial, g);
      block.fc2 = channel_linear(4 * width, width, o.spatial, g);
      stage.blocks.push_back(std::move(block));
    }
    stages.push_back(std::move(stage));
  }
  const std::int64_t width = o.widths.back();
  if (o.head_hidden > 0)
    hidden.emplace(width, o.head_hidden, g);
  fc = nn::Linear(o.head_hidden > 0 ? o.head_hidden : width, o.classes, g);
}

Tensor ConvNext::features(const Tensor& images) const {
  Tensor x = channels_first(stem_norm(channels_last(stem(images))));
  for (const ConvNextStage& stage : stages) {
    if (stage.downsample)
      x = (*stage.downsample)(channels_first((*stage.norm)(channels_last(x))));
    for (const ConvNextBlock& block : stage.blocks)
      x = block(x);
  }
  x = norm(x.mean({2, 3}));
  return hidden ? gelu((*hidden)(x)) : x;
}

VisionTransformer::VisionTransformer(const VisionOptions& o, Generator& g)
    : cls_token(zeros({1, 1, o.features})),
      pos_embed(zeros({1, 1 + o.height / o.patch * (o.width / o.patch), o.features})),
      patches(3, o.features, o.patch, g, {.stride = o.patch}), norm(o.features, o.norm_eps),
      head(o.features, o.classes, g), heads(o.heads), activation(o.activation) {
  for (std::int64_t i = 0; i < o.layers; ++i)
    blocks.push_back({nn::LayerNorm(o.features, o.norm_eps), nn::LayerNorm(o.features, o.norm_eps),
                      nn::Linear(o.features, 3 * o.features, g, o.qkv_bias),
                      nn::Linear(o.features, o.features, g), nn::Linear(o.features, o.hidden, g),
                      nn::Linear(o.hidden, o.features, g)});
}

Tensor VisionTransformer::features(const Tensor& images) const {
  const Tensor parts = patches(images).flatten(2).transpose(1, 2); // [batch, patches, features]
  const Expr batch = parts.shape()[0];
  const std::int64_t width = parts.size(2), count = parts.size(1) + 1;
  Tensor x = cat({expand(cls_token, {batch, 1, width}), parts}, 1) + pos_embed;
  for (const VisionBlock& block : blocks) {
    const Tensor qkv = block.qkv(block.norm1(x))
                           .reshape({batch, count, 3, heads, width / heads})
                           .permute({2, 0, 3, 1, 4});
    const Tensor mixed =
        scaled_dot_product_attention(qkv.select(0, 0), qkv.select(0, 1), qkv.select(0, 2));
    x = x + block.proj(mixed.transpose(1, 2).reshape({batch, count, width}));
    x = x + block.fc2(nn::activate(activation, block.fc1(block.norm2(x))));
  }
  return norm(x.select(1, 0));
}

} // namespace egret::models::vision
