#include "egret/rule_tags.h"

#include "support/fail.h"

#include <array>

namespace egret {
namespace {

constexpr std::array<std::string_view, 4> kWords = {"exact", "reassociates", "approximate",
                                                    "inference-only"};

} // namespace

std::string_view name_of(RuleTag tag) noexcept {
  return kWords[static_cast<std::size_t>(tag)];
}

RuleTag parse_rule_tag(std::string_view word, std::string_view who) {
  for (std::size_t i = 0; i < kWords.size(); ++i)
    if (kWords[i] == word)
      return static_cast<RuleTag>(i);
  fail(ErrorKind::Value,
       "{}there is no tag `{}`; tags: exact, reassociates, approximate, inference-only",
       who.empty() ? "" : fmt::format("{}: ", who), word);
}

} // namespace egret
