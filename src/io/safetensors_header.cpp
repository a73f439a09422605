#include "io/safetensors_header.h"

#include "io/file.h"
#include "support/json_reason.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

namespace egret::io {

namespace {

constexpr std::string_view kFormat = "safetensors";
constexpr std::string_view kMetadata = "__metadata__";
constexpr std::size_t kMostDims = 64;

struct TypeName {
  std::string_view name;
  DType dtype;
};
constexpr std::array<TypeName, 15> kTypes = {{
    {"BOOL", DType::Bool},
    {"I8", DType::I8},
    {"I16", DType::I16},
    {"I32", DType::I32},
    {"I64", DType::I64},
    {"U8", DType::U8},
    {"U16", DType::U16},
    {"U32", DType::U32},
    {"U64", DType::U64},
    {"F16", DType::F16},
    {"BF16", DType::BF16},
    {"F32", DType::F32},
    {"F64", DType::F64},
    {"F8_E4M3", DType::F8E4M3},
    {"F8_E5M2", DType::F8E5M2},
}};

/// Walks the text for the parser and tells the handler how far it is.
class Cursor {
public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Cursor(const char* at, std::size_t* count) : at_(at), count_(count) {}
  reference operator*() const { return *at_; }
  Cursor& operator++() {
    ++at_;
    ++*count_;
    return *this;
  }
  Cursor operator++(int) {
    Cursor before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const Cursor& a, const Cursor& b) { return a.at_ == b.at_; }

private:
  const char* at_;
  std::size_t* count_;
};

/// Receives the parser's events. The grammar is fixed and three levels deep, so anything else ends
/// the parse at once: { "__metadata__": {key: text}, name: {"dtype": text, "shape": [n..],
/// "data_offsets": [begin, end]} }
class Handler : public nlohmann::json_sax<nlohmann::json> {
public:
  Handler(const std::filesystem::path& path, const std::size_t& count)
      : path_(path), count_(count) {}

  SafetensorsHeader take() && { return std::move(header_); }

  bool start_object(std::size_t) override {
    if (place_ == Place::Start) {
      place_ = Place::Top;
    } else if (place_ == Place::Value && name_ == kMetadata) {
      place_ = Place::Metadata;
    } else if (place_ == Place::Value) {
      place_ = Place::Entry;
      seen_.clear();
      header_.tensors.push_back({name_, DType::F32, {}, 0, 0});
      offsets_.clear();
    } else {
      wrong("an object");
    }
    return true;
  }
  bool key(string_t& text) override {
    if (place_ == Place::Top) {
      if (!names_.insert(text).second)
        bad("'{}' is listed twice", text);
      name_ = text;
      place_ = Place::Value;
    } else if (place_ == Place::Metadata) {
      key_ = text;
      if (header_.metadata.contains(key_))
        bad("{}: '{}' is listed twice", kMetadata, key_);
    } else {
      key_ = text;
      if (key_ != "dtype" && key_ != "shape" && key_ != "data_offsets")
        bad("tensor '{}': unknown field '{}'", name_, key_);
      if (!seen_.insert(key_).second)
        bad("tensor '{}': field '{}' is given twice", name_, key_);
    }
    return true;
  }
  bool end_object() override {
    if (place_ == Place::Entry) {
      for (std::string_view field : {"dtype", "shape", "data_offsets"})
        if (!seen_.contains(std::string(field)))
          bad("tensor '{}': field '{}' is missing", name_, field);
      check_entry(header_.tensors.back());
    }
    place_ = place_ == Place::Top ? Place::End : Place::Top;
    return true;
  }
  bool string(string_t& text) override {
    if (place_ == Place::Metadata) {
      header_.metadata.emplace(key_, text);
    } else if (place_ == Place::Entry && key_ == "dtype") {
      const auto* row = std::find_if(kTypes.begin(), kTypes.end(),
                                     [&](const TypeName& t) { return t.name == text; });
      if (row == kTypes.end())
        bad("tensor '{}': dtype '{}' is not one that egret has", name_, text);
      header_.tensors.back().dtype = row->dtype;
    } else {
      wrong("a string");
    }
    return true;
  }
  bool start_array(std::size_t) override {
    if (place_ != Place::Entry || key_ == "dtype")
      wrong("a list");
    place_ = Place::List;
    return true;
  }
  bool end_array() override {
    place_ = Place::Entry;
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::List)
      wrong("a number");
    if (value > static_cast<std::uint64_t>(INT64_MAX))
      bad("tensor '{}': {} is too large", name_, value);
    auto& shape = header_.tensors.back().shape;
    if (key_ == "data_offsets")
      offsets_.push_back(value);
    else
      shape.push_back(static_cast<std::int64_t>(value));
    if (shape.size() > kMostDims || offsets_.size() > 2)
      bad("tensor '{}': too many numbers in '{}'", name_, key_);
    return true;
  }
  bool number_integer(number_integer_t value) override {
    bad("{} where a number of at least 0 was expected", value);
  }
  bool number_float(number_float_t, const string_t& text) override {
    bad("{} where an integer was expected", text);
  }
  bool null() override { wrong("null"); }
  bool boolean(bool value) override { wrong(value ? "true" : "false"); }
  bool binary(binary_t&) override { wrong("binary data"); }
  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::detail::exception& error) override {
    std::string_view reason = json_reason(error); // "parse error at line 1, column 5: reason"
    if (auto at = reason.find(", column "); at != std::string_view::npos)
      if (at = reason.find(": ", at); at != std::string_view::npos)
        reason.remove_prefix(at + 2);
    reason = reason.substr(0, reason.find("; last read"));
    bad("the header is not JSON: {}", reason);
  }

private:
  enum class Place { Start, Top, Value, Metadata, Entry, List, End };

