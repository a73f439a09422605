#include "egret/gguf.h"
#include "egret/functional.h"
#include "io/file.h"
#include "io/tensor_bytes.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <set>

namespace egret::io {

namespace {

constexpr std::string_view kGgufMagic = "GGUF";
constexpr std::uint32_t kMostGgufDims = 4;   // GGML_MAX_DIMS
constexpr std::uint64_t kMostNameBytes = 63; // GGML_MAX_NAME
constexpr std::uint64_t kMostKeyBytes = 65535;
constexpr std::uint64_t kDefaultAlignment = 32;

/// Types of metadata values, by the format's numbers.
enum class ValueType : std::uint32_t {
  U8,
  I8,
  U16,
  I16,
  U32,
  I32,
  F32,
  Bool,
  String,
  Array,
  U64,
  I64,
  F64
};

/// Reads a file from front to back. Nothing is allocated for a count that the rest of the file
/// cannot hold.
class GgufCursor {
public:
  explicit GgufCursor(const InputFile& file) : file_(file), buffer_(1 << 16) {}

  std::uint64_t at() const noexcept { return at_; }
  std::uint64_t left() const noexcept { return file_.size() - at_; }

  void read(std::span<std::byte> out) {
    if (out.size() > left())
      file_.fail(at_, "the file ends here, {} bytes are missing", out.size() - left());
    while (!out.empty()) {
      if (at_ < start_ || at_ >= start_ + filled_) {
        start_ = at_;
        filled_ = file_.read_some(at_, buffer_);
        if (filled_ == 0)
          file_.fail(at_, "the file ends here");
      }
      const std::size_t n = std::min<std::size_t>(out.size(), start_ + filled_ - at_);
      std::memcpy(out.data(), buffer_.data() + (at_ - start_), n);
      out = out.subspan(n);
      at_ += n;
    }
  }
  template <class T>
  T number() {
    T value{};
    read(std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  std::string text(std::uint64_t most, std::string_view what) {
    const auto length = number<std::uint64_t>();
    if (length > most || length > left())
      file_.fail(at_, "{} of {} bytes; at most {} are possible here", what, length,
                 std::min(most, left()));
    std::string value(length, '\0');
    read(std::as_writable_bytes(std::span(value)));
    return value;
  }
  /// A count of things that take at least `least_bytes` each.
  std::uint64_t count(std::uint64_t least_bytes, std::string_view what) {
    const auto n = number<std::uint64_t>();
    if (n > left() / least_bytes)
      file_.fail(at_, "{} {}, but {} bytes follow", n, what, left());
    return n;
  }

private:
  const InputFile& file_;
  std::vector<std::byte> buffer_;
  std::uint64_t at_ = 0, start_ = 0;
  std::size_t filled_ = 0;
};

class Parser {
public:
  explicit Parser(const InputFile& file) : file_(file), cursor_(file) {}

  void parse() {
    std::array<char, 4> magic = {};
    cursor_.read(std::as_writable_bytes(std::span(magic)));
    if (std::string_view(magic.data(), 4) != kGgufMagic)
      file_.fail(0, "it does not begin with '{}'", kGgufMagic);
    const auto version = cursor_.number<std::uint32_t>();
    if (version != 2 && version != 3)
      file_.fail(4, "version {}; versions 2 and 3 are read (little-endian)", version);
    const auto tensor_count = cursor_.count(24, "tensors");
    const auto value_count = cursor_.count(13, "metadata entries");
    for (std::uint64_t i = 0; i < value_count; ++i)
      read_entry();
    alignment_ = alignment();
    for (std::uint64_t i = 0; i < tensor_count; ++i)
      read_tensor();
    data_start = (cursor_.at() + alignment_ - 1) / alignment_ * alignment_;
    check_places();
  }

  GgufMetadata metadata;
  std::vector<GgufTensorInfo> tensors;
  std::map<std::string, std::size_t, std::less<>> places;
  std::uint64_t data_start = 0;

private:
  void read_entry() {
    const std::uint64_t begin = cursor_.at();
    const std::string key = cursor_.text(kMostKeyBytes, "a key");
    GgufValue value = read_value(key, static_cast<ValueType>(cursor_.number<std::uint32_t>()));
    if (!metadata.emplace(key, std::move(value)).second)
      file_.fail(begin, "key '{}' is given twice", key);
  }

  GgufValue read_value(const std::string& key, ValueType type) {
    switch (type) {
    case ValueType::Bool:
      return boolean(key);
    case ValueType::F32:
    case ValueType::F64:
      return real(type);
    case ValueType::String:
      return cursor_.text(std::numeric_limits<std::uint64_t>::max(), "a text");
    case ValueType::Array:
      return read_array(key);
    case ValueType::U64: {
      const auto value = cursor_.number<std::uint64_t>();
      if (std::in_range<std::int64_t>(value))
        return static_cast<std::int64_t>(value);
      return value;
    }
    default:
      return integer(key, type);
    }
  }

  GgufValue read_array(const std::string& key) {
    const auto type = static_cast<ValueType>(cursor_.number<std::uint32_t>());
    switch (type) {
    case ValueType::Bool:
      return list<bool>(1, [&] { return boolean(key); });
    case ValueType::F32:
      return list<double>(4, [&] { return real(type); });
    case ValueType::F64:
      return list<double>(8, [&] { return real(type); });
    case ValueType::String:
      return list<std::string>(
          8, [&] { return cursor_.text(std::numeric_limits<std::uint64_t>::max(), "a text"); });
    case ValueType::Array:
      file_.fail(cursor_.at(), "key '{}': an array of arrays", key);
    default:
      return list<std::int64_t>(1, [&] { return integer(key, type); });
    }
  }

  template <class T, class F>
  std::vector<T> list(std::uint64_t least_bytes, const F& element) {
    const auto n = cursor_.count(least_bytes, "elements of an array");
    std::vector<T> values;
    for (std::uint64_t i = 0; i < n; ++i)
      values.push_back(element());
    return values;
  }

  bool boolean(const std::string& key) {
    const auto value = cursor_.number<std::uint8_t>();
    if (value > 1)
      file_.fail(cursor_.at() - 1, "key '{}': a bool is {}", key, value);
    return value != 0;
  }
  double real(ValueType type) {
    return type == ValueType::F32 ? static_cast<double>(cursor_.number<float>())
                                  : cursor_.number<double>();
  }
  std::int64_t integer(const std::string& key, ValueType type) {
    switch (type) {
    case ValueType::U8:
      return cursor_.number<std::uint8_t>();
    case ValueType::I8:
      return cursor_.number<std::int8_t>();
    case ValueType::U16:
      return cursor_.number<std::uint16_t>();
    case ValueType::I16:
      return cursor_.number<std::int16_t>();
    case ValueType::U32:
      return cursor_.number<std::uint32_t>();
    case ValueType::I32:
      return cursor_.number<std::int32_t>();
    case ValueType::I64:
      return cursor_.number<std::int64_t>();
    case ValueType::U64: {
      const auto value = cursor_.number<std::uint64_t>();
      if (!std::in_range<std::int64_t>(value))
        file_.fail(cursor_.at() - 8, "key '{}': {} is too large", key, value);
      return static_cast<std::int64_t>(value);
    }
    default:
      file_.fail(cursor_.at(), "key '{}': a value of unknown type {}", key,
                 static_cast<unsigned>(type));
    }
  }

  std::uint64_t alignment() const {
    const auto found = metadata.find("general.alignment");
    if (found == metadata.end())
      return kDefaultAlignment;
    const auto* value = std::get_if<std::int64_t>(&found->second);
    if (value == nullptr || *value < 8 || *value > (1 << 20) ||
        !std::has_single_bit(static_cast<std::uint64_t>(*value)))
      file_.fail(cursor_.at(), "general.alignment is no power of two between 8 and 1048576");
    return static_cast<std::uint64_t>(*value);
  }

  void read_tensor() {
    const std::uint64_t begin = cursor_.at();
    GgufTensorInfo info;
    info.name = cursor_.text(kMostNameBytes, "a tensor's name");
    const auto rank = cursor_.number<std::uint32_t>();
    if (rank > kMostGgufDims)
      file_.fail(begin, "tensor '{}': {} dims; at most {} are possible", info.name, rank,
                 kMostGgufDims);
    std::uint64_t count = 1;
    for (std::uint32_t i = 0; i < rank; ++i) {
      const auto dim = cursor_.number<std::uint64_t>();
      if (dim == 0 || dim > (std::uint64_t{1} << 40U) ||
          __builtin_mul_overflow(count, dim, &count) || count > (std::uint64_t{1} << 48U))
        file_.fail(cursor_.at() - 8, "tensor '{}': a dim of {} is 0 or too large", info.name, dim);
      info.shape.insert(info.shape.begin(), static_cast<std::int64_t>(dim));
    }
    const auto number = cursor_.number<std::uint32_t>();
    const auto type = ggml_type(number);
    if (!type)
      file_.fail(cursor_.at() - 4,
                 "tensor '{}': elements of GGML type {}, which egret does not read", info.name,
                 number);
    info.type = type->type;
    if (const std::int64_t last = info.shape.empty() ? 1 : info.shape.back();
        last % type->values != 0)
      file_.fail(begin, "tensor '{}': rows of {} values, {} has blocks of {}", info.name, last,
                 type->name, type->values);
    info.begin = cursor_.number<std::uint64_t>();
    const std::uint64_t bytes =
        count / static_cast<std::uint64_t>(type->values) * static_cast<std::uint64_t>(type->bytes);
    if (info.begin % alignment_ != 0)
      file_.fail(cursor_.at() - 8, "tensor '{}': its data at {} is not aligned to {}", info.name,
                 info.begin, alignment_);
    if (__builtin_add_overflow(info.begin, bytes, &info.end))
      file_.fail(cursor_.at() - 8, "tensor '{}': its data at {} is beyond any file", info.name,
                 info.begin);
    if (!places.emplace(info.name, tensors.size()).second)
      file_.fail(begin, "tensor '{}' is listed twice", info.name);
    tensors.push_back(std::move(info));
  }

  /// Every tensor lies in the file, and none in another.
  void check_places() const {
    const std::uint64_t have = file_.size() > data_start ? file_.size() - data_start : 0;
    std::vector<const GgufTensorInfo*> order;
    for (const GgufTensorInfo& info : tensors) {
      if (info.end > have)
        file_.fail(file_.size(), "the file ends here, tensor '{}' needs {} bytes more", info.name,
                   info.end - have);
      order.push_back(&info);
    }
    std::sort(order.begin(), order.end(),
              [](const auto* a, const auto* b) { return a->begin < b->begin; });
    for (std::size_t i = 1; i < order.size(); ++i)
      if (order[i]->begin < order[i - 1]->end)
        file_.fail(data_start + order[i]->begin, "tensors '{}' and '{}' overlap",
                   order[i - 1]->name, order[i]->name);
  }

  const InputFile& file_;
  GgufCursor cursor_;
  std::uint64_t alignment_ = kDefaultAlignment;
};

} // namespace

struct GgufFile::Impl {
  explicit Impl(const std::filesystem::path& path) : file("GGUF", path) {
    Parser parser(file);
    parser.parse();
    metadata = std::move(parser.metadata);
    tensors = std::move(parser.tensors);
    places = std::move(parser.places);
    data_start = parser.data_start;
  }

