// Quantized weights stay packed in memory and give the logits of dequantized ones.
#include "egret/functional.h"
#include "egret/language_model.h"
#include "support/files.h"
#include "support/language_models.h"

#include <cmath>
#include <gtest/gtest.h>
#include <tuple>

namespace egret::models {
namespace {

using test::golden_language;

void expect_near(const std::vector<float>& a, const std::vector<float>& b, float tolerance) {
  ASSERT_EQ(a.size(), b.size());
  float most = 0, off = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::fabs(b[i]));
    off = std::max(off, std::fabs(a[i] - b[i]));
  }
  EXPECT_LE(off, tolerance * most);
}

/// Logits of both ways agree, and so do texts written through the cache; how many bytes packing
/// saves.
std::int64_t saved_bytes(const std::filesystem::path& path, const std::vector<int>& prompt) {
  LanguageModel packed = LanguageModel::load(path);
  LanguageModel floats = LanguageModel::load(path, {.dequantize = true});
  expect_near(packed.logits(prompt).to_vector<float>(), floats.logits(prompt).to_vector<float>(),
              1e-5F);
  const GenerateOptions few = {.max_new = 12, .stop = std::vector<int>{}};
  EXPECT_EQ(packed.generate(prompt, few).tokens, floats.generate(prompt, few).tokens);
  return floats.weight_bytes() - packed.weight_bytes();
}

class QuantizedGguf
    : public ::testing::TestWithParam<std::tuple<const char*, io::GgmlType, std::int64_t>> {};

TEST_P(QuantizedGguf, StaysPackedAndGivesTheSameLogits) {
  const auto& [name, type, block_bytes] = GetParam();
  test::TempFolder folder;
  const nlohmann::json& golden = golden_language(name);
  const std::filesystem::path path = folder / "model.gguf";
  test::write_gguf(path, golden, type);
  std::int64_t expected = 0;
  const io::GgufFile file(path);
  for (const io::GgufTensorInfo& info : file.tensors())
    // Routers become floats.
    if (info.type == type && info.name.find("ffn_gate_inp") == std::string::npos) {
      std::int64_t count = 1;
      for (const std::int64_t dim : info.shape)
        count *= dim;
      expected += 4 * count - count / 32 * block_bytes;
    }
  EXPECT_GT(expected, 0);
  EXPECT_EQ(saved_bytes(path, golden["prompt"].get<std::vector<int>>()), expected);
}

INSTANTIATE_TEST_SUITE_P(
    Some, QuantizedGguf,
    ::testing::Values(std::tuple("llama", io::GgmlType::Q8_0, 34),
                      std::tuple("llama", io::GgmlType::Q4_0, 18),
                      std::tuple("mixtral", io::GgmlType::Q8_0, 34), // experts
                      std::tuple("gemma2", io::GgmlType::Q4_0, 18),  // a tied head
                      std::tuple("phi3", io::GgmlType::Q8_0, 34)),   // fused matrices
    [](const auto& info) {
      return std::string(std::get<0>(info.param)) + "_" + io::info_of(std::get<1>(info.param)).name;
    });

class QuantizedFolder
    : public ::testing::TestWithParam<std::tuple<const char*, WeightForm, std::int64_t, double>> {};

