// The notation of llama.cpp's grammars (grammars/README.md there).
#include "support/fail.h"
#include "support/hex_digit.h"
#include "support/printable.h"
#include "text/grammar/repeat_count.h"
#include "text/grammar/syntax.h"
#include "text/utf8.h"

#include <algorithm>
#include <map>

namespace egret::text::grammar {

namespace {

constexpr std::size_t kMostGroups = 64, kMostText = std::size_t{1} << 20U;
constexpr std::uint32_t kMostRepeats = 1'000'000;

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

class GbnfParser {
public:
  GbnfParser(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  Rules parse() {
    for (skip(true); !ended(); skip(true))
      rule();
    Rules rules;
    for (auto& [rule_name, line, body] : rules_) {
      if (!body) {
        at_line_ = line;
        refuse(fmt::format("there is no rule '{}'", rule_name));
      }
      rules.rules.push_back({rule_name, std::move(body)});
    }
    const auto root = numbers_.find("root");
    if (root == numbers_.end())
      fail(ErrorKind::Parse, "{}: there is no rule 'root', from which texts are derived", name_);
    rules.root = root->second;
    return rules;
  }

private:
  struct Known {
    std::string name;
    std::size_t line; ///< where it was named first
    NodePtr body;
  };

  bool ended() const { return at_ >= text_.size(); }
  char here() const { return ended() ? '\0' : text_[at_]; }
  [[noreturn]] void refuse(const std::string& why, ErrorKind kind = ErrorKind::Parse) const {
    const std::size_t line =
        at_line_ != 0
            ? at_line_
            : 1 + static_cast<std::size_t>(std::count(
                      text_.begin(),
                      text_.begin() + static_cast<std::ptrdiff_t>(std::min(at_, text_.size())),
                      '\n'));
    fail(kind, "{}: line {}: {}", name_, line, why);
  }
  bool eat(std::string_view what) {
    if (!text_.substr(at_).starts_with(what))
      return false;
    at_ += what.size();
    return true;
  }
  void require(std::string_view what) {
    if (!eat(what))
      refuse(fmt::format("'{}' is needed here", what));
  }
  /// Blanks and comments, and ends of lines if asked.
  void skip(bool lines) {
    while (!ended()) {
      if (here() == '#')
        at_ = std::min(text_.find('\n', at_), text_.size());
      else if (here() == ' ' || here() == '\t' || (lines && (here() == '\n' || here() == '\r')))
        ++at_;
      else
        return;
    }
  }

  std::string word() {
    const std::size_t begin = at_;
    while (is_word(here()))
      ++at_;
    if (begin == at_)
      refuse("the name of a rule is needed here");
    return std::string(text_.substr(begin, at_ - begin));
  }
  std::size_t number_of(const std::string& rule_name) {
    const auto [at, fresh] = numbers_.emplace(rule_name, rules_.size());
    if (fresh)
      rules_.push_back(
          {rule_name,
           1 + static_cast<std::size_t>(std::count(
                   text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at_), '\n')),
           nullptr});
    return at->second;
  }

  void rule() {
    const std::string rule_name = word();
    skip(false);
    require("::=");
    skip(true);
    const std::size_t number = number_of(rule_name);
    if (rules_[number].body)
      refuse(fmt::format("there is a rule '{}' already", rule_name));
    NodePtr body = alternatives(false);
    rules_[number].body = std::move(body);
    if (!ended() && here() != '\n' && here() != '\r')
      refuse(fmt::format("'{}' cannot stand here", printable(text_.substr(at_, 1))));
  }

  NodePtr alternatives(bool group) {
    std::vector<NodePtr> all;
    do {
      skip(true);
      all.push_back(parts(group));
    } while (eat("|"));
    return choice(std::move(all));
  }

  NodePtr parts(bool group) {
    std::vector<NodePtr> all;
    for (skip(group);
         !ended() && here() != '|' && here() != ')' && here() != '\n' && here() != '\r';
         skip(group))
      all.push_back(repeated(part()));
    return sequence(std::move(all));
  }

