#include "egret/dtype.h"
#include "egret/scalar.h"
#include "ir/convert.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <random>
#include <sstream>

namespace egret {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<DType> all_types() {
  std::vector<DType> types;
  for (int i = 0; i < kDTypes; ++i)
    types.push_back(static_cast<DType>(i));
  return types;
}

TEST(DTypeTable, NamesReadBack) {
  for (const DType type : all_types())
    EXPECT_EQ(dtype_named(name_of(type)), type);
}

TEST(DTypeTable, PromotionIsSymmetricAndIdempotent) {
  for (const DType a : all_types()) {
    EXPECT_EQ(promote(a, a), a);
    for (const DType b : all_types()) {
      EXPECT_EQ(promote(a, b), promote(b, a));
      EXPECT_EQ(promote(promote(a, b), a), promote(a, b));
    }
  }
}

/// The table of docs/dtypes.md: the first row names the columns.
TEST(DTypeTable, PromotionIsWhatTheDocumentTabulates) {
  std::ifstream file(std::string(EGRET_TEST_SOURCE_DIR) + "/../docs/dtypes.md");
  ASSERT_TRUE(file);
  std::vector<DType> columns;
  int rows = 0;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("| **"))
      continue;
    std::istringstream cells(line);
    std::vector<std::string> words;
    for (std::string word; cells >> word;)
      if (word != "|")
        words.push_back(word.starts_with("**") ? word.substr(2, word.size() - 4) : word);
    if (words[0] == "promote") {
      for (std::size_t i = 1; i < words.size(); ++i)
        columns.push_back(dtype_named(words[i]));
      continue;
    }
    ASSERT_EQ(words.size(), columns.size() + 1) << line;
    for (std::size_t i = 0; i < columns.size(); ++i)
      EXPECT_EQ(promote(dtype_named(words[0]), columns[i]), dtype_named(words[i + 1]))
          << words[0] << " with " << name_of(columns[i]);
    ++rows;
  }
  EXPECT_EQ(rows, kDTypes);
}

TEST(DTypeTable, SumsOfSmallFloatsAccumulateInF32) {
  EXPECT_EQ(accumulator_of(DType::BF16), DType::F32);
  EXPECT_EQ(accumulator_of(DType::F16), DType::F32);
  EXPECT_EQ(accumulator_of(DType::F64), DType::F64);
  EXPECT_EQ(accumulator_of(DType::I8), DType::I8);
}

struct Small {
  DType type;
  int exponent_bits, mantissa_bits;
  bool finite = false; ///< no infinity: all bits set are the only NaN

  std::uint32_t sign() const { return 1u << (exponent_bits + mantissa_bits); }
  /// The first pattern that is no finite number.
  std::uint32_t end() const {
    return finite ? sign() - 1 : ((1u << exponent_bits) - 1) << mantissa_bits;
  }
  /// The value of a pattern by the definition of the format, of the end as if it went on.
  double by_definition(std::uint32_t bits) const {
    const int top = (1 << exponent_bits) - 1, bias = top / 2;
    const int exponent = static_cast<int>(bits >> mantissa_bits) & top;
    const int mantissa = static_cast<int>(bits) & ((1 << mantissa_bits) - 1);
    const double sign_of = bits & sign() ? -1.0 : 1.0;
    if (exponent == 0)
      return sign_of * std::ldexp(mantissa, 1 - bias - mantissa_bits);
    return sign_of * std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
  }
};

class SmallFloats : public testing::TestWithParam<Small> {};

TEST_P(SmallFloats, EveryPatternMeansWhatTheFormatSaysAndReadsBack) {
  const Small format = GetParam();
  for (std::uint32_t bits = 0; bits < 2 * format.sign(); ++bits) {
    const Scalar s = Scalar::from_bits(format.type, bits);
    const std::uint32_t magnitude = bits & (format.sign() - 1);
    const double got = s.as_double();
    if (magnitude >= format.end() && (format.finite || magnitude > format.end())) {
      ASSERT_TRUE(std::isnan(got)) << bits;
      ASSERT_TRUE(std::isnan(Scalar::of(format.type, got).as_double())) << bits;
    } else {
      const double want = magnitude == format.end()
                              ? std::copysign(kInf, format.by_definition(bits))
                              : format.by_definition(bits);
      ASSERT_EQ(got, want) << bits;
      ASSERT_EQ(std::signbit(got), std::signbit(want)) << bits;
      ASSERT_EQ(Scalar::of(format.type, got), s) << bits;
    }
    ASSERT_EQ(parse_scalar(format.type, s.str()), s) << bits << " " << s.str();
  }
}

/// Between two neighbours everything goes to the nearer one, and the middle to the one with an even
/// pattern.
TEST_P(SmallFloats, RoundsToNearestEvenBetweenAllNeighbours) {
  const Small format = GetParam();
  for (std::uint32_t bits = 0; bits < format.end(); ++bits) {
    const double low = format.by_definition(bits), high = format.by_definition(bits + 1);
    const double middle = low + (high - low) / 2;
    const std::uint64_t even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(Scalar::of(format.type, middle).bits, even) << bits;
    ASSERT_EQ(Scalar::of(format.type, std::nextafter(middle, -kInf)).bits, bits) << bits;
    ASSERT_EQ(Scalar::of(format.type, std::nextafter(middle, kInf)).bits, bits + 1) << bits;
    ASSERT_EQ(Scalar::of(format.type, -middle).bits, even | format.sign()) << bits;
  }
  for (double beyond : {1e300, kInf})
    ASSERT_EQ(Scalar::of(format.type, -beyond).bits, format.end() | format.sign());
}

