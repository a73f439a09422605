#include "io/gzip.h"

#include "egret/io.h"

#include <algorithm>
#include <array>
#include <zlib.h>

namespace egret::io {

bool is_gzip(const InputFile& file) {
  std::array<std::byte, 2> magic = {};
  return file.read_some(0, magic) == 2 && magic[0] == std::byte{0x1f} &&
         magic[1] == std::byte{0x8b};
}

struct GzipReader::State {
  explicit State(const InputFile& f) : file(f) {
    constexpr int kGzipOnly = 16 + MAX_WBITS;
    if (inflateInit2(&stream, kGzipOnly) != Z_OK)
      fail(ErrorKind::Memory, "{}: {}: no memory to unpack", file.format_name(),
           file.path().string());
  }
  ~State() { inflateEnd(&stream); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  std::uint64_t offset() const { return next - stream.avail_in; } ///< of the next byte to unpack

  void refill() {
    std::size_t n = file.read_some(next, input);
    next += n;
    stream.next_in = reinterpret_cast<Bytef*>(input.data());
    stream.avail_in = static_cast<uInt>(n);
  }

  const InputFile& file;
  z_stream stream = {};
  std::array<std::byte, 1 << 16> input = {};
  std::uint64_t next = 0; ///< file offset after what is in `input`
  bool done = false;
};

GzipReader::GzipReader(const InputFile& file) : state_(std::make_unique<State>(file)) {}
GzipReader::~GzipReader() = default;

std::uint64_t GzipReader::most_bytes() const noexcept {
  constexpr std::uint64_t kBestRatio = 1032;
  return state_->file.size() > UINT64_MAX / kBestRatio ? UINT64_MAX
                                                       : state_->file.size() * kBestRatio;
}

std::size_t GzipReader::read(std::span<std::byte> out) {
  State& s = *state_;
  std::size_t filled = 0;
  while (filled < out.size() && !s.done) {
    if (s.stream.avail_in == 0)
      s.refill();
    constexpr std::size_t kPiece = 1U << 30; // zlib counts in 32 bits
    std::size_t room = std::min(kPiece, out.size() - filled);
    s.stream.next_out = reinterpret_cast<Bytef*>(out.data() + filled);
    s.stream.avail_out = static_cast<uInt>(room);
    bool at_end = s.stream.avail_in == 0;
    int result = inflate(&s.stream, Z_NO_FLUSH);
    filled += room - s.stream.avail_out;
    if (result == Z_STREAM_END) {
      // Another member may follow, and nothing else.
      if (s.stream.avail_in == 0)
        s.refill();
      if (s.stream.avail_in == 0)
        s.done = true;
      else if (*s.stream.next_in != 0x1f)
        s.file.fail(s.offset(), "gzip: bytes after the end that are no gzip member");
      else
        inflateReset(&s.stream);
    } else if (result == Z_BUF_ERROR && at_end) {
      s.file.fail(s.offset(), "gzip: the file ends in the middle");
    } else if (result == Z_MEM_ERROR) {
      fail(ErrorKind::Memory, "{}: {}: no memory to unpack", s.file.format_name(),
           s.file.path().string());
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      s.file.fail(s.offset(), "gzip: damaged: {}",
                  s.stream.msg != nullptr ? s.stream.msg : "not valid");
    }
  }
  return filled;
}

std::vector<std::byte> read_gzip(const std::filesystem::path& path, std::uint64_t most_bytes) {
  InputFile file("gzip", path);
  if (!is_gzip(file))
    file.fail(0, "no gzip file: it does not start with 1f 8b");
  GzipReader reader(file);
  std::vector<std::byte> bytes;
  std::size_t filled = 0;
  // Memory grows with what is really there, never with what the file says.
  for (;;) {
    std::size_t target = std::max<std::size_t>(1 << 16, 2 * bytes.size());
    if (most_bytes < target)
      target = static_cast<std::size_t>(most_bytes) + 1; // one more, to see whether there is more
    bytes.resize(target);
    filled += reader.read(std::span(bytes).subspan(filled));
    if (filled > most_bytes)
      file.fail(file.size(), "gzip: holds more than the limit of {} bytes", most_bytes);
    if (filled < bytes.size())
      break;
  }
  bytes.resize(filled);
  return bytes;
}

} // namespace egret::io