  NodePtr part() {
    if (eat("\""))
      return quoted();
    if (eat("["))
      return char_class();
    if (eat("."))
      return one_of({{0, kLastChar}});
    if (eat("(")) {
      if (++groups_ > kMostGroups)
        refuse(fmt::format("more than {} groups inside each other", kMostGroups));
      NodePtr body = alternatives(true);
      --groups_;
      require(")");
      return body;
    }
    if (here() == '<' || here() == '!')
      refuse("tokens as symbols are not supported", ErrorKind::Unsupported);
    if (!is_word(here()))
      refuse(fmt::format("'{}' cannot stand here", printable(text_.substr(at_, 1))));
    return reference(number_of(word()));
  }

  NodePtr repeated(NodePtr body) {
    for (;;) {
      if (eat("*")) {
        body = repeat(std::move(body), 0);
      } else if (eat("+")) {
        body = repeat(std::move(body), 1);
      } else if (eat("?")) {
        body = optional(std::move(body));
      } else if (eat("{")) {
        const std::uint32_t least = count();
        std::uint32_t most = least;
        if (eat(","))
          most = here() == '}' ? Repeat::kUnbounded : count();
        require("}");
        if (most < least)
          refuse(fmt::format("{{{},{}}} repeats less than least", least, most));
        body = repeat(std::move(body), least, most);
      } else {
        return body;
      }
      if (++repeats_ > kMostText)
        refuse("too many repetitions");
      if (const char c = here(); c == '*' || c == '+' || c == '?' || c == '{')
        refuse("a repetition of a repetition needs a group");
    }
  }
  std::uint32_t count() {
    return repeat_count(text_, at_, kMostRepeats, [this](const std::string& why) { refuse(why); });
  }

  char32_t hex(std::size_t digits) {
    char32_t value = 0;
    for (std::size_t i = 0; i < digits; ++i, ++at_) {
      const int digit = hex_digit(here());
      if (digit < 0)
        refuse(fmt::format("{} hexadecimal digits are needed here", digits));
      value = 16 * value + static_cast<char32_t>(digit);
    }
    if (value > kLastChar || (value >= 0xd800 && value <= 0xdfff))
      refuse(fmt::format("U+{:04X} is no character", static_cast<std::uint32_t>(value)));
    return value;
  }
  char32_t character() {
    if (ended() || here() == '\n')
      refuse("the line ends within quotes or brackets");
    if (!eat("\\"))
      return next_char(text_, at_);
    constexpr std::string_view kNames = "ntr\\\"[]-^", kMeans = "\n\t\r\\\"[]-^";
    const std::size_t found = ended() ? std::string_view::npos : kNames.find(here());
    if (found != std::string_view::npos) {
      ++at_;
      return static_cast<char32_t>(kMeans[found]);
    }
    if (eat("x"))
      return hex(2);
    if (eat("u"))
      return hex(4);
    if (eat("U"))
      return hex(8);
    refuse(fmt::format("'\\{}' is no escape", printable(text_.substr(at_, 1))));
  }
  NodePtr quoted() {
    std::string bytes;
    while (!eat("\""))
      append_char(bytes, character());
    return literal(bytes);
  }
  NodePtr char_class() {
    const bool others = eat("^");
    std::vector<CharRange> ranges;
    while (!eat("]")) {
      const char32_t first = character();
      char32_t last = first;
      if (here() == '-' && !text_.substr(at_).starts_with("-]")) {
        ++at_;
        last = character();
      }
      if (last < first)
        refuse("a range of a class ends before it begins");
      ranges.push_back({first, last});
    }
    return one_of(others ? complement(std::move(ranges)) : std::move(ranges));
  }

  std::string_view text_;
  const std::string& name_;
  std::size_t at_ = 0, at_line_ = 0, groups_ = 0, repeats_ = 0;
  std::vector<Known> rules_;
  std::map<std::string, std::size_t, std::less<>> numbers_;
};

} // namespace

Rules parse_gbnf(std::string_view text, const std::string& name) {
  if (text.size() > kMostText)
    fail(ErrorKind::Value, "{}: {} bytes; a grammar has at most {}", name, text.size(), kMostText);
  if (!is_utf8(text))
    fail(ErrorKind::Parse, "{}: not UTF-8", name);
  return GbnfParser(text, name).parse();
}

} // namespace egret::text::grammar
