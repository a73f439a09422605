#include "egret/gguf.h"
#include "egret/functional.h"
#include "io/file.h"
#include "io/gguf_header.h"
#include "io/tensor_bytes.h"

#include <utility>

namespace egret::io {

struct GgufFile::Impl {
  explicit Impl(const std::filesystem::path& path)
      : file("GGUF", path), header(read_gguf_header(file)) {
    for (std::size_t i = 0; i < header.tensors.size(); ++i)
      places.emplace(header.tensors[i].name, i);
  }

  Tensor load(const GgufTensorInfo& info, DType dtype,
              const std::vector<std::int64_t>& shape) const {
    return tensor_read_by(dtype, shape, [&](std::uint64_t offset, std::span<std::byte> out) {
      file.read_at(header.data_start + info.begin + offset, out);
    });
  }

  InputFile file;
  GgufHeader header;
  std::map<std::string, std::size_t, std::less<>> places; ///< in header.tensors
};

GgufFile::GgufFile(const std::filesystem::path& path) : impl_(std::make_unique<const Impl>(path)) {}
GgufFile::~GgufFile() = default;
GgufFile::GgufFile(GgufFile&&) noexcept = default;

const GgufMetadata& GgufFile::metadata() const noexcept {
  return impl_->header.metadata;
}
const std::vector<GgufTensorInfo>& GgufFile::tensors() const noexcept {
  return impl_->header.tensors;
}
bool GgufFile::contains(std::string_view name) const noexcept {
  return impl_->places.contains(name);
}
const GgufTensorInfo& GgufFile::info(std::string_view name) const {
  const auto found = impl_->places.find(name);
  if (found == impl_->places.end())
    fail(ErrorKind::Value, "GGUF: {}: no tensor '{}' among {}", impl_->file.path().string(), name,
         impl_->places.size());
  return impl_->header.tensors[found->second];
}

Tensor GgufFile::read_bytes(std::string_view name) const {
  const GgufTensorInfo& place = info(name);
  const GgmlTypeInfo& type = info_of(place.type);
  std::vector<std::int64_t> shape = place.shape;
  if (shape.empty())
    shape.push_back(1);
  shape.back() = shape.back() / type.values * type.bytes;
  return impl_->load(place, DType::U8, shape);
}

Tensor GgufFile::read(std::string_view name) const {
  const GgufTensorInfo& place = info(name);
  switch (place.type) {
  case GgmlType::F32:
    return impl_->load(place, DType::F32, place.shape);
  case GgmlType::F16:
    return impl_->load(place, DType::F16, place.shape);
  case GgmlType::BF16:
    return impl_->load(place, DType::BF16, place.shape);
  default:
    return dequantized(place.type, read_bytes(name));
  }
}

} // namespace egret::io
