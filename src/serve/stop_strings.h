// The end of a text at strings that a request names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace egret::serve {

/// Lets text through up to the first of some strings. What may be the beginning of one is held back
/// until more has come.
class StopStrings {
public:
  explicit StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  /// More text; the part that is certain to belong to the answer. Nothing once stopped().
  std::string push(std::string_view text);
  std::string finish(); ///< what was held back, where no string has come
  bool stopped() const noexcept { return stopped_; }

private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

} // namespace egret::serve
