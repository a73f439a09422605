// Rewrites seen firing, and seen refused where a side condition fails.
#include "saturate/saturate.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace egret::saturate {
namespace {

const Tags kExact{Tag::Exact};
const Tags kReassociates{Tag::Exact, Tag::Reassociates};
const Tags kApproximate{Tag::Exact, Tag::Reassociates, Tag::Approximate};

struct After {
  ir::Graph graph;
  SaturateReport report;

  bool fired(const std::string& rule) const {
    return std::ranges::any_of(report.rules, [&](const RuleUse& use) { return use.rule == rule; });
  }
  int count(Op op) const {
    int n = 0;
    for (ir::NodeId id = 0; id < graph.size(); ++id)
      n += graph[id].op == op;
    return n;
  }
  /// Elements of the results of all nodes of this op.
  std::int64_t elements(Op op) const {
    std::int64_t n = 0;
    for (ir::NodeId id = 0; id < graph.size(); ++id)
      if (graph[id].op == op)
        n += element_count(graph[id].shape).upper();
    return n;
  }
};

After rewritten(const char* text, Tags allowed = kExact) {
  Saturated saturated(ir::parse_graph(text), {.allowed = allowed, .seconds = 60});
  return {saturated.extract().at(0), saturated.report()};
}

/// Operands in one order at first and in the other one later, as recorded: no order costs less.
constexpr const char* kBothOrders = R"(%x: f32[8] = input "x"
%y: f32[8] = input "y"
%a: f32[8] = add(%x, %y)
%b: f32[8] = exp(%a)
%c: f32[8] = add(%b, %x)
%d: f32[8] = mul(%c, %a)
outputs %d
)";

TEST(Extraction, OfEquallyCheapGraphsTakesTheGivenOne) {
  const ir::Graph given = ir::parse_graph(kBothOrders);
  Saturated saturated(given, {.allowed = kExact, .seconds = 60});
  EXPECT_EQ(ir::canonical_hash(saturated.extract().at(0)), ir::canonical_hash(given));
  EXPECT_FALSE(saturated.is_rewritten());
}

TEST(Extraction, KnowsWhetherRulesChangedTheGraph) {
  Saturated saturated(ir::parse_graph(R"(%x: f32[8] = input "x"
%one: f32[] = const 1
%r: f32[1] = reshape(%one)
%e: f32[8] = expand(%r)
%y: f32[8] = mul(%x, %e)
%z: f32[8] = exp(%y)
outputs %z
)"),
                      {.allowed = kExact, .seconds = 60});
  EXPECT_EQ(saturated.extract().at(0).size(), 2u);
  EXPECT_TRUE(saturated.is_rewritten());
}

/// (x scaled) @ w, the scale being %s of the shape that x has or one of its own.
std::string scaled_product(const std::string& scale_type, const std::string& shape_with_ones) {
  return R"(%x: f32[4,16] = input "x"
%w: f32[16,8] = input "w"
%r: )" + scale_type +
         R"( = input "r"
%r1: f32)" +
         shape_with_ones +
         R"( = reshape(%r)
%s: f32[4,16] = expand(%r1)
%n: f32[4,16] = mul(%x, %s)
%a1: f32[4,16,1] = reshape(%n)
%a: f32[4,16,8] = expand(%a1)
%b1: f32[1,16,8] = reshape(%w)
%b: f32[4,16,8] = expand(%b1)
%p: f32[4,16,8] = mul(%a, %b)
%y: f32[4,8] = sum(%p) axes=[1]
outputs %y
)";
}

TEST(Rules, AScaleOfRowsLeavesTheProductThatFollows) {
  const After after = rewritten(scaled_product("f32[4]", "[4,1]").c_str(), kReassociates);
  EXPECT_TRUE(after.fired("hoist-factor"));
  EXPECT_EQ(after.elements(Op::Mul), 4 * 16 * 8 + 4 * 8) << print(after.graph);
}
TEST(Rules, AScaleOfColumnsStays) {
  const After after = rewritten(scaled_product("f32[16]", "[1,16]").c_str(), kReassociates);
  EXPECT_FALSE(after.fired("hoist-factor"));
  EXPECT_EQ(after.elements(Op::Mul), 4 * 16 * 8 + 4 * 16) << print(after.graph);
}
TEST(Rules, AScaleOfRowsStaysWhereOrderMustBeKept) {
  const After after = rewritten(scaled_product("f32[4]", "[4,1]").c_str(), kExact);
  EXPECT_EQ(after.elements(Op::Mul), 4 * 16 * 8 + 4 * 16);
}

