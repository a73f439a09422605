#include "egret/gguf.h"
#include "egret/functional.h"
#include "io/file.h"
#include "io/gguf_header.h"
#include "io/tensor_bytes.h"

#include <algorithm>
#include <set>
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
    return tensor_filled_by(dtype, shape, [&](std::span<std::byte> out) {
      file.read_at(header.data_start + info.begin, out);
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

namespace {

/// Bytes of a file before its data.
class Bytes {
public:
  template <class T>
  void number(T value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    text_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  void type(GgufValueType type) { number(static_cast<std::uint32_t>(type)); }
  void raw(std::string_view bytes) { text_.append(bytes); }
  void text(std::string_view text) {
    number(static_cast<std::uint64_t>(text.size()));
    raw(text);
  }
  void align() {
    text_.resize((text_.size() + kDefaultGgufAlignment - 1) / kDefaultGgufAlignment *
                 kDefaultGgufAlignment);
  }
  const std::string& all() const { return text_; }

private:
  std::string text_;
};

void put(Bytes& out, bool value) {
  out.type(GgufValueType::Bool);
  out.number(static_cast<std::uint8_t>(value));
}
void put(Bytes& out, std::int64_t value) {
  if (std::in_range<std::uint32_t>(value)) {
    out.type(GgufValueType::U32);
    out.number(static_cast<std::uint32_t>(value));
  } else if (std::in_range<std::int32_t>(value)) {
    out.type(GgufValueType::I32);
    out.number(static_cast<std::int32_t>(value));
  } else {
    out.type(GgufValueType::I64);
    out.number(value);
  }
}
void put(Bytes& out, std::uint64_t value) {
  out.type(GgufValueType::U64);
  out.number(value);
}
void put(Bytes& out, double value) {
  // f32 where that loses nothing: what readers expect of most keys.
  if (static_cast<double>(static_cast<float>(value)) == value) {
    out.type(GgufValueType::F32);
    out.number(static_cast<float>(value));
  } else {
    out.type(GgufValueType::F64);
    out.number(value);
  }
}
void put(Bytes& out, const std::string& value) {
  out.type(GgufValueType::String);
  out.text(value);
}
template <class T>
void begin_array(Bytes& out, GgufValueType type, const std::vector<T>& values) {
  out.type(GgufValueType::Array);
  out.type(type);
  out.number(static_cast<std::uint64_t>(values.size()));
}
void put(Bytes& out, const std::vector<bool>& values) {
  begin_array(out, GgufValueType::Bool, values);
  for (const bool value : values)
    out.number(static_cast<std::uint8_t>(value));
}
void put(Bytes& out, const std::vector<std::int64_t>& values) {
  const bool small = std::all_of(values.begin(), values.end(),
                                 [](std::int64_t v) { return std::in_range<std::int32_t>(v); });
  begin_array(out, small ? GgufValueType::I32 : GgufValueType::I64, values);
  for (const std::int64_t value : values)
    if (small)
      out.number(static_cast<std::int32_t>(value));
    else
      out.number(value);
}
void put(Bytes& out, const std::vector<double>& values) {
  begin_array(out, GgufValueType::F32, values);
  for (const double value : values)
    out.number(static_cast<float>(value));
}
void put(Bytes& out, const std::vector<std::string>& values) {
  begin_array(out, GgufValueType::String, values);
  for (const std::string& value : values)
    out.text(value);
}

} // namespace

void save_gguf(const std::filesystem::path& path, const GgufMetadata& metadata,
               std::span<const GgufTensor> tensors) {
  Bytes header;
  header.raw(kGgufMagic);
  header.number(std::uint32_t{3});
  header.number(static_cast<std::uint64_t>(tensors.size()));
  header.number(static_cast<std::uint64_t>(metadata.size()));
  for (const auto& [key, value] : metadata) {
    if (key == "general.alignment")
      fail(ErrorKind::Value, "save_gguf: '{}' is not to be given: data is aligned to {}", key,
           kDefaultGgufAlignment);
    header.text(key);
    std::visit([&](const auto& v) { put(header, v); }, value);
  }
  std::set<std::string_view> names;
  std::vector<Tensor> blocks;
  std::uint64_t at = 0;
  for (const GgufTensor& tensor : tensors) {
    if (tensor.name.empty() || tensor.name.size() > kMostGgufNameBytes)
      fail(ErrorKind::Value, "save_gguf: tensor '{}': names have 1 to {} bytes", tensor.name,
           kMostGgufNameBytes);
    if (!names.insert(tensor.name).second)
      fail(ErrorKind::Value, "save_gguf: tensor '{}' is given twice", tensor.name);
    const std::vector<std::int64_t> shape = tensor.values.sizes();
    if (shape.empty() || shape.size() > kMostGgufDims)
      fail(ErrorKind::Value, "save_gguf: tensor '{}' has {} dims; 1 to {} are possible",
           tensor.name, shape.size(), kMostGgufDims);
    header.text(tensor.name);
    header.number(static_cast<std::uint32_t>(shape.size()));
    for (auto dim = shape.rbegin(); dim != shape.rend(); ++dim)
      header.number(static_cast<std::uint64_t>(*dim));
    header.number(static_cast<std::uint32_t>(tensor.type));
    header.number(at);
    blocks.push_back(quantized_blocks(tensor.type, tensor.values));
    at += static_cast<std::uint64_t>(blocks.back().numel());
    at = (at + kDefaultGgufAlignment - 1) / kDefaultGgufAlignment * kDefaultGgufAlignment;
  }
  header.align();
  OutputFile file("GGUF", path);
  file.write(header.all());
  for (const Tensor& bytes : blocks) {
    file.write(bytes.to_bytes());
    const std::uint64_t rest = file.written() % kDefaultGgufAlignment;
    if (rest != 0)
      file.write(std::string(kDefaultGgufAlignment - rest, '\0'));
  }
  file.commit();
}

} // namespace egret::io
