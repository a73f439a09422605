// Kernels that a user's builder claims.
#include "egret/builders.h"
#include "egret/compile.h"
#include "egret/counters.h"
#include "egret/error.h"
#include "egret/explain.h"
#include "egret/functional.h"

#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace egret {
namespace {

Tensor values() {
  return (arange(64 * 48).reshape({64, 48}).to(DType::F32) * 1e-3).eval();
}

Tensor damped(const Tensor& x) {
  return exp(x) * 0.5;
}

bool is_damped(const Tensor& y, const Tensor& x) {
  const std::vector<float> found = y.to_vector(), from = x.to_vector();
  for (std::size_t i = 0; i < found.size(); ++i)
    if (std::abs(found[i] - std::exp(from[i]) * 0.5f) > 1e-5f * found[i])
      return false;
  return true;
}

KernelBuilder always(std::string schedule, std::optional<double> seconds) {
  return {"mine", [=](const KernelSite&) { return KernelClaim{schedule, seconds}; }};
}

constexpr const char* kTree = "loops @tree=for(0,6,512,core,for(0,64,8,serial,for(0,8,1,vector,"
                              "body(0))))";

TEST(Builders, SeeWhatEachKernelComputes) {
  const Tensor x = values();
  std::mutex mutex;
  std::vector<KernelSite> sites;
  const BuilderScope scope({"looks", [&](const KernelSite& site) -> std::optional<KernelClaim> {
                              std::lock_guard lock(mutex);
                              sites.push_back(site);
                              return std::nullopt;
                            }});
  const Tensor y = matmul(tanh(x), x.transpose()).sum(-1);
  const Tensor z = damped(x);
  EXPECT_TRUE(is_damped(z, x));
  y.eval();
  ASSERT_GE(sites.size(), 2u);
  const KernelSite& first = sites.front();
  EXPECT_EQ(first.device, "cpu");
  EXPECT_GT(first.seconds, 0);
  EXPECT_FALSE(first.schedule.empty());
  EXPECT_FALSE(first.loops.empty());
  ASSERT_EQ(first.graph.outputs.size(), 1u);
  EXPECT_EQ(info_of(first.graph[first.graph.outputs[0]].op).name, "mul");
  ASSERT_EQ(first.graph.inputs().size(), 1u);
  EXPECT_EQ(to_string(first.graph[first.graph.inputs()[0]].shape), "[64,48]");
  for (const KernelSite& site : sites)
    ir::verify(site.graph);
}

TEST(Builders, AClaimWithTheBestScoreWins) {
  const Tensor x = values();
  for (const char* schedule : {"generic", kTree}) {
    const BuilderScope scope(always(schedule, 0.0));
    const Tensor y = damped(x);
    const std::string words = explain(y);
    EXPECT_NE(words.find(std::string("builder mine: kernel map_mul by ") + schedule),
              std::string::npos)
        << words;
    EXPECT_NE(words.find(": chosen"), std::string::npos) << words;
    EXPECT_TRUE(is_damped(y, x));
    auto compiled = compile(&damped);
    EXPECT_TRUE(is_damped(compiled(x), x));
    EXPECT_NE(compiled.last_report().find(": chosen"), std::string::npos) << compiled.last_report();
  }
}

TEST(Builders, OfTwoTheBetterScoreWins) {
  const Tensor x = values();
  const BuilderScope slower(always("generic", 1e-12));
  const BuilderScope faster({"other", [](const KernelSite&) { return KernelClaim{kTree, 1e-13}; }});
  const Tensor y = damped(x);
  const std::string words = explain(y);
  EXPECT_NE(words.find("builder other: kernel map_mul by " + std::string(kTree)), std::string::npos)
      << words;
  const std::size_t mine = words.find("builder mine");
  ASSERT_NE(mine, std::string::npos) << words;
  EXPECT_NE(words.find("another kernel is faster", mine), std::string::npos) << words;
  EXPECT_TRUE(is_damped(y, x));
}

TEST(Builders, AWorseScoreLoses) {
  const Tensor x = values();
  const BuilderScope scope(always("generic", 1e3));
  const Tensor y = damped(x);
  const std::string words = explain(y);
  EXPECT_NE(words.find("another kernel is faster"), std::string::npos) << words;
  EXPECT_EQ(words.find(": chosen"), std::string::npos) << words;
  EXPECT_TRUE(is_damped(y, x));
}

TEST(Builders, AScheduleThatDoesNotFitLoses) {
  const Tensor x = values();
  for (const char* schedule :
       {"loops @tree=for(0,64,1,serial,body(0))", "nonsense", "elementwise vectors=99", ""}) {
    const BuilderScope scope(always(schedule, 0.0));
    const Tensor y = damped(x);
    const std::string words = explain(y);
    EXPECT_NE(words.find("schedule of map_mul"), std::string::npos) << words;
    EXPECT_EQ(words.find(": chosen"), std::string::npos) << words;
    EXPECT_TRUE(is_damped(y, x));
  }
}

TEST(Builders, WithoutAScoreTheCostModelJudges) {
  const Tensor x = values();
  const BuilderScope scope({"same", [](const KernelSite& site) {
                              return KernelClaim{site.schedule, std::nullopt};
                            }});
  const Tensor y = damped(x);
  const std::string words = explain(y);
  EXPECT_NE(words.find("another kernel is faster"), std::string::npos)
      << "the compiler's own schedule is not better than itself: " << words;
}

TEST(Builders, ScoresThatAreNoneLose) {
  const Tensor x = values();
  for (const double seconds : {-1.0, std::nan("")}) {
    const BuilderScope scope(always("generic", seconds));
    const Tensor y = damped(x);
    const std::string words = explain(y);
    EXPECT_NE(words.find("seconds is none"), std::string::npos) << words;
    EXPECT_TRUE(is_damped(y, x));
  }
}

TEST(Builders, OneThatCannotClaimIsRefusedByName) {
  try {
    const BuilderScope scope({"idle", nullptr});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Value);
    EXPECT_STREQ(error.what(), "BuilderScope: the builder 'idle' has no function that claims");
  }
}

TEST(Builders, PlansAreKeptByTheBuildersThatTookPart) {
  const Tensor x = values();
  const auto compiles = [&] {
    const Counters before = counters();
    EXPECT_TRUE(is_damped(damped(x), x));
    return (counters() - before).compiles;
  };
  compiles();
  EXPECT_EQ(compiles(), 0u);
  {
    const BuilderScope scope(always("generic", 0.0));
    EXPECT_EQ(compiles(), 1u);
    EXPECT_EQ(compiles(), 0u);
  }
  EXPECT_EQ(compiles(), 0u) << "the plan from before the scope";
}

TEST(Builders, WhatTheyThrowIsThrownByTheRead) {
  const Tensor x = values();
  const Tensor y = damped(x);
  {
    const BuilderScope scope({"broken", [](const KernelSite&) -> std::optional<KernelClaim> {
                                throw std::runtime_error("no idea");
                              }});
    EXPECT_THROW(y.eval(), std::runtime_error);
  }
  EXPECT_TRUE(is_damped(y, x));
}

} // namespace
} // namespace egret
