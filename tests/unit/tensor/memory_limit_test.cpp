// Memory limits of compiled functions and of explicit graphs: what they ask for, what is refused.
#include "egret/compile.h"
#include "egret/counters.h"
#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/graph.h"
#include "support/files.h"

#include <gtest/gtest.h>

#include <functional>

namespace egret {
namespace {

/// The gradient of a chain whose values are all needed on the way back: 24 arrays of 64 KB.
Tensor chain_gradient(const Tensor& x) {
  Tensor start = x.detach().set_requires_grad();
  Tensor y = start;
  for (int i = 0; i < 24; ++i)
    y = sin(matmul(y, y));
  y.sum().backward();
  return start.grad();
}

Tensor matrix() {
  return (arange(128 * 128).reshape({128, 128}).to(DType::F32) * 1e-5).eval();
}

std::int64_t peak_of(const std::function<void()>& run) {
  const auto before = counters().bytes_in_use;
  reset_peak_bytes();
  run();
  return static_cast<std::int64_t>(counters().peak_bytes - before);
}

TEST(MemoryLimit, KeepsARunWithinIt) {
  const Tensor x = matrix();
  auto plain = compile(&chain_gradient);
  std::vector<float> expected, found;
  const std::int64_t most = peak_of([&] { expected = plain(x).to_vector<float>(); });
  const std::int64_t limit = most / 2, result = 128 * 128 * 4;
  auto limited = compile(&chain_gradient, {.memory_limit = limit});
  const std::int64_t used = peak_of([&] { found = limited(x).to_vector<float>(); });
  EXPECT_EQ(found, expected);
  EXPECT_LE(used, limit + result) << most;
  const std::string report = limited.last_report();
  for (const char* part : {"memory limit ", "computed again: ", " flops, predicted "})
    EXPECT_NE(report.find(part), std::string::npos) << report;
  EXPECT_EQ(plain.explain().find("memory limit"), std::string::npos);
}

TEST(MemoryLimit, OnceMetByTheOrderAloneComputesNothingAgain) {
  const Tensor x = matrix();
  auto wide = compile(&chain_gradient, {.memory_limit = std::int64_t{1} << 30});
  wide(x);
  EXPECT_NE(wide.explain().find("nothing is computed again"), std::string::npos) << wide.explain();
}

TEST(MemoryLimit, IsPartOfWhatAPlanIsKeptBy) {
  const Tensor x = matrix();
  auto tight = compile(&chain_gradient, {.memory_limit = 1});
  const std::int64_t limit = 2 * test::least_limit([&] { tight(x); });
  auto one = compile(&chain_gradient, {.memory_limit = limit});
  one(x);
  const auto compiles = counters().compiles;
  auto other = compile(&chain_gradient, {.memory_limit = limit + 1});
  other(x);
  EXPECT_EQ(counters().compiles, compiles + 1);
  auto same = compile(&chain_gradient, {.memory_limit = limit});
  same(x);
  EXPECT_EQ(counters().compiles, compiles + 1);
}

TEST(MemoryLimit, OfAnExplicitGraph) {
  const auto built = [](Graph& cx) {
    Tensor x = cx.tensor({128, 128}), sum = x;
    std::vector<Tensor> values;
    for (int i = 0; i < 8; ++i)
      values.push_back(sum = matmul(sum, x));
    for (int i = 7; i >= 0; --i)
      sum = matmul(sum, values[static_cast<std::size_t>(i)]);
    x.set(matrix());
    return sum;
  };
  Graph plain, limited, tight;
  Tensor a = built(plain), b = built(limited), least = built(tight);
  const std::int64_t limit =
      test::least_limit([&] { tight.compile(Generic{} | Fusion{} | MemoryLimit{1}, &least); });
  plain.compile(Generic{} | Fusion{}, &a);
  limited.compile(Generic{} | Fusion{} | MemoryLimit{limit} | MemoryLimit{limit + 70000}, &b);
  plain.execute();
  limited.execute();
  EXPECT_EQ(a.to_vector<float>(), b.to_vector<float>());
  EXPECT_NE(limited.explain().find("memory limit " + std::to_string(limit) + " bytes"),
            std::string::npos)
      << limited.explain();
  EXPECT_NE(limited.explain().find("computed again"), std::string::npos) << limited.explain();
  EXPECT_NE(limited.report().find("memory_limit " + std::to_string(limit)), std::string::npos)
      << limited.report();
  Graph third;
  Tensor c = built(third);
  test::error_of(ErrorKind::Memory, [&] { third.compile(Generic{} | MemoryLimit{1}, &c); });
}

TEST(MemoryLimit, TakesKernelsThatPackTheirOperandsInPieces) {
  const Tensor x = (arange(512 * 1024).reshape({512, 1024}).to(DType::F32) * 1e-7).eval(),
               w = (x * 0.5).eval();
  const auto product = [](const Tensor& a, const Tensor& b) { return matmul(a, b.transpose()); };
  auto plain = compile(product);
  const std::vector<float> expected = plain(x, w).to_vector<float>();
  EXPECT_NE(plain.explain().find("shared=1"), std::string::npos) << plain.explain();
  auto limited = compile(product, {.memory_limit = 65536}); // the packed factors alone: 4 MB
  EXPECT_EQ(limited(x, w).to_vector<float>(), expected);
  EXPECT_NE(limited.explain().find("shared=0"), std::string::npos) << limited.explain();
}

/// A step of gradient descent on the weights of a classifier of 3,000 classes.
std::function<Tensor(const Tensor&, const Tensor&, const Tensor&)> classifier_step(Tensor& weight) {
  return [&weight](const Tensor& x, const Tensor& w, const Tensor& targets) {
    Tensor at = w.detach().set_requires_grad();
    Tensor loss = cross_entropy(matmul(x, at.transpose()), targets);
    loss.backward();
    weight = (w - at.grad() * 0.5).detach();
    return cat({loss.detach().reshape({1}), weight.reshape({-1})});
  };
}

TEST(MemoryLimit, TrainsALargeVocabularyInChunks) {
  constexpr std::int64_t kRows = 192, kWidth = 16, kClasses = 3000, kLogits = 4 * kRows * kClasses;
  const Tensor
      x = sin(arange(kRows * kWidth).to(DType::F32)).reshape({kRows, kWidth}).eval(),
      w = cos(arange(kClasses * kWidth).to(DType::F32) * 0.7).reshape({kClasses, kWidth}).eval(),
      targets = ((arange(kRows) * 31) % kClasses).eval();
  Tensor kept;
  const auto step = classifier_step(kept);
  const std::vector<float> expected = step(x, w, targets).to_vector<float>();
  auto whole = compile(step, {.memory_limit = kLogits / 2});
  EXPECT_NE(test::error_of(ErrorKind::Memory, [&] { whole(x, w, targets); }).find("in chunks"),
            std::string::npos);
  auto chunked =
      compile(step, {.allow = RuleTags{RuleTag::Reassociates}, .memory_limit = kLogits / 2});
  std::vector<float> found;
  const std::int64_t peak = peak_of([&] { found = chunked(x, w, targets).to_vector<float>(); });
  EXPECT_LE(peak, kLogits / 2 + 4 * (1 + kClasses * kWidth) * 2); // and the results
  EXPECT_NE(chunked.explain().find("chunks along axis"), std::string::npos) << chunked.explain();
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(found[i], expected[i], 1e-5) << i;
}

TEST(MemoryLimit, RefusesNonsense) {
  for (const std::int64_t bytes : {std::int64_t{0}, std::int64_t{-1}, INT64_MIN}) {
    EXPECT_TRUE(test::error_of(ErrorKind::Value, [&] {
                  compile(&chain_gradient, {.memory_limit = bytes});
                }).starts_with("compile: memory_limit: "));
    EXPECT_TRUE(
        test::error_of(ErrorKind::Value, [&] { MemoryLimit{bytes}; }).starts_with("MemoryLimit: "));
  }
}

TEST(MemoryLimit, ThatCannotBeMetNamesOneThatCan) {
  const Tensor x = matrix();
  auto tight = compile(&chain_gradient, {.memory_limit = 1});
  const std::int64_t least = test::least_limit([&] { tight(x); });
  EXPECT_TRUE(test::error_of(ErrorKind::Memory, [&] {
                tight(x);
              }).starts_with("compile: memory_limit: 1 bytes "));
  auto enough = compile(&chain_gradient, {.memory_limit = least});
  EXPECT_EQ(enough(x).to_vector<float>(), chain_gradient(x).to_vector<float>());
}

} // namespace
} // namespace egret
