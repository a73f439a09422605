// What the compiler's rules may change.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace egret {

enum class RuleTag : std::uint8_t {
  Exact,        ///< nothing, to the last bit (a NaN being any NaN)
  Reassociates, ///< rounding, by another order of sums and products
  Approximate,  ///< rounding, signs of zeros, and what happens beyond finite numbers
  InferenceOnly ///< gradients
};

/// "exact", "reassociates", "approximate", "inference-only".
std::string_view name_of(RuleTag tag) noexcept;
/// The reverse. Error(Value) that begins with `who`, when it is not empty, for any other word.
RuleTag parse_rule_tag(std::string_view word, std::string_view who = {});

/// A set of tags.
class RuleTags {
public:
  constexpr RuleTags(std::initializer_list<RuleTag> tags = {}) {
    for (RuleTag tag : tags)
      add(tag);
  }
  constexpr void add(RuleTag tag) { bits_ |= 1u << static_cast<unsigned>(tag); }
  constexpr bool has(RuleTag tag) const { return (bits_ >> static_cast<unsigned>(tag) & 1u) != 0; }
  constexpr void add(RuleTags tags) { bits_ |= tags.bits_; }
  constexpr std::uint64_t bits() const { return bits_; } ///< for keys
  friend constexpr bool operator==(RuleTags, RuleTags) = default;

private:
  unsigned bits_ = 0;
};

} // namespace egret