  Tensor load(const GgufTensorInfo& info, DType dtype,
              const std::vector<std::int64_t>& shape) const {
    return tensor_filled_by(dtype, shape, [&](std::span<std::byte> out) {
      file.read_at(data_start + info.begin, out);
    });
  }

  InputFile file;
  GgufMetadata metadata;
  std::vector<GgufTensorInfo> tensors;
  std::map<std::string, std::size_t, std::less<>> places;
  std::uint64_t data_start = 0;
};

GgufFile::GgufFile(const std::filesystem::path& path) : impl_(std::make_unique<const Impl>(path)) {}
GgufFile::~GgufFile() = default;
GgufFile::GgufFile(GgufFile&&) noexcept = default;

const GgufMetadata& GgufFile::metadata() const noexcept {
  return impl_->metadata;
}
const std::vector<GgufTensorInfo>& GgufFile::tensors() const noexcept {
  return impl_->tensors;
}
bool GgufFile::contains(std::string_view name) const noexcept {
  return impl_->places.contains(name);
}
const GgufTensorInfo& GgufFile::info(std::string_view name) const {
  const auto found = impl_->places.find(name);
  if (found == impl_->places.end())
    fail(ErrorKind::Value, "GGUF: {}: no tensor '{}' among {}", impl_->file.path().string(), name,
         impl_->places.size());
  return impl_->tensors[found->second];
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
  void type(ValueType type) { number(static_cast<std::uint32_t>(type)); }
  void raw(std::string_view bytes) { text_.append(bytes); }
  void text(std::string_view text) {
    number(static_cast<std::uint64_t>(text.size()));
    raw(text);
  }
  void align() {
    text_.resize((text_.size() + kDefaultAlignment - 1) / kDefaultAlignment * kDefaultAlignment);
  }
  const std::string& all() const { return text_; }

private:
  std::string text_;
};

void put(Bytes& out, bool value) {
  out.type(ValueType::Bool);
  out.number(static_cast<std::uint8_t>(value));
}
void put(Bytes& out, std::int64_t value) {
  if (std::in_range<std::uint32_t>(value)) {
    out.type(ValueType::U32);
    out.number(static_cast<std::uint32_t>(value));
  } else if (std::in_range<std::int32_t>(value)) {
    out.type(ValueType::I32);
    out.number(static_cast<std::int32_t>(value));
  } else {
    out.type(ValueType::I64);
    out.number(value);
  }
}
void put(Bytes& out, std::uint64_t value) {
  out.type(ValueType::U64);
  out.number(value);
}
void put(Bytes& out, double value) {
  // f32 where that loses nothing: what readers expect of most keys.
  if (static_cast<double>(static_cast<float>(value)) == value) {
    out.type(ValueType::F32);
    out.number(static_cast<float>(value));
  } else {
    out.type(ValueType::F64);
    out.number(value);
  }
}
void put(Bytes& out, const std::string& value) {
  out.type(ValueType::String);
  out.text(value);
}
template <class T>
void begin_array(Bytes& out, ValueType type, const std::vector<T>& values) {
  out.type(ValueType::Array);
  out.type(type);
  out.number(static_cast<std::uint64_t>(values.size()));
}
void put(Bytes& out, const std::vector<bool>& values) {
  begin_array(out, ValueType::Bool, values);
  for (const bool value : values)
    out.number(static_cast<std::uint8_t>(value));
}
void put(Bytes& out, const std::vector<std::int64_t>& values) {
  const bool small = std::all_of(values.begin(), values.end(),
                                 [](std::int64_t v) { return std::in_range<std::int32_t>(v); });
  begin_array(out, small ? ValueType::I32 : ValueType::I64, values);
  for (const std::int64_t value : values)
    if (small)
      out.number(static_cast<std::int32_t>(value));
    else
      out.number(value);
}
void put(Bytes& out, const std::vector<double>& values) {
  begin_array(out, ValueType::F32, values);
  for (const double value : values)
    out.number(static_cast<float>(value));
}
void put(Bytes& out, const std::vector<std::string>& values) {
  begin_array(out, ValueType::String, values);
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
           kDefaultAlignment);
    header.text(key);
    std::visit([&](const auto& v) { put(header, v); }, value);
  }
  std::set<std::string_view> names;
  std::vector<Tensor> blocks;
  std::uint64_t at = 0;
  for (const GgufTensor& tensor : tensors) {
    if (tensor.name.empty() || tensor.name.size() > kMostNameBytes)
      fail(ErrorKind::Value, "save_gguf: tensor '{}': names have 1 to {} bytes", tensor.name,
           kMostNameBytes);
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
    at = (at + kDefaultAlignment - 1) / kDefaultAlignment * kDefaultAlignment;
  }
  header.align();
  OutputFile file("GGUF", path);
  file.write(header.all());
  for (const Tensor& bytes : blocks) {
    file.write(bytes.to_bytes());
    const std::uint64_t rest = file.written() % kDefaultAlignment;
    if (rest != 0)
      file.write(std::string(kDefaultAlignment - rest, '\0'));
  }
  file.commit();
}

} // namespace egret::io