// What three products share is scaled once, and would be scaled thrice behind them.
TEST(Rules, AScaleStaysInFrontOfProductsThatShareIt) {
  std::string text = "%x: f32[1,64] = input \"x\"\n%r: f32[1] = input \"r\"\n%r1: f32[1,1] = "
                     "reshape(%r)\n%s: f32[1,64] = expand(%r1)\n%n: f32[1,64] = mul(%x, %s)\n"
                     "%a1: f32[1,64,1] = reshape(%n)\n%a: f32[1,64,64] = expand(%a1)\n";
  std::string outputs = "outputs ";
  for (const char* name : {"q", "k", "v"}) {
    const std::string n = name;
    text += "%" + n + "w: f32[64,64] = input \"w" + n + "\"\n%" + n +
            "b: f32[1,64,64] = reshape(%" + n + "w)\n%" + n + "p: f32[1,64,64] = mul(%a, %" + n +
            "b)\n%" + n + "y: f32[1,64] = sum(%" + n + "p) axes=[1]\n";
    outputs += (n == "q" ? "%" : ", %") + n + "y";
  }
  const After after = rewritten((text + outputs + "\n").c_str(), kReassociates);
  EXPECT_TRUE(after.fired("hoist-factor"));
  EXPECT_EQ(after.elements(Op::Mul), 3 * 64 * 64 + 64) << print(after.graph);
}

std::string two_products(const char* second) {
  return std::string(R"(%x: f32[4,16] = input "x"
%z: f32[4,16] = input "z"
%w: f32[16,8] = input "w"
%v: f32[16,8] = input "v"
%a1: f32[4,16,1] = reshape(%x)
%a: f32[4,16,8] = expand(%a1)
%c1: f32[4,16,1] = reshape(%z)
%c: f32[4,16,8] = expand(%c1)
%b1: f32[1,16,8] = reshape(%w)
%b: f32[4,16,8] = expand(%b1)
%d1: f32[1,16,8] = reshape()") +
         second + R"()
%d: f32[4,16,8] = expand(%d1)
%p: f32[4,16,8] = mul(%a, %b)
%q: f32[4,16,8] = mul(%c, %d)
%y: f32[4,8] = sum(%p) axes=[1]
%u: f32[4,8] = sum(%q) axes=[1]
%s: f32[4,8] = add(%y, %u)
outputs %s
)";
}

TEST(Rules, TwoProductsWithOneFactorAreOne) {
  const After after = rewritten(two_products("%w").c_str(), kReassociates);
  EXPECT_TRUE(after.fired("factor-sums"));
  EXPECT_EQ(after.count(Op::ReduceSum), 1) << print(after.graph);
  EXPECT_EQ(after.elements(Op::Add), 4 * 16) << print(after.graph);
}
TEST(Rules, TwoProductsWithTwoFactorsStay) {
  EXPECT_EQ(rewritten(two_products("%v").c_str(), kReassociates).count(Op::ReduceSum), 2);
  EXPECT_EQ(rewritten(two_products("%w").c_str(), kExact).count(Op::ReduceSum), 2);
}

/// (A B) v, the matrices being read at [m,j,k] through `a` and `b`.
std::string chain(const std::string& a, const std::string& b) {
  return a + b + R"(%v: f32[20] = input "v"
%p: f32[16,12,20] = mul(%a, %b)
%s: f32[16,20] = sum(%p) axes=[1]
%v1: f32[1,20] = reshape(%v)
%w: f32[16,20] = expand(%v1)
%q: f32[16,20] = mul(%s, %w)
%y: f32[16] = sum(%q) axes=[1]
outputs %y
)";
}
const std::string kA = "%x: f32[16,12] = input \"a\"\n%x1: f32[16,12,1] = reshape(%x)\n%a: "
                       "f32[16,12,20] = expand(%x1)\n";
const std::string kB = "%z: f32[12,20] = input \"b\"\n%z1: f32[1,12,20] = reshape(%z)\n%b: "
                       "f32[16,12,20] = expand(%z1)\n";

