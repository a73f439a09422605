// Every rule, at length, on terms made from its own premises: the classes that it joins hold equal
// values.
#include "support/rule_check.h"

#include <gtest/gtest.h>

namespace egret::testing {
namespace {

TEST(RulesAtLength, HoldWhereTheyFire) {
  for (const saturate::RuleFile& file : saturate::builtin_rules())
    for (const CheckedRule& rule : rules_of(file))
      expect_holds(rule, 10000);
}

TEST(RulesAtLength, OfThePreludeHoldWhereTheyFire) {
  for (const CheckedRule& rule : prelude_rules())
    expect_holds(rule, 10000);
}

} // namespace
} // namespace egret::testing
