// Attention of 4096 tokens from its naive formula on the CPU, forward and backward: no plan has
// memory for the 4096 x 4096 scores, and sampled rows are those of the formula in f64.
#include "egret/counters.h"
#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

namespace egret {
namespace {

constexpr std::int64_t kTokens = 4096, kWidth = 32;
constexpr double kLowest = -std::numeric_limits<double>::infinity();

/// One variant of the formula: on tensors, and of one pair of tokens.
struct Variant {
  const char* name;
  std::function<Tensor(const Tensor&)> masked; ///< of the scaled products
  std::function<double(std::int64_t, std::int64_t, double)> score;
  std::function<double(std::int64_t, std::int64_t, double)> slope; ///< by the scaled product
};

Tensor rows() {
  return arange(kTokens).reshape({kTokens, 1});
}

std::vector<Variant> variants() {
  const auto causal = [](const Tensor& s) {
    return where(causal_mask(kTokens, kTokens), s, kLowest);
  };
  const auto below = [](std::int64_t i, std::int64_t j, double s) { return j <= i ? s : kLowest; };
  const auto one = [](std::int64_t, std::int64_t, double) { return 1.0; };
  return {
      {"Plain", [](const Tensor& s) { return s; },
       [](std::int64_t, std::int64_t, double s) { return s; }, one},
      {"Causal", causal, below, one},
      {"CappedInAWindow",
       [=](const Tensor& s) {
         const Tensor near = lt(rows(), arange(100, kTokens + 100));
         return where(near, causal(tanh(s * 0.5) * 2.0), kLowest);
       },
       [=](std::int64_t i, std::int64_t j, double s) {
         return i < j + 100 ? below(i, j, 2 * std::tanh(s / 2)) : kLowest;
       },
       [](std::int64_t, std::int64_t, double s) {
         const double t = std::tanh(s / 2);
         return 1 - t * t;
       }},
  };
}

using Matrix = std::vector<double>; ///< [kTokens, kWidth]

double dot(const Matrix& a, std::int64_t i, const Matrix& b, std::int64_t j) {
  double sum = 0;
  for (std::int64_t d = 0; d < kWidth; ++d)
    sum += a[std::size_t(i * kWidth + d)] * b[std::size_t(j * kWidth + d)];
  return sum;
}

/// The scores are nobody's: tensors that the program keeps would be computed for it.
Tensor attention(const Variant& f, const Tensor& q, const Tensor& k, const Tensor& v,
                 double scale) {
  const Tensor s = f.masked(matmul(q, k.transpose()) * scale);
  const Tensor e = exp(s - s.max(-1, true));
  return matmul(e / e.sum(-1, true), v);
}

class LongAttention : public ::testing::TestWithParam<Variant> {};

TEST_P(LongAttention, HasNoMemoryForItsScores) {
  const Variant& f = GetParam();
  Generator generator(7);
  const Shape shape{1, 1, kTokens, kWidth};
  Tensor q = randn(shape, generator).eval(), k = randn(shape, generator).eval(),
         v = randn(shape, generator).eval(), u = randn(shape, generator).eval();
  for (Tensor* t : {&q, &k, &v})
    t->set_requires_grad(true);
  const double scale = 1 / std::sqrt(double(kWidth));
  const std::uint64_t before = counters().bytes_in_use;
  reset_peak_bytes();
  const Tensor y = attention(f, q, k, v, scale);
  const std::vector<Tensor> by = grad((y * u).sum(), {q, k, v});
  const Matrix result = y.to_vector<double>(), dq = by[0].to_vector<double>(),
               dk = by[1].to_vector<double>(), dv = by[2].to_vector<double>();
  EXPECT_LT(counters().peak_bytes - before, std::uint64_t(kTokens * kTokens)); // a byte a score

  const Matrix mq = q.to_vector<double>(), mk = k.to_vector<double>(), mv = v.to_vector<double>(),
               mu = u.to_vector<double>();
  // Statistics of all rows, then sampled rows of everything.
  std::vector<double> top(kTokens, kLowest), sum(kTokens, 0), spread(kTokens, 0);
  const auto score = [&](std::int64_t i, std::int64_t j) {
    return f.score(i, j, scale * dot(mq, i, mk, j));
  };
  const auto share = [&](std::int64_t i, std::int64_t j) {
    return std::exp(score(i, j) - top[std::size_t(i)]) / sum[std::size_t(i)];
  };
  for (std::int64_t i = 0; i < kTokens; ++i) {
    double m = kLowest, total = 0, mixed = 0;
    for (std::int64_t j = 0; j < kTokens; ++j) {
      const double x = score(i, j);
      if (x == kLowest)
        continue;
      const double larger = std::max(m, x), shrunk = m == kLowest ? 0 : std::exp(m - larger),
                   term = std::exp(x - larger);
      total = total * shrunk + term;
      mixed = mixed * shrunk + term * dot(mu, i, mv, j);
      m = larger;
    }
    top[std::size_t(i)] = m;
    sum[std::size_t(i)] = total;
    spread[std::size_t(i)] = mixed / total;
  }
  const auto slope = [&](std::int64_t i, std::int64_t j) { // of the loss by the scaled product
    const double p = share(i, j);
    return p == 0 ? 0
                  : p * (dot(mu, i, mv, j) - spread[std::size_t(i)]) *
                        f.slope(i, j, scale * dot(mq, i, mk, j));
  };
  for (const std::int64_t row : {0, 1, 63, 2000, 4095}) {
    Matrix want(4 * kWidth, 0);
    for (std::int64_t other = 0; other < kTokens; ++other) {
      const double p = share(row, other), a = scale * slope(row, other),
                   b = scale * slope(other, row), p_other = share(other, row);
      for (std::int64_t d = 0; d < kWidth; ++d) {
        const auto at = std::size_t(other * kWidth + d);
        want[std::size_t(d)] += p * mv[at];
        want[std::size_t(kWidth + d)] += a * mk[at];
        want[std::size_t(2 * kWidth + d)] += b * mq[at];
        want[std::size_t(3 * kWidth + d)] += p_other * mu[at];
      }
    }
    for (std::int64_t d = 0; d < kWidth; ++d) {
      const auto at = std::size_t(row * kWidth + d);
      EXPECT_NEAR(result[at], want[std::size_t(d)], 2e-5) << row;
      EXPECT_NEAR(dq[at], want[std::size_t(kWidth + d)], 2e-5) << row;
      EXPECT_NEAR(dk[at], want[std::size_t(2 * kWidth + d)], 1e-4) << row;
      EXPECT_NEAR(dv[at], want[std::size_t(3 * kWidth + d)], 1e-4) << row;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, LongAttention, ::testing::ValuesIn(variants()),
                         [](const auto& info) { return std::string(info.param.name); });

} // namespace
} // namespace egret
