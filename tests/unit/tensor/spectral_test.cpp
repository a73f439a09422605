// Eigenvalues and singular values of matrices that are hard for rotations, at equal values, and of
// sizes at the edges.
#include "egret/compile.h"
#include "egret/counters.h"
#include "egret/functional.h"
#include "egret/grad.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace egret {
namespace {

constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

Tensor normals(const Shape& shape, std::uint64_t seed, DType type = DType::F64) {
  Generator generator(seed);
  return (randn(shape, generator, type)).eval();
}

double most_of(const Tensor& a) {
  return max(abs(a)).item<double>();
}

// A symmetric matrix of these eigenvalues.
Tensor with_values(const Tensor& values, std::uint64_t seed) {
  const std::int64_t n = values.size(0);
  const Tensor q = linalg::qr(normals({n, n}, seed)).q;
  return matmul(q * values, transpose(q)).eval();
}

// Errors are a few roundings of the largest value for each column.
void expect_spectrum(const Tensor& a, const Tensor& values) {
  const linalg::Eigh e = linalg::eigh(a);
  const std::int64_t n = a.size(-1);
  const double eps = a.dtype() == DType::F64 ? 0x1p-52 : 0x1p-23;
  const double tolerance = 3 * static_cast<double>(n) * eps * std::max(most_of(values), 1.0);
  EXPECT_LT(most_of(e.values - sort(values).values), tolerance);
  EXPECT_LT(most_of(matmul(transpose(e.vectors), e.vectors) - eye(n, -1, a.dtype())), tolerance);
  EXPECT_LT(most_of(matmul(e.vectors * e.values, transpose(e.vectors)) - a), tolerance);
  EXPECT_LT(most_of(linalg::eigvalsh(a) - sort(values).values), tolerance);
}

TEST(Spectral, GradedClusteredAndSingularMatrices) {
  const std::int64_t n = 12;
  const Tensor steps = arange(n).to(DType::F64);
  const Tensor graded = pow(scalar(10.0, DType::F64), neg(steps));
  for (const Tensor& values :
       {graded, (steps % 2).to(DType::F64), ones({n}, DType::F64), zeros({n}, DType::F64),
        where(steps < 3, steps + 1, 0.0), where(steps < 6, 1.0, -1.0) * (1 + floor(steps / 4))}) {
    expect_spectrum(with_values(values, 3), values);
    expect_spectrum(with_values(values, 4).to(DType::F32), values.to(DType::F32));
  }
}

TEST(Spectral, SmallSingularValuesAreAsAccurateAsLargeOnes) {
  const std::int64_t n = 6;
  const Tensor values = pow(scalar(10.0, DType::F64), neg(arange(n).to(DType::F64)) * 2.0);
  const Tensor q = linalg::qr(normals({9, n}, 1)).q;
  // Columns of very different lengths.
  const Tensor s = linalg::svdvals(q * values);
  EXPECT_LT(most_of(s / values - 1), 1e-13);
}

TEST(Spectral, FactorsOfMatricesOfLowRank) {
  for (const DType type : {DType::F64, DType::F32}) {
    const double tolerance = type == DType::F64 ? 1e-13 : 5e-5;
    for (const auto& [m, n, rank] : {std::array<std::int64_t, 3>{7, 5, 2}, {5, 7, 3}, {4, 4, 0}}) {
      const Tensor a = matmul(normals({2, m, rank}, 5), normals({2, rank, n}, 6)).to(type);
      const linalg::Svd f = linalg::svd(a);
      const std::int64_t k = std::min(m, n);
      EXPECT_LT(most_of(matmul(f.u * unsqueeze(f.s, -2), f.vt) - a), tolerance);
      EXPECT_LT(most_of(matmul(transpose(f.u), f.u) - eye(k, -1, type)), tolerance);
      EXPECT_LT(most_of(matmul(f.vt, transpose(f.vt)) - eye(k, -1, type)), tolerance);
      EXPECT_TRUE(all(f.s.narrow(-1, 0, k - 1) >= f.s.narrow(-1, 1, k - 1)).item<bool>());
      EXPECT_EQ(linalg::matrix_rank(a).to_vector<std::int64_t>(),
                (std::vector<std::int64_t>{rank, rank}));
    }
  }
}

TEST(Spectral, ManyColumns) {
  const Tensor x = normals({33, 33}, 7, DType::F32), a = (x + transpose(x)).eval();
  const linalg::Eigh e = linalg::eigh(a);
  EXPECT_LT(most_of(matmul(e.vectors * e.values, transpose(e.vectors)) - a), 2e-5);
  EXPECT_LT(most_of(matmul(transpose(e.vectors), e.vectors) - eye(33)), 2e-6);
}

TEST(Spectral, HugeAndTinyElements) {
  for (const double size : {1e30, 1e-30}) {
    const Tensor a = tensor({{2.0, 1.0}, {1.0, 2.0}}) * size;
    EXPECT_LT(most_of(linalg::eigvalsh(a) / size - tensor({1.0, 3.0})), 1e-6);
    EXPECT_LT(most_of(linalg::svdvals(a) / size - tensor({3.0, 1.0})), 1e-6);
  }
}

TEST(Spectral, MatricesWithoutAResultLeaveOthersAlone) {
  const Tensor a = tensor({{{2.0, 0.0}, {0.0, 1.0}},
                           {{kNotANumber, 0.0}, {0.0, 1.0}},
                           {{1.0, 0.0}, {0.0, std::numeric_limits<double>::infinity()}}});
  const linalg::Eigh e = linalg::eigh(a);
  EXPECT_EQ(e.values[0].to_vector(), (std::vector<float>{1, 2}));
  EXPECT_EQ(e.vectors[0].to_vector(), (std::vector<float>{0, 1, 1, 0}));
  const linalg::Svd f = linalg::svd(a);
  EXPECT_EQ(f.s[0].to_vector(), (std::vector<float>{2, 1}));
  const Tensor x = linalg::matrix_exp(a);
  for (const std::int64_t i : {1, 2}) {
    EXPECT_TRUE(all(isnan(e.values[i])).item<bool>()) << i;
    EXPECT_TRUE(all(isnan(e.vectors[i])).item<bool>()) << i;
    EXPECT_TRUE(all(isnan(f.s[i])).item<bool>()) << i;
    EXPECT_TRUE(all(isnan(x[i])).item<bool>()) << i;
  }
  EXPECT_NEAR(x[0].to_vector()[0], std::exp(2), 1e-5);
}

TEST(Spectral, SizesOfNothingAndOfOne) {
  EXPECT_EQ(linalg::eigh(zeros({2, 0, 0})).values.shape(), (Shape{2, 0}));
  EXPECT_EQ(linalg::eigh(zeros({0, 3, 3})).vectors.shape(), (Shape{0, 3, 3}));
  EXPECT_EQ(linalg::svd(zeros({2, 0, 3})).vt.shape(), (Shape{2, 0, 3}));
  EXPECT_EQ(linalg::svd(zeros({0, 2, 3})).u.shape(), (Shape{0, 2, 2}));
  EXPECT_EQ(linalg::pinv(zeros({2, 0, 3})).shape(), (Shape{2, 3, 0}));
  EXPECT_EQ(linalg::matrix_rank(zeros({2, 0, 3})).to_vector(), (std::vector<float>{0, 0}));
  EXPECT_EQ(linalg::matrix_norm(zeros({2, 0, 3}), linalg::MatrixNorm::Two).to_vector(),
            (std::vector<float>{0, 0}));
  EXPECT_EQ(linalg::matrix_exp(zeros({2, 0, 0})).shape(), (Shape{2, 0, 0}));
  EXPECT_EQ(linalg::eigh(tensor({{-4.0}})).values.item(), -4);
  EXPECT_EQ(linalg::svd(tensor({{-4.0}})).s.item(), 4);
  EXPECT_EQ(linalg::svd(tensor({{-4.0}})).vt.item(), -1);
  EXPECT_EQ(linalg::pinv(tensor({{-4.0}})).item(), -0.25);
  EXPECT_EQ(linalg::matrix_exp(tensor({{0.0}})).item(), 1);
}

TEST(Spectral, NarrowFloatsAndIntegers) {
  EXPECT_EQ(linalg::eigvalsh(tensor({{2, 1}, {1, 2}})).dtype(), DType::F32);
  EXPECT_EQ(linalg::eigvalsh(tensor({{2, 1}, {1, 2}}).to(DType::BF16)).dtype(), DType::BF16);
  EXPECT_EQ(linalg::svd(tensor({{2, 1}, {1, 2}}).to(DType::F16)).u.dtype(), DType::F16);
  EXPECT_EQ(linalg::matrix_rank(tensor({{2, 1}, {4, 2}})).item<std::int64_t>(), 1);
}

TEST(Spectral, SingularMatricesHaveNoCondition) {
  const Tensor a = tensor({{1.0, 2.0}, {2.0, 4.0}});
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(linalg::cond(a, linalg::MatrixNorm::One).item(), inf);
  EXPECT_GT(linalg::cond(a).item(), 1e6);
  EXPECT_EQ(linalg::cond(zeros({2, 2}) + eye(2) * 3).item(), 1);
}

TEST(Spectral, Tolerances) {
  const Tensor a = diag(tensor({4.0, 2.0, 1.0}));
  const auto rank = [&](const linalg::Tolerance& t) {
    return linalg::matrix_rank(a, t).item<std::int64_t>();
  };
  EXPECT_EQ(rank({}), 3);
  EXPECT_EQ(rank({.absolute = 1.5}), 2);
  EXPECT_EQ(rank({.relative = 0.4}), 2);
  EXPECT_EQ(rank({.absolute = 3, .relative = 0.4}), 1);
  EXPECT_EQ(linalg::pinv(a, {.relative = 0.4}).to_vector(),
            (std::vector<float>{0.25, 0, 0, 0, 0.5, 0, 0, 0, 0}));
}

// Values that are equal have derivatives; their vectors have none, which counts as 0.
TEST(Spectral, GradientsAtEqualValues) {
  Tensor a = (eye(3, -1, DType::F64) * 2).eval().detach().set_requires_grad();
  linalg::eigvalsh(a).sum().backward();
  EXPECT_LT(most_of(a.grad() - eye(3, -1, DType::F64)), 1e-14);
  a.zero_grad();
  linalg::svdvals(a).sum().backward();
  EXPECT_LT(most_of(a.grad() - eye(3, -1, DType::F64)), 1e-14);
  a.zero_grad();
  square(linalg::eigh(a).vectors).select(0, 0).sum().backward();
  EXPECT_EQ(most_of(a.grad()), 0);
  // Beside a value of its own, a vector of two equal ones has what that value makes of it.
  Tensor b = tensor(std::vector<double>{2, 0, 0, 0, 2, 0, 0, 0, 3}, Shape{3, 3})
                 .eval()
                 .detach()
                 .set_requires_grad();
  (linalg::eigh(b).vectors.select(0, 2).select(0, 0)).backward();
  EXPECT_TRUE(all(isfinite(b.grad())).item<bool>());
  EXPECT_GT(most_of(b.grad()), 0.1);
}

TEST(Spectral, ValuesAreThoseWithoutGradients) {
  const Tensor x = normals({2, 4, 4}, 8), a = (x + transpose(x)).eval();
  Tensor leaf = a.clone().detach().set_requires_grad();
  EXPECT_EQ(linalg::eigh(leaf).vectors.to_vector<double>(),
            linalg::eigh(a).vectors.to_vector<double>());
  Tensor other = x.clone().detach().set_requires_grad();
  EXPECT_EQ(linalg::svd(other).u.to_vector<double>(), linalg::svd(x).u.to_vector<double>());
  EXPECT_EQ(linalg::pinv(other).to_vector<double>(), linalg::pinv(x).to_vector<double>());
}

// A step is a few kernels for the whole batch, which the steps share.
TEST(Spectral, LaunchesAndKernels) {
  const Tensor x = normals({4, 8, 8}, 9, DType::F32), a = (x + transpose(x)).eval();
  auto values = compile([](const Tensor& t) { return linalg::eigh(t).vectors; });
  const auto compiled = counters().kernels_compiled + counters().kernels_loaded;
  values(a).eval();
  const auto before = counters().kernels_launched;
  values(a).eval();
  EXPECT_LE(counters().kernels_launched - before, 6 * 7 * 4 + 30u); // 6 sweeps of 7 steps
  EXPECT_LE(counters().kernels_compiled + counters().kernels_loaded - compiled, 60u);
}

TEST(Spectral, BatchesOfAnySize) {
  auto values = compile([](const Tensor& a) { return linalg::svdvals(a); },
                        {.dims = {{.name = "batch", .least = 1, .most = 8, .at = {{0, 0}}}}});
  for (const std::int64_t n : {1, 3, 8}) {
    const Tensor a = normals({n, 3, 2}, 10);
    const Tensor squares = sum(square(a), {1, 2});
    EXPECT_LT(most_of(sum(square(values(a)), 1) - squares), 1e-12) << n;
  }
  EXPECT_EQ(values.traces(), 1u);
}

} // namespace
} // namespace egret
