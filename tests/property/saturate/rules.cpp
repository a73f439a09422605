// Every rule, on terms made from its own premises: the classes that it joins hold equal values.
#include "support/rule_check.h"

#include <gtest/gtest.h>

namespace egret::testing {
namespace {

TEST(Rules, HoldWhereTheyFire) {
  for (const saturate::RuleFile& file : saturate::builtin_rules())
    for (const CheckedRule& rule : rules_of(file))
      expect_holds(rule, 200);
}

TEST(Rules, OfThePreludeHoldWhereTheyFire) {
  for (const CheckedRule& rule : prelude_rules())
    expect_holds(rule, 200);
}

// What is no identity is found out, by name.
TEST(Rules, WrongOnesAreCaught) {
  const char* wrong[] = {
      R"((rule ((= e (Add x c)) (= v (value c)) (is v "0")) ((union e x)) :ruleset r :name "bad-add-zero"))",
      R"((rule ((= e (Mul x c)) (= v (value c)) (is-zero v)) ((union e c)) :ruleset r :name "bad-mul-zero"))",
      R"((rewrite (Div x x) (Exp (Mul x x)) :ruleset r :name "bad-div"))",
      R"((rewrite (Select p (Select q a b) c) (Select p a c) :ruleset r :name "bad-select"))",
      R"((rule ((= e (AMax k y)) (= y (Mul x c)) (= v (value c)) (= u (type e)) (is-float u))
           ((union e (Mul (AMax k x) (Fill u v)))) :ruleset r :name "bad-amax"))",
      R"((rule ((= e (Sum j y)) (= y (Sum k x))) ((union e (Sum (axes-join k j) x))) :ruleset r :name "bad-sum-of-sum"))",
      R"((rewrite (Sum k (Sum j x)) (Sum j (Sum k x)) :ruleset r :name "bad-axes"))",
      R"((rule ((= e (Exp (View m x)))) ((union e (View m (Exp x)))) :ruleset r :name "bad-pull-through-pad"))",
  };
  for (const char* text : wrong) {
    const std::string name = std::string(text).substr(std::string(text).find(":name \"") + 7);
    const RuleCheck check = check_rule({name, text, "(ruleset r)", "r"}, 1, 4000, 100000);
    EXPECT_NE(check.failure, "") << text;
    EXPECT_NE(check.failure.find("bad-"), std::string::npos) << check.failure;
  }
}

} // namespace
} // namespace egret::testing
