#include "egret/image_model.h"

#include "egret/compile.h"
#include "egret/device.h"
#include "egret/functional.h"
#include "models/parameter_reader.h"
#include "models/vision/image_folder.h"
#include "models/vision/networks.h"
#include "models/vision/resize.h"
#include "support/fail.h"
#include "support/overloaded.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace egret::models {

using namespace vision;

namespace {

using Network = std::variant<ResNet, ConvNext, VisionTransformer>;

struct FeatureStep {
  Tensor operator()(const Network& network, const Tensor& images) const {
    return std::visit([&](const auto& n) { return n.features(images); }, network).to(DType::F32);
  }
};

struct LogitStep {
  Tensor operator()(const Network& network, const Tensor& images) const {
    return std::visit(
               overloaded{[&](const ResNet& n) { return n(images); },
                          [&](const ConvNext& n) { return n.fc(n.features(images)); },
                          [&](const VisionTransformer& n) { return n.head(n.features(images)); }},
               network)
        .to(DType::F32);
  }
};

/// A vision transformer whose parameters have the names of transformers.
VisionTransformer read_vit(ParameterReader& r, const VisionOptions& o) {
  Generator random(0);
  VisionTransformer n(o, random);
  const std::string stem = "vit.embeddings.";
  n.cls_token = r.tensor(stem + "cls_token", n.cls_token.sizes());
  n.pos_embed = r.tensor(stem + "position_embeddings", n.pos_embed.sizes());
  n.patches.weight =
      r.tensor(stem + "patch_embeddings.projection.weight", n.patches.weight.sizes());
  n.patches.bias = r.tensor(stem + "patch_embeddings.projection.bias", {o.features});
  for (std::int64_t i = 0; i < o.layers; ++i) {
    const std::string at = fmt::format("vit.encoder.layer.{}.", i);
    VisionBlock& block = n.blocks[static_cast<std::size_t>(i)];
    block.norm1 = r.layer_norm(at + "layernorm_before", o.features, o.norm_eps);
    block.norm2 = r.layer_norm(at + "layernorm_after", o.features, o.norm_eps);
    std::vector<Tensor> weights, biases;
    for (const char* part : {"query", "key", "value"}) {
      const nn::Linear layer = r.linear(fmt::format("{}attention.attention.{}", at, part),
                                        o.features, o.features, o.qkv_bias);
      weights.push_back(layer.weight);
      if (layer.bias)
        biases.push_back(*layer.bias);
    }
    block.qkv.weight = cat(weights).eval();
    if (o.qkv_bias)
      block.qkv.bias = cat(biases).eval();
    block.proj = r.linear(at + "attention.output.dense", o.features, o.features);
    block.fc1 = r.linear(at + "intermediate.dense", o.features, o.hidden);
    block.fc2 = r.linear(at + "output.dense", o.hidden, o.features);
  }
  n.norm = r.layer_norm("vit.layernorm", o.features, o.norm_eps);
  n.head = r.linear("classifier", o.features, o.classes);
  return n;
}

Network read_network(ParameterReader& reader, const ImageFolder& f) {
  const std::string what = fmt::format("an image model '{}'", f.config.architecture);
  if (f.of_transformers)
    return reader.read(
        [&](ParameterReader& r) { return read_vit(r, std::get<VisionOptions>(f.network)); }, what);
  Generator random(0); // what it draws is never computed
  return std::visit(
      overloaded{[&](const ResNetOptions& o) -> Network {
                   return reader.read(
                       [&](ParameterReader& r) { return r.filled(ResNet(o, random)); }, what);
                 },
                 [&](const ConvNextOptions& o) -> Network {
                   return reader.read(
                       [&](ParameterReader& r) { return r.filled(ConvNext(o, random)); }, what);
                 },
                 [&](const VisionOptions& o) -> Network {
                   return reader.read(
                       [&](ParameterReader& r) { return r.filled(VisionTransformer(o, random)); },
                       what);
                 }},
      f.network);
}

} // namespace

struct ImageModel::Impl {
  ImageConfig config;
  Network network;
  std::int64_t bytes;
  DType dtype;
  Compiled<LogitStep> logits{LogitStep{}, {.name = "image model, logits"}};
  Compiled<FeatureStep> features{FeatureStep{}, {.name = "image model, features"}};

  Tensor input(const Tensor& images) const {
    const Shape& shape = images.shape();
    if (images.rank() != 4 || shape[1] != 3 || shape[2] != config.height ||
        shape[3] != config.width)
      fail(ErrorKind::Shape, "ImageModel: images are {}; the model takes [batch, 3, {}, {}]",
           to_string(shape), config.height, config.width);
    return images.to(dtype);
  }
};

