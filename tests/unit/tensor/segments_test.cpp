// Segments, quantiles, scans and signals at their edges.
#include "egret/compile.h"
#include "egret/counters.h"
#include "egret/functional.h"
#include "egret/functional/fourier.h"
#include "egret/grad.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace egret {
namespace {

const float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

Tensor segment_numbers(const std::vector<float>& values) {
  return tensor(values);
}

TEST(Segments, SoftmaxDoesNotOverflowAndSumsToOne) {
  const Tensor x = segment_numbers({1000, 1001, -1000, -1002, 5, 7});
  const Tensor index = tensor({0, 0, 1, 1, -1, 9});
  const Tensor y = segment_softmax(x, index, 3);
  const auto v = y.to_vector();
  EXPECT_NEAR(v[0] + v[1], 1, 1e-6);
  EXPECT_NEAR(v[0], 1 / (1 + std::exp(1.0)), 1e-6);
  EXPECT_NEAR(v[2], 1 / (1 + std::exp(-2.0)), 1e-6);
  EXPECT_EQ(v[4], 0); // belongs to no segment
  EXPECT_EQ(v[5], 0);
  const auto total = segment_logsumexp(x, index, 3).to_vector();
  EXPECT_NEAR(total[0], 1001 + std::log1p(std::exp(-1.0)), 1e-3);
  EXPECT_EQ(total[2], -kInf); // empty
  EXPECT_EQ(segment_log_softmax(x, index, 3).to_vector()[4], -kInf);
}

TEST(Segments, InfinitiesAndNan) {
  const Tensor x = segment_numbers({-kInf, 0, -kInf, -kInf, kNan, 1});
  const Tensor index = tensor({0, 0, 1, 1, 2, 3});
  const auto y = segment_softmax(x, index, 4).to_vector();
  EXPECT_EQ(y[0], 0);
  EXPECT_EQ(y[1], 1);
  EXPECT_TRUE(std::isnan(y[2])); // as softmax of nothing but -inf
  EXPECT_TRUE(std::isnan(y[4]));
  EXPECT_EQ(y[5], 1); // other segments are not touched
  EXPECT_EQ(segment_logsumexp(x, index, 4).to_vector()[1], -kInf);
}

TEST(Segments, GradientsOfWhatBelongsToNoSegmentAreZero) {
  Tensor x = segment_numbers({1, 2, 3}).set_requires_grad();
  const Tensor y = segment_softmax(x, tensor({0, 0, 5}), 2);
  (y * segment_numbers({1, 2, 3})).sum().backward();
  const auto g = x.grad().to_vector();
  EXPECT_NEAR(g[0] + g[1], 0, 1e-6);
  EXPECT_EQ(g[2], 0);
  x.zero_grad();
  segment_logsumexp(x, tensor({0, 0, 5}), 2)[0].backward();
  EXPECT_NEAR(x.grad().to_vector()[0] + x.grad().to_vector()[1], 1, 1e-6);
}

TEST(Segments, ElementsOfNarrowFloatsAreSummedWide) {
  const Tensor x = ones({4096}, DType::BF16), index = zeros({4096}, DType::I64);
  EXPECT_NEAR(segment_logsumexp(x, index, 1).to(DType::F32).item(), 1 + std::log(4096.0), 0.04);
  EXPECT_EQ(segment_softmax(x, index, 1).dtype(), DType::BF16);
}

TEST(Segments, RepeatedElementsAreCutAndPadded) {
  const Tensor x = segment_numbers({1, 2, 3}), counts = tensor({2, 0, 2});
  EXPECT_EQ(repeat_interleave(x, counts, 0, 4).to_vector(), (std::vector<float>{1, 1, 3, 3}));
  EXPECT_EQ(repeat_interleave(x, counts, 0, 3).to_vector(), (std::vector<float>{1, 1, 3}));
  EXPECT_EQ(repeat_interleave(x, counts, 0, 6).to_vector(), (std::vector<float>{1, 1, 3, 3, 0, 0}));
  EXPECT_EQ(repeat_interleave(x, counts, 0, 0).numel(), 0);
}

TEST(Segments, QuantilesBesideInfinitiesAndNan) {
  // An element is not interpolated with its infinite neighbour.
  EXPECT_EQ(quantile(segment_numbers({1, 2, kInf}), 0.5, 0).item(), 2);
  EXPECT_EQ(quantile(segment_numbers({1, 2, kInf}), 0.75, 0).item(), kInf);
  EXPECT_TRUE(std::isnan(quantile(segment_numbers({1, kNan, 3}), 0.0, 0).item()));
  EXPECT_EQ(nanquantile(segment_numbers({1, kNan, 3}), 0.5, 0).item(), 2);
  EXPECT_TRUE(std::isnan(nanquantile(segment_numbers({kNan, kNan}), 0.5, 0).item()));
  EXPECT_TRUE(std::isnan(nanmedian(segment_numbers({kNan, kNan})).item()));
  EXPECT_EQ(quantile(segment_numbers({1, 2, 3}), {0.5}, 0).shape(), (Shape{1}));
  EXPECT_EQ(quantile(segment_numbers({1, 2, 3}), {}, 0).shape(), (Shape{0}));
  EXPECT_EQ(quantile(full({}, 3.0), {0.1, 0.2}, 0).to_vector(), (std::vector<float>{3, 3}));
  EXPECT_EQ(quantile(tensor({4, 1, 3}), 0.5, 0).dtype(), DType::F32);
}

TEST(Segments, ScansOfManyElementsAreFewKernels) {
  auto scan = compile([](const Tensor& a, const Tensor& b) {
    return associative_scan(
        [](const std::vector<Tensor>& x, const std::vector<Tensor>& y) {
          return std::vector<Tensor>{x[0] * y[0], x[1] * y[0] + y[1]};
        },
        {a, b}, 1)[1];
  });
  Generator generator(1);
  const Tensor a = rand({2, 1000}, generator), b = rand({2, 1000}, generator);
  const Tensor y = scan(a, b);
  const auto have = y.to_vector(), va = a.to_vector(), vb = b.to_vector();
  for (std::size_t row = 0; row < 2; ++row) {
    double h = 0;
    for (std::size_t i = row * 1000; i < (row + 1) * 1000; ++i) {
      h = va[i] * h + vb[i];
      ASSERT_NEAR(have[i], h, 1e-4) << i;
    }
  }
  const auto before = counters().kernels_launched;
  scan(a, b).eval();
  EXPECT_LE(counters().kernels_launched - before, 44u); // 2 log2(n) steps, two tensors
}

TEST(Segments, MeansOfMoreThanADTypeCounts) {
  const auto mean = [](DType type, double value, std::int64_t count) {
    const Tensor x = full({count}, value, DType::F64).to(type), index = zeros({count}, DType::I64);
    const double one = segment_reduce(x, index, 1, Scatter::Mean).item<double>();
    const Tensor other = scatter(zeros({1}, type), 0, index, x, Scatter::Mean, false);
    EXPECT_EQ(other.dtype(), type);
    EXPECT_EQ(other.item<double>(), one);
    return one;
  };
  EXPECT_EQ(mean(DType::F16, 0.5, 70000), 0.5); // beyond the largest f16
  EXPECT_EQ(mean(DType::BF16, 1, 1000), 1);
  EXPECT_EQ(mean(DType::I8, 1, 256), 1); // 0 in 8 bits
  EXPECT_EQ(mean(DType::I8, -100, 3), -100);
  EXPECT_EQ(mean(DType::U8, 200, 600), 200);
}

TEST(Segments, AntialiasMeetsNearElementsOnly) {
  std::vector<float> pixels(64, 1);
  pixels[0] = kNan;
  pixels[63] = kInf;
  const Tensor x = reshape(segment_numbers(pixels), {1, 1, 64});
  for (const Interpolation mode : {Interpolation::Linear, Interpolation::Cubic}) {
    const auto y = interpolate(x, 16, {.mode = mode, .antialias = true}).to_vector();
    EXPECT_TRUE(std::isnan(y[0]));
    EXPECT_FALSE(std::isfinite(y[15]));
    for (std::size_t i = 2; i < 14; ++i)
      EXPECT_NEAR(y[i], 1, 1e-6) << i;
  }
}

TEST(Segments, WindowsOfFewNumbers) {
  for (const bool periodic : {false, true}) {
    EXPECT_EQ(fourier::hann_window(0, periodic).numel(), 0);
    EXPECT_EQ(fourier::hann_window(1, periodic).item(), 1);
    EXPECT_EQ(fourier::kaiser_window(1, periodic).item(), 1);
  }
  EXPECT_EQ(fourier::bartlett_window(3, false).to_vector(), (std::vector<float>{0, 1, 0}));
  EXPECT_TRUE(all(isfinite(fourier::kaiser_window(64, false, 1000))).item<bool>());
}

TEST(Segments, SamplesThatNoWindowMeetsAreZero) {
  const fourier::StftOptions options{.hop = 4, .window = ones({2}), .center = false};
  const Tensor x = arange(12).to(DType::F32);
  const Tensor y = fourier::istft(fourier::stft(x, 4, options), 4, options);
  EXPECT_EQ(y.sizes(), (std::vector<std::int64_t>{12}));
  const auto v = y.to_vector();
  EXPECT_EQ(v[0], 0);
  EXPECT_NEAR(v[1], 1, 1e-5);
  EXPECT_NEAR(v[2], 2, 1e-5);
  EXPECT_EQ(v[3], 0);
}

TEST(Segments, FarTailsOfTheNormalDistribution) {
  // Tails of distributions that products would lose.
  const Tensor far = tensor(std::vector<double>{-40, -200});
  const auto v = log_ndtr(far).to_vector<double>();
  EXPECT_NEAR(v[0], -804.608442, 1e-5);
  EXPECT_NEAR(v[1], -20006.217280, 1e-5);
  EXPECT_NEAR(ndtri(tensor(std::vector<double>{1e-300})).item<double>(), -37.0471, 1e-4);
}

} // namespace
} // namespace egret
