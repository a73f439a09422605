// GGUF files: every type as the Python package gguf reads it, and files that egret writes.
#include "egret/functional.h"
#include "egret/gguf.h"
#include "support/files.h"
#include "support/golden.h"

#include <gtest/gtest.h>

namespace egret::io {
namespace {

std::filesystem::path golden_file() {
  return std::string(EGRET_TEST_SOURCE_DIR) + "/golden/gguf/types.gguf";
}

TEST(Gguf, ReadsEveryTypeAsThePythonPackageDoes) {
  const GgufFile file(golden_file());
  const nlohmann::json& values = test::golden("gguf/types.json");
  ASSERT_EQ(file.tensors().size(), values.size());
  for (const GgufTensorInfo& info : file.tensors()) {
    EXPECT_EQ(info.shape, (std::vector<std::int64_t>{1, 256})) << info.name;
    test::expect_golden(file.read(info.name).to_vector<double>(), values[info.name], 1e-6,
                        info.name);
    test::expect_golden(dequantized(info.type, file.read_bytes(info.name)).to_vector<double>(),
                        values[info.name], 1e-6, info.name + " from bytes");
  }
}

TEST(Gguf, ReadsMetadata) {
  const GgufFile file(golden_file());
  const GgufMetadata& meta = file.metadata();
  EXPECT_EQ(meta.at("test.u32"), GgufValue(std::int64_t(7)));
  EXPECT_EQ(meta.at("test.i32"), GgufValue(std::int64_t(-7)));
  EXPECT_EQ(meta.at("test.f32"), GgufValue(0.5));
  EXPECT_EQ(meta.at("test.bool"), GgufValue(true));
  EXPECT_EQ(meta.at("test.text"), GgufValue(std::string("h\xc3\xa4h")));
  EXPECT_EQ(meta.at("test.texts"), GgufValue(std::vector<std::string>{"a", "", "bc"}));
  EXPECT_EQ(meta.at("test.numbers"), GgufValue(std::vector<std::int64_t>{1, 2, 3}));
}

TEST(Gguf, ReadsWhatItWrites) {
  test::TempFolder folder;
  const Tensor a = test::golden_data({3, 64}, 1), b = test::golden_data({5}, 2);
  const GgufMetadata meta = {{"a.flag", true},
                             {"a.long", std::int64_t(1) << 40},
                             {"a.negative", std::int64_t(-3)},
                             {"a.number", 0.1},
                             {"a.texts", std::vector<std::string>{"x", "yz"}}};
  const std::vector<GgufTensor> tensors = {{"a", a, GgmlType::F32},
                                           {"a.f16", a, GgmlType::F16},
                                           {"a.bf16", a, GgmlType::BF16},
                                           {"a.q8_0", a, GgmlType::Q8_0},
                                           {"b", b, GgmlType::F32}};
  save_gguf(folder / "a.gguf", meta, tensors);
  const GgufFile file(folder / "a.gguf");
  EXPECT_EQ(file.metadata(), meta);
  EXPECT_EQ(file.read("a").to_bytes(), a.to_bytes());
  EXPECT_EQ(file.read("b").to_bytes(), b.to_bytes());
  EXPECT_EQ(file.read("a.f16").to_bytes(), a.to(DType::F16).to_bytes());
  EXPECT_EQ(file.read("a.bf16").to_bytes(), a.to(DType::BF16).to_bytes());
  const auto want = a.to_vector<double>(), got = file.read("a.q8_0").to_vector<double>();
  for (std::size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(got[i], want[i], 1.0 / 127) << i; // half a step, and the scale's rounding
}

} // namespace
} // namespace egret::io
