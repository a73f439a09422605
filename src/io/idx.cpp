// IDX, the format of the MNIST files: two zero bytes, a type, the number of dims, the dims and then
// the data, all big-endian.
#include "egret/io.h"
#include "io/byte_order.h"
#include "io/gzip.h"
#include "io/safetensors_header.h"
#include "io/tensor_bytes.h"

#include <array>
#include <optional>

namespace egret::io {

namespace {

std::optional<DType> idx_type(unsigned code) {
  switch (code) {
  case 0x08:
    return DType::U8;
  case 0x09:
    return DType::I8;
  case 0x0B:
    return DType::I16;
  case 0x0C:
    return DType::I32;
  case 0x0D:
    return DType::F32;
  case 0x0E:
    return DType::F64;
  default:
    return std::nullopt;
  }
}

/// The file's content in order, plain or unpacked.
class Source {
public:
  explicit Source(const InputFile& file) : file_(file) {
    if (is_gzip(file))
      gzip_.emplace(file);
  }
  void read(std::span<std::byte> out) {
    std::size_t n = gzip_ ? gzip_->read(out) : file_.read_some(at_, out);
    at_ += n;
    if (n < out.size())
      file_.fail(at_, "the {} ends here, {} bytes are missing", what(), out.size() - n);
  }
  void expect_end() {
    std::array<std::byte, 1> more = {};
    if (gzip_ ? gzip_->read(more) != 0 : at_ != file_.size())
      file_.fail(at_, "the {} goes on after the last element", what());
  }
  std::uint64_t most_left() const {
    std::uint64_t all = gzip_ ? gzip_->most_bytes() : file_.size();
    return all > at_ ? all - at_ : 0;
  }
  const char* what() const { return gzip_ ? "unpacked content" : "file"; }
  std::uint64_t at() const { return at_; }

private:
  const InputFile& file_;
  std::optional<GzipReader> gzip_;
  std::uint64_t at_ = 0;
};

} // namespace

Tensor load_idx(const std::filesystem::path& path, std::uint64_t most_bytes) {
  InputFile file("idx", path);
  Source source(file);
  std::array<std::byte, 4> magic = {};
  source.read(magic);
  auto type = idx_type(std::to_integer<unsigned>(magic[2]));
  if (magic[0] != std::byte{0} || magic[1] != std::byte{0})
    file.fail(0, "not an IDX file: it does not start with two zero bytes");
  if (!type)
    file.fail(2, "no IDX type has the code {:#04x}", std::to_integer<unsigned>(magic[2]));
  std::vector<std::int64_t> shape(std::to_integer<std::size_t>(magic[3]));
  for (auto& dim : shape) {
    std::array<std::byte, 4> bytes = {};
    source.read(bytes);
    for (std::byte b : bytes)
      dim = dim << 8 | std::to_integer<std::int64_t>(b);
  }
  std::uint64_t bytes = 0;
  try {
    bytes = bytes_of(*type, shape);
  } catch (const Error& error) {
    file.fail(4, "{}", error.what());
  }
  if (bytes > most_bytes)
    file.fail(4, "[{}] of {} takes {} bytes, more than the limit of {}", fmt::join(shape, ","),
              name_of(*type), bytes, most_bytes);
  if (bytes > source.most_left())
    file.fail(4, "[{}] of {} takes {} bytes, the {} holds {} at the most", fmt::join(shape, ","),
              name_of(*type), bytes, source.what(), source.most_left());
  Tensor tensor = tensor_filled_by(*type, shape, [&](std::span<std::byte> out) {
    source.read(out);
    reverse_bytes(out, size_of(*type));
  });
  source.expect_end();
  return tensor;
}

} // namespace egret::io
