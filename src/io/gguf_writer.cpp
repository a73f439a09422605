// Writing of GGUF files: the header first, then the tensors one by one.
#include "egret/gguf.h"
#include "io/gguf_header.h"
#include "support/fail.h"
#include "support/output_file.h"

#include <algorithm>
#include <set>
#include <utility>

namespace egret::io {

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

/// Of a tensor: far from where bytes of a file are too many to count.
constexpr std::int64_t kMostValues = std::int64_t{1} << 48;

} // namespace

struct GgufWriter::Impl {
  Impl(const std::filesystem::path& path, std::vector<GgufTensorInfo> infos)
      : file("GGUF", path), tensors(std::move(infos)) {}

  void align() {
    if (const std::uint64_t rest = file.written() % kDefaultGgufAlignment; rest != 0)
      file.write(std::string(kDefaultGgufAlignment - rest, '\0'));
  }

  OutputFile file;
  std::vector<GgufTensorInfo> tensors;
  std::size_t next = 0;
};

GgufWriter::GgufWriter(const std::filesystem::path& path, const GgufMetadata& metadata,
                       std::vector<GgufTensorInfo> tensors) {
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
  std::uint64_t at = 0;
  for (const GgufTensorInfo& tensor : tensors) {
    if (tensor.name.empty() || tensor.name.size() > kMostGgufNameBytes)
      fail(ErrorKind::Value, "save_gguf: tensor '{}': names have 1 to {} bytes", tensor.name,
           kMostGgufNameBytes);
    if (!names.insert(tensor.name).second)
      fail(ErrorKind::Value, "save_gguf: tensor '{}' is given twice", tensor.name);
    if (tensor.shape.empty() || tensor.shape.size() > kMostGgufDims)
      fail(ErrorKind::Value, "save_gguf: tensor '{}' has {} dims; 1 to {} are possible",
           tensor.name, tensor.shape.size(), kMostGgufDims);
    const GgmlTypeInfo& type = info_of(tensor.type);
    if (tensor.shape.back() == 0 || tensor.shape.back() % type.values != 0)
      fail(ErrorKind::Shape,
           "save_gguf: tensor '{}': the last axis of [{}] is no multiple of {} ({})", tensor.name,
           fmt::join(tensor.shape, ","), type.values, type.name);
    header.text(tensor.name);
    header.number(static_cast<std::uint32_t>(tensor.shape.size()));
    std::int64_t count = 1;
    for (auto dim = tensor.shape.rbegin(); dim != tensor.shape.rend(); ++dim) {
      if (*dim < 0 || __builtin_mul_overflow(count, *dim, &count) || count > kMostValues)
        fail(ErrorKind::Shape, "save_gguf: tensor '{}' of [{}] is larger than a file can be",
             tensor.name, fmt::join(tensor.shape, ","));
      header.number(static_cast<std::uint64_t>(*dim));
    }
    header.number(static_cast<std::uint32_t>(tensor.type));
    header.number(at);
    at += static_cast<std::uint64_t>(count / type.values * type.bytes);
    at = (at + kDefaultGgufAlignment - 1) / kDefaultGgufAlignment * kDefaultGgufAlignment;
  }
  header.align();
  impl_ = std::make_unique<Impl>(path, std::move(tensors));
  impl_->file.write(header.all());
}
GgufWriter::~GgufWriter() = default;

Tensor GgufWriter::write(const Tensor& values) {
  if (impl_->next == impl_->tensors.size())
    fail(ErrorKind::Value, "GgufWriter: all {} tensors are written", impl_->next);
  const GgufTensorInfo& info = impl_->tensors[impl_->next];
  if (values.sizes() != info.shape)
    fail(ErrorKind::Shape, "GgufWriter: tensor '{}' is [{}], it was announced as [{}]", info.name,
         fmt::join(values.sizes(), ","), fmt::join(info.shape, ","));
  ++impl_->next;
  Tensor blocks = quantized_blocks(info.type, values);
  impl_->file.write(blocks.to_bytes());
  impl_->align();
  return blocks;
}

void GgufWriter::commit() {
  if (impl_->next < impl_->tensors.size())
    fail(ErrorKind::Value, "GgufWriter: tensor '{}' is not written yet",
         impl_->tensors[impl_->next].name);
  impl_->file.commit();
}

void save_gguf(const std::filesystem::path& path, const GgufMetadata& metadata,
               std::span<const GgufTensor> tensors) {
  std::vector<GgufTensorInfo> infos;
  for (const GgufTensor& tensor : tensors)
    infos.push_back({tensor.name, tensor.type, tensor.values.sizes()});
  GgufWriter writer(path, metadata, std::move(infos));
  for (const GgufTensor& tensor : tensors)
    writer.write(tensor.values);
  writer.commit();
}

} // namespace egret::io