TEST(Rules, AProductOfAProductWithAVectorIsTwoProductsWithVectors) {
  const After after = rewritten(chain(kA, kB).c_str(), kReassociates);
  EXPECT_TRUE(after.fired("product-of-plain-product"));
  EXPECT_EQ(after.elements(Op::Mul), 12 * 20 + 16 * 12) << print(after.graph);
}
TEST(Rules, AProductWhoseFactorsBothMeetTheVectorStays) {
  const After after = rewritten(
      chain("%a: f32[16,12,20] = input \"a\"\n", "%b: f32[16,12,20] = input \"b\"\n").c_str(),
      kReassociates);
  EXPECT_FALSE(after.fired("product-of-plain-product"));
  EXPECT_EQ(rewritten(chain(kA, kB).c_str(), kExact).elements(Op::Mul), 16 * 12 * 20 + 16 * 20);
}

TEST(Rules, WhatDoesNotVaryIsComputedOnceWhateverItsOperandsLookLike) {
  const After after = rewritten(R"(%x: f32[3,4] = input "x"
%z: f32[4] = input "z"
%a1: f32[1,3,4] = reshape(%x)
%a: f32[5,3,4] = expand(%a1)
%b1: f32[1,1,4] = reshape(%z)
%b: f32[5,3,4] = expand(%b1)
%y: f32[5,3,4] = mul(%a, %b)
outputs %y
)");
  EXPECT_EQ(after.elements(Op::Mul), 12) << print(after.graph);
}

TEST(Rules, ADivisionOfRowsFollowsTheProduct) {
  const char* text = R"(%e: f32[4,16] = input "e"
%w: f32[16,8] = input "w"
%t: f32[4] = sum(%e) axes=[1]
%t1: f32[4,1] = reshape(%t)
%s: f32[4,16] = expand(%t1)
%n: f32[4,16] = div(%e, %s)
%a1: f32[4,16,1] = reshape(%n)
%a: f32[4,16,8] = expand(%a1)
%b1: f32[1,16,8] = reshape(%w)
%b: f32[4,16,8] = expand(%b1)
%p: f32[4,16,8] = mul(%a, %b)
%y: f32[4,8] = sum(%p) axes=[1]
outputs %y
)";
  const After after = rewritten(text, kApproximate);
  EXPECT_EQ(after.elements(Op::Div) + after.elements(Op::Recip), 4) << print(after.graph);
  EXPECT_EQ(rewritten(text, kReassociates).elements(Op::Div), 4 * 16);
}

TEST(Rules, WhatIsRepeatedIsComputedOnce) {
  const After after = rewritten(R"(%x: f32[4] = input "x"
%r: f32[4,1] = reshape(%x)
%b: f32[4,9] = expand(%r)
%y: f32[4,9] = exp(%b)
outputs %y
)");
  EXPECT_EQ(after.elements(Op::Exp), 4) << print(after.graph);
}
TEST(Rules, WhatIsFramedIsNot) {
  const After after = rewritten(R"(%x: f32[4] = input "x"
%b: f32[9] = pad(%x) before=[2] after=[3] fill=0
%y: f32[9] = exp(%b)
outputs %y
)");
  EXPECT_EQ(after.elements(Op::Exp), 9) << print(after.graph);
}

// Windows of three pad and cut off what they pad: nothing reads that number, of whatever type.
TEST(Rules, WindowsOfAComparisonAreThoseOfItsResult) {
  const After after = rewritten(R"(%x: f32[8] = input "x"
%r: f32[1,8] = reshape(%x)
%e: f32[3,8] = expand(%r)
%f: f32[24] = reshape(%e)
%p: f32[27] = pad(%f) before=[0] after=[3] fill=0
%g: f32[3,9] = reshape(%p)
%w: f32[3,6] = shrink(%g) begin=[0,0] end=[3,6]
%y: bool[3,6] = eq(%w, %w)
outputs %y
)");
  EXPECT_EQ(after.elements(Op::Eq), 8) << print(after.graph);
}

TEST(Rules, ASumOfRepeatedRowsSumsThemOnce) {
  const After after = rewritten(R"(%x: f32[8] = input "x"
%r: f32[1,8] = reshape(%x)
%b: f32[16,8] = expand(%r)
%y: f32[16] = sum(%b) axes=[1]
outputs %y
)");
  EXPECT_TRUE(after.fired("sum-of-view"));
  EXPECT_EQ(after.elements(Op::ReduceSum), 1) << print(after.graph);
}

