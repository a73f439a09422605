#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.h"

#include "support/fail.h"
#include "support/printable.h"
#include "text/utf8.h"

#include <pcre2.h>
#include <utility>
#include <vector>

namespace egret::text {

namespace {

constexpr std::string_view kSpaces =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNotSpaces =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
constexpr std::string_view kWord =
    // Oniguruma also takes the fractions and superscripts of Latin-1.
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})";

class Translator {
public:
  Translator(std::string_view pattern, const std::string& where) : in_(pattern), where_(where) {}

  std::string run() {
    while (at_ < in_.size())
      item();
    return std::move(out_);
  }

private:
  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0';
  }

  void item() {
    switch (peek()) {
    case '\\':
      atom_ = out_.size();
      escape(false);
      break;
    case '[':
      atom_ = out_.size();
      set();
      break;
    case '(':
      groups_.push_back(out_.size());
      open_group();
      break;
    case ')':
      if (!groups_.empty()) {
        atom_ = groups_.back();
        groups_.pop_back();
      }
      copy();
      break;
    case '{':
      repeat();
      break;
    case '*':
    case '+':
    case '?':
      copy();
      break;
    default:
      atom_ = out_.size();
      copy();
    }
  }

  void copy() {
    const std::size_t bytes = utf8_length(peek());
    out_ += in_.substr(at_, bytes);
    at_ += bytes;
  }

  /// "(?m" and the like: Ruby's m lets the dot match newlines, which is s here.
  void open_group() {
    copy();
    if (peek() != '?')
      return;
    std::size_t end = at_ + 1;
    while (end < in_.size() &&
           (in_[end] == 'i' || in_[end] == 'm' || in_[end] == 'x' || in_[end] == '-'))
      ++end;
    if (end == at_ + 1 || end == in_.size() || (in_[end] != ':' && in_[end] != ')'))
      return;
    for (; at_ < end; ++at_)
      out_ += in_[at_] == 'm' ? 's' : in_[at_];
  }

  void repeat() {
    std::size_t end = at_ + 1;
    while (end < in_.size() && ((in_[end] >= '0' && in_[end] <= '9') || in_[end] == ','))
      ++end;
    const std::string_view body = in_.substr(at_ + 1, end - at_ - 1);
    if (end == in_.size() || in_[end] != '}' || body.empty() || body == ",") {
      atom_ = out_.size();
      out_ += "\\{";
      ++at_;
      return;
    }
    out_ += body.front() == ',' ? "{0" : "{";
    out_ += body;
    out_ += '}';
    at_ = end + 1;
    if (peek() == '+') {
      out_.insert(atom_, "(?:");
      out_ += ')';
    }
  }

  void escape(bool in_set) {
    const char c = peek(1);
    auto put = [&](std::string_view inside, bool negated = false) {
      if (in_set && negated)
        fail(ErrorKind::Unsupported, "{}: \\{} inside [...] of the pattern '{}'", where_, c,
             printable(in_));
      out_ += in_set ? std::string(inside) : fmt::format("[{}{}]", negated ? "^" : "", inside);
      at_ += 2;
    };
    switch (c) {
    case 's':
      return put(kSpaces);
    case 'S':
      return put(kNotSpaces);
    case 'w':
      return put(kWord);
    case 'W':
      return put(kWord, true);
    case 'h':
      return put("0-9a-fA-F");
    case 'H':
      return put("0-9a-fA-F", true);
    case 'u': {
      const std::string_view digits = in_.substr(std::min(at_ + 2, in_.size()), 4);
      if (digits.size() < 4 ||
          digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos)
        fail(ErrorKind::Parse, "{}: \\u needs four hexadecimal digits in the pattern '{}'", where_,
             printable(in_));
      out_ += fmt::format("\\x{{{}}}", digits);
      at_ += 6;
      return;
    }
    default:
      out_ += in_[at_++];
      if (at_ < in_.size())
        copy();
      // The braces of \p{...} and \x{...} belong to it.
      if ((c == 'p' || c == 'P' || c == 'x' || c == 'o' || c == 'k' || c == 'g') && peek() == '{')
        while (at_ < in_.size()) {
          const bool last = peek() == '}';
          copy();
          if (last)
            break;
        }
    }
  }

  void set() {
    out_ += in_[at_++];
    if (peek() == '^')
      out_ += in_[at_++];
    if (peek() == ']')
      out_ += in_[at_++];
    while (at_ < in_.size()) {
      if (peek() == ']') {
        out_ += in_[at_++];
        return;
      }
      if (peek() == '[' && peek(1) == ':') {
        const std::size_t end = in_.find(":]", at_);
        if (end != std::string_view::npos) {
          out_ += in_.substr(at_, end + 2 - at_);
          at_ = end + 2;
          continue;
        }
      }
      if (peek() == '[' || (peek() == '&' && peek(1) == '&'))
        fail(ErrorKind::Unsupported, "{}: nested or intersected [...] in the pattern '{}'", where_,
             printable(in_));
      if (peek() == '\\')
        escape(true);
      else
        copy();
    }
  }

  std::string_view in_;
  const std::string& where_;
  std::string out_;
  std::size_t at_ = 0, atom_ = 0;
  std::vector<std::size_t> groups_;
};

} // namespace

