#include "io/gguf_header.h"

#include "support/fail.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

namespace egret::io {

namespace {

constexpr std::uint64_t kMostKeyBytes = 65535;

constexpr std::array<GgmlTypeInfo, 13> kGgmlTypes = {{
    {GgmlType::F32, "F32", 1, 4},
    {GgmlType::F16, "F16", 1, 2},
    {GgmlType::BF16, "BF16", 1, 2},
    {GgmlType::Q4_0, "Q4_0", 32, 18},
    {GgmlType::Q4_1, "Q4_1", 32, 20},
    {GgmlType::Q5_0, "Q5_0", 32, 22},
    {GgmlType::Q5_1, "Q5_1", 32, 24},
    {GgmlType::Q8_0, "Q8_0", 32, 34},
    {GgmlType::Q2_K, "Q2_K", 256, 84},
    {GgmlType::Q3_K, "Q3_K", 256, 110},
    {GgmlType::Q4_K, "Q4_K", 256, 144},
    {GgmlType::Q5_K, "Q5_K", 256, 176},
    {GgmlType::Q6_K, "Q6_K", 256, 210},
}};

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
    header.data_start = (cursor_.at() + alignment_ - 1) / alignment_ * alignment_;
    check_places();
  }

  GgufHeader header;

private:
  void read_entry() {
    const std::uint64_t begin = cursor_.at();
    const std::string key = cursor_.text(kMostKeyBytes, "a key");
    GgufValue value = read_value(key, static_cast<GgufValueType>(cursor_.number<std::uint32_t>()));
    if (!header.metadata.emplace(key, std::move(value)).second)
      file_.fail(begin, "key '{}' is given twice", key);
  }

  GgufValue read_value(const std::string& key, GgufValueType type) {
    switch (type) {
    case GgufValueType::Bool:
      return boolean(key);
    case GgufValueType::F32:
    case GgufValueType::F64:
      return real(type);
    case GgufValueType::String:
      return cursor_.text(std::numeric_limits<std::uint64_t>::max(), "a text");
    case GgufValueType::Array:
      return read_array(key);
    case GgufValueType::U64: {
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
    const auto type = static_cast<GgufValueType>(cursor_.number<std::uint32_t>());
    switch (type) {
    case GgufValueType::Bool:
      return list<bool>(1, [&] { return boolean(key); });
    case GgufValueType::F32:
      return list<double>(4, [&] { return real(type); });
    case GgufValueType::F64:
      return list<double>(8, [&] { return real(type); });
    case GgufValueType::String:
      return list<std::string>(
          8, [&] { return cursor_.text(std::numeric_limits<std::uint64_t>::max(), "a text"); });
    case GgufValueType::Array:
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
  double real(GgufValueType type) {
    return type == GgufValueType::F32 ? static_cast<double>(cursor_.number<float>())
                                      : cursor_.number<double>();
  }
  std::int64_t integer(const std::string& key, GgufValueType type) {
    switch (type) {
    case GgufValueType::U8:
      return cursor_.number<std::uint8_t>();
    case GgufValueType::I8:
      return cursor_.number<std::int8_t>();
    case GgufValueType::U16:
      return cursor_.number<std::uint16_t>();
    case GgufValueType::I16:
      return cursor_.number<std::int16_t>();
    case GgufValueType::U32:
      return cursor_.number<std::uint32_t>();
    case GgufValueType::I32:
      return cursor_.number<std::int32_t>();
    case GgufValueType::I64:
      return cursor_.number<std::int64_t>();
    case GgufValueType::U64: {
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
    const auto found = header.metadata.find("general.alignment");
    if (found == header.metadata.end())
      return kDefaultGgufAlignment;
    const auto* value = std::get_if<std::int64_t>(&found->second);
    if (value == nullptr || *value < 8 || *value > (1 << 20) ||
        !std::has_single_bit(static_cast<std::uint64_t>(*value)))
      file_.fail(cursor_.at(), "general.alignment is no power of two between 8 and 1048576");
    return static_cast<std::uint64_t>(*value);
  }

  void read_tensor() {
    const std::uint64_t begin = cursor_.at();
    GgufTensorInfo info;
    info.name = cursor_.text(kMostGgufNameBytes, "a tensor's name");
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
    if (!names_.insert(info.name).second)
      file_.fail(begin, "tensor '{}' is listed twice", info.name);
    header.tensors.push_back(std::move(info));
  }

  /// Every tensor lies in the file, and none in another.
  void check_places() const {
    const std::uint64_t have =
        file_.size() > header.data_start ? file_.size() - header.data_start : 0;
    std::vector<const GgufTensorInfo*> order;
    for (const GgufTensorInfo& info : header.tensors) {
      if (info.end > have)
        file_.fail(file_.size(), "the file ends here, tensor '{}' needs {} bytes more", info.name,
                   info.end - have);
      order.push_back(&info);
    }
    std::sort(order.begin(), order.end(),
              [](const auto* a, const auto* b) { return a->begin < b->begin; });
    for (std::size_t i = 1; i < order.size(); ++i)
      if (order[i]->begin < order[i - 1]->end)
        file_.fail(header.data_start + order[i]->begin, "tensors '{}' and '{}' overlap",
                   order[i - 1]->name, order[i]->name);
  }

  const InputFile& file_;
  GgufCursor cursor_;
  std::uint64_t alignment_ = kDefaultGgufAlignment;
  std::set<std::string, std::less<>> names_; ///< of tensors
};

} // namespace

std::optional<GgmlTypeInfo> ggml_type(std::uint32_t number) {
  for (const GgmlTypeInfo& row : kGgmlTypes)
    if (static_cast<std::uint32_t>(row.type) == number)
      return row;
  return {};
}

const GgmlTypeInfo& info_of(GgmlType type) {
  for (const GgmlTypeInfo& row : kGgmlTypes)
    if (row.type == type)
      return row;
  fail(ErrorKind::Value, "GGUF: type {} is none that egret reads", static_cast<unsigned>(type));
}

GgufHeader read_gguf_header(const InputFile& file) {
  Parser parser(file);
  parser.parse();
  return std::move(parser.header);
}

} // namespace egret::io