INSTANTIATE_TEST_SUITE_P(Formats, SmallFloats,
                         testing::Values(Small{DType::F16, 5, 10}, Small{DType::BF16, 8, 7},
                                         Small{DType::F8E4M3, 4, 3, true},
                                         Small{DType::F8E5M2, 5, 2}),
                         [](const auto& instance) { return name_of(instance.param.type); });

TEST(Convert, BF16FromF32AgreesWithTheWayThroughF64) {
  std::mt19937 random(1);
  for (int i = 0; i < 1000000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (std::isnan(value))
      continue;
    ASSERT_EQ(bf16_from_f32(value), bf16_from_f64(value)) << value;
  }
}

TEST(ScalarTest, IntegersTruncateAndSaturateFromFloats) {
  EXPECT_EQ(Scalar::of(DType::I8, 127.9).as_int(), 127);
  EXPECT_EQ(Scalar::of(DType::I8, 128.0).as_int(), 127);
  EXPECT_EQ(Scalar::of(DType::I8, -128.9).as_int(), -128);
  EXPECT_EQ(Scalar::of(DType::I8, -1e30).as_int(), -128);
  EXPECT_EQ(Scalar::of(DType::I32, -2.9).as_int(), -2);
  EXPECT_EQ(Scalar::of(DType::U8, -3.0).as_int(), 0);
  EXPECT_EQ(Scalar::of(DType::U8, 300.0).as_int(), 255);
  EXPECT_EQ(Scalar::of(DType::U64, 1e30).bits, ~std::uint64_t{0});
  EXPECT_EQ(Scalar::of(DType::I64, kInf).as_int(), INT64_MAX);
  EXPECT_EQ(Scalar::of(DType::I64, -kInf).as_int(), INT64_MIN);
  EXPECT_EQ(Scalar::of(DType::I64, -0x1p63).as_int(), INT64_MIN);
  EXPECT_EQ(Scalar::of(DType::I32, kNan).as_int(), 0);
  EXPECT_EQ(Scalar::of(DType::F32, 1e30).as_int(), INT64_MAX);
}

TEST(ScalarTest, IntegersWrapFromIntegers) {
  EXPECT_EQ(Scalar::of(DType::I8, std::int64_t{200}).as_int(), -56);
  EXPECT_EQ(Scalar::of(DType::U8, std::int64_t{-1}).as_int(), 255);
  EXPECT_EQ(Scalar::of(DType::I8, std::int64_t{-1}).bits, 0xffu);
  EXPECT_EQ(Scalar::of(DType::U64, std::int64_t{-1}).as_double(), 0x1p64);
}

TEST(ScalarTest, BoolIsWhetherTheValueDiffersFromZero) {
  EXPECT_EQ(Scalar::of(DType::Bool, 0.1).bits, 1u);
  EXPECT_EQ(Scalar::of(DType::Bool, -0.0).bits, 0u);
  EXPECT_EQ(Scalar::of(DType::Bool, kNan).bits, 1u);
  EXPECT_EQ(Scalar::of(DType::Bool, std::int64_t{256}).bits, 1u);
}

TEST(ScalarTest, IntegersRoundOnceToFloats) {
  // Through f64 the low bit would be lost and a tie made of it.
  const std::int64_t above_tie = (std::int64_t{1} << 62) + (std::int64_t{1} << 54) + 1;
  EXPECT_EQ(Scalar::of(DType::BF16, above_tie).as_double(), 0x1p62 + 0x1p55);
  EXPECT_EQ(Scalar::of(DType::BF16, above_tie - 1).as_double(), 0x1p62);
  const std::int64_t above_f32_tie = (std::int64_t{1} << 62) + (std::int64_t{1} << 38) + 1;
  EXPECT_EQ(Scalar::of(DType::F32, above_f32_tie).as_double(), 0x1p62 + 0x1p39);
  EXPECT_EQ(Scalar::of(DType::F32, INT64_MIN).as_double(), -0x1p63);
  EXPECT_EQ(Scalar::of(DType::F16, std::int64_t{65520}).as_double(), kInf);
}

TEST(ScalarTest, EqualityGoesByBits) {
  EXPECT_FALSE(Scalar::of(DType::F32, 0.0) == Scalar::of(DType::F32, -0.0));
  EXPECT_TRUE(Scalar::of(DType::F32, kNan) == Scalar::of(DType::F32, kNan));
}

TEST(ScalarTest, TextIsShortest) {
  EXPECT_EQ(Scalar::of(DType::F32, 0.1).str(), "0.1");
  EXPECT_EQ(Scalar::of(DType::F64, 0.1).str(), "0.1");
  EXPECT_EQ(Scalar::of(DType::BF16, 0.1).str(), "0.1");
  EXPECT_EQ(Scalar::of(DType::F16, 1.0 / 3).str(), "0.3333");
  EXPECT_EQ(Scalar::of(DType::F32, -kInf).str(), "-inf");
  EXPECT_EQ(Scalar::of(DType::F16, kInf).str(), "inf");
  EXPECT_EQ(Scalar::of(DType::BF16, kNan).str(), "nan");
  EXPECT_EQ(Scalar::of(DType::F64, -0.0).str(), "-0");
  EXPECT_EQ(Scalar::of(DType::Bool, 1.0).str(), "true");
  EXPECT_EQ(Scalar::of(DType::I8, -5.0).str(), "-5");
  EXPECT_EQ(Scalar::from_bits(DType::U64, ~std::uint64_t{0}).str(), "18446744073709551615");
}

TEST(ScalarTest, TextOfEveryTypeReadsBack) {
  std::mt19937_64 random(2);
  for (const DType type : all_types())
    for (int i = 0; i < 20000; ++i) {
      const Scalar s = Scalar::from_bits(type, random());
      ASSERT_EQ(parse_scalar(type, s.str()), s) << name_of(type) << " " << s.str();
    }
}

} // namespace
} // namespace egret