ImageModel::ImageModel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ImageModel::~ImageModel() = default;
ImageModel::ImageModel(ImageModel&&) noexcept = default;
ImageModel& ImageModel::operator=(ImageModel&&) noexcept = default;

ImageModel ImageModel::load(const std::filesystem::path& folder, const ImageModelOptions& options) {
  if (options.dtype && !is_float(*options.dtype))
    fail(ErrorKind::DType, "ImageModel: weights in {}; a float is needed", name_of(*options.dtype));
  if (!options.device.empty())
    use_device(options.device);
  ImageFolder f = read_image_folder(folder, options.ignored_keys);
  ParameterReader reader(folder, options.dtype);
  Network network = read_network(reader, f);
  const DType dtype =
      std::visit(overloaded{[](const ResNet& n) { return n.fc.weight.dtype(); },
                            [](const ConvNext& n) { return n.fc.weight.dtype(); },
                            [](const VisionTransformer& n) { return n.head.weight.dtype(); }},
                 network);
  return ImageModel(std::unique_ptr<Impl>(
      new Impl{std::move(f.config), std::move(network), reader.bytes(), dtype}));
}

const ImageConfig& ImageModel::config() const noexcept {
  return impl_->config;
}
std::int64_t ImageModel::weight_bytes() const noexcept {
  return impl_->bytes;
}

Tensor ImageModel::prepared(const Tensor& pixels) const {
  const ImageConfig& c = impl_->config;
  if (pixels.dtype() != DType::U8)
    fail(ErrorKind::DType, "prepared: pixels are u8, got {}", name_of(pixels.dtype()));
  if (pixels.rank() != 3 || (pixels.size(2) != 3 && pixels.size(2) != 1) || pixels.numel() == 0)
    fail(ErrorKind::Shape, "prepared: pixels are {}; [height, width, 3] or [.., 1] are taken",
         to_string(pixels.shape()));
  std::int64_t height = c.height, width = c.width;
  if (c.crop) { // the image's own proportions, its shorter side a little larger than the middle
    const double rows = static_cast<double>(pixels.size(0)),
                 columns = static_cast<double>(pixels.size(1));
    const auto wanted = [&](std::int64_t side) {
      return std::floor(static_cast<double>(side) / *c.crop);
    };
    const double scale = std::max(wanted(c.height) / rows, wanted(c.width) / columns);
    height = std::max(c.height, static_cast<std::int64_t>(std::floor(rows * scale + 1e-9)));
    width = std::max(c.width, static_cast<std::int64_t>(std::floor(columns * scale + 1e-9)));
  }
  const auto middle = [](std::int64_t rest) { // halves to even, as Python rounds
    return static_cast<std::int64_t>(std::nearbyint(static_cast<double>(rest) / 2));
  };
  Tensor x = resized(pixels, height, width, c.interpolation)
                 .narrow(0, middle(height - c.height), c.height)
                 .narrow(1, middle(width - c.width), c.width)
                 .to(DType::F32) *
             (1.0 / 255);
  x = expand(x, {c.height, c.width, 3});
  const auto channels = [](const std::array<double, 3>& a) {
    return tensor(std::vector<float>(a.begin(), a.end()));
  };
  return ((x - channels(c.mean)) / channels(c.deviation)).permute({2, 0, 1});
}

Tensor ImageModel::logits(const Tensor& images) {
  return impl_->logits(impl_->network, impl_->input(images));
}
Tensor ImageModel::features(const Tensor& images) {
  return impl_->features(impl_->network, impl_->input(images));
}

std::vector<ImageGuess> ImageModel::classify(const Tensor& pixels, std::int64_t most) {
  const std::vector<float> chances =
      softmax(logits(prepared(pixels).unsqueeze(0)).squeeze(0), -1).to_vector<float>();
  std::vector<std::size_t> order(chances.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order,
                           [&](std::size_t a, std::size_t b) { return chances[a] > chances[b]; });
  order.resize(std::min(order.size(), static_cast<std::size_t>(std::max<std::int64_t>(most, 0))));
  std::vector<ImageGuess> guesses;
  for (const std::size_t kind : order)
    guesses.push_back({static_cast<std::int64_t>(kind), chances[kind]});
  return guesses;
}

std::vector<std::string> image_architectures() {
  return known_images();
}

} // namespace egret::models
