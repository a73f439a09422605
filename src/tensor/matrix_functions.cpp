// Functions of matrices: what rests on singular values, powers and the exponential.
#include "egret/functional/linalg.h"
#include "egret/grad.h"
#include "support/fail.h"
#include "tensor/matrices.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace egret::linalg {

using namespace detail;

namespace {

constexpr double kNoResult = std::numeric_limits<double>::quiet_NaN();

// The largest value of [batch, k] that counts as 0: [batch, 1].
Tensor threshold_of(const Tensor& s, const Matrices& m, const Tolerance& tolerance,
                    const char* who) {
  for (const auto& given : {tolerance.absolute, tolerance.relative})
    if (given && !(*given >= 0))
      fail(ErrorKind::Value, "{}: a tolerance of {}; it must not be negative", who, *given);
  const double eps = m.a.dtype() == DType::F64 ? 0x1p-52 : 0x1p-23;
  const double usual =
      tolerance.absolute ? 0 : eps * static_cast<double>(std::max(m.rows, m.columns));
  return maximum(s.narrow(1, 0, 1) * tolerance.relative.value_or(usual),
                 tolerance.absolute.value_or(0));
}

// The change of the inverse x of a with da, at constant rank.
Tensor change(const Tensor& a, const Tensor& x, const Tensor& da) {
  const Tensor xt = transpose(x), dat = transpose(da);
  const Tensor rows = matmul(x, xt), columns = matmul(xt, x);
  return matmul(rows, dat - matmul(matmul(dat, a), x)) +
         matmul(dat - matmul(matmul(x, a), dat), columns) - matmul(matmul(x, da), x);
}

} // namespace

Tensor pinv(const Operand& a, const Tolerance& tolerance) {
  constexpr const char* who = "pinv";
  const Matrices m = matrices(a, who);
  if (m.rows == 0 || m.columns == 0)
    return m.result(zeros({m.a.shape()[0], m.columns, m.rows}, m.a.dtype()));
  require_columns(std::min(m.rows, m.columns), who);
  const Tensor fixed = stopped(m.a);
  const Svd f = named(who, [&] { return svd(fixed); });
  const Tensor counts = f.s > threshold_of(f.s, m, tolerance, who);
  const Tensor inverse = where(counts, reciprocal(where(counts, f.s, 1)), f.s * 0);
  Tensor x = matmul(transpose(f.vt) * unsqueeze(inverse, 1), transpose(f.u));
  if (has_gradient(m.a)) {
    const Tensor da = variation(m.a);
    const Tensor half = change(fixed, x, da);
    x = x + change(fixed + da * 0.5, x + half * 0.5, da);
  }
  return m.result(x);
}

Tensor matrix_rank(const Operand& a, const Tolerance& tolerance) {
  constexpr const char* who = "matrix_rank";
  Matrices m = matrices(a, who);
  m.type = DType::I64;
  if (m.rows == 0 || m.columns == 0)
    return m.result(zeros({m.a.shape()[0]}, DType::I64));
  require_columns(std::min(m.rows, m.columns), who);
  const Tensor s = named(who, [&] { return svdvals(stopped(m.a)); });
  return m.result(sum(s > threshold_of(s, m, tolerance, who), 1));
}

Tensor matrix_norm(const Operand& a, MatrixNorm norm, bool keepdim) {
  constexpr const char* who = "matrix_norm";
  const Matrices m = matrices(a, who);
  // What is the largest of nothing is 0; the smallest is none.
  const bool empty = m.rows == 0 || m.columns == 0;
  if ((norm == MatrixNorm::MinusOne && m.columns == 0) ||
      (norm == MatrixNorm::MinusInf && m.rows == 0) || (norm == MatrixNorm::MinusTwo && empty))
    fail(ErrorKind::Shape, "{}: matrices of {} are empty; at least one element is needed", who,
         shape_of(a));
  if (norm == MatrixNorm::Nuclear || norm == MatrixNorm::Two || norm == MatrixNorm::MinusTwo)
    require_columns(std::min(m.rows, m.columns), who);
  const bool largest =
      norm == MatrixNorm::One || norm == MatrixNorm::Inf || norm == MatrixNorm::Two;
  const Tensor y = named(who, [&] {
    if (empty && largest)
      return zeros({m.a.shape()[0]}, m.a.dtype());
    switch (norm) {
    case MatrixNorm::Frobenius:
      return egret::norm(m.a, {1, 2});
    case MatrixNorm::Nuclear:
      return sum(svdvals(m.a), 1);
    case MatrixNorm::One:
      return max(sum(abs(m.a), 1), 1);
    case MatrixNorm::MinusOne:
      return min(sum(abs(m.a), 1), 1);
    case MatrixNorm::Two:
      return svdvals(m.a).select(1, 0);
    case MatrixNorm::MinusTwo:
      return svdvals(m.a).select(1, -1);
    case MatrixNorm::Inf:
      return max(sum(abs(m.a), 2), 1);
    default:
      return min(sum(abs(m.a), 2), 1);
    }
  });
  return m.result(keepdim ? reshape(y, {m.a.shape()[0], 1, 1}) : y);
}

