// Normalizers: what is done to text before it is split.
#pragma once

#include "text/json_fields.h"
#include "text/regex.h"

#include <memory>
#include <string>

namespace egret::text {

class Normalizer {
public:
  virtual ~Normalizer() = default;
  /// Valid UTF-8 in place.
  virtual void apply(std::string& text, RegexScratch& scratch) const = 0;
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
         !literal_.empty() && (at = text.find(literal_, at)) != std::string_view::npos;
         at += literal_.size())
      visit(Range{at, at + literal_.size()});
  }
  void replace_all(std::string& text, std::string_view content, RegexScratch& scratch) const;

private:
  std::string literal_;
  std::unique_ptr<Regex> regex_;
};

/// SentencePiece's compiled table of replacements (a double array in Darts' format and the texts
/// that it refers to), from "precompiled_charsmap" in base64.
std::unique_ptr<Normalizer> make_precompiled(const Field& field);

} // namespace egret::text
