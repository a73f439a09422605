#include "io/npy_header.h"

#include "io/safetensors_header.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <set>
#include <string_view>

namespace egret::io {

namespace {

constexpr std::string_view kNpyMagic("\x93NUMPY", 6);
constexpr std::uint64_t kMostNpyHeaderBytes = 1 << 20;

struct TypeCode {
  std::string_view code;
  DType dtype;
};
constexpr std::array<TypeCode, 12> kCodes = {{
    {"b1", DType::Bool},
    {"i1", DType::I8},
    {"i2", DType::I16},
    {"i4", DType::I32},
    {"i8", DType::I64},
    {"u1", DType::U8},
    {"u2", DType::U16},
    {"u4", DType::U32},
    {"u8", DType::U64},
    {"f2", DType::F16},
    {"f4", DType::F32},
    {"f8", DType::F64},
}};

/// Reads the one Python literal that the format allows: {'descr': '<f4', 'fortran_order': False,
/// 'shape': (2, 3), }
class Literal {
public:
  Literal(const InputFile& file, std::uint64_t start, std::string_view text)
      : file_(file), start_(start), text_(text) {}

  NpyHeader read() {
    NpyHeader header;
    std::set<std::string> seen;
    expect('{');
    while (!accept('}')) {
      std::string key = quoted();
      if (!seen.insert(key).second)
        bad("'{}' is given twice", key);
      expect(':');
      if (key == "descr")
        descr(header);
      else if (key == "fortran_order")
        header.fortran_order = truth();
      else if (key == "shape")
        header.shape = tuple();
      else
        bad("unknown key '{}'", key);
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (at_ != text_.size())
      bad("the header goes on after '}}'");
    for (const char* key : {"descr", "fortran_order", "shape"})
      if (!seen.contains(key))
        bad("'{}' is missing", key);
    return header;
  }

private:
  template <class... Args>
  [[noreturn]] void bad(fmt::format_string<Args...> format, Args&&... args) const {
    file_.fail(start_ + at_, "header: {}", fmt::format(format, std::forward<Args>(args)...));
  }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n'))
      ++at_;
  }
  bool accept(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c)
      return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c))
      bad("expected '{}'", c);
  }
  std::string quoted() {
    skip_space();
    char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"')
      bad("expected a quoted name");
    auto end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos)
      bad("a quote that does not end");
    std::string word(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return word;
  }
  bool truth() {
    skip_space();
    for (bool value : {false, true}) {
      std::string_view word = value ? "True" : "False";
      if (text_.substr(at_, word.size()) == word) {
        at_ += word.size();
        return value;
      }
    }
    bad("expected True or False");
  }
  std::vector<std::int64_t> tuple() {
    std::vector<std::int64_t> dims;
    expect('(');
    while (!accept(')')) {
      skip_space();
      std::int64_t dim = 0;
      auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), dim);
      if (error != std::errc() || dim < 0)
        bad("expected a size of at least 0 that fits 63 bits");
      if (dims.size() == 64)
        bad("more than 64 dims");
      dims.push_back(dim);
      at_ = static_cast<std::size_t>(end - text_.data());
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return dims;
  }
  void descr(NpyHeader& header) {
    skip_space();
    if (at_ < text_.size() && text_[at_] == '[')
      bad("an array of records, which egret does not read");
    std::string code = quoted();
    std::string_view rest = code;
    if (!rest.empty() && std::string_view("<>|=").find(rest.front()) != std::string_view::npos) {
      header.big_endian = rest.front() == '>';
      rest.remove_prefix(1);
    }
    const auto* row = std::find_if(kCodes.begin(), kCodes.end(),
                                   [&](const TypeCode& t) { return t.code == rest; });
    if (row == kCodes.end())
      bad("the dtype '{}' is not one that egret has", code);
    header.dtype = row->dtype;
  }

  const InputFile& file_;
  std::uint64_t start_; ///< offset of the text in the file
  std::string_view text_;
  std::size_t at_ = 0;
};

} // namespace

NpyHeader read_npy_header(const InputFile& file) {
  std::array<std::byte, 12> fixed = {};
  std::size_t n = file.read_some(0, fixed);
  if (n < kNpyMagic.size() ||
      !std::equal(kNpyMagic.begin(), kNpyMagic.end(), fixed.begin(),
                  [](char a, std::byte b) { return static_cast<std::byte>(a) == b; }))
    file.fail(0, "not an NPY file: it does not start with \\x93NUMPY");
  unsigned version = n > 6 ? std::to_integer<unsigned>(fixed[6]) : 0;
  if (version < 1 || version > 3)
    file.fail(6, "version {} of the format is not known", version);
  std::size_t prefix = version == 1 ? 10 : 12;
  if (n < prefix)
    file.fail(n, "the file ends in the header");
  std::uint64_t length = 0;
  for (std::size_t i = prefix; i-- > 8;)
    length = length << 8 | std::to_integer<std::uint64_t>(fixed[i]);
  if (length > kMostNpyHeaderBytes || prefix + length > file.size())
    file.fail(8, "a header of {} bytes in a file of {}", length, file.size());

  std::string text(length, '\0');
  file.read_at(prefix, std::as_writable_bytes(std::span(text)));
  NpyHeader header = Literal(file, prefix, text).read();
  header.data_start = prefix + length;
  std::uint64_t bytes = 0;
  try {
    bytes = bytes_of(header.dtype, header.shape);
  } catch (const Error& error) {
    file.fail(prefix, "{}", error.what());
  }
  std::uint64_t held = file.size() - header.data_start;
  if (bytes != held)
    file.fail(header.data_start, "({}) of {} takes {} bytes, the file holds {}",
              fmt::join(header.shape, ", "), name_of(header.dtype), bytes, held);
  return header;
}

std::string npy_header_text(DType dtype, const std::vector<std::int64_t>& shape) {
  const auto* row = std::find_if(kCodes.begin(), kCodes.end(),
                                 [&](const TypeCode& t) { return t.dtype == dtype; });
  if (row == kCodes.end())
    fail(ErrorKind::DType, "npy: NumPy has no code for {} (cast the tensor to f32)",
         name_of(dtype));
  std::string text = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}{}), }}",
                                 size_of(dtype) == 1 ? '|' : '<', row->code, fmt::join(shape, ", "),
                                 shape.size() == 1 ? "," : "");
  constexpr std::size_t kPrefix = 10;
  constexpr std::size_t kAlignment = 64;
  text.append(kAlignment - 1 - (kPrefix + text.size()) % kAlignment, ' ');
  text += '\n';
  std::string out(kNpyMagic);
  out += {'\1', '\0', static_cast<char>(text.size() & 0xff), static_cast<char>(text.size() >> 8)};
  return out + text;
}

} // namespace egret::io
