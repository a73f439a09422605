// PNG (RFC 2083, ISO 15948) and the binary kinds of Netpbm.
#include "egret/image.h"
#include "io/file.h"
#include "io/tensor_bytes.h"

#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <zlib.h>

namespace egret::io {

namespace {

using Byte = unsigned char;

constexpr std::uint64_t kMostPixels = std::uint64_t{1} << 28, kMostSide = 1 << 20;
constexpr std::array<Byte, 8> kPngMagic = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

std::vector<Byte> bytes_at(const InputFile& file, std::uint64_t at, std::uint64_t count) {
  if (at > file.size() || count > file.size() - at)
    file.fail(at, "{} bytes are needed, {} are left", count,
              at > file.size() ? 0 : file.size() - at);
  std::vector<Byte> bytes(count);
  file.read_at(at, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

std::uint32_t big_endian(const Byte* at) {
  return std::uint32_t{at[0]} << 24U | std::uint32_t{at[1]} << 16U | std::uint32_t{at[2]} << 8U |
         at[3];
}

void require_size(const InputFile& file, std::uint64_t at, std::uint64_t width,
                  std::uint64_t height) {
  if (width < 1 || height < 1 || width > kMostSide || height > kMostSide ||
      width * height > kMostPixels)
    file.fail(at, "an image of {} x {}; sides are 1 to {}, pixels at most {}", width, height,
              kMostSide, kMostPixels);
}

/// Pixels [height, width, 3] whose bytes `at(y, x, channel)` gives.
template <class F>
Tensor pixels_of(std::uint64_t height, std::uint64_t width, F at) {
  return tensor_filled_by(DType::U8,
                          {static_cast<std::int64_t>(height), static_cast<std::int64_t>(width), 3},
                          [&](std::span<std::byte> out) {
                            auto next = out.begin();
                            for (std::uint64_t y = 0; y < height; ++y)
                              for (std::uint64_t x = 0; x < width; ++x)
                                for (std::uint64_t channel = 0; channel < 3; ++channel)
                                  *next++ = std::byte{at(y, x, channel)};
                          });
}

/// The kinds of colours of PNG: samples of a pixel, depths.
struct ColourKind {
  Byte number;
  std::uint64_t samples;
  std::array<Byte, 5> depths; ///< ends at 0
};
constexpr std::array kColours = {
    ColourKind{0, 1, {1, 2, 4, 8, 16}},                                 // grey
    ColourKind{2, 3, {8, 16}},          ColourKind{3, 1, {1, 2, 4, 8}}, // numbers of a palette
    ColourKind{4, 2, {8, 16}},                                          // grey, opacity
    ColourKind{6, 4, {8, 16}},
};

class PngReader {
public:
  explicit PngReader(const InputFile& file) : file_(file) {}

  Tensor read() {
    std::uint64_t at = kPngMagic.size();
    std::vector<Byte> packed;
    std::uint64_t data_at = 0;
    for (bool ended = false; !ended;) {
      const std::vector<Byte> head = bytes_at(file_, at, 8);
      const std::uint64_t size = big_endian(head.data());
      const std::string name(head.begin() + 4, head.end());
      const std::vector<Byte> body = bytes_at(file_, at + 8, size);
      const std::uint32_t sum = big_endian(bytes_at(file_, at + 8 + size, 4).data());
      uLong crc = crc32(0, head.data() + 4, 4);
      if (!body.empty())
        crc = crc32(crc, body.data(), static_cast<uInt>(body.size()));
      if (crc != sum)
        file_.fail(at, "the part '{}' is damaged: its checksum does not fit", name);
      if (kind_ == nullptr && name != "IHDR")
        file_.fail(at, "the first part is '{}', not IHDR", name);
      if (name == "IHDR")
        read_header(body, at);
      else if (name == "PLTE")
        palette_ = body;
      else if (name == "IDAT") {
        data_at = at;
        packed.insert(packed.end(), body.begin(), body.end());
      } else if (name == "IEND")
        ended = true;
      else if ((head[4] & 0x20U) == 0) // an upper-case letter: no reader may pass over it
        file_.fail(at, "egret does not know the part '{}'", name);
      at += 12 + size;
    }
    if (packed.empty())
      file_.fail(at, "there are no pixels: the part IDAT is missing");
    unpack(packed, data_at);
    unfilter(data_at);
    return pixels(data_at);
  }

private:
  void read_header(const std::vector<Byte>& body, std::uint64_t at) {
    if (kind_ != nullptr || body.size() != 13)
      file_.fail(at, "a part IHDR of {} bytes; there is one of 13", body.size());
    width_ = big_endian(body.data());
    height_ = big_endian(body.data() + 4);
    require_size(file_, at, width_, height_);
    depth_ = body[8];
    for (const ColourKind& kind : kColours)
      for (const Byte depth : kind.depths)
        if (kind.number == body[9] && depth == depth_ && depth != 0)
          kind_ = &kind;
    if (kind_ == nullptr || body[10] != 0 || body[11] != 0)
      file_.fail(at, "pixels of kind {} and {} bits, packed by method {} and {}; PNG has no such",
                 body[9], depth_, body[10], body[11]);
    if (body[12] != 0)
      file_.fail(at, "the image is interlaced, which egret does not read");
    pixel_bits_ = kind_->samples * depth_;
    row_ = (width_ * pixel_bits_ + 7) / 8;
  }

  void unpack(const std::vector<Byte>& packed, std::uint64_t at) {
    constexpr std::uint64_t kBestRatio = 1032; // of deflate
    const std::uint64_t size = height_ * (row_ + 1);
    if (size > (packed.size() + 1) * kBestRatio || packed.size() > UINT32_MAX)
      file_.fail(at, "{} bytes of pixels cannot be packed in {}", size, packed.size());
    raw_.resize(size);
    z_stream stream = {};
    if (inflateInit(&stream) != Z_OK)
      fail(ErrorKind::Memory, "{}: {}: no memory to unpack", file_.format_name(),
           file_.path().string());
    stream.next_in = const_cast<Byte*>(packed.data());
    stream.avail_in = static_cast<uInt>(packed.size());
    stream.next_out = raw_.data();
    stream.avail_out = static_cast<uInt>(raw_.size());
    const int result = inflate(&stream, Z_FINISH);
    const std::uint64_t unpacked = stream.total_out;
    inflateEnd(&stream);
    if (unpacked != raw_.size() || (result != Z_STREAM_END && result != Z_BUF_ERROR))
      file_.fail(at, "the pixels are damaged: {} bytes of {} could be unpacked", unpacked,
                 raw_.size());
  }

  /// Each row begins with how its bytes were foretold from those before.
  void unfilter(std::uint64_t at) {
    const std::uint64_t step = (pixel_bits_ + 7) / 8;
    const std::vector<Byte> zeros(row_);
    const Byte* above = zeros.data();
    for (std::uint64_t y = 0; y < height_; ++y) {
      Byte* row = raw_.data() + y * (row_ + 1);
      const Byte how = *row++;
      if (how > 4)
        file_.fail(at, "row {} is filtered by method {}; there are 0 to 4", y, how);
      for (std::uint64_t x = 0; x < row_; ++x) {
        const int left = x >= step ? row[x - step] : 0, up = above[x];
        const int corner = x >= step ? above[x - step] : 0;
        row[x] = static_cast<Byte>(row[x] + foretold(how, left, up, corner));
      }
      above = row;
    }
  }
  static int foretold(Byte how, int left, int up, int corner) {
    switch (how) {
    case 1:
      return left;
    case 2:
      return up;
    case 3:
      return (left + up) / 2;
    case 4: { // Paeth
      const int p = left + up - corner;
      const int a = std::abs(p - left), b = std::abs(p - up), c = std::abs(p - corner);
      return a <= b && a <= c ? left : b <= c ? up : corner;
    }
    default:
      return 0;
    }
  }

  /// A sample of a row, as 8 bits but for numbers of a palette.
  Byte sample(const Byte* row, std::uint64_t i) const {
    if (depth_ >= 8)
      return row[i * (depth_ / 8)]; // of 16 bits the upper ones
    const std::uint64_t bit = i * depth_;
    const auto value =
        static_cast<Byte>((row[bit / 8] >> (8 - depth_ - bit % 8)) & ((1U << depth_) - 1));
    return kind_->number == 3 ? value : static_cast<Byte>(value * 255 / ((1 << depth_) - 1));
  }

  Tensor pixels(std::uint64_t at) const {
    return pixels_of(height_, width_, [&](std::uint64_t y, std::uint64_t x, std::uint64_t channel) {
      const Byte* row = raw_.data() + y * (row_ + 1) + 1;
      if (kind_->number != 3)
        return sample(row, x * kind_->samples + (kind_->samples > 2 ? channel : 0));
      const std::uint64_t number = sample(row, x);
      if (number * 3 + 2 >= palette_.size())
        file_.fail(at, "a pixel has colour {} of a palette of {}", number, palette_.size() / 3);
      return palette_[number * 3 + channel];
    });
  }

  const InputFile& file_;
  const ColourKind* kind_ = nullptr;
  std::uint64_t width_ = 0, height_ = 0, pixel_bits_ = 0, row_ = 0;
  unsigned depth_ = 0;
  std::vector<Byte> palette_, raw_;
};

/// "P6" or "P5", width, height and the largest value as decimal numbers, a blank, then the samples.
Tensor read_netpbm(const InputFile& file, bool grey) {
  const std::vector<Byte> head = bytes_at(file, 0, std::min<std::uint64_t>(file.size(), 4096));
  std::uint64_t at = 2;
  const auto number = [&](const char* what) {
    bool comment = false;
    while (at < head.size() && (comment || std::isspace(head[at]) != 0 || head[at] == '#')) {
      comment = head[at] == '#' || (comment && head[at] != '\n');
      ++at;
    }
    std::uint64_t value = 0;
    const std::uint64_t begin = at;
    for (; at < head.size() && head[at] >= '0' && head[at] <= '9' && value <= kMostPixels; ++at)
      value = value * 10 + (head[at] - '0');
    if (at == begin)
      file.fail(at, "there is no number for the {}", what);
    return value;
  };
  const std::uint64_t width = number("width"), height = number("height"), most = number("maximum");
  require_size(file, 2, width, height);
  if (most < 1 || most > 65535)
    file.fail(at, "a largest value of {}; it is 1 to 65535", most);
  const std::uint64_t bytes = most > 255 ? 2 : 1, samples = grey ? 1 : 3;
  const std::vector<Byte> data = bytes_at(file, at + 1, width * height * samples * bytes);
  return pixels_of(height, width, [&](std::uint64_t y, std::uint64_t x, std::uint64_t channel) {
    const std::uint64_t i = ((y * width + x) * samples + (grey ? 0 : channel)) * bytes;
    const std::uint64_t value = bytes == 2 ? data[i] * 256U + data[i + 1] : data[i];
    return static_cast<Byte>(std::min(value, most) * 255 / most);
  });
}

} // namespace

Tensor load_image(const std::filesystem::path& path) {
  const InputFile file("image", path);
  std::array<Byte, 8> start = {};
  const std::size_t read = file.read_some(0, std::as_writable_bytes(std::span(start)));
  if (read == start.size() && start == kPngMagic)
    return PngReader(file).read();
  if (read >= 3 && start[0] == 'P' && (start[1] == '5' || start[1] == '6'))
    return read_netpbm(file, start[1] == '5');
  if (read >= 3 && start[0] == 0xFF && start[1] == 0xD8 && start[2] == 0xFF)
    file.fail(0, "this is a JPEG, which egret does not read; PNG and PPM are read");
  file.fail(0, "this is neither a PNG nor a binary PPM or PGM");
}

} // namespace egret::io
