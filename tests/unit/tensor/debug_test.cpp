// EGRET_DEBUG=1..6 each print something of their own; without it nothing is printed.
#include "egret/compile.h"
#include "egret/functional.h"
#include "runtime/debug.h"
#include "runtime/profile.h"
#include "runtime/runtime.h"

#include <gtest/gtest.h>

#include <string>

namespace egret {
namespace {

// What a small program writes to stderr (and nothing may go to stdout) at a debug level.
std::string output_at(int level) {
  runtime::Runtime::instance().clear_plans();
  runtime::set_debug_level(level);
  ::testing::internal::CaptureStderr();
  ::testing::internal::CaptureStdout();
  auto f = compile([](const Tensor& x) { return exp(x) * 3; }, {.name = "debugged"});
  f(ones({8}).eval()).eval();
  runtime::set_debug_level(0);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  return ::testing::internal::GetCapturedStderr();
}

bool has(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

TEST(Debug, EachLevelAddsSomething) {
  const std::string level[] = {output_at(0), output_at(1), output_at(2), output_at(3),
                               output_at(4), output_at(5), output_at(6)};
  EXPECT_EQ(level[0], "");
  for (int i = 1; i <= 6; ++i) {
    EXPECT_TRUE(has(level[i], "egret: plan ")) << i << ": " << level[i];
    EXPECT_TRUE(has(level[i], "egret: debugged: traced, the first call")) << level[i];
    EXPECT_EQ(has(level[i], "egret: kernel map"), i >= 2) << i << ": " << level[i];
    EXPECT_EQ(has(level[i], "for "), i >= 3) << i << ": " << level[i];
    EXPECT_EQ(has(level[i], "define"), i >= 4) << i << ": " << level[i];
    EXPECT_EQ(has(level[i], "egret: pass normalize"), i >= 5) << i << ": " << level[i];
    EXPECT_EQ(has(level[i], "min 8.15485 mean 8.15485 max 8.15485, 0 nan, 0 inf"), i >= 6)
        << i << ": " << level[i];
  }
}

TEST(Debug, FiltersNamePassesAndNodes) {
  struct Unset {
    ~Unset() { runtime::set_debug_filter({}); }
  } unset;
  runtime::set_debug_filter({.passes = {"partition"}, .nodes = {"tanh", "%4096"}});
  std::string text = output_at(6);
  EXPECT_TRUE(has(text, "egret: pass partition")) << text;
  EXPECT_FALSE(has(text, "egret: pass normalize")) << text;
  EXPECT_FALSE(has(text, " GFLOP/s: ")) << text;
  EXPECT_FALSE(has(text, " nan, ")) << text;
  runtime::set_debug_filter({.passes = {}, .nodes = {"exp"}});
  text = output_at(6);
  EXPECT_TRUE(has(text, "egret: pass normalize")) << text;
  EXPECT_TRUE(has(text, " GFLOP/s: ")) << text;
  EXPECT_TRUE(has(text, " nan, ")) << text;
}

TEST(Debug, AnObserverSeesEveryLaunch) {
  std::vector<std::string> seen;
  {
    const runtime::Observing observing({.launch = [&](const runtime::LaunchRecord& record) {
      EXPECT_LE(record.begin, record.end);
      seen.push_back(record.kernel.name);
    }});
    const Tensor x = ones({8}).eval();
    softmax(x * 2).eval();
  }
  const Tensor x = ones({8}).eval();
  (x + 1).eval();
  EXPECT_EQ(seen.size(), 2u);
}

} // namespace
} // namespace egret
