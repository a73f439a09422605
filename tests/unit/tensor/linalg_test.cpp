// Linear algebra at its edges: matrices without a result, sizes beyond one block, how many kernels.
#include "egret/compile.h"
#include "egret/counters.h"
#include "egret/functional.h"
#include "egret/grad.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace egret {
namespace {

Tensor random(const Shape& shape, std::uint64_t seed, DType type = DType::F64) {
  Generator generator(seed);
  return rand(shape, generator, type) - 0.5;
}

Tensor definite(const Shape& shape, std::uint64_t seed, DType type = DType::F64) {
  const Tensor a = random(shape, seed, type);
  return (matmul(a, transpose(a)) + eye(a.size(-1), -1, type)).detach();
}

double largest(const Tensor& a) {
  return max(abs(a)).item<double>();
}

TEST(Linalg, MatricesWithoutAResultLeaveOthersAlone) {
  const Tensor a = tensor({{{2.0, 1.0}, {1.0, 2.0}}, {{1.0, 2.0}, {2.0, 1.0}}});
  const Tensor l = linalg::cholesky(a);
  EXPECT_TRUE(all(isnan(l[1])).item<bool>()); // eigenvalues 3 and -1
  EXPECT_LT(largest(matmul(l[0], transpose(l[0])) - a[0]), 1e-6);
  const Tensor b = tensor({{{1.0, 2.0}, {2.0, 4.0}}, {{0.0, 2.0}, {4.0, 0.0}}});
  const Tensor x = linalg::inv(b);
  EXPECT_TRUE(all(isnan(x[0])).item<bool>());
  EXPECT_EQ(x[1].to_vector(), (std::vector<float>{0, 0.25, 0.5, 0}));
  EXPECT_EQ(linalg::det(b).to_vector(), (std::vector<float>{0, -8}));
  const linalg::SignLog s = linalg::slogdet(b);
  EXPECT_EQ(s.sign.to_vector(), (std::vector<float>{0, -1}));
  EXPECT_EQ(s.log.to_vector()[0], -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(linalg::logdet(b).to_vector()[1]));
}

TEST(Linalg, GradientsPassSingularMatricesBy) {
  Tensor a = tensor({{{1.0, 2.0}, {2.0, 4.0}}, {{0.0, 2.0}, {4.0, 0.0}}});
  a.set_requires_grad();
  linalg::det(a).sum().backward();
  EXPECT_EQ(a.grad().to_vector(), (std::vector<float>{0, 0, 0, 0, 0, -4, -2, 0}));
}

TEST(Linalg, SizesOfNothingAndOfOne) {
  EXPECT_EQ(linalg::det(zeros({2, 0, 0})).to_vector(), (std::vector<float>{1, 1}));
  EXPECT_EQ(linalg::inv(zeros({0, 3, 3})).shape(), (Shape{0, 3, 3}));
  EXPECT_EQ(linalg::cholesky(zeros({0, 3, 3})).numel(), 0);
  EXPECT_EQ(linalg::cholesky(zeros({3, 0, 0})).shape(), (Shape{3, 0, 0}));
  EXPECT_EQ(linalg::qr(zeros({2, 3, 0})).q.shape(), (Shape{2, 3, 0}));
  EXPECT_EQ(linalg::qr(zeros({2, 0, 3})).r.shape(), (Shape{2, 0, 3}));
  EXPECT_EQ(linalg::solve(zeros({2, 2}) + eye(2), zeros({2, 0})).shape(), (Shape{2, 0}));
  EXPECT_EQ(linalg::cholesky(tensor({{4.0}})).item(), 2);
  EXPECT_EQ(linalg::inv(tensor({{4.0}})).item(), 0.25);
  EXPECT_EQ(linalg::qr(tensor({{-4.0}})).r.item(), -4);
  EXPECT_EQ(linalg::solve_triangular(tensor({{4.0}}), tensor({{2.0}})).item(), 0.5);
}

TEST(Linalg, NarrowFloatsAndIntegers) {
  const Tensor a = tensor({{2.0, 1.0}, {1.0, 3.0}});
  const Tensor x = linalg::inv(a.to(DType::BF16));
  EXPECT_EQ(x.dtype(), DType::BF16);
  EXPECT_EQ(x.to_vector(), linalg::inv(a).to(DType::BF16).to_vector());
  EXPECT_EQ(linalg::det(tensor({{2, 1}, {1, 3}})).dtype(), DType::F32);
  EXPECT_EQ(linalg::det(tensor({{2, 1}, {1, 3}})).item(), 5);
}

TEST(Linalg, ManyBlocks) {
  const Tensor a = definite({2, 70, 70}, 1), b = random({2, 70, 3}, 2);
  const Tensor l = linalg::cholesky(a);
  EXPECT_LT(largest(matmul(l, transpose(l)) - a), 1e-12);
  EXPECT_EQ(largest(triu(l, 1)), 0);
  EXPECT_LT(largest(matmul(a, linalg::cholesky_solve(b, l)) - b), 1e-11);
  const Tensor t = tril(random({2, 70, 70}, 3)) * 0.1 + eye(70, -1, DType::F64);
  EXPECT_LT(largest(matmul(t, linalg::solve_triangular(t, b)) - b), 1e-11);
}

// Hilbert's matrix of 6 has a condition of 1.5e7: a residual stays small where errors do not.
TEST(Linalg, ResidualsOfIllConditionedMatrices) {
  const Tensor i = arange(6).to(DType::F64);
  const Tensor a = 1 / (unsqueeze(i, 1) + i + 1), b = ones({6, 1}, DType::F64);
  EXPECT_LT(largest(matmul(a, linalg::solve(a, b)) - b), 1e-9);
  const Tensor l = linalg::cholesky(a);
  EXPECT_LT(largest(matmul(l, transpose(l)) - a), 1e-15);
  const linalg::Qr f = linalg::qr(a);
  EXPECT_LT(largest(matmul(transpose(f.q), f.q) - eye(6, -1, DType::F64)), 1e-14);
  EXPECT_LT(largest(matmul(f.q, f.r) - a), 1e-14);
}

TEST(Linalg, QrOfDependentColumnsHasItsProduct) {
  Tensor a = tensor({{1.0, 2.0}, {2.0, 4.0}, {0.0, 0.0}});
  a.set_requires_grad();
  const linalg::Qr f = linalg::qr(a);
  EXPECT_LT(largest(matmul(f.q, f.r) - a), 1e-6);
  EXPECT_LT(largest(matmul(transpose(f.q), f.q) - eye(2)), 1e-6);
  const Tensor huge = tensor({{1e30, 0.0}, {1e30, 1e-30}});
  EXPECT_TRUE(all(isfinite(linalg::qr(huge).r)).item<bool>());
}

TEST(Linalg, ValuesAreThoseWithoutGradients) {
  const Tensor a = definite({3, 5, 5}, 4), b = random({3, 5, 2}, 5);
  Tensor leaf = a.clone().set_requires_grad();
  EXPECT_EQ(linalg::cholesky(leaf).to_vector<double>(), linalg::cholesky(a).to_vector<double>());
  EXPECT_EQ(linalg::qr(leaf).q.to_vector<double>(), linalg::qr(a).q.to_vector<double>());
  EXPECT_EQ(linalg::det(leaf).to_vector<double>(), linalg::det(a).to_vector<double>());
  EXPECT_LT(largest(linalg::solve(leaf, b) - linalg::solve(a, b)), 1e-13);
}

std::uint64_t launches(const std::function<void()>& run) {
  const auto before = counters().kernels_launched;
  run();
  return counters().kernels_launched - before;
}

// Squares of a column are those of its own size, whatever the others have.
TEST(Linalg, ColumnsOfVeryDifferentSize) {
  const Tensor sizes = tensor({1.0, 1e-25, 1e25});
  const Tensor a = random({5, 3}, 9, DType::F32);
  const linalg::Qr f = linalg::qr(a * sizes), even = linalg::qr(a);
  EXPECT_LT(largest(f.q - even.q), 1e-6);
  EXPECT_LT(largest(f.r / sizes - even.r), 1e-6);
}

// A step is at most one kernel for the whole batch, of an elimination about five, which steps
// share.
TEST(Linalg, LaunchesAndKernels) {
  const Tensor a = definite({4, 32, 32}, 6, DType::F32);
  auto factor = compile([](const Tensor& x) { return linalg::cholesky(x); });
  auto inverse = compile([](const Tensor& x) { return linalg::inv(x); });
  const auto compiled = counters().kernels_compiled + counters().kernels_loaded;
  factor(a).eval();
  EXPECT_LE(launches([&] { factor(a).eval(); }), 32u);
  inverse(a).eval();
  EXPECT_LE(launches([&] { inverse(a).eval(); }), 170u);
  EXPECT_LE(counters().kernels_compiled + counters().kernels_loaded - compiled, 40u);
}

TEST(Linalg, BatchesOfAnySize) {
  auto solve =
      compile([](const Tensor& a, const Tensor& b) { return linalg::solve(a, b); },
              {.dims = {{.name = "batch", .least = 1, .most = 8, .at = {{0, 0}, {1, 0}}}}});
  for (const std::int64_t n : {1, 3, 8}) {
    const Tensor a = definite({n, 3, 3}, 7), b = random({n, 3, 1}, 8);
    EXPECT_LT(largest(matmul(a, solve(a, b)) - b), 1e-12) << n;
  }
  EXPECT_EQ(solve.traces(), 1u);
}

} // namespace
} // namespace egret
