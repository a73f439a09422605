// What a folder says of a network over images: its kind, its sizes, the images that it takes.
#pragma once

#include "egret/image_model.h"
#include "models/vision/networks.h"

#include <filesystem>
#include <string>
#include <variant>
#include <vector>

namespace egret::models::vision {

struct ImageFolder {
  ImageConfig config;
  std::variant<ResNetOptions, ConvNextOptions, VisionOptions> network;
  bool of_transformers = false; ///< names of parameters are those of transformers, not of timm
};

/// Errors as ImageModel::load().
ImageFolder read_image_folder(const std::filesystem::path& folder,
                              const std::vector<std::string>& ignored_keys);

/// The names that it knows, one for each kind with sizes.
std::vector<std::string> known_images();

} // namespace egret::models::vision
