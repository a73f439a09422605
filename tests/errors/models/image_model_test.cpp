// Folders of image models that are damaged, unknown or contradict themselves: refused before work
// starts, with the file and the thing named.
#include "egret/functional.h"
#include "egret/image_model.h"
#include "support/published_models.h"

#include <gtest/gtest.h>

namespace egret::models {
namespace {

class ImageModelErrors : public ::testing::TestWithParam<const char*> {
protected:
  ImageModelErrors() : model_(file()) {}
  std::string file() const { return std::string("images/") + GetParam() + ".json"; }

  void expect(ErrorKind kind, std::initializer_list<const char*> parts) {
    model_.write(folder_.path());
    const std::string message = test::error_of(kind, [&] { ImageModel::load(folder_.path()); });
    for (const char* part : parts)
      EXPECT_NE(message.find(part), std::string::npos) << message << "\n  lacks: " << part;
    model_ = test::PublishedModel(file());
  }

  test::PublishedModel model_;
  test::TempFolder folder_;
};

TEST_P(ImageModelErrors, TensorsAreThoseOfTheConfiguration) {
  const std::string name = model_.tensors.rbegin()->first; // a weight or a bias
  const std::vector<std::int64_t> shape = model_.tensors.at(name).sizes();
  model_.tensors.erase(name);
  expect(ErrorKind::File, {"tensor '", name.c_str(), "' is missing"});
  model_.tensors[name] = zeros({3, 1, 4});
  expect(ErrorKind::File, {"model.safetensors", name.c_str(), "is [3,1,4]"});
  model_.tensors["another.weight"] = zeros({3});
  expect(ErrorKind::File, {"'another.weight' is none that an image model"});
  const auto floats = std::ranges::find_if(
      model_.tensors, [](const auto& one) { return one.first.ends_with("bias"); });
  const std::string bias = floats->first;
  model_.tensors[bias] = zeros(floats->second.shape(), DType::I32);
  expect(ErrorKind::File, {bias.c_str(), "is i32; a float is needed"});
}

TEST_P(ImageModelErrors, UnknownNamesAndKeysAreNamed) {
  const char* key = model_.config.contains("architecture") ? "architecture" : "model_type";
  model_.config[key] = "resnet18d";
  expect(ErrorKind::Unsupported, {"config.json", "'resnet18d'", "convnext_tiny", "resnet50"});
  model_.config["use_registers"] = true;
  expect(ErrorKind::Unsupported, {"config.json", "'use_registers'"});
}

INSTANTIATE_TEST_SUITE_P(Kinds, ImageModelErrors,
                         ::testing::Values("resnet18", "convnext_tiny", "vit_timm", "vit"),
                         [](const auto& info) { return std::string(info.param); });

class TimmErrors : public ImageModelErrors {};
TEST_P(TimmErrors, ArgumentsAndImagesAreKnown) {
  model_.config["model_args"]["stem_type"] = "deep";
  expect(ErrorKind::Unsupported, {"'model_args'", "'stem_type'"});
  model_.config["pretrained_cfg"]["interpolation"] = "lanczos";
  expect(ErrorKind::Unsupported, {"'interpolation'", "'lanczos'", "bicubic"});
  model_.config["pretrained_cfg"]["std"] = {1, 0, 1};
  expect(ErrorKind::File, {"a deviation of 0"});
  model_.config["pretrained_cfg"]["input_size"] = {1, 64, 64};
  expect(ErrorKind::Unsupported, {"'input_size'", "images of 1 channels"});
  model_.config["model_args"]["channels"] = {8, 16};
  model_.config["model_args"]["dims"] = {8, 16};
  const bool resnet = model_.config["architecture"] == "resnet18";
  model_.config["model_args"].erase(resnet ? "dims" : "channels");
  expect(ErrorKind::File, {"has 2 sizes, not 4"});
}
INSTANTIATE_TEST_SUITE_P(Kinds, TimmErrors, ::testing::Values("resnet18", "convnext_tiny"),
                         [](const auto& info) { return std::string(info.param); });

TEST(ImageModelInputs, ImagesMustFit) {
  test::TempFolder folder;
  test::PublishedModel("images/vit.json").write(folder.path());
  ImageModel model = ImageModel::load(folder.path());
  const auto message = [](ErrorKind kind, auto run) { return test::error_of(kind, run); };
  EXPECT_NE(message(ErrorKind::Shape,
                    [&] {
                      (void)model.logits(zeros({1, 3, 30, 32}));
                    })
                .find("the model takes [batch, 3, 32, 32]"),
            std::string::npos);
  EXPECT_NE(message(ErrorKind::DType,
                    [&] {
                      (void)model.prepared(zeros({8, 8, 3}));
                    })
                .find("u8"),
            std::string::npos);
  EXPECT_NE(message(ErrorKind::Shape,
                    [&] {
                      (void)model.prepared(zeros({8, 8, 4}, DType::U8));
                    })
                .find("[height, width, 3]"),
            std::string::npos);
}

} // namespace
} // namespace egret::models