TEST_P(QuantizedFolder, IsWrittenPackedAndGivesTheSameLogits) {
  const auto& [name, form, group, most_error] = GetParam();
  test::TempFolder folder;
  const nlohmann::json& golden = golden_language(name);
  test::write_language_folder(folder.path(), golden["config"], test::language_tensors(golden));
  test::write_file(folder / "tokenizer.json", "{}");
  const std::filesystem::path out = folder / "small";
  const auto report = quantize_language_model(folder.path(), out, {.form = form, .group = group});
  EXPECT_TRUE(std::filesystem::exists(out / "tokenizer.json"));
  ASSERT_FALSE(report.empty());
  std::int64_t saved = 0;
  for (const QuantizedMatrix& matrix : report) {
    EXPECT_GT(matrix.error, 0) << matrix.name;
    EXPECT_LT(matrix.error, most_error) << matrix.name;
    saved += matrix.bytes_before - matrix.bytes_after;
  }
  const auto prompt = golden["prompt"].get<std::vector<int>>();
  EXPECT_EQ(saved_bytes(out, prompt), saved);
  if (form == WeightForm::Int8) {
    LanguageModel before = LanguageModel::load(folder.path()), after = LanguageModel::load(out);
    expect_near(after.logits(prompt).to_vector<float>(), before.logits(prompt).to_vector<float>(),
                0.1F);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Some, QuantizedFolder,
    ::testing::Values(std::tuple("llama", WeightForm::Int8, 0, 0.02),
                      std::tuple("llama", WeightForm::Int4, 16, 0.2),
                      std::tuple("gpt2", WeightForm::Int4, 0, 0.2), // transposed matrices
                      std::tuple("qwen3_moe", WeightForm::Int8, 0, 0.02),
                      std::tuple("phi3", WeightForm::Int4, 8, 0.2),
                      std::tuple("llama", WeightForm::Uint4, 16, 0.12),
                      std::tuple("gpt2", WeightForm::Uint4, 32, 0.13),
                      std::tuple("mixtral", WeightForm::Uint4, 16, 0.12),
                      std::tuple("llama", WeightForm::F8E4M3, 0, 0.04),
                      std::tuple("qwen3_moe", WeightForm::F8E4M3, 8, 0.04),
                      std::tuple("gpt2", WeightForm::F8E4M3, 0, 0.04)),
    [](const auto& info) {
      return std::string(std::get<0>(info.param)) + "_" +
             weight_form_names()[static_cast<std::size_t>(std::get<1>(info.param))] + "_" +
             std::to_string(std::get<2>(info.param));
    });

TEST(QuantizedFolders, BecomeFloatsUnderTheNamesOfTransformers) {
  for (const auto& [name, form] :
       {std::pair("gpt2", WeightForm::Int4), // transposed matrices
        std::pair("mixtral", WeightForm::Uint4), std::pair("phi3", WeightForm::F8E4M3)}) {
    test::TempFolder folder;
    const nlohmann::json& golden = golden_language(name);
    const io::TensorMap before = test::language_tensors(golden);
    test::write_language_folder(folder.path(), golden["config"], before);
    test::write_file(folder / "tokenizer.json", "{}");
    const std::filesystem::path small = folder / "small", plain = folder / "plain",
                                half = folder / "half";
    (void)quantize_language_model(folder.path(), small, {.form = form, .group = 8});
    dequantize_language_model(small, plain);
    const io::TensorMap after = io::load_safetensors(plain / "model.safetensors");
    for (const auto& [tensor, value] : after) {
      EXPECT_EQ(value.sizes(), before.at(tensor).sizes()) << tensor;
      EXPECT_EQ(value.dtype(), before.at(tensor).dtype()) << tensor;
    }
    EXPECT_TRUE(std::filesystem::exists(plain / "tokenizer.json"));
    const auto prompt = golden["prompt"].get<std::vector<int>>();
    EXPECT_EQ(LanguageModel::load(plain).logits(prompt).to_bytes(),
              LanguageModel::load(small, {.dequantize = true}).logits(prompt).to_bytes());
    dequantize_language_model(small, half, {.dtype = DType::F16});
    const io::TensorMap halves = io::load_safetensors(half / "model.safetensors");
    EXPECT_TRUE(std::ranges::any_of(
        halves, [](const auto& one) { return one.second.dtype() == DType::F16; }));
    for (const auto& [tensor, value] : halves)
      if (value.dtype() == DType::F16) {
        EXPECT_EQ(value.to_bytes(), after.at(tensor).to(DType::F16).to_bytes()) << tensor;
      }
    test::error_of(ErrorKind::Value, [&] { dequantize_language_model(plain, folder / "again"); });
    test::error_of(ErrorKind::DType, [&] {
      dequantize_language_model(small, folder / "again", {.dtype = DType::I8});
    });
    EXPECT_FALSE(std::filesystem::exists(folder / "again"));
  }
}

TEST(QuantizedFolders, ExpertsOfALayerAreAllOfOneForm) {
  test::TempFolder folder;
  const nlohmann::json& golden = golden_language("qwen3_moe");
  io::TensorMap tensors = test::language_tensors(golden);
  test::write_language_folder(folder.path(), golden["config"], tensors);
  const auto load = [&](const std::filesystem::path& path) {
    try {
      (void)LanguageModel::load(path);
      ADD_FAILURE() << "it was loaded";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::File);
      return std::string(error.what());
    }
    return std::string();
  };
  const std::filesystem::path eight = folder / "eight", four = folder / "four";
  (void)quantize_language_model(folder.path(), eight, {.form = WeightForm::Int8});
  (void)quantize_language_model(folder.path(), four, {.form = WeightForm::Int4, .group = 4});
  const std::string name = "model.layers.0.mlp.experts.1.up_proj.weight";
  ASSERT_TRUE(tensors.contains(name));
  const io::TensorMap other = io::load_safetensors(four / "model.safetensors");
  for (const bool floats : {true, false}) {
    io::TensorMap mixed = io::load_safetensors(eight / "model.safetensors");
    ASSERT_EQ(mixed.erase(name + ".int8"), 1U);
    ASSERT_EQ(mixed.erase(name + ".scale"), 1U);
    if (floats) {
      mixed.emplace(name, tensors.at(name));
    } else {
      mixed.emplace(name + ".int4", other.at(name + ".int4"));
      mixed.emplace(name + ".scale", other.at(name + ".scale"));
    }
    io::save_safetensors(eight / "mixed.safetensors", mixed);
    std::filesystem::rename(eight / "mixed.safetensors", eight / "model.safetensors");
    const std::string said = load(eight);
    EXPECT_NE(said.find("'" + name + "' is packed otherwise"), std::string::npos) << said;
    (void)LanguageModel::load(eight, {.dequantize = true}); // there all are floats
    std::filesystem::remove_all(eight);
    (void)quantize_language_model(folder.path(), eight, {.form = WeightForm::Int8});
  }
}

