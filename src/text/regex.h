// Regular expressions of tokenizer files. They are written for Oniguruma with Ruby's syntax; here
// they are translated to PCRE2's, compiled to machine code where that is possible, and matched
// with a limit on steps.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace egret::text {

/// What one thread needs to match; any Regex may use it.
class RegexScratch {
public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;

private:
  friend class Regex;
  struct State;
  std::unique_ptr<State> state_;
};

struct Range {
  std::size_t begin = 0, end = 0;
};

class Regex {
public:
  /// `where` names the place in messages. Throws Error(Parse) for a malformed pattern,
  /// Error(Unsupported) for nested or intersected character classes.
  Regex(std::string_view pattern, std::string where);
  ~Regex();
  Regex(Regex&&) noexcept;

  /// The first match at or after `from` in valid UTF-8. Throws Error(Value) when it would take more
  /// than kMostSteps.
  bool find(std::string_view text, std::size_t from, Range& match, RegexScratch& scratch) const;

  static constexpr unsigned kMostSteps = 5'000'000;

private:
  struct Code;
  std::unique_ptr<Code> code_;
  std::string where_;
};

/// Ruby's syntax to PCRE2's: \s, \w, \h and their negations as explicit sets, \uHHHH, the flag m,
/// {,n}, and {n,m}+, which repeats here and is possessive there.
std::string to_pcre2(std::string_view pattern, const std::string& where);

/// All matches in order, as ranges that do not overlap; an empty one directly behind another is
/// passed over. `visit` is called with each.
template <class Visit>
void each_match(const Regex& regex, std::string_view text, RegexScratch& scratch, Visit&& visit) {
  std::size_t from = 0;
  bool matched = false;
  Range m;
  while (from <= text.size() && regex.find(text, from, m, scratch)) {
    if (m.begin == m.end && matched && m.end == from) {
      do
        ++from;
      while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xc0) == 0x80);
      matched = false;
      continue;
    }
    visit(m);
    from = m.end;
    matched = true;
  }
}

} // namespace egret::text
