// Cross-entropy with its projection onto 128,256 classes, from the formula, on the CPU: the logits
// are never in memory, and sampled losses are those of the formula in f64.
#include "egret/counters.h"
#include "egret/functional.h"
#include "egret/random.h"

#include <gtest/gtest.h>

#include <cmath>

namespace egret {
namespace {

constexpr std::int64_t kRows = 320, kClasses = 128256, kHiddenWidth = 272, kIgnored = -100;

/// Labels that do not count lose nothing. The logits are nobody's: tensors that the program keeps
/// would be computed for it.
Tensor linear_loss(const Tensor& x, const Tensor& w, const Tensor& label) {
  const Tensor logits = matmul(x, w.transpose()).to(DType::F32);
  const Tensor low = logits - logits.max(-1, true);
  const Tensor logs = low - log(exp(low).sum(-1, true));
  return where(ne(label, kIgnored), -(logs * one_hot(label, kClasses)).sum(-1), 0);
}

class LinearLoss : public ::testing::TestWithParam<DType> {};

TEST_P(LinearLoss, HasNoMemoryForItsLogits) {
  Generator generator(7);
  const Tensor x = randn({kRows, kHiddenWidth}, generator).to(GetParam()).eval(),
               w = (randn({kClasses, kHiddenWidth}, generator) * 0.05).to(GetParam()).eval();
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < kRows; ++i)
    labels.push_back(i % 9 == 4 ? kIgnored : i * 7919 % kClasses);
  const Tensor label = tensor(labels).eval();
  const std::uint64_t before = counters().bytes_in_use;
  reset_peak_bytes();
  const std::vector<double> result = linear_loss(x, w, label).to_vector<double>();
  EXPECT_LT(counters().peak_bytes - before, std::uint64_t(kRows * kClasses)); // a byte a logit

  const auto mx = x.to_vector<float>(), mw = w.to_vector<float>();
  for (const std::int64_t row : {0, 4, 100, 319}) {
    double sum = 0, chosen = 0; // normal numbers: exp cannot overflow
    for (std::int64_t c = 0; c < kClasses; ++c) {
      double logit = 0;
      for (std::int64_t k = 0; k < kHiddenWidth; ++k)
        logit +=
            double(mx[std::size_t(row * kHiddenWidth + k)]) * mw[std::size_t(c * kHiddenWidth + k)];
      sum += std::exp(logit);
      if (c == labels[std::size_t(row)])
        chosen = logit;
    }
    const bool counts = labels[std::size_t(row)] != kIgnored;
    EXPECT_NEAR(result[std::size_t(row)], counts ? std::log(sum) - chosen : 0,
                GetParam() == DType::F32 ? 1e-4 : 2e-2)
        << row;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, LinearLoss, ::testing::Values(DType::F32, DType::BF16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

} // namespace
} // namespace egret
