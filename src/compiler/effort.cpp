#include "egret/effort.h"

#include "support/fail.h"

#include <array>

namespace egret {
namespace {

constexpr std::array<std::string_view, 4> kWords = {"none", "quick", "search", "exhaustive"};

} // namespace

std::string_view name_of(Effort effort) noexcept {
  return kWords[static_cast<std::size_t>(effort)];
}

Effort parse_effort(std::string_view word, std::string_view who) {
  for (std::size_t i = 0; i < kWords.size(); ++i)
    if (kWords[i] == word)
      return static_cast<Effort>(i);
  fail(ErrorKind::Value, "{}: `{}` is none of none, quick, search, exhaustive", who, word);
}

} // namespace egret
