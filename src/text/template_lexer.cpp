#include "text/template_lexer.h"

#include "support/fail.h"
#include "support/printable.h"
#include "text/utf8.h"

#include <algorithm>
#include <charconv>

namespace egret::text::jinja {

namespace {

bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::string plain_newlines(std::string_view source) {
  std::string out;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      i += i + 1 < source.size() && source[i + 1] == '\n' ? 1 : 0;
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n'))
    out.pop_back();
  return out;
}

std::size_t spaces_at(std::string_view text, std::size_t at) {
  std::size_t end = at;
  while (at < text.size() && is_python_space(next_char(text, at)))
    end = at;
  return end;
}

class Lexer {
public:
  Lexer(std::string_view source, const std::string& name)
      : name_(name), source_(plain_newlines(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size())
      text();
    add(Token::Kind::End, "");
    return std::move(tokens_);
  }

private:
  [[noreturn]] void refuse(const std::string& why) const {
    fail(ErrorKind::Parse, "{}: line {}: {}", name_, line_, why);
  }
  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  void add(Token::Kind kind, std::string_view text) {
    tokens_.push_back({kind, line_, std::string(text)});
  }
  void skip(std::size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    at_ = to;
  }

  /// Up to the next tag, and the tag.
  void text() {
    std::size_t tag = at_;
    while ((tag = source_.find('{', tag)) != std::string::npos &&
           (tag + 1 == source_.size() ||
            std::string_view("{%#").find(source_[tag + 1]) == std::string_view::npos))
      ++tag;
    tag = std::min(tag, source_.size());
    std::string_view before = std::string_view(source_).substr(at_, tag - at_);
    const bool whole = tag == source_.size();
    const char kind = whole ? '\0' : source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    if (!whole)
      before = strip_before(before, kind, sign);
    if (!before.empty())
      add(Token::Kind::Text, before);
    skip(tag);
    if (whole)
      return;
    const bool marked = sign == '-' || sign == '+';
    skip(tag + (marked ? 3 : 2));
    if (kind == '#')
      comment();
    else if (kind == '{')
      tag_tokens(Token::Kind::PrintBegin, Token::Kind::PrintEnd, "}}");
    else if (!raw())
      tag_tokens(Token::Kind::BlockBegin, Token::Kind::BlockEnd, "%}");
  }

  std::string_view strip_before(std::string_view before, char kind, char sign) const {
    if (sign == '-') {
      while (!before.empty()) {
        const std::size_t last = previous_char(before, before.size());
        std::size_t at = last;
        if (!is_python_space(next_char(before, at)))
          break;
        before = before.substr(0, last);
      }
      return before;
    }
    if (sign == '+' || kind == '{')
      return before;
    const std::size_t newline = before.rfind('\n');
    const std::size_t line = newline == std::string_view::npos ? 0 : newline + 1;
    if ((line > 0 || line_starts_) && spaces_at(before, line) == before.size())
      return before.substr(0, line);
    return before;
  }

  /// Behind a tag: "-" takes all spaces, a tag but {{ }} takes a newline unless "+" keeps it.
  void end_tag(bool minus, bool trims) {
    std::size_t to = at_;
    if (minus)
      to = spaces_at(source_, at_);
    else if (trims && at_ < source_.size() && source_[at_] == '\n')
      to = at_ + 1;
    line_starts_ = to > at_ && source_[to - 1] == '\n';
    skip(to);
  }

  void comment() {
    const std::size_t end = source_.find("#}", at_);
    if (end == std::string::npos)
      refuse("a comment without its end");
    const char sign = end > at_ ? source_[end - 1] : '\0';
    skip(end + 2);
    end_tag(sign == '-', sign != '+');
  }

  /// {% raw %} ... {% endraw %}
  bool raw() {
    auto word = [&](std::size_t at, std::string_view name, std::size_t& end, char& sign) {
      at = spaces_at(source_, at);
      if (std::string_view(source_).substr(at, name.size()) != name)
        return false;
      at = spaces_at(source_, at + name.size());
      sign = at < source_.size() ? source_[at] : '\0';
      at += sign == '-' || sign == '+' ? 1 : 0;
      end = at + 2;
      return std::string_view(source_).substr(at, 2) == "%}";
    };
    std::size_t end = 0;
    char sign = 0;
    if (!word(at_, "raw", end, sign))
      return false;
    skip(end);
    end_tag(sign == '-', sign != '+');
    for (std::size_t tag = at_; (tag = source_.find("{%", tag)) != std::string::npos; tag += 2) {
      const char before = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
      if (!word(tag + (before == '-' || before == '+' ? 3 : 2), "endraw", end, sign))
        continue;
      add(Token::Kind::Text,
          strip_before(std::string_view(source_).substr(at_, tag - at_), '%', before));
      skip(end);
      end_tag(sign == '-', sign != '+');
      return true;
    }
    refuse("raw without its endraw");
  }