std::string to_pcre2(std::string_view pattern, const std::string& where) {
  return Translator(pattern, where).run();
}

struct RegexScratch::State {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 << 10, 1 << 20, nullptr);
  State() {
    if (data == nullptr || context == nullptr)
      throw std::bad_alloc();
    pcre2_set_match_limit(context, Regex::kMostSteps);
    pcre2_set_heap_limit(context, 64 << 10); // kB
    if (stack != nullptr)
      pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~State() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

RegexScratch::RegexScratch() : state_(std::make_unique<State>()) {}
RegexScratch::~RegexScratch() = default;

struct Regex::Code {
  pcre2_code* code = nullptr;
  bool jit = false;
  std::string pattern;
  ~Code() { pcre2_code_free(code); }
};

Regex::Regex(std::string_view pattern, std::string where)
    : code_(std::make_unique<Code>()), where_(std::move(where)) {
  if (pattern.size() > 1 << 16)
    fail(ErrorKind::Unsupported, "{}: a pattern of {} bytes", where_, pattern.size());
  code_->pattern = pattern;
  const std::string translated = to_pcre2(pattern, where_);
  int number = 0;
  std::size_t offset = 0;
  pcre2_compile_context* const context = pcre2_compile_context_create(nullptr);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context, 100);
  code_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                              PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                              &number, &offset, context);
  pcre2_compile_context_free(context);
  if (code_->code == nullptr) {
    PCRE2_UCHAR text[256] = {};
    pcre2_get_error_message(number, text, sizeof text);
    fail(ErrorKind::Parse, "{}: the pattern '{}': {}", where_, printable(pattern),
         reinterpret_cast<const char*>(text));
  }
  code_->jit = pcre2_jit_compile(code_->code, PCRE2_JIT_COMPLETE) == 0;
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;

bool Regex::find(std::string_view text, std::size_t from, Range& match,
                 RegexScratch& scratch) const {
  RegexScratch::State& s = *scratch.state_;
  const auto run = code_->jit ? pcre2_jit_match : pcre2_match;
  const int found = run(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                        PCRE2_NO_UTF_CHECK, s.data, s.context);
  if (found == PCRE2_ERROR_NOMATCH)
    return false;
  if (found < 0) {
    PCRE2_UCHAR reason[256] = {};
    pcre2_get_error_message(found, reason, sizeof reason);
    fail(ErrorKind::Value, "{}: the pattern '{}' at byte {} of a text of {}: {}", where_,
         printable(code_->pattern), from, text.size(), reinterpret_cast<const char*>(reason));
  }
  const std::size_t* const ends = pcre2_get_ovector_pointer(s.data);
  match = {ends[0], std::max(ends[0], ends[1])};
  // \K in a lookahead may set a start before `from`, which would never come to an end.
  match.begin = std::max(match.begin, from);
  match.end = std::max(match.end, match.begin);
  return true;
}

} // namespace egret::text