  template <class... Args>
  [[noreturn]] void bad(fmt::format_string<Args...> format, Args&&... args) const {
    fail_at(kFormat, path_, 8 + count_, format, std::forward<Args>(args)...);
  }
  [[noreturn]] void wrong(std::string_view what) const {
    switch (place_) {
    case Place::Start:
      bad("the header is {}, not an object", what);
    case Place::Value:
      bad("'{}' is {}, not an object", name_, what);
    case Place::Metadata:
      bad("{}: '{}' is {}, not a string", kMetadata, key_, what);
    case Place::List:
      bad("tensor '{}': {} in the list '{}'", name_, what, key_);
    default:
      bad("tensor '{}': field '{}' cannot be {}", name_, key_, what);
    }
  }
  void check_entry(TensorInfo& info) const {
    if (offsets_.size() != 2)
      bad("tensor '{}': 'data_offsets' must hold 2 numbers, not {}", name_, offsets_.size());
    info.begin = offsets_[0];
    info.end = offsets_[1];
    if (info.begin > info.end)
      bad("tensor '{}': data_offsets [{},{}] are in the wrong order", name_, info.begin, info.end);
    std::uint64_t bytes = 0;
    try {
      bytes = bytes_of(info.dtype, info.shape);
    } catch (const Error& error) {
      bad("tensor '{}': {}", name_, error.what());
    }
    if (bytes != info.end - info.begin)
      bad("tensor '{}': {} [{}] takes {} bytes, data_offsets [{},{}] hold {}", name_,
          name_of(info.dtype), fmt::join(info.shape, ","), bytes, info.begin, info.end,
          info.end - info.begin);
  }

  const std::filesystem::path& path_;
  const std::size_t& count_; ///< characters read so far
  Place place_ = Place::Start;
  SafetensorsHeader header_;
  std::string name_, key_;
  std::set<std::string> names_, seen_;
  std::vector<std::uint64_t> offsets_;
};

/// The ranges must cover the data exactly once.
void check_cover(SafetensorsHeader& header, std::uint64_t data_start, std::uint64_t data_bytes,
                 const std::filesystem::path& path) {
  auto& tensors = header.tensors;
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  std::uint64_t covered = 0;
  const std::string* last = nullptr;
  for (const auto& info : tensors) {
    if (info.begin < covered)
      fail_at(kFormat, path, data_start + info.begin, "tensors '{}' and '{}' overlap", *last,
              info.name);
    if (info.begin > covered)
      fail_at(kFormat, path, data_start + covered, "{} bytes before tensor '{}' belong to none",
              info.begin - covered, info.name);
    if (info.end > data_bytes)
      fail_at(kFormat, path, data_start + data_bytes,
              "the file ends here, tensor '{}' needs {} bytes more", info.name,
              info.end - data_bytes);
    covered = info.end;
    last = &info.name;
  }
  if (covered != data_bytes)
    fail_at(kFormat, path, data_start + covered, "{} bytes after the last tensor belong to none",
            data_bytes - covered);
}

} // namespace

std::uint64_t bytes_of(DType dtype, const std::vector<std::int64_t>& shape) {
  std::int64_t bytes = static_cast<std::int64_t>(size_of(dtype));
  bool empty = false; // the other dims must be a tensor's all the same
  for (std::int64_t dim : shape) {
    empty |= dim == 0;
    if (dim < 0 || __builtin_mul_overflow(bytes, std::max<std::int64_t>(dim, 1), &bytes))
      fail(ErrorKind::Value, "a tensor of shape [{}] is too large", fmt::join(shape, ","));
  }
  return empty ? 0 : static_cast<std::uint64_t>(bytes);
}

SafetensorsHeader parse_safetensors_header(std::string_view json, std::uint64_t data_bytes,
                                           const std::filesystem::path& path) {
  if (json.empty() || json.front() != '{')
    fail_at(kFormat, path, 8, "the header does not start with '{{'");
  if (const std::string reason = zero_byte_reason(json); !reason.empty())
    fail_at(kFormat, path, 8 + json.find('\0'), "the header is not JSON: {}", reason);
  std::size_t count = 0;
  Handler handler(path, count);
  nlohmann::json::sax_parse(Cursor(json.data(), &count), Cursor(json.data() + json.size(), &count),
                            &handler);
  SafetensorsHeader header = std::move(handler).take();
  check_cover(header, 8 + json.size(), data_bytes, path);
  return header;
}

std::string safetensors_header_text(const SafetensorsHeader& header) {
  auto json = nlohmann::ordered_json::object();
  if (!header.metadata.empty())
    json[std::string(kMetadata)] = header.metadata;
  for (const auto& info : header.tensors) {
    const auto* row = std::find_if(kTypes.begin(), kTypes.end(),
                                   [&](const TypeName& t) { return t.dtype == info.dtype; });
    ensure(row != kTypes.end(), "safetensors: no name for dtype {}", name_of(info.dtype));
    json[info.name] = {
        {"dtype", row->name}, {"shape", info.shape}, {"data_offsets", {info.begin, info.end}}};
  }
  std::string text;
  try {
    text = json.dump();
  } catch (const nlohmann::json::exception&) {
    fail(ErrorKind::Value, "safetensors: a name or metadata entry is not UTF-8");
  }
  text.append((8 - text.size() % 8) % 8, ' '); // the data start aligned
  std::string out(8, '\0');
  for (std::size_t i = 0; i < 8; ++i)
    out[i] = static_cast<char>(text.size() >> (8 * i));
  return out + text;
}

} // namespace egret::io
