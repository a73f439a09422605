// The last step of encoding: special tokens are put around the tokens of a text.
#pragma once

#include "text/json_fields.h"
#include "text/tables.h"

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

namespace egret::text {

/// A list of templates, each a sequence of special tokens and the place of the text.
class PostProcessor {
public:
  PostProcessor() = default;
  /// From "post_processor" of tokenizer.json.
  explicit PostProcessor(const Field& field) { add(field); }

  /// Puts the special tokens around `ids`; without `special` only the text remains.
  void apply(std::vector<Id>& ids, bool special) const;

private:
  static constexpr Id kText = -1;
  void add(const Field& field);
  void add_template(const Field& field);

  static constexpr std::size_t kMostCopies = 16; ///< of a text; published templates have it once
  std::size_t copies_ = 1;
  std::vector<std::vector<Id>> templates_; ///< ids, and kText where the text goes
};

} // namespace egret::text