constexpr const char* kRepeatedSum = R"(%x: f32[8] = input "x"
%r: f32[1,8] = reshape(%x)
%b: f32[16,8] = expand(%r)
%y: f32[8] = sum(%b) axes=[0]
outputs %y
)";
TEST(Rules, ASumOfEqualFloatsIsAProductOnlyWhereRoundingMayChange) {
  EXPECT_EQ(rewritten(kRepeatedSum, kReassociates).count(Op::ReduceSum), 0);
  EXPECT_EQ(rewritten(kRepeatedSum, kExact).count(Op::ReduceSum), 1);
}
TEST(Rules, ASumOfEqualIntegersIsAProduct) {
  std::string integers = kRepeatedSum;
  for (std::size_t at; (at = integers.find("f32")) != std::string::npos;)
    integers.replace(at, 3, "i32");
  EXPECT_EQ(rewritten(integers.c_str(), kExact).count(Op::ReduceSum), 0);
}

TEST(Rules, TransposesCancel) {
  const After after = rewritten(R"(%x: f32[2,3,4] = input "x"
%a: f32[4,2,3] = permute(%x) axes=[2,0,1]
%b: f32[2,3,4] = permute(%a) axes=[1,2,0]
%y: f32[2,3,4] = exp(%b)
outputs %y
)");
  EXPECT_EQ(after.count(Op::Permute), 0) << print(after.graph);
}
TEST(Rules, OtherTransposesStay) {
  const After after = rewritten(R"(%x: f32[2,3,4] = input "x"
%a: f32[4,2,3] = permute(%x) axes=[2,0,1]
%b: f32[3,4,2] = permute(%a) axes=[2,0,1]
%y: f32[3,4,2] = exp(%b)
outputs %y
)");
  EXPECT_EQ(after.count(Op::Permute), 1) << print(after.graph);
}

std::string largest_of_scaled(const char* factor) {
  return std::string(R"(%x: f32[4,9] = input "x"
%c: f32[] = const )") +
         factor + R"(
%c1: f32[1,1] = reshape(%c)
%c2: f32[4,9] = expand(%c1)
%s: f32[4,9] = mul(%x, %c2)
%y: f32[4] = amax(%s) axes=[1]
outputs %y
)";
}
TEST(Rules, ScalingByAPositiveNumberFollowsTheLargest) {
  EXPECT_EQ(rewritten(largest_of_scaled("0.125").c_str()).elements(Op::Mul), 4);
}
TEST(Rules, ScalingByAnyOtherNumberPrecedesTheLargest) {
  for (const char* factor : {"-2", "0", "inf", "nan"})
    EXPECT_EQ(rewritten(largest_of_scaled(factor).c_str()).elements(Op::Mul), 36) << factor;
}

TEST(Rules, ReluOfReluIsOne) {
  const char* text = R"(%x: f32[4] = input "x"
%z: f32[4] = input "z"
%a: f32[4] = max(%x, %z)
%b: f32[4] = max(%z, %a)
outputs %b
)";
  EXPECT_EQ(rewritten(text).count(Op::Max), 1);
  std::string other = text;
  other.replace(other.find("max(%z, %a)"), 11, "add(%z, %a)");
  EXPECT_EQ(rewritten(other.c_str()).count(Op::Max), 1);
}

TEST(Rules, AddingZeroNeedsLeaveForFloats) {
  const char* text = R"(%x: f32[4] = input "x"
%c: f32[] = const 0
%c1: f32[1] = reshape(%c)
%c2: f32[4] = expand(%c1)
%y: f32[4] = add(%x, %c2)
%z: f32[4] = exp(%y)
outputs %z
)";
  EXPECT_EQ(rewritten(text, kExact).count(Op::Add), 1); // -0 + 0 is 0
  EXPECT_EQ(rewritten(text, kApproximate).count(Op::Add), 0);
}

TEST(Rules, MarkersOfGradientsLeaveForInferenceOnly) {
  const char* text = R"(%x: f32[4] = input "x"
%a: f32[4] = stop_gradient(%x)
%y: f32[4] = exp(%a)
outputs %y
)";
  EXPECT_EQ(rewritten(text, kExact).count(Op::StopGradient), 1);
  EXPECT_EQ(rewritten(text, {Tag::InferenceOnly}).count(Op::StopGradient), 0);
}

