// Regular expressions of JSON schemas (ECMA-262) as grammars of what stands between the quotes.
#include "support/fail.h"
#include "support/hex_digit.h"
#include "support/printable.h"
#include "text/grammar/json_texts.h"
#include "text/grammar/repeat_count.h"
#include "text/utf8.h"

#include <optional>

namespace egret::text::grammar {

namespace {

using Ranges = std::vector<CharRange>;

Ranges digit_chars() {
  return {{'0', '9'}};
}
Ranges word_chars() {
  return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
}
Ranges space_chars() {
  return {{0x09, 0x0d},     {0x20, 0x20},     {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
          {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};
}

class PatternParser {
public:
  PatternParser(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  NodePtr parse() {
    NodePtr all = alternatives(true);
    if (!ended())
      refuse(fmt::format("'{}' cannot stand here", here()));
    return all;
  }

private:
  static constexpr std::uint32_t kMostRepeats = 100'000;
  static constexpr int kMostGroups = 64;

  bool ended() const { return at_ >= text_.size(); }
  char here() const { return ended() ? '\0' : text_[at_]; }
  bool eat(std::string_view what) {
    if (!text_.substr(at_).starts_with(what))
      return false;
    at_ += what.size();
    return true;
  }
  [[noreturn]] void refuse(const std::string& why) const {
    fail(ErrorKind::Parse, "{}: at byte {} of the pattern: {}", where_, at_, why);
  }
  [[noreturn]] void unsupported(std::string_view what) const {
    fail(ErrorKind::Unsupported, "{}: {} in a pattern (at byte {}) is not supported", where_, what,
         at_);
  }

  NodePtr alternatives(bool outermost) {
    std::vector<NodePtr> all;
    do {
      all.push_back(parts(outermost));
    } while (eat("|"));
    return choice(std::move(all));
  }

  NodePtr parts(bool outermost) {
    std::vector<NodePtr> all;
    bool anchored = false;
    if (outermost && !eat("^"))
      all.push_back(repeat(string_char(), 0));
    while (!ended() && here() != '|' && here() != ')') {
      if (outermost && here() == '$' && (at_ + 1 == text_.size() || text_[at_ + 1] == '|')) {
        ++at_;
        anchored = true;
        break;
      }
      all.push_back(repeated(part()));
    }
    if (outermost && !anchored)
      all.push_back(repeat(string_char(), 0));
    return sequence(std::move(all));
  }

  NodePtr part() {
    if (eat("(")) {
      if (eat("?:") == false && here() == '?')
        unsupported("a group with '(?'");
      if (++groups_ > kMostGroups)
        refuse(fmt::format("more than {} groups inside each other", kMostGroups));
      NodePtr body = alternatives(false);
      --groups_;
      if (!eat(")"))
        refuse("')' is missing");
      return body;
    }
    if (eat("["))
      return string_char(char_class());
    if (eat("."))
      return string_char(complement({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}));
    if (here() == '^' || here() == '$')
      unsupported("an anchor that is not at an end");
    if (here() == '*' || here() == '+' || here() == '?' || here() == '{')
      refuse(fmt::format("nothing stands before '{}'", here()));
    if (eat("\\"))
      return string_char(escape(false));
    const char32_t c = next_char(text_, at_);
    return string_char({{c, c}});
  }

  NodePtr repeated(NodePtr body) {
    std::uint32_t least = 0, most = Repeat::kUnbounded;
    if (eat("*")) {
    } else if (eat("+")) {
      least = 1;
    } else if (eat("?")) {
      most = 1;
    } else if (eat("{")) {
      least = most = count();
      if (eat(","))
        most = here() == '}' ? Repeat::kUnbounded : count();
      if (!eat("}"))
        refuse("'}' is missing");
      if (most < least)
        refuse("a repetition's bounds are in the wrong order");
    } else {
      return body;
    }
    if (here() == '?')
      unsupported("lazy repetition");
    if (here() == '*' || here() == '+' || here() == '{')
      refuse(fmt::format("nothing stands before '{}'", here()));
    return repeat(std::move(body), least, most);
  }
  std::uint32_t count() {
    return repeat_count(text_, at_, kMostRepeats, [this](const std::string& why) { refuse(why); });
  }

  char32_t hex(std::size_t least, std::size_t most) {
    char32_t value = 0;
    std::size_t n = 0;
    for (; n < most; ++n, ++at_) {
      const int digit = hex_digit(here());
      if (digit < 0)
        break;
      value = 16 * value + static_cast<char32_t>(digit);
    }
    if (n < least || value > kLastChar)
      refuse("hexadecimal digits of a character are needed here");
    return value;
  }

  /// Behind a backslash.
  Ranges escape(bool in_class) {
    if (ended())
      refuse("a backslash ends the pattern");
    const char c = here();
    if (static_cast<unsigned char>(c) >= 0x80)
      refuse("a backslash before a letter of no meaning");
    ++at_;
    const auto one = [](char32_t code) { return Ranges{{code, code}}; };
    switch (c) {
    case 'd':
      return digit_chars();
    case 'D':
      return complement(digit_chars());
    case 'w':
      return word_chars();
    case 'W':
      return complement(word_chars());
    case 's':
      return space_chars();
    case 'S':
      return complement(space_chars());
    case 'n':
      return one('\n');
    case 't':
      return one('\t');
    case 'r':
      return one('\r');
    case 'f':
      return one('\f');
    case 'v':
      return one('\v');
    case 'x':
      return one(hex(2, 2));
    case 'u':
      if (eat("{")) {
        const char32_t code = hex(1, 6);
        if (!eat("}"))
          refuse("'}' is missing");
        return one(code);
      }
      return one(hex(4, 4));
    case '0':
      if (here() < '0' || here() > '9')
        return one(0);
      break;
    case 'b':
      if (in_class)
        return one('\b');
      break;
    default:
      if ((c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9'))
        return one(static_cast<char32_t>(c));
    }
    unsupported(fmt::format("'\\{}'", printable(std::string(1, c))));
  }

  Ranges char_class() {
    const bool others = eat("^");
    Ranges all;
    while (!eat("]")) {
      const Ranges first = item();
      if (here() != '-' || text_.substr(at_).starts_with("-]")) {
        all.insert(all.end(), first.begin(), first.end());
        continue;
      }
      ++at_;
      const Ranges last = item();
      const auto single = [](const Ranges& r) { return r.size() == 1 && r[0].first == r[0].last; };
      if (!single(first) || !single(last) || last[0].first < first[0].first)
        refuse("a range of a class goes from a character to one behind it");
      all.push_back({first[0].first, last[0].first});
    }
    return others ? complement(std::move(all)) : normalized(std::move(all));
  }
  Ranges item() {
    if (ended())
      refuse("']' is missing");
    if (eat("\\"))
      return escape(true);
    const char32_t c = next_char(text_, at_);
    return {{c, c}};
  }

  std::string_view text_;
  const std::string& where_;
  std::size_t at_ = 0;
  int groups_ = 0;
};

} // namespace

NodePtr pattern_text(std::string_view pattern, const std::string& where) {
  return PatternParser(pattern, where).parse();
}

} // namespace egret::text::grammar