Tensor cond(const Operand& a, MatrixNorm norm) {
  constexpr const char* who = "cond";
  const bool by_values = norm == MatrixNorm::Two || norm == MatrixNorm::MinusTwo;
  const Matrices m = by_values ? matrices(a, who) : square_matrices(a, who);
  if (m.rows == 0 || m.columns == 0) {
    if (by_values)
      fail(ErrorKind::Shape, "{}: matrices of {} are empty; at least one element is needed", who,
           shape_of(a));
    return m.result(zeros({m.a.shape()[0]}, m.a.dtype()));
  }
  if (by_values || norm == MatrixNorm::Nuclear)
    require_columns(std::min(m.rows, m.columns), who);
  if (by_values) {
    const Tensor s = named(who, [&] { return svdvals(m.a); });
    const Tensor large = s.select(1, 0), small = s.select(1, -1);
    return m.result(norm == MatrixNorm::Two ? large / small : small / large);
  }
  const Tensor y = named(who, [&] { return matrix_norm(m.a, norm) * matrix_norm(inv(m.a), norm); });
  const Tensor finite = all(isfinite(m.a), {1, 2});
  return m.result(where(isnan(y) & finite, kInfinity, y));
}

namespace {

// Σ a^k / k! up to k = degree, a multiple of 4: powers up to the fourth, and Horner's rule in that.
Tensor taylor(const Tensor& a, int degree) {
  const std::int64_t n = a.size(1);
  const Tensor unit = eye(n, -1, a.dtype());
  const Tensor a2 = matmul(a, a), a3 = matmul(a2, a), a4 = matmul(a2, a2);
  const auto term = [](int k) { return 1 / std::tgamma(k + 1.0); };
  Tensor y = unit * term(degree);
  for (int k = degree - 4; k >= 0; k -= 4) {
    const Tensor higher = k == degree - 4 ? a4 * term(degree) : matmul(y, a4);
    y = higher + a3 * term(k + 3) + a2 * term(k + 2) + a * term(k + 1) + unit * term(k);
  }
  return y;
}

} // namespace

Tensor matrix_exp(const Operand& a) {
  const Matrices m = square_matrices(a, "matrix_exp");
  if (m.rows == 0)
    return m.result(m.a);
  // Beyond 1/2 the norm is halved s times; the first terms that are left out, 2^-9 / 9! and 2^-17 /
  // 17!, are less than a rounding.
  constexpr int kSquares = 16;
  const Tensor norm = max(sum(abs(stopped(m.a)), 1), 1);
  const Tensor s = reshape(maximum(ceil(log2(norm)) + 1, 0), {m.a.shape()[0], 1, 1});
  const Tensor fits = s <= static_cast<double>(kSquares);
  const Tensor scaled = m.a * exp2(neg(where(fits, s, 0)));
  Tensor y = taylor(where(fits, scaled, 0), m.a.dtype() == DType::F64 ? 16 : 8);
  for (int i = 0; i < kSquares; ++i)
    y = where(s > static_cast<double>(i), matmul(y, y), y);
  return m.result(where(fits, y, kNoResult));
}

Tensor matrix_power(const Operand& a, std::int64_t n) {
  constexpr const char* who = "matrix_power";
  const Matrices m = square_matrices(a, who);
  if (n >= 0)
    return m.result(named(who, [&] { return egret::matrix_power(m.a, n); }));
  if (n == std::numeric_limits<std::int64_t>::min())
    fail(ErrorKind::Value, "{}: the power of {} is too low", who, n);
  return m.result(named(who, [&] { return egret::matrix_power(inv(m.a), -n); }));
}

} // namespace egret::linalg
