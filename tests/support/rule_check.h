// Checks a rule by machine: random terms made from its own premises, in which it fires, and every
// e-node of every class evaluated.
#pragma once

#include "saturate/rules.h"

#include <cstdint>
#include <string>
#include <vector>

namespace egret::testing {

struct CheckedRule {
  std::string name, text;
  std::string declarations; ///< of its ruleset
  std::string ruleset;
  saturate::Tag tag = saturate::Tag::Exact;
};

/// The rules of a file; those of the prelude's groups `pull` and `fold`, which are exact.
std::vector<CheckedRule> rules_of(const saturate::RuleFile& file);
std::vector<CheckedRule> prelude_rules();

struct RuleCheck {
  std::uint64_t fired = 0, tried = 0;
  std::uint64_t compared = 0; ///< elements of joined terms
  std::string
      failure; ///< empty: right. Else the rule, the terms and the first element that differs
};

/// Makes instances of the premises (with sizes 0 and 1, symbolic sizes, broadcast operands, NaN,
/// infinities and zeros of both signs) until the rule fired `wanted` times, or `most` were tried.
/// Classes of an exact rule must agree in every bit, those of others within the evaluator's
/// tolerance where both are finite.
RuleCheck check_rule(const CheckedRule& rule, std::uint64_t seed, std::uint64_t wanted,
                     std::uint64_t most);

/// Expects the rule to be right in that many firings.
void expect_holds(const CheckedRule& rule, std::uint64_t firings);

} // namespace egret::testing
