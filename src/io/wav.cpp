// WAV: chunks of an id, a size and so many bytes, padded to even ones; "fmt " says what "data"
// holds.
#include "egret/audio.h"
#include "egret/functional.h"
#include "io/byte_order.h"
#include "io/file.h"
#include "io/tensor_bytes.h"
#include "support/checked.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numbers>
#include <numeric>
#include <optional>

namespace egret::io {

namespace {

constexpr std::uint16_t kIntegers = 1, kFloats = 3, kExtensible = 0xFFFE;
constexpr std::int64_t kMostChannels = 64, kMostRate = 1 << 24;

template <class T>
T number_at(const InputFile& file, std::uint64_t at) {
  T value = {};
  file.read_at(at, std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

std::string_view text_at(const InputFile& file, std::uint64_t at, std::array<char, 4>& buffer) {
  file.read_at(at, std::as_writable_bytes(std::span(buffer)));
  return {buffer.data(), buffer.size()};
}

struct WavFormat {
  std::uint16_t kind = 0, channels = 0, bits = 0;
  std::uint32_t rate = 0;
};

WavFormat read_format(const InputFile& file, std::uint64_t at, std::uint64_t size) {
  if (size < 16)
    file.fail(at, "the format has {} bytes, 16 are the least", size);
  WavFormat f;
  f.kind = number_at<std::uint16_t>(file, at);
  f.channels = number_at<std::uint16_t>(file, at + 2);
  f.rate = number_at<std::uint32_t>(file, at + 4);
  f.bits = number_at<std::uint16_t>(file, at + 14);
  if (f.kind == kExtensible && size >= 26)
    f.kind = number_at<std::uint16_t>(file, at + 24); // the first bytes of the sub-format's GUID
  const bool integers = f.kind == kIntegers && f.bits >= 8 && f.bits <= 32 && f.bits % 8 == 0;
  const bool floats = f.kind == kFloats && (f.bits == 32 || f.bits == 64);
  if (!integers && !floats)
    file.fail(at,
              "samples of kind {} and {} bits; integers of 8, 16, 24 or 32 bits and floats of 32 "
              "or 64 are read",
              f.kind, f.bits);
  if (f.channels < 1 || f.channels > kMostChannels)
    file.fail(at + 2, "{} channels; there may be 1 to {}", f.channels, kMostChannels);
  if (f.rate < 1 || f.rate > kMostRate)
    file.fail(at + 4, "{} samples a second", f.rate);
  return f;
}

/// Bytes [count, channels, bytes of a sample] as f32 [channels, count].
Tensor decoded(const WavFormat& f, const Tensor& bytes) {
  const auto byte = [&](std::int64_t i) { return bytes.select(-1, i).to(DType::I32); };
  Tensor values;
  if (f.kind == kFloats && f.bits == 64) {
    const auto word = [&](std::int64_t at) {
      Tensor all = bytes.select(-1, at).to(DType::U64);
      for (std::int64_t i = 1; i < 8; ++i)
        all = all | (bytes.select(-1, at + i).to(DType::U64) << (8 * i));
      return all;
    };
    values = word(0).bitcast(DType::F64).to(DType::F32);
  } else if (f.bits == 8) {
    values = (byte(0) - 128).to(DType::F32) * (1.0 / 128);
  } else {
    const std::int64_t count = f.bits / 8;
    Tensor all = byte(count - 1) << 24; // the sign is in the highest byte
    for (std::int64_t i = 0; i + 1 < count; ++i)
      all = all | (byte(i) << (8 * (4 - count + i)));
    values = f.kind == kFloats ? all.bitcast(DType::F32)
                               : all.to(DType::F32) * (1.0 / (std::int64_t{1} << 31));
  }
  return values.transpose();
}

} // namespace

Sound load_wav(const std::filesystem::path& path) {
  const InputFile file("WAV", path);
  std::array<char, 4> id = {};
  if (file.size() < 12)
    file.fail(0, "the file has {} bytes, a header has 12", file.size());
  const std::string_view outer = text_at(file, 0, id);
  const bool large = outer == "RF64"; // sizes beyond 32 bits stand in a chunk of their own
  if (!large && outer != "RIFF")
    file.fail(0, "this is no WAV file: it does not begin with RIFF");
  if (text_at(file, 8, id) != "WAVE")
    file.fail(8, "this is no WAV file: there is no WAVE behind RIFF");
  std::optional<WavFormat> format;
  std::optional<std::uint64_t> large_size;
  for (std::uint64_t at = 12; at + 8 <= file.size();) {
    const std::string name(text_at(file, at, id));
    std::uint64_t size = number_at<std::uint32_t>(file, at + 4);
    at += 8;
    if (large && name == "ds64" && size >= 16)
      large_size = number_at<std::uint64_t>(file, at + 8);
    if (name == "data" && size == 0xFFFFFFFFU && large_size)
      size = *large_size;
    if (name == "data" && !format)
      file.fail(at, "the samples come before their format");
    // A recording that was cut off says more than is there, or 0xFFFFFFFF.
    if (name == "data")
      size = std::min(size, file.size() - at);
    if (size > file.size() - at)
      file.fail(at, "the part '{}' has {} bytes, {} are left", name, size, file.size() - at);
    if (name == "fmt ")
      format = read_format(file, at, size);
    if (name == "data") {
      const std::int64_t width = format->bits / 8, frame = width * format->channels;
      const std::int64_t count = static_cast<std::int64_t>(size) / frame;
      if (count == 0)
        file.fail(at, "there are no samples");
      const Tensor bytes =
          tensor_filled_by(DType::U8, {count, format->channels, width},
                           [&](std::span<std::byte> out) { file.read_at(at, out); });
      return {decoded(*format, bytes).eval(), format->rate};
    }
    at += size + size % 2;
  }
  file.fail(file.size(), "there are no samples: the part 'data' is missing");
}

void save_wav(const std::filesystem::path& path, const Sound& sound) {
  const std::vector<std::int64_t> shape = sound.samples.sizes();
  if (shape.size() != 2 || shape[0] < 1 || shape[0] > kMostChannels)
    fail(ErrorKind::Shape, "save_wav: samples are [{}], not [channels, count] of 1 to {} channels",
         fmt::join(shape, ","), kMostChannels);
  if (sound.rate < 1 || sound.rate > kMostRate)
    fail(ErrorKind::Value, "save_wav: {} samples a second", sound.rate);
  const std::vector<std::int16_t> samples =
      round(clamp(sound.samples.transpose().to(DType::F32) * 32768, -32768, 32767))
          .to(DType::I16)
          .to_vector<std::int16_t>();
  const auto channels = static_cast<std::uint16_t>(shape[0]);
  const auto bytes = samples.size() * sizeof(std::int16_t);
  if (bytes > 0xFFFFFFFFU - 36)
    fail(ErrorKind::Value, "save_wav: {} bytes of samples, a file holds 4 GiB", bytes);
  std::string header;
  const auto put = [&](auto value) {
    header.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  header += "RIFF";
  put(static_cast<std::uint32_t>(36 + bytes));
  header += "WAVEfmt ";
  put(std::uint32_t{16});
  put(kIntegers);
  put(channels);
  put(static_cast<std::uint32_t>(sound.rate));
  put(static_cast<std::uint32_t>(sound.rate * channels * 2));
  put(static_cast<std::uint16_t>(channels * 2));
  put(std::uint16_t{16});
  header += "data";
  put(static_cast<std::uint32_t>(bytes));
  OutputFile file("WAV", path);
  file.write(header);
  file.write(std::as_bytes(std::span(samples)));
  file.commit();
}

Tensor resampled(const Tensor& samples, std::int64_t from, std::int64_t to) {
  constexpr const char* who = "resampled";
  if (from < 1 || to < 1)
    fail(ErrorKind::Value, "{}: from {} to {} samples a second", who, from, to);
  if (from == to)
    return samples;
  Shape shape = samples.shape();
  const std::int64_t common = std::gcd(from, to), in = from / common, out = to / common;
  const std::int64_t count = samples.size(-1);
  // Of `out` parts of a sample each; results are `in` of them apart.
  const std::int64_t parts = checked_mul(count, out, who),
                     result = parts / in + (parts % in != 0 ? 1 : 0);
  shape.back() = result;
  if (samples.numel() == 0)
    return zeros(shape, samples.dtype());
  // Of one period of `in` samples and `out` results each result has a kernel of its own: a sinc
  // below both rates' limits, of six zeros a side, under a Hann window.
  constexpr double kZeros = 6, kRolloff = 0.99;
  const double limit =
      static_cast<double>(std::min(in, out)) * kRolloff / static_cast<double>(in); // of a sample
  const auto side = static_cast<std::int64_t>(
      std::min(std::ceil(kZeros / limit), static_cast<double>(count))); // more meets no sample
  const std::int64_t kernels = std::min(out, result), taps = 2 * side + 1;
  std::vector<float> weights;
  weights.reserve(static_cast<std::size_t>(checked_mul(kernels, taps, who)));
  for (std::int64_t o = 0; o < kernels; ++o) {
    const double part = static_cast<double>(o * in % out) / static_cast<double>(out);
    for (std::int64_t i = -side; i <= side; ++i) {
      const double t = (static_cast<double>(i) - part) * limit;
      const double x = std::clamp(t, -kZeros, kZeros);
      const double window = std::pow(std::cos(x * std::numbers::pi / kZeros / 2), 2);
      const double sinc = x == 0 ? 1 : std::sin(x * std::numbers::pi) / (x * std::numbers::pi);
      weights.push_back(static_cast<float>(sinc * window * limit));
    }
  }
  const Tensor number = positions(result);
  const Tensor first = floor_divide(number * in, out) - side;
  const Tensor kernel = take(tensor(weights, Shape{kernels, taps}), number % kernels, 0);
  const Tensor met = take(samples, unsqueeze(first, 1) + positions(taps), -1); // 0 beyond the ends
  return sum(met * kernel, -1);
}

} // namespace egret::io
