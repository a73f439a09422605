// egret classify: what is seen in images, by an image model of a folder.
#include "commands.h"
#include "console.h"
#include "effort_options.h"
#include "number_option.h"

#include "egret/image.h"
#include "egret/image_model.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

namespace egret::tool {

namespace {

struct ClassifyOptions {
  std::string model, dtype;
  std::vector<std::string> images, ignored_keys;
  std::int64_t most = 5;
  bool json = false;
};

void classify(const ClassifyOptions& o) {
  std::vector<Tensor> pixels; // refused before weights are read
  for (const std::string& path : o.images)
    pixels.push_back(io::load_image(path));
  models::ImageModelOptions options;
  if (!o.dtype.empty())
    options.dtype = dtype_named(o.dtype);
  options.ignored_keys = o.ignored_keys;
  models::ImageModel model = models::ImageModel::load(o.model, options);
  const std::vector<std::string>& labels = model.config().labels;
  const auto label = [&](std::int64_t kind) {
    return labels.empty() ? std::to_string(kind) : labels[static_cast<std::size_t>(kind)];
  };
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    const auto guesses = model.classify(pixels[i], o.most);
    if (o.json) {
      auto list = nlohmann::ordered_json::array();
      for (const models::ImageGuess& guess : guesses)
        list.push_back({{"kind", guess.kind},
                        {"label", label(guess.kind)},
                        {"probability", guess.probability}});
      fmt::print("{}\n", nlohmann::ordered_json{{"image", o.images[i]}, {"guesses", list}}.dump());
      continue;
    }
    if (pixels.size() > 1)
      fmt::print("{}\n", o.images[i]);
    for (const models::ImageGuess& guess : guesses)
      fmt::print("{:6.2f} %  {}\n", 100 * guess.probability, label(guess.kind));
  }
}

} // namespace

void add_classify_command(CLI::App& app) {
  auto options = std::make_shared<ClassifyOptions>();
  auto* command = app.add_subcommand("classify", "Say what images show");
  command->footer("The likeliest classes of each image, by a ResNet, ConvNeXt or vision\n"
                  "transformer that timm or transformers saved.");
  command->add_option("--model", options->model, "A folder of an image model")->required();
  command->add_option("image", options->images, "PNG, PPM or PGM files")->required();
  command->add_option("--top", options->most, "So many classes of each")
      ->check(whole_within(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--dtype", options->dtype, "Of weights (default: the checkpoint's)")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}));
  command->add_option("--ignore-key", options->ignored_keys,
                      "A key of config.json that egret does not know and may ignore");
  command->add_flag("--json", options->json, "One JSON object an image");
  add_computation(*command, [options] { classify(*options); });
}

} // namespace egret::tool
