// Folders of quantized weights that are refused, and what cannot be quantized.
#include "egret/functional.h"
#include "egret/language_model.h"
#include "support/files.h"
#include "support/language_models.h"

#include <gtest/gtest.h>

namespace egret::models {
namespace {

class QuantizedErrors : public testing::Test {
protected:
  const nlohmann::json& golden_ = test::golden_language("llama");
  test::TempFolder folder_;

  /// What is said of the folder with a tensor put (or with an empty value removed).
  std::string refused(const std::string& name, const Tensor& value) {
    io::TensorMap tensors = test::language_tensors(golden_);
    const std::string matrix = "model.layers.0.mlp.up_proj.weight";
    tensors.erase(matrix);
    tensors[matrix + ".int8"] = zeros({48, 32}, DType::U8);
    tensors[matrix + ".scale"] = ones({48, 2});
    tensors.erase(name);
    if (value.defined())
      tensors[name] = value;
    test::write_language_folder(folder_.path(), golden_["config"], tensors);
    return test::error_of(ErrorKind::File, [&] { LanguageModel::load(folder_.path()); });
  }
};

TEST_F(QuantizedErrors, IntegersAndScalesThatDoNotFit) {
  const std::string matrix = "model.layers.0.mlp.up_proj.weight";
  const auto contains = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  contains(refused(matrix + ".scale", {}), "has no scales");
  contains(refused(matrix + ".scale", ones({48, 5})), "these are no groups of it");
  contains(refused(matrix + ".scale", ones({47, 2})), "these are no groups of it");
  contains(refused(matrix + ".scale", ones({48, 0})), "these are no groups of it");
  contains(refused(matrix + ".scale", zeros({48, 2}, DType::I32)), "with scales in floats");
  contains(refused(matrix + ".int8", zeros({48, 32}, DType::I8)), "is no matrix of u8");
  contains(refused(matrix + ".int8", zeros({48, 16}, DType::U8)), "is [48,16], the configuration");
  contains(refused(matrix, zeros({48, 32})), "is there in another form too");
  contains(refused(matrix + ".int4", zeros({48, 16}, DType::U8)), "is there in another form too");
}

TEST_F(QuantizedErrors, ZeroPointsAndFloatsThatDoNotFit) {
  const auto refused_with = [&](const io::TensorMap& parts) {
    const std::string matrix = "model.layers.0.mlp.up_proj.weight";
    io::TensorMap tensors = test::language_tensors(golden_);
    tensors.erase(matrix);
    for (const auto& [end, value] : parts)
      tensors[matrix + end] = value;
    test::write_language_folder(folder_.path(), golden_["config"], tensors);
    return test::error_of(ErrorKind::File, [&] { LanguageModel::load(folder_.path()); });
  };
  const auto contains = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  const Tensor packed = zeros({48, 16}, DType::U8), scale = ones({48, 2});
  contains(refused_with({{".uint4", packed}, {".scale", scale}}), "has no zero points");
  contains(refused_with({{".uint4", packed}, {".scale", scale}, {".zero", scale}}),
           "has zero points in f32 [48,2]; u8 [48,2] is needed");
  contains(
      refused_with({{".uint4", packed}, {".scale", scale}, {".zero", zeros({48, 1}, DType::U8)}}),
      "u8 [48,2] is needed");
  contains(refused_with({{".f8e4m3", zeros({48, 32}, DType::U8)}, {".scale", scale}}),
           "is no matrix of f8e4m3 with scales in floats");
}

TEST_F(QuantizedErrors, WhatCannotBeQuantized) {
  test::write_language_folder(folder_.path(), golden_["config"], test::language_tensors(golden_));
  const auto refusal = [&](ErrorKind kind, const std::filesystem::path& out, QuantizeOptions how) {
    return test::error_of(kind, [&] { (void)quantize_language_model(folder_.path(), out, how); });
  };
  const std::filesystem::path out = folder_ / "out";
  EXPECT_EQ(test::error_of(ErrorKind::Value, [] { (void)weight_form_named("int3"); }),
            "quantize: there is no form 'int3'; there are int8, int4, uint4, f8e4m3");
  EXPECT_EQ(refusal(ErrorKind::Value, out, {.group = 3}),
            "quantize: groups of 3; they hold a multiple of 2 values");
  EXPECT_NE(
      refusal(ErrorKind::Value, out, {}).find("down_proj.weight' has rows of 48; groups of 32"),
      std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(out));
  EXPECT_NE(refusal(ErrorKind::File, folder_.path(), {}).find("not empty"), std::string::npos);
  (void)quantize_language_model(folder_.path(), out, {.form = WeightForm::Int8});
  EXPECT_NE(test::error_of(ErrorKind::Value,
                           [&] { (void)quantize_language_model(out, folder_ / "again", {}); })
                .find("is quantized already"),
            std::string::npos);
}

} // namespace
} // namespace egret::models
