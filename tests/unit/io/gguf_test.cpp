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

TEST(Gguf, PackedKQuantsHaveTheSameValues) {
  const GgufFile file(golden_file());
  int count = 0;
  for (const GgufTensorInfo& info : file.tensors()) {
    if (info.type < GgmlType::Q2_K || info.type > GgmlType::Q6_K)
      continue;
    const Tensor bytes = file.read_bytes(info.name);
    const BlockQuantized packed = packed_k_blocks(info.type, bytes);
    EXPECT_EQ(dequantize(packed).to_vector<float>(),
              dequantized(info.type, bytes).to_vector<float>())
        << info.name;
    EXPECT_LE(packed.packed.numel(), 256);
    ++count;
  }
  EXPECT_EQ(count, 5);
  EXPECT_THROW(packed_k_blocks(GgmlType::Q4_0, zeros({1, 18}, DType::U8)), Error);
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

namespace egret::io {
namespace {

// Each value is off by at most half a step of its 32 neighbours, but for the rounding of scales and
// minima to 6 bits, an eighth of a step each at 4 bits' 15 steps and above.
TEST(GgufBlocks, Q4KIsWrittenWithinItsSteps) {
  std::vector<float> values;
  std::uint64_t state = 1;
  for (int i = 0; i < 3 * 512; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const double x = static_cast<double>(state >> 33U) / (1U << 30U) - 1;
    values.push_back(static_cast<float>(i / 32 % 5 == 0 ? 0 : x * (1 + i / 32 % 3) + i / 64 % 2));
  }
  const Tensor exact = tensor(values, Shape{3, 512});
  const Tensor bytes = quantized_blocks(GgmlType::Q4_K, exact);
  EXPECT_EQ(bytes.sizes(), (std::vector<std::int64_t>{3, 2 * 144}));
  const auto got = dequantized(GgmlType::Q4_K, bytes).to_vector<float>();
  for (std::size_t group = 0; group < values.size(); group += 32) {
    // Scales and minima of a block are multiples of the 63rd part of its largest ones.
    const std::size_t block = group / 256 * 256;
    const auto span_of = [&](std::size_t at, std::size_t count) {
      const auto [low, high] = std::minmax_element(values.begin() + std::ptrdiff_t(at),
                                                   values.begin() + std::ptrdiff_t(at + count));
      return std::pair(std::min(*low, 0.0F), std::max(*high, 0.0F));
    };
    float widest = 0, deepest = 0;
    for (std::size_t at = block; at < block + 256; at += 32) {
      const auto [low, high] = span_of(at, 32);
      widest = std::max(widest, high - low);
      deepest = std::max(deepest, -low);
    }
    const auto [low, high] = span_of(group, 32);
    const float step = (high - low) / 15;
    const float most = step / 2 + (widest + deepest) / 126 + 0.002F * (high - low);
    for (std::size_t i = group; i < group + 32; ++i)
      EXPECT_NEAR(got[i], values[i], most) << i;
  }
}

} // namespace
} // namespace egret::io
