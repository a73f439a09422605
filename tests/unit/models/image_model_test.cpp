// Image models from folders give the logits that timm and transformers give, and images are resized
// as Pillow does (tests/golden/make_images.py).
#include "egret/image_model.h"
#include "models/vision/resize.h"
#include "support/published_models.h"

#include <gtest/gtest.h>

namespace egret::models {
namespace {

using test::PublishedModel;

class ImageModels : public ::testing::TestWithParam<const char*> {};

TEST_P(ImageModels, FolderGivesTheLogitsOfItsLibrary) {
  test::TempFolder folder;
  const PublishedModel model(std::string("images/") + GetParam() + ".json");
  model.write(folder.path());
  ImageModel network = ImageModel::load(folder.path());
  const std::int64_t size = model.golden["size"];
  EXPECT_EQ(network.config().height, size);
  EXPECT_EQ(network.config().classes, 5);
  const Tensor images = test::golden_data({2, 3, size, size}, 4999);
  test::expect_golden(network.logits(images).to_vector<double>(), model.golden["logits"], 1e-4,
                      GetParam());
  EXPECT_EQ(network.features(images).size(0), 2);
}

INSTANTIATE_TEST_SUITE_P(All, ImageModels,
                         ::testing::Values("resnet18", "resnet50", "resnext50", "convnext_tiny",
                                           "convnext_atto", "convnextv2_tiny", "vit_timm", "vit"),
                         [](const auto& info) { return std::string(info.param); });

TEST(ImageResize, PixelsAreThoseOfPillow) {
  std::vector<std::uint8_t> bytes;
  for (const double x : test::golden_numbers(21 * 34 * 3, 7))
    bytes.push_back(static_cast<std::uint8_t>((x + 1) * 127.99));
  const Tensor picture = tensor(bytes, Shape{21, 34, 3});
  for (const nlohmann::json& one : test::golden("images/resize.json")) {
    const auto kind = one["kind"] == "bicubic" ? Interpolation::Cubic : Interpolation::Linear;
    const auto got = vision::resized(picture, one["height"], one["width"], kind).to_vector<int>();
    const auto expected = one["pixels"].get<std::vector<int>>();
    for (std::size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(got[5 * i], expected[i], 1) << one["kind"] << " " << one["width"] << " at " << i;
  }
}

TEST(ImageModelTest, ImagesArePreparedAndNamed) {
  test::TempFolder folder;
  PublishedModel model("images/vit.json");
  model.write(folder.path());
  test::write_json(folder / "preprocessor_config.json",
                   {{"image_mean", {0.5, 0.25, 0}}, {"image_std", {0.5, 0.5, 1}}, {"resample", 3}});
  ImageModel network = ImageModel::load(folder.path());
  EXPECT_EQ(network.config().labels[3], "kind 3");
  const Tensor grey = full({40, 50, 1}, 255, DType::U8);
  const Tensor prepared = network.prepared(grey);
  EXPECT_EQ(prepared.sizes(), (std::vector<std::int64_t>{3, 32, 32}));
  for (const auto& [channel, value] : {std::pair{0, 1.0}, {1, 1.5}, {2, 1.0}})
    EXPECT_NEAR(prepared[channel].mean().item(), value, 1e-6);
  const auto guesses = network.classify(grey, 3);
  ASSERT_EQ(guesses.size(), 3U);
  EXPECT_GE(guesses[0].probability, guesses[1].probability);
  const Tensor logits = network.logits(prepared.unsqueeze(0));
  EXPECT_EQ(guesses[0].kind, argmax(logits[0], 0).item());
}

TEST(ImageModelTest, TheMiddleIsTakenAsTimmTakesIt) {
  test::TempFolder folder;
  PublishedModel model("images/resnet18.json"); // 64 of 73 pixels: 0.875
  model.write(folder.path());
  const ImageModel network = ImageModel::load(folder.path());
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(73 * 146));
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::uint8_t>(i % 146);
  const Tensor prepared = network.prepared(tensor(bytes, Shape{73, 146, 1}));
  // Columns 41 to 104 (82 / 2 = 41), as no size changes.
  EXPECT_NEAR(prepared[0][0][0].item() * 0.229 + 0.485, 41.0 / 255, 1e-5);
  EXPECT_NEAR(prepared[0][63][63].item() * 0.229 + 0.485, 104.0 / 255, 1e-5);
}

} // namespace
} // namespace egret::models
