// Small integers in bytes, and what products with quantized matrices read.
#include "egret/compile.h"
#include "egret/counters.h"
#include "egret/functional.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace egret {
namespace {

using Bytes = std::vector<std::uint8_t>;

TEST(Packed, TheFirstValueStandsInTheLowestBits) {
  const Tensor nibbles = tensor(Bytes{1, 2, 15, 0, 7, 8});
  EXPECT_EQ(pack_bits(nibbles, 4).to_vector<std::uint8_t>(), (Bytes{0x21, 0x0f, 0x87}));
  EXPECT_EQ(pack_bits(tensor(Bytes{1, 2, 3, 0}), 2).to_vector<std::uint8_t>(), (Bytes{0x39}));
  EXPECT_EQ(pack_bits(tensor(Bytes{1, 0, 0, 0, 1, 0, 0, 1}), 1).to_vector<std::uint8_t>(),
            (Bytes{0x91}));
}

TEST(Packed, EveryByteComesBack) {
  Bytes all(256);
  for (int i = 0; i < 256; ++i)
    all[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(i);
  const Tensor bytes = tensor(all, Shape{2, 128});
  for (int bits : {1, 2, 4}) {
    const Tensor values = unpack_bits(bytes, bits);
    EXPECT_EQ(values.sizes(), (std::vector<std::int64_t>{2, 128 * 8 / bits}));
    EXPECT_EQ(max(values).item<int>(), (1 << bits) - 1);
    EXPECT_EQ(pack_bits(values, bits).to_vector<std::uint8_t>(), all);
  }
}

TEST(Packed, QuantizedValuesAreWithinHalfAStep) {
  Generator g(1);
  const Tensor a = randn({6, 64}, g).eval();
  for (int bits : {2, 4, 8}) {
    const Quantized q = quantize(a, bits, 16);
    EXPECT_EQ(q.packed.sizes(), (std::vector<std::int64_t>{6, 64 * bits / 8}));
    const auto got = dequantize(q).to_vector(), want = a.to_vector(), scale = q.scale.to_vector();
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_LE(std::abs(got[i] - want[i]), 0.5001f * scale[i / 16]) << bits << " " << i;
  }
  EXPECT_EQ(dequantize(quantize(zeros({1, 8}), 4, 8)).to_vector(), std::vector<float>(8));
  const Tensor bad = tensor({1.0f, std::numeric_limits<float>::infinity(), 2.0f, 0.0f});
  for (float v : dequantize(quantize(bad, 4, 4)).to_vector())
    EXPECT_TRUE(std::isnan(v));
}

TEST(Packed, AProductReadsThePackedBytes) {
  constexpr std::int64_t n = 256, k = 512, group = 32;
  Generator g(2);
  const Tensor weight = randn({n, k}, g).eval(), x = randn({1, k}, g).eval();
  const Quantized q = quantize(weight, 4, group);
  eval({q.packed, q.scale});
  const auto want = linear(x, dequantize(q).eval()).to_vector();
  auto product =
      compile([](const Tensor& in, const Quantized& w) { return linear(in, dequantize(w)); });
  product(x, q).eval();
  const Counters before = counters();
  const Tensor y = product(x, q).eval();
  const Counters spent = counters() - before;
  EXPECT_EQ(spent.kernels_launched, 1u) << product.explain();
  EXPECT_LE(spent.bytes_read, std::uint64_t(n * k / 2 + n * k / group * 4 + k * 4));
  const auto got = y.to_vector();
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want[i], 1e-3) << i;
}

TEST(Packed, MistakesAreNamed) {
  auto message = [](auto&& f) -> std::string {
    try {
      f();
    } catch (const Error& e) {
      return e.what();
    }
    return "nothing was thrown";
  };
  const Tensor bytes = zeros({3}, DType::U8);
  EXPECT_EQ(message([&] { pack_bits(bytes, 3); }),
            "pack_bits: integers of 3 bits; there are those of 1, 2 and 4");
  EXPECT_EQ(message([&] { pack_bits(bytes, 4); }),
            "pack_bits: the last dim of [3] is no multiple of 2");
  EXPECT_EQ(message([&] { unpack_bits(zeros({3}), 4); }),
            "unpack_bits: takes u8, got f32; convert with to(DType::U8)");
  EXPECT_EQ(message([&] { quantize(zeros({4}), 4, 3); }),
            "quantize: groups of 3; they hold a multiple of 2 integers of 4 bits");
  EXPECT_EQ(message([&] { quantize(bytes, 4, 2); }).find("quantize"), 0u);
  Quantized q = quantize(zeros({2, 4}), 4, 4);
  q.scale = zeros({2, 2});
  EXPECT_NE(message([&] { dequantize(q); }).find("they must be [2,1]"), std::string::npos);
  q.group = 0;
  EXPECT_EQ(message([&] { dequantize(q); }),
            "dequantize: groups of 0; they hold a multiple of 2 integers of 4 bits");
}

} // namespace
} // namespace egret
