// Image classifiers from published checkpoints: ResNet, ConvNeXt and vision transformers.
#pragma once

#include "egret/functional/convolutions.h"
#include "egret/tensor.h"

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace egret::models {

/// What a folder says of a model and of the images that it takes.
struct ImageConfig {
  std::string architecture; ///< of timm, as "resnet50", or a model_type, as "vit"
  std::int64_t classes = 0;
  std::int64_t height = 224, width = 224;
  std::array<double, 3> mean = {0.5, 0.5, 0.5}, deviation = {0.5, 0.5, 0.5}; ///< of 0 to 1
  /// The side of the middle that is taken, over that of the resized image; nothing: the whole
  /// image, whatever its proportions.
  std::optional<double> crop;
  Interpolation interpolation = Interpolation::Linear; ///< of resizing: Linear or Cubic
  std::vector<std::string> labels; ///< of the classes; empty where the folder has none
};

struct ImageModelOptions {
  std::string device = {};                    ///< as use_device(); empty: the one in use
  std::optional<DType> dtype = {};            ///< of weights; empty: that of the checkpoint
  std::vector<std::string> ignored_keys = {}; ///< of config.json that egret does not know
};

struct ImageGuess {
  std::int64_t kind = 0;
  double probability = 0;
};

/// A classifier with its weights. One thread at a time.
class ImageModel {
public:
  /// Reads a folder in the layout of Hugging Face's hub, of timm or of transformers
  /// (docs/encoders.md lists the architectures). Configuration and list of tensors are checked
  /// before any weight is read: Error(Unsupported) for an architecture, an argument or a key that
  /// egret does not know, Error(File) for damaged files and for a tensor that is missing,
  /// superfluous, of another kind or of another shape than the configuration says; each names file
  /// and thing.
  static ImageModel load(const std::filesystem::path& folder,
                         const ImageModelOptions& options = {});
  ~ImageModel();
  ImageModel(ImageModel&&) noexcept;
  ImageModel& operator=(ImageModel&&) noexcept;

  const ImageConfig& config() const noexcept;
  std::int64_t weight_bytes() const noexcept;

  /// What the model takes, f32 [3, height, width], of pixels u8 [height, width, 3] (or 1 for grey):
  /// resized as Pillow does, cut, scaled to mean and deviation. Error(Shape), Error(DType) for
  /// other pixels.
  Tensor prepared(const Tensor& pixels) const;

  /// Logits f32 [batch, classes] of images as prepared() makes them, [batch, 3, height, width].
  /// Error(Shape) for others.
  Tensor logits(const Tensor& images);
  /// What the last layer makes the logits of, f32 [batch, features]. Errors as logits().
  Tensor features(const Tensor& images);

  /// The likeliest classes of an image, pixels as prepared() takes them, the likeliest first.
  std::vector<ImageGuess> classify(const Tensor& pixels, std::int64_t most = 5);

private:
  struct Impl;
  explicit ImageModel(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// The architectures that ImageModel reads.
std::vector<std::string> image_architectures();

} // namespace egret::models
