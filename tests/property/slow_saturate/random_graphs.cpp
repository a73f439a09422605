// As property/saturate/random_graphs.cpp, at length.
#include "support/saturated_graphs.h"

namespace egret::testing {
namespace {

TEST(SaturationAtLength, ExactRulesKeepEveryBit) {
  expect_kept(2500, {}, 0);
  expect_kept(1000, kAlgebra, 0);
  expect_kept(500, {.symbolic = true}, 0);
}
TEST(SaturationAtLength, TheOrderOfRulesDoesNotMatter) {
  expect_kept(1000, {}, 1000);
}

} // namespace
} // namespace egret::testing