  void tag_tokens(Token::Kind begin, Token::Kind end, std::string_view close) {
    add(begin, "");
    std::string open; // brackets: inside them "}}" is no end
    while (true) {
      skip(spaces_at(source_, at_));
      if (at_ == source_.size())
        refuse(fmt::format("'{}' is missing", close));
      if (open.empty()) {
        const char sign =
            source_[at_] == '-' || (source_[at_] == '+' && close == "%}") ? source_[at_] : '\0';
        if (rest().substr(sign != '\0' ? 1 : 0, 2) == close) {
          add(end, "");
          skip(at_ + (sign != '\0' ? 3 : 2));
          end_tag(sign == '-', close == "%}" && sign != '+');
          return;
        }
      }
      token(open);
    }
  }

  void token(std::string& open) {
    const char c = source_[at_];
    if (is_name_start(c)) {
      std::size_t end = at_;
      while (end < source_.size() && (is_name_start(source_[end]) || is_digit(source_[end])))
        ++end;
      add(Token::Kind::Name, rest().substr(0, end - at_));
      at_ = end;
    } else if (is_digit(c)) {
      number();
    } else if (c == '"' || c == '\'') {
      string(c);
    } else {
      bracket(c, open);
      static constexpr std::string_view kLong[] = {"//", "**", "==", "!=", ">=", "<="};
      for (const std::string_view op : kLong)
        if (rest().starts_with(op)) {
          add(Token::Kind::Operator, op);
          at_ += 2;
          return;
        }
      if (std::string_view("+-*/%~<>=.,:|()[]{}").find(c) == std::string_view::npos)
        refuse(fmt::format("unexpected '{}'", printable(rest().substr(0, utf8_length(c)))));
      add(Token::Kind::Operator, rest().substr(0, 1));
      ++at_;
    }
  }

  void bracket(char c, std::string& open) {
    static constexpr std::string_view kOpen = "([{", kClose = ")]}";
    if (const std::size_t kind = kOpen.find(c); kind != std::string_view::npos) {
      open += kClose[kind];
    } else if (kClose.find(c) != std::string_view::npos) {
      if (open.empty() || open.back() != c)
        refuse(fmt::format("unexpected '{}'", c));
      open.pop_back();
    }
  }

  void number() {
    std::string digits;
    std::size_t end = at_;
    bool whole = true;
    auto take = [&] {
      while (end < source_.size() && (is_digit(source_[end]) || source_[end] == '_')) {
        if (source_[end] != '_')
          digits += source_[end];
        ++end;
      }
    };
    take();
    if (end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
      whole = false;
      digits += source_[end++];
      take();
    }
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      std::size_t sign = end + 1;
      sign += sign < source_.size() && (source_[sign] == '+' || source_[sign] == '-') ? 1 : 0;
      if (sign < source_.size() && is_digit(source_[sign])) {
        whole = false;
        digits.append(source_, end, sign - end);
        end = sign;
        take();
      }
    }
    Token token{whole ? Token::Kind::Integer : Token::Kind::Float, line_, digits};
    const char *from = digits.data(), *to = digits.data() + digits.size();
    const auto error = whole ? std::from_chars(from, to, token.integer).ec
                             : std::from_chars(from, to, token.number).ec;
    if (error != std::errc())
      refuse(fmt::format("the number {} is too large", digits.substr(0, 40)));
    tokens_.push_back(std::move(token));
    at_ = end;
  }

  void string(char quote) {
    const int line = line_;
    std::string out;
    std::size_t at = at_ + 1;
    for (; at < source_.size() && source_[at] != quote; ++at)
      if (source_[at] == '\\' && at + 1 < source_.size())
        at = escape(at + 1, out);
      else
        out += source_[at];
    if (at >= source_.size())
      refuse("a string without its end");
    tokens_.push_back({Token::Kind::String, line, std::move(out)});
    skip(at + 1);
  }

  /// Python's escapes; `at` is behind the backslash. Returns the place of the last character.
  std::size_t escape(std::size_t at, std::string& out) {
    static constexpr std::string_view kLetters = "abfnrtv\\'\"", kMeant = "\a\b\f\n\r\t\v\\'\"";
    const char c = source_[at];
    if (const std::size_t known = kLetters.find(c); known != std::string_view::npos) {
      out += kMeant[known];
      return at;
    }
    if (c == '\n')
      return at;
    std::size_t begin = at + 1, most = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    unsigned base = 16;
    if (c >= '0' && c <= '7') {
      begin = at;
      most = 3;
      base = 8;
    }
    if (most == 0) {
      out += '\\';
      out += c;
      return at;
    }
    std::uint32_t value = 0;
    std::size_t end = begin;
    for (; end < std::min(source_.size(), begin + most); ++end) {
      const char d = source_[end];
      const unsigned digit = is_digit(d)            ? static_cast<unsigned>(d - '0')
                             : d >= 'a' && d <= 'f' ? static_cast<unsigned>(d - 'a') + 10
                             : d >= 'A' && d <= 'F' ? static_cast<unsigned>(d - 'A') + 10
                                                    : 99;
      if (digit >= base)
        break;
      value = value * base + digit;
    }
    if ((base == 16 && end - begin != most) || value > 0x10ffff ||
        (value >= 0xd800 && value < 0xe000))
      refuse("a malformed escape in a string");
    append_char(out, value);
    return end - 1;
  }

  const std::string& name_;
  std::string source_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true; ///< the text before this place ended its line
};

} // namespace

std::vector<Token> tokenize(std::string_view source, const std::string& name) {
  return Lexer(source, name).run();
}

} // namespace egret::text::jinja
