// Arguments at the ends of 64-bit numbers: each error names the function and what is wrong.
#include "egret/functional.h"
#include "egret/functional/fourier.h"
#include "egret/random.h"
#include "support/message_cases.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace egret {
namespace {

using testing::expect_all;

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max(),
                       kLeast = std::numeric_limits<std::int64_t>::min();
const Tensor x3 = ones({3}), square = ones({3, 3}), picture = ones({1, 4, 2, 2});
constexpr const char* kTooLarge = "9223372036854775807] is too large";

TEST(LargeArguments, MakingTensorsNamesTheFunctionThatWasCalled) {
  expect_all({
      {ErrorKind::Shape, std::string("zeros: f32[") + kTooLarge, [] { zeros({kMost}); }},
      {ErrorKind::Shape, std::string("ones: f32[") + kTooLarge, [] { ones({kMost}); }},
      {ErrorKind::Shape, std::string("full: f32[") + kTooLarge, [] { full({kMost}, 2.5F); }},
      {ErrorKind::Shape, std::string("linspace: f32[") + kTooLarge, [] { linspace(0, 1, kMost); }},
      {ErrorKind::Shape, std::string("arange: i64[") + kTooLarge, [] { arange(0, kMost, 1); }},
      {ErrorKind::Shape, std::string("eye: i64[") + kTooLarge, [] { eye(kMost); }},
      {ErrorKind::Value, "eye: -2 columns; the number must not be negative", [] { eye(3, -2); }},
      {ErrorKind::Shape, std::string("one_hot: i64[") + kTooLarge,
       [] { one_hot(zeros({2}, DType::I64), kMost); }},
      {ErrorKind::Shape, std::string("bincount: i64[") + kTooLarge,
       [] { bincount(zeros({2}, DType::I64), kMost); }},
      {ErrorKind::Shape, "vander: f32[3,9223372036854775807] is too large",
       [] { vander(x3, kMost); }},
      {ErrorKind::Value,
       "tril_indices: the indices of 9223372036854775807 rows and 3 columns are too many",
       [] { tril_indices(kMost, 3); }},
  });
}

TEST(LargeArguments, TransformsAndFramesNameWhatDoesNotFit) {
  const fourier::Complex frames{ones({3, 2}), ones({3, 2})};
  expect_all({
      {ErrorKind::Value, "rfft: n is 9223372036854775807; at most 1099511627776 is possible",
       [] { fourier::rfft(x3, -1, fourier::Norm::Backward, kMost); }},
      {ErrorKind::Value, "irfft: n is 9223372036854775807; at most 1099511627776 is possible",
       [=] { fourier::irfft(frames, kMost); }},
      {ErrorKind::Shape, "stft: 3 samples are too few for frames of 9223372036854775807",
       [] { fourier::stft(x3, kMost); }},
      {ErrorKind::Value, "istft: samples: 4 + 9223372036854775807 overflows 64 bits",
       [=] { fourier::istft(frames, 4, {.hop = kMost}); }},
      {ErrorKind::Value, "istft: hop: 9223372036854775807 * 2 overflows 64 bits",
       [] {
         const Tensor part = ones({3, 3});
         fourier::istft({part, part}, 4, {.hop = kMost});
       }},
      {ErrorKind::Shape, "segment_reduce: f32[9223372036854775807,3] is too large",
       [] {
         segment_reduce(ones({3, 3}), zeros({3}, DType::I64), kMost);
       }},
  });
}

TEST(LargeArguments, CountsThatFitNo64BitNumberAreNoCounts) {
  expect_all({
      {ErrorKind::Value,
       "arange: from -9223372036854775808 to 9223372036854775807 in steps of 1 are too many",
       [] { arange(kLeast, kMost, 1); }},
      {ErrorKind::Value,
       "arange: from 9223372036854775807 to -9223372036854775808 in steps of -1 are too many",
       [] { arange(kMost, kLeast, -1); }},
  });
}

TEST(LargeArguments, ViewsNameTheFunctionAndWhatDoesNotFit) {
  expect_all({
      {ErrorKind::Index,
       "narrow: 9223372036854775807 elements from 1 do not lie within axis 0 of [3]",
       [] { x3.narrow(0, 1, kMost); }},
      {ErrorKind::Value, "reshape: 9223372036854775807 * 9223372036854775807 does not fit 64 bits",
       [] {
         x3.reshape({kMost, kMost});
       }},
      {ErrorKind::Value, "pad: 9223372036854775807 + 3 does not fit",
       [] { pad(x3, {kMost}, {0}); }},
      {ErrorKind::Value, "repeat: 9223372036854775807 * 3 does not fit",
       [] { repeat(x3, {kMost}); }},
      {ErrorKind::Value, "repeat_interleave: 3 * 9223372036854775807 does not fit",
       [] { repeat_interleave(x3, kMost, 0); }},
      {ErrorKind::Value, "diag_embed: a diagonal 9223372036854775807 of [3] is too far out",
       [] { diag_embed(x3, kMost); }},
      {ErrorKind::Value, "diag_embed: a diagonal -9223372036854775808 of [3] is too far out",
       [] { diag(x3, kLeast); }},
      // Its square is no 64-bit number.
      {ErrorKind::Value, "pixel_shuffle: the factor is 4294967296; at most 1048576 is possible",
       [] { pixel_shuffle(picture, std::int64_t{1} << 32); }},
      {ErrorKind::Value, "pixel_unshuffle: the factor is 9223372036854775807; at most 1048576",
       [] {
         pixel_unshuffle(ones({1, 1, 0, 0}), kMost);
       }},
  });
}

TEST(LargeArguments, ListsOfTensorsAreOfALengthThatCanBeHeld) {
  const Tensor line = zeros({std::int64_t{1} << 40});
  const std::string many = "1099511627776 tensors are too many; at most 16777216 are possible";
  expect_all({
      {ErrorKind::Value, "split: " + many, [&] { split(line, 1); }},
      {ErrorKind::Value, "chunk: " + many, [&] { chunk(line, kMost); }},
      {ErrorKind::Value, "unbind: " + many, [&] { unbind(line); }},
      {ErrorKind::Value, "tril_indices: the indices of 1099511627776 rows and 1 columns are too",
       [] { tril_indices(std::int64_t{1} << 40, 1, -(std::int64_t{1} << 40)); }},
  });
  EXPECT_EQ(split(line, kMost).size(), 1u);
  EXPECT_EQ(split(line, std::int64_t{1} << 39).size(), 2u);
  EXPECT_EQ(chunk(x3, kMost).size(), 3u);
}

TEST(LargeArguments, RandomIntegersLieWithinTheirDType) {
  Generator random;
  expect_all({
      {ErrorKind::Value, "randint: [0, 257) does not lie within the numbers of u8",
       [&] { randint({3}, 0, 257, random, DType::U8); }},
      {ErrorKind::Value, "randint: [-1, 5) does not lie within the numbers of u64",
       [&] { randint({3}, -1, 5, random, DType::U64); }},
      {ErrorKind::Value, "randint: [-129, 5) does not lie within the numbers of i8",
       [&] { randint({3}, -129, 5, random, DType::I8); }},
  });
  EXPECT_EQ(randint({3}, 255, 256, random, DType::U8).to_vector<int>(),
            (std::vector<int>{255, 255, 255}));
  EXPECT_EQ(randint({1}, kLeast, kLeast + 1, random).item<std::int64_t>(), kLeast);
}

TEST(LargeArguments, StepsAndDiagonalsBeyondTheAxisMeanWhatTheySay) {
  const Tensor line = arange(3);
  using Ints = std::vector<std::int64_t>;
  EXPECT_EQ(line[Slice(kLeast, kMost, kMost)].to_vector<std::int64_t>(), (Ints{0}));
  EXPECT_EQ(line[Slice(1, {}, kMost)].to_vector<std::int64_t>(), (Ints{1}));
  EXPECT_EQ(line[Slice({}, {}, kLeast)].to_vector<std::int64_t>(), (Ints{2}));
  EXPECT_EQ(line[Slice({}, {}, -3)].to_vector<std::int64_t>(), (Ints{2}));
  EXPECT_EQ(line[Slice(kMost, kLeast, kMost)].to_vector<std::int64_t>(), (Ints{}));
  EXPECT_EQ(zeros({0})[Slice({}, {}, kMost)].shape(), (Shape{0}));
  Tensor changed = arange(3);
  changed.assign({Slice(kLeast, kMost, kMost)}, 7);
  EXPECT_EQ(changed.to_vector<std::int64_t>(), (Ints{7, 1, 2}));

  const std::vector<float> all(9, 1), none(9, 0);
  EXPECT_EQ(tril(square, kMost).to_vector(), all);
  EXPECT_EQ(tril(square, kLeast).to_vector(), none);
  EXPECT_EQ(triu(square, kLeast).to_vector(), all);
  EXPECT_EQ(triu(square, kMost).to_vector(), none);
  EXPECT_EQ(diagonal(square, kLeast).shape(), (Shape{0}));
  EXPECT_EQ(diagonal(square, kMost).shape(), (Shape{0}));
  EXPECT_EQ(tril_indices(2, 2, kMost).shape(), (Shape{2, 4}));
  EXPECT_EQ(tril_indices(2, 2, kLeast).shape(), (Shape{2, 0}));
  EXPECT_EQ(triu_indices(2, 2, kLeast).shape(), (Shape{2, 4}));
  EXPECT_EQ(triu_indices(2, 2, kMost).shape(), (Shape{2, 0}));

  EXPECT_EQ(unfold(arange(5), 0, 2, kMost).to_vector<std::int64_t>(), (Ints{0, 1}));
  EXPECT_EQ(unfold(arange(5), 0, 2, 4).shape(), (Shape{1, 2}));
  EXPECT_EQ(unfold(arange(5), 0, 1, 4).to_vector<std::int64_t>(), (Ints{0, 4}));
  EXPECT_EQ(arange(0, kMost, kMost - 1).to_vector<std::int64_t>(), (Ints{0, kMost - 1}));
  EXPECT_EQ(arange(kLeast, kMost, kMost).to_vector<std::int64_t>(), (Ints{kLeast, -1, kMost - 1}));
  EXPECT_EQ(arange(0, -10, kLeast).to_vector<std::int64_t>(), (Ints{0}));
}

} // namespace
} // namespace egret
