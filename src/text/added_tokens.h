// Added tokens: texts that are found before the model sees anything, special ones among them.
#pragma once

#include "text/json_fields.h"
#include "text/model.h"
#include "text/normalizer.h"

#include <string>
#include <string_view>
#include <vector>

namespace egret::text {

struct AddedToken {
  std::string content;
  Id id = 0;
  bool special = false;
  bool single_word = false; ///< not where a word goes on at either side
  bool lstrip = false;      ///< takes the spaces in front
  bool rstrip = false;      ///< takes the spaces behind
  bool normalized = false;  ///< is looked for in normalized text, else in the text as it came
};

/// A part of a text: a token (id >= 0), or what lies between tokens.
struct AddedPart {
  std::size_t begin = 0, end = 0;
  Id id = -1;
};

class AddedTokens {
public:
  /// Ids are the model's where it has the token, and else follow the largest, in the order of the
  /// file.
  void read(const Field& list, const Vocabulary& model);
  /// Call once after read(): `normalizer` may be null.
  void prepare(const Normalizer* normalizer);

  const Vocabulary& vocabulary() const { return ids_; } ///< of the added tokens alone
  const AddedToken* find(Id id) const;
  bool is_special(Id id) const;

  /// Splits a text at the tokens that are looked for in the text as it came, or at those in
  /// normalized text; the leftmost and then the longest counts.
  void split(std::string_view text, bool normalized, std::vector<AddedPart>& parts) const;

private:
  std::vector<AddedToken> tokens_;
  Vocabulary ids_;
  std::vector<std::int32_t> by_id_;   ///< index into tokens_ by id, -1 for none
  std::vector<std::uint8_t> special_; ///< by id
  Trie raw_, normalized_;             ///< values are indexes into tokens_
};

} // namespace egret::text
