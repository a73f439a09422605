// A residual network as a folder of timm's layout: written, read back by its names, and asked what
// an image shows.
#include <egret/egret.h>

#include <filesystem>
#include <fstream>
#include <iostream>

using namespace egret;

int main() {
  const auto folder = std::filesystem::temp_directory_path() / "egret-example-image-model";
  std::filesystem::create_directories(folder);
  Generator random(1);
  models::ResNet network(
      {.classes = 3, .blocks = {1, 1, 1, 1}, .widths = {8, 16, 24, 32}, .stem = 64}, random);
  save_checkpoint(folder / "model.safetensors", network);
  std::ofstream(folder / "config.json") << R"({
    "architecture": "resnet18", "num_classes": 3, "label_names": ["cat", "dog", "bird"],
    "model_args": {"layers": [1, 1, 1, 1], "channels": [8, 16, 24, 32]},
    "pretrained_cfg": {"input_size": [3, 64, 64], "crop_pct": 0.9}})";

  // The configuration says which tensors there must be; all of that is checked before any is read.
  models::ImageModel model = models::ImageModel::load(folder);
  const Tensor pixels = (rand({80, 100, 3}, random) * 255).to(DType::U8);
  for (const models::ImageGuess& guess : model.classify(pixels, 2))
    std::cout << model.config().labels[static_cast<std::size_t>(guess.kind)] << " "
              << guess.probability << "\n";

  const Tensor images = model.prepared(pixels).unsqueeze(0);
  const bool same = allclose(model.logits(images), network(images), 1e-4, 1e-5).item<bool>();

  // A configuration that contradicts the weights names the tensor.
  std::ofstream(folder / "config.json") << R"({"architecture": "resnet50", "num_classes": 3})";
  bool refused = false;
  try {
    models::ImageModel::load(folder);
  } catch (const Error& error) {
    std::cout << error.what() << "\n";
    refused = error.kind() == ErrorKind::File;
  }
  std::filesystem::remove_all(folder);
  return same && refused ? 0 : 1;
}