TEST(QuantizedFolders, KeysThatAreNotKnownAreRefusedOrIgnored) {
  test::TempFolder folder;
  const nlohmann::json& golden = golden_language("llama");
  nlohmann::json config = golden["config"];
  config["future_feature"] = 2;
  test::write_language_folder(folder.path(), config, test::language_tensors(golden));
  try {
    (void)quantize_language_model(folder.path(), folder / "small");
    ADD_FAILURE() << "it was quantized";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Unsupported);
    EXPECT_NE(std::string(error.what()).find("'future_feature'"), std::string::npos);
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "small"));
  EXPECT_FALSE(
      quantize_language_model(folder.path(), folder / "small",
                              {.form = WeightForm::Int8, .ignored_keys = {"future_feature"}})
          .empty());
}

TEST(QuantizedBlocks, AreTheirValuesAsIntegersWithScales) {
  Generator random(3);
  Tensor values = randn({5, 96}, random);
  values.eval();
  for (const io::GgmlType type : {io::GgmlType::Q8_0, io::GgmlType::Q4_0}) {
    const Tensor bytes = io::quantized_blocks(type, values);
    const Tensor expected = io::dequantized(type, bytes);
    const Quantized q = io::packed_blocks(type, bytes);
    EXPECT_EQ(q.packed.numel() + 2 * q.scale.numel(), bytes.numel());
    const Tensor got = dequantize({q.packed, q.scale.to(DType::F32), q.bits, q.group});
    EXPECT_EQ(got.to_vector<float>(), expected.to_vector<float>());
    // Half a step, and the rounding of the scale to f16 over 127 steps; Q4_0's largest positive
    // values may be a whole step off.
    const Tensor step = q.scale.to(DType::F32).abs().unsqueeze(-1);
    const double limit = type == io::GgmlType::Q8_0 ? 0.57 : 1.01;
    const Tensor off = (expected - values).abs().reshape({5, 3, 32}) - step * limit;
    EXPECT_LE(off.max().item(), 0);
  }
}

TEST(QuantizedBlocks, KeepValuesThatAreWholeSteps) {
  // -8 .. 7 times a power of two, in the order of ggml: low nibbles first.
  std::vector<float> values;
  for (int i = 0; i < 32; ++i)
    values.push_back(0.5F * static_cast<float>(i % 16 - 8));
  const Tensor bytes = io::quantized_blocks(io::GgmlType::Q4_0, tensor(values));
  EXPECT_EQ(io::dequantized(io::GgmlType::Q4_0, bytes).to_vector<float>(), values);
  const auto raw = bytes.to_vector<std::uint8_t>();
  EXPECT_EQ(raw[0] + 256 * raw[1], 0x3800) << "the scale 0.5 in f16";
  EXPECT_EQ(raw[2], 0x00) << "-8 is 0, of values 0 and 16";
  EXPECT_EQ(raw[17], 0xff);
}

} // namespace
} // namespace egret::models
