// WAV files and sampling rates.
#include "egret/audio.h"
#include "egret/functional.h"
#include "support/files.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <numbers>

namespace egret::io {
namespace {

template <class... T>
std::string bytes_of(T... values) {
  std::string bytes;
  (bytes.append(reinterpret_cast<const char*>(&values), sizeof values), ...);
  return bytes;
}

std::string wav(std::uint16_t kind, std::uint16_t channels, std::uint16_t bits,
                const std::string& data, const std::string& before = "") {
  const std::string format =
      "fmt " + bytes_of(std::uint32_t{16}, kind, channels, std::uint32_t{8000},
                        std::uint32_t{8000U * channels * bits / 8},
                        static_cast<std::uint16_t>(channels * bits / 8), bits);
  const std::string body =
      "WAVE" + before + format + "data" + bytes_of(static_cast<std::uint32_t>(data.size())) + data;
  return "RIFF" + bytes_of(static_cast<std::uint32_t>(body.size())) + body;
}

class Wav : public ::testing::Test {
protected:
  Sound load(const std::string& content) {
    test::write_file(folder_ / "a.wav", content);
    return load_wav(folder_ / "a.wav");
  }
  test::TempFolder folder_;
};

TEST_F(Wav, EachKindOfSampleIsRead) {
  const std::vector<float> expected = {0.5F, -1.0F, 0.25F};
  const auto check = [&](std::uint16_t kind, std::uint16_t bits, const std::string& data) {
    const Sound sound = load(wav(kind, 1, bits, data));
    EXPECT_EQ(sound.rate, 8000);
    EXPECT_EQ(sound.samples.sizes(), (std::vector<std::int64_t>{1, 3})) << bits;
    EXPECT_EQ(sound.samples.to_vector<float>(), expected) << kind << " " << bits;
  };
  check(1, 8, bytes_of(std::uint8_t{192}, std::uint8_t{0}, std::uint8_t{160}));
  check(1, 16, bytes_of(std::int16_t{1 << 14}, std::int16_t{-32768}, std::int16_t{1 << 13}));
  check(1, 24, std::string("\x00\x00\x40\x00\x00\x80\x00\x00\x20", 9));
  check(1, 32, bytes_of(1 << 30, -2147483647 - 1, 1 << 29));
  check(3, 32, bytes_of(0.5F, -1.0F, 0.25F));
  check(3, 64, bytes_of(0.5, -1.0, 0.25));
}

TEST_F(Wav, ChannelsAndOtherPartsAreToldApart) {
  const std::string other = "LIST" + bytes_of(std::uint32_t{3}) + std::string("abc\0", 4);
  const Sound sound = load(
      wav(1, 2, 16,
          bytes_of(std::int16_t{1 << 14}, std::int16_t{0}, std::int16_t{0}, std::int16_t{1 << 13}),
          other));
  EXPECT_EQ(sound.samples.to_vector<float>(), (std::vector<float>{0.5F, 0, 0, 0.25F}));
  std::string cut = wav(1, 1, 16, bytes_of(std::int16_t{1 << 14}, std::int16_t{1 << 13}));
  cut.resize(cut.size() - 1); // a recording that was broken off
  EXPECT_EQ(load(cut).samples.to_vector<float>(), std::vector<float>{0.5F});
}

TEST_F(Wav, WhatIsSavedIsReadBack) {
  const Sound sound = {tensor({{0.5, -0.25, 2.0}, {0.0, -1.0, -3.0}}).to(DType::F32), 22050};
  save_wav(folder_ / "b.wav", sound);
  const Sound read = load_wav(folder_ / "b.wav");
  EXPECT_EQ(read.rate, 22050);
  EXPECT_EQ(read.samples.to_vector<float>(),
            (std::vector<float>{0.5F, -0.25F, 32767.0F / 32768, 0, -1, -1}));
}

TEST_F(Wav, DamagedFilesAreRefusedWithTheReason) {
  const std::string good = wav(1, 1, 16, bytes_of(std::int16_t{1}));
  const auto refused = [&](const std::string& content, const char* why) {
    const std::string message = test::error_of(ErrorKind::File, [&] { load(content); });
    EXPECT_NE(message.find("a.wav"), std::string::npos) << message;
    EXPECT_NE(message.find(why), std::string::npos) << message;
  };
  refused("RIFF", "a header has 12");
  refused("OggS" + good.substr(4), "does not begin with RIFF");
  refused(good.substr(0, 8) + "AVI " + good.substr(12), "there is no WAVE");
  refused(wav(2, 1, 4, "ab"), "samples of kind 2 and 4 bits");
  refused(wav(1, 1, 12, "ab"), "samples of kind 1 and 12 bits");
  refused(wav(1, 0, 16, "ab"), "0 channels");
  refused(wav(1, 65, 16, "ab"), "65 channels");
  refused(wav(1, 1, 16, "a"), "there are no samples");
  refused(good.substr(0, 36), "'data' is missing");
  refused(good.substr(0, 12) + good.substr(36), "before their format");
  refused(good.substr(0, 12) + "LIST" + bytes_of(std::uint32_t{99}), "has 99 bytes, 0 are left");
}

TEST_F(Wav, ResamplingKeepsToneAndLength) {
  const auto tone = [](std::int64_t rate, std::int64_t count) {
    std::vector<float> samples;
    for (std::int64_t i = 0; i < count; ++i)
      samples.push_back(static_cast<float>(std::sin(
          2 * std::numbers::pi * 440 * static_cast<double>(i) / static_cast<double>(rate))));
    return samples;
  };
  for (const std::int64_t from : {8000, 44100, 48000, 16000}) {
    const auto got = resampled(tensor(tone(from, from / 10)), from, 16000).to_vector<float>();
    const auto expected = tone(16000, 1600);
    ASSERT_EQ(got.size(), expected.size()) << from;
    for (std::size_t i = 100; i + 100 < got.size(); ++i) // away from the ends
      EXPECT_NEAR(got[i], expected[i], 0.01) << from << " at " << i;
  }
  // Rates without a common factor: no more is computed than the samples ask for.
  for (const std::int64_t from : {16777213, 9973}) {
    const std::int64_t count = from / 50, results = (count * 16001 + from - 1) / from;
    const auto got = resampled(tensor(tone(from, count)), from, 16001).to_vector<float>();
    const auto expected = tone(16001, results);
    ASSERT_EQ(got.size(), expected.size()) << from;
    for (std::size_t i = 100; i + 100 < got.size(); ++i)
      EXPECT_NEAR(got[i], expected[i], 0.01) << from << " at " << i;
  }
  EXPECT_THROW(resampled(zeros({7}), 1, INT64_MAX), Error);
  EXPECT_EQ(resampled(ones({7}), INT64_MAX, 1).numel(), 1);
  EXPECT_EQ(resampled(zeros({2, 7}), 3, 2).sizes(), (std::vector<std::int64_t>{2, 5}));
  EXPECT_THROW(resampled(zeros({7}), 0, 2), Error);
  for (const std::vector<std::int64_t>& sizes :
       {std::vector<std::int64_t>{2, 0}, {0}}) // of no samples none
    EXPECT_EQ(resampled(zeros(Shape(sizes.begin(), sizes.end())), 3, 2).sizes(), sizes);
  EXPECT_EQ(resampled(zeros({0, 7}), 3, 2).sizes(), (std::vector<std::int64_t>{0, 5}));
}

} // namespace
} // namespace egret::io
