// Networks over images, written with the public functions. Trees whose fields have the names of
// timm's parameters; those of transformers are put into them.
#pragma once

#include "egret/models.h"
#include "egret/nn.h"
#include "egret/tree.h"

#include <optional>
#include <string>
#include <vector>

namespace egret::models::vision {

/// x + (x · n) weight + bias, n the norm of a channel over positions beside those of the others
/// (ConvNeXt V2, Woo et al. 2023), of x [batch, height, width, channels].
struct ResponseNorm {
  Tensor weight, bias; ///< [channels]
  Tensor operator()(const Tensor& x) const;
  EGRET_FIELDS(weight, bias)
};

/// A linear layer over channels that stand last; its weight is [out, in], or [out, in, 1, 1] as
/// that of a convolution.
struct ChannelLinear {
  Tensor weight, bias;
  Tensor operator()(const Tensor& x) const;
  EGRET_FIELDS(weight, bias)
};

struct ConvNextBlock {
  std::optional<Tensor> gamma; ///< [channels]
  nn::Conv2d conv_dw;
  nn::LayerNorm norm;
  ChannelLinear fc1, fc2;
  std::optional<ResponseNorm> grn;
  Tensor operator()(const Tensor& x) const;
  template <class V>
  void visit(V& v) {
    v("gamma", gamma);
    v("conv_dw", conv_dw);
    v("norm", norm);
    v("mlp.fc1", fc1);
    v("mlp.grn", grn);
    v("mlp.fc2", fc2);
  }
};

struct ConvNextStage {
  std::optional<nn::LayerNorm> norm; ///< none of the first stage
  std::optional<nn::Conv2d> downsample;
  std::vector<ConvNextBlock> blocks;
  template <class V>
  void visit(V& v) {
    v("downsample.0", norm);
    v("downsample.1", downsample);
    v("blocks", blocks);
  }
};

struct ConvNextOptions {
  std::vector<std::int64_t> depths, widths; ///< of the stages
  std::int64_t classes = 1000;
  bool spatial = false;         ///< linear layers are stored as convolutions
  bool response_norm = false;   ///< instead of a scale of each block
  std::int64_t head_hidden = 0; ///< of a layer before the last one; 0: none
};

/// ConvNeXt (Liu et al. 2022) of images [batch, 3, height, width].
struct ConvNext {
  nn::Conv2d stem;
  nn::LayerNorm stem_norm, norm;
  std::vector<ConvNextStage> stages;
  std::optional<nn::Linear> hidden;
  nn::Linear fc;

  ConvNext() = default;
  ConvNext(const ConvNextOptions& options, Generator& generator);
  Tensor features(const Tensor& images) const; ///< [batch, widths.back() or head_hidden]
  template <class V>
  void visit(V& v) {
    v("stem.0", stem);
    v("stem.1", stem_norm);
    v("stages", stages);
    v("head.norm", norm);
    v("head.pre_logits.fc", hidden);
    v("head.fc", fc);
  }
};

struct VisionOptions {
  std::int64_t height = 224, width = 224, patch = 16, classes = 1000;
  std::int64_t features = 768, layers = 12, heads = 12, hidden = 3072;
  double norm_eps = 1e-6;
  nn::Activation activation = nn::Activation::Gelu;
  bool qkv_bias = true;
};

struct VisionBlock {
  nn::LayerNorm norm1, norm2;
  nn::Linear qkv, proj, fc1, fc2;
  template <class V>
  void visit(V& v) {
    v("norm1", norm1);
    v("attn.qkv", qkv);
    v("attn.proj", proj);
    v("norm2", norm2);
    v("mlp.fc1", fc1);
    v("mlp.fc2", fc2);
  }
};

/// The vision transformer (Dosovitskiy et al. 2021) of images [batch, 3, height, width].
struct VisionTransformer {
  Tensor cls_token, pos_embed; ///< [1, 1, features], [1, 1 + patches, features]
  nn::Conv2d patches;
  std::vector<VisionBlock> blocks;
  nn::LayerNorm norm;
  nn::Linear head;
  std::int64_t heads = 1;
  nn::Activation activation = nn::Activation::Gelu;

  VisionTransformer() = default;
  VisionTransformer(const VisionOptions& options, Generator& generator);
  Tensor features(const Tensor& images) const; ///< of the token that stands for the image
  template <class V>
  void visit(V& v) {
    v("cls_token", cls_token);
    v("pos_embed", pos_embed);
    v("patch_embed.proj", patches);
    v("blocks", blocks);
    v("norm", norm);
    v("head", head);
    v("heads", heads);
    v("activation", activation);
  }
};

} // namespace egret::models::vision
