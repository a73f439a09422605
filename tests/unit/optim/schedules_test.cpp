#include "egret/error.h"
#include "egret/schedules.h"

#include <cmath>
#include <gtest/gtest.h>
#include <vector>

namespace egret::optim {
namespace {

TEST(Schedules, WarmupThenCosine) {
  WarmupCosine s{.peak = 2, .warmup = 10, .total = 110, .least = 0.2};
  EXPECT_NEAR(s.at(0), 0.2, 1e-12);
  EXPECT_NEAR(s.at(9), 2, 1e-12);
  EXPECT_NEAR(s.at(10), 2, 1e-12);
  EXPECT_NEAR(s.at(60), 1.1, 1e-12);
  EXPECT_NEAR(s.at(110), 0.2, 1e-12);
  EXPECT_NEAR(s.at(10000), 0.2, 1e-12);
  for (int i = 10; i < 109; ++i)
    EXPECT_GT(s.at(i), s.at(i + 1));
  Warmup w{.peak = 1, .warmup = 4};
  EXPECT_NEAR(w.at(1), 0.5, 1e-12);
  EXPECT_NEAR(w.at(100), 1, 1e-12);
  EXPECT_EQ((Warmup{.peak = 3}.at(0)), 3);
}

TEST(Schedules, StepsExponentsAndLines) {
  StepDecay s{.start = 2, .every = 3, .factor = 0.5};
  EXPECT_EQ(s.at(2), 2);
  EXPECT_EQ(s.at(3), 1);
  EXPECT_EQ(s.at(8), 0.5);
  EXPECT_THROW((StepDecay{.every = 0}.at(1)), Error);
  EXPECT_NEAR((Exponential{.start = 3, .factor = 0.9}.at(4)), 3 * std::pow(0.9, 4), 1e-15);
  Linear l{.start = 1, .end = 0.5, .total = 10};
  EXPECT_EQ(l.at(0), 1);
  EXPECT_NEAR(l.at(5), 0.75, 1e-15);
  EXPECT_EQ(l.at(10), 0.5);
  EXPECT_EQ(l.at(11), 0.5);
}

TEST(Schedules, OneCycleRisesAndFalls) {
  OneCycle s{.peak = 1, .total = 11, .rise = 4.0 / 11, .start_divisor = 10, .end_divisor = 100};
  EXPECT_NEAR(s.at(0), 0.1, 1e-12);
  EXPECT_NEAR(s.at(3), 1, 1e-12);
  EXPECT_NEAR(s.at(10), 0.001, 1e-12);
  EXPECT_NEAR(s.at(500), 0.001, 1e-12);
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(s.at(i + 1) > s.at(i), i < 3) << i;
  EXPECT_THROW((OneCycle{.total = 1}.at(0)), Error);
}

TEST(Plateau, LowersTheRateWhenNothingGetsBetter) {
  Plateau p({.lr = 1, .factor = 0.5, .patience = 1, .cooldown = 2, .least = 0.2});
  std::vector<double> rates;
  for (double loss : {5, 4, 4, 4, 4, 4, 4, 4, 3, 3, 3, 3, 3, 3, 3, 3})
    rates.push_back(p.update(loss));
  // The second bad one in a row lowers it, and two after that do not count.
  EXPECT_EQ(rates,
            (std::vector<double>{1, 1, 1, .5, .5, .5, .5, .25, .25, .25, .25, .2, .2, .2, .2, .2}));
  EXPECT_EQ(p.lr(), 0.2);
  EXPECT_THROW(Plateau({.factor = 1}), Error);
}

TEST(Plateau, SmallGainsDoNotCount) {
  Plateau p({.lr = 1, .patience = 0, .threshold = 0.1});
  EXPECT_EQ(p.update(1), 1);
  EXPECT_NEAR(p.update(0.95), 0.1, 1e-15);
}

} // namespace
} // namespace egret::optim