TEST(Rules, SelectionsByOneConditionAreOne) {
  const char* text = R"(%p: bool[4] = input "p"
%q: bool[4] = input "q"
%a: f32[4] = input "a"
%b: f32[4] = input "b"
%c: f32[4] = input "c"
%s: f32[4] = select(%p, %a, %b)
%t: f32[4] = select(%p, %s, %c)
outputs %t
)";
  EXPECT_EQ(rewritten(text).count(Op::Select), 1);
  std::string other = text;
  other.replace(other.find("select(%p, %s"), 13, "select(%q, %s");
  EXPECT_EQ(rewritten(other.c_str()).count(Op::Select), 2);
}

TEST(Saturation, AFullBudgetIsToldAndGivesARightGraph) {
  const std::string text = scaled_product("f32[4]", "[4,1]");
  Saturated few(ir::parse_graph(text), {.allowed = kApproximate, .rows = 20});
  EXPECT_FALSE(few.report().saturated);
  EXPECT_EQ(few.report().stopped, "rows");
  EXPECT_EQ(few.extract().size(), 1u);
  Saturated none(ir::parse_graph(text), {.allowed = kApproximate, .rounds = 0});
  EXPECT_EQ(none.report().stopped, "rounds");
  EXPECT_EQ(none.extract().at(0).size(), ir::parse_graph(text).size());
}

TEST(Saturation, GroupsCanBeChosen) {
  const std::string text = scaled_product("f32[4]", "[4,1]");
  Saturated chosen(ir::parse_graph(text),
                   {.allowed = kReassociates, .groups = {"views", "hoisting"}, .seconds = 60});
  for (const RuleUse& use : chosen.report().rules)
    EXPECT_TRUE(use.group == "views" || use.group == "hoisting") << use.rule;
}

TEST(Saturation, SeveralFormsComeBestFirst) {
  Saturated saturated(ir::parse_graph(scaled_product("f32[4]", "[4,1]")),
                      {.allowed = kReassociates, .seconds = 60});
  const auto forms = saturated.extract(4);
  ASSERT_GT(forms.size(), 1u);
  EXPECT_NE(ir::canonical_hash(forms[0]), ir::canonical_hash(forms[1]));
}

/// log(softmax(x)) as it is written without care; `quotient` is "%e, %s2" or the other way round.
std::string log_softmax(const std::string& quotient) {
  return R"(%x: f32[8,100] = input "x"
%e: f32[8,100] = exp(%x)
%s: f32[8] = sum(%e) axes=[1]
%s1: f32[8,1] = reshape(%s)
%s2: f32[8,100] = expand(%s1)
%p: f32[8,100] = div()" +
         quotient + R"()
%y: f32[8,100] = log(%p)
outputs %y
)";
}

TEST(Rules, TheLogarithmOfASoftmaxNeedsThoseOfItsSumsOnly) {
  const After after = rewritten(log_softmax("%e, %s2").c_str(), kApproximate);
  EXPECT_TRUE(after.fired("log-of-exp-over"));
  EXPECT_EQ(after.count(Op::Div), 0) << print(after.graph);
  EXPECT_EQ(after.elements(Op::Log), 8) << print(after.graph);
}
TEST(Rules, TheLogarithmOfASoftmaxStaysWhereRoundingMustNotChange) {
  const After after = rewritten(log_softmax("%e, %s2").c_str(), kReassociates);
  EXPECT_EQ(after.elements(Op::Log), 800) << print(after.graph);
}
TEST(Rules, TheLogarithmOfASumOverExponentialsStays) {
  const After after = rewritten(log_softmax("%s2, %e").c_str(), kApproximate);
  EXPECT_FALSE(after.fired("log-of-exp-over"));
}
TEST(Rules, AnExponentialOfALogarithmIsWhatItIsOf) {
  const After after = rewritten(R"(%x: f32[8] = input "x"
%l: f32[8] = log(%x)
%e: f32[8] = exp(%l)
%y: f32[8] = add(%e, %e)
outputs %y
)",
                                kApproximate);
  EXPECT_TRUE(after.fired("exp-log"));
  EXPECT_EQ(after.count(Op::Exp), 0) << print(after.graph);
}

} // namespace
} // namespace egret::saturate
