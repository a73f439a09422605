// Normalizers: what is done to text before it is split.
#pragma once

#include "support/find_text.h"
#include "text/json_fields.h"
#include "text/regex.h"

#include <memory>
#include <string>

namespace egret::text {

class Normalizer {
public:
  /// The field that describes it begins messages.
  explicit Normalizer(const Field& field) : path_(field.path()) {}
  virtual ~Normalizer() = default;

  /// Valid UTF-8 in place. Error(Value) where it becomes longer than most_normalized() says.
  void apply(std::string& text, RegexScratch& scratch) const {
    run(text, scratch, most_normalized(text.size()));
  }
  /// The same with `most` bytes at any time.
  virtual void run(std::string& text, RegexScratch& scratch, std::size_t most) const = 0;

  /// Bytes that a text may become: NFKC makes 11 of one at most, replacements that a file
  /// describes could double a text any number of times.
  static std::size_t most_normalized(std::size_t bytes) { return 65536 + 64 * bytes; }

protected:
  void check(std::size_t bytes, std::size_t most) const;

private:
  std::string path_;
};

/// From "normalizer" of tokenizer.json.
std::unique_ptr<Normalizer> make_normalizer(const Field& field);

/// What Replace and Split look for: a string or a regular expression, from {"String": s} or
/// {"Regex": r}.
class Pattern {
public:
  explicit Pattern(const Field& field);
  /// Calls visit(Range) with each match in order.
  template <class Visit>
  void each(std::string_view text, RegexScratch& scratch, Visit&& visit) const {
    if (regex_) {
      each_match(*regex_, text, scratch, visit);
      return;
    }
    for (std::size_t at = 0;
         !literal_.empty() && (at = find_text(text, literal_, at)) != std::string_view::npos;
         at += literal_.size())
      visit(Range{at, at + literal_.size()});
  }
  /// Calls check(bytes) with the length of the result as it grows.
  template <class Check>
  void replace_all(std::string& text, std::string_view content, RegexScratch& scratch,
                   Check&& check) const {
    std::string out;
    std::size_t copied = 0;
    each(text, scratch, [&](Range m) {
      check(out.size() + (m.begin - copied) + content.size());
      out.append(text, copied, m.begin - copied).append(content);
      copied = m.end;
    });
    if (copied == 0 && out.empty())
      return;
    out.append(text, copied);
    text = std::move(out);
  }

private:
  std::string literal_;
  std::unique_ptr<Regex> regex_;
};

/// SentencePiece's compiled table of replacements (a double array in Darts' format and the texts
/// that it refers to), from "precompiled_charsmap" in base64.
std::unique_ptr<Normalizer> make_precompiled(const Field& field);

} // namespace egret::text
