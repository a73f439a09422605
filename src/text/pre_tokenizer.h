// Pre-tokenizers: what splits text into the pieces that the model sees.
#pragma once

#include "text/json_fields.h"
#include "text/regex.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace egret::text {

/// Part of the text; its characters are owned by someone else.
struct Piece {
  std::string_view text; ///< valid UTF-8, not empty
  bool first = false;    ///< begins where the input begins
};

/// What one thread needs while it splits.
struct SplitScratch {
  RegexScratch regex;
  std::vector<std::string> texts; ///< one for each step, for those that change the text
};

/// Where pieces go. A piece is valid during the call.
class PieceSink {
public:
  virtual ~PieceSink() = default;
  virtual void take(Piece piece) = 0;
};

/// One step: splits a piece, perhaps after a change, and passes each part on at once, so that no
/// list of pieces is ever made.
class PreTokenizer {
public:
  virtual ~PreTokenizer() = default;
  virtual void split(Piece piece, SplitScratch& scratch, std::string& changed,
                     PieceSink& next) const = 0;
};

/// The steps of "pre_tokenizer" in order; sequences of sequences are flat.
using PreTokenizers = std::vector<std::unique_ptr<PreTokenizer>>;
PreTokenizers make_pre_tokenizers(const Field& field);

/// Runs all steps on a piece.
void pre_tokenize(const PreTokenizers& steps, Piece piece, SplitScratch& scratch, PieceSink& sink);

enum class PrependScheme { First, Never, Always };
/// Of Metaspace, as pre-tokenizer and as decoder.
PrependScheme read_prepend_scheme(const Field& field);

} // namespace egret::text
