// Triangular matrices and factorizations of batches of matrices.
#include "egret/functional/linalg.h"

#include "egret/grad.h"
#include "support/fail.h"
#include "tensor/matrices.h"
#include "tensor/steps.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

namespace egret {

namespace detail {

namespace {

/// Up to this size triangular matrices are inverted, and Cholesky's steps are of whole matrices.
constexpr std::int64_t kBlock = 64;

Tensor corner(const Tensor& a, std::int64_t row, std::int64_t rows, std::int64_t column,
              std::int64_t columns) {
  return a.narrow(1, row, rows).narrow(2, column, columns);
}

// The size of the first one of two halves: a power of two.
std::int64_t half_of(std::int64_t n) {
  std::int64_t half = 1;
  while (2 * half < n)
    half *= 2;
  return half;
}

// The columns of Cholesky's elimination of symmetric [batch, n, n] without roots, each from its
// diagonal element on and zeros behind: what is left loses the product of its first column by
// itself, over the first element, and moves up by one. All steps are alike; views are broadcast
// before anything is computed, so that a step is one kernel.
std::vector<Tensor> cholesky_columns(const Tensor& a) {
  const std::int64_t n = a.size(1);
  const Shape inner = {a.shape()[0], n - 1, n - 1};
  Tensor w = a;
  std::vector<Tensor> columns;
  for (std::int64_t i = 0; i < n; ++i) {
    columns.push_back(w.narrow(2, 0, 1));
    const Tensor down = expand(corner(w, 1, n - 1, 0, 1), inner);
    const Tensor across = expand(corner(w, 0, 1, 1, n - 1), inner);
    const Tensor pivot = expand(corner(w, 0, 1, 0, 1), inner);
    w = pad(corner(w, 1, n - 1, 1, n - 1) - down * across / pivot, {0, 0, 0}, {0, 1, 1});
  }
  return columns;
}

// Column k of [batch, n, n] moved down by k, what leaves is 0: rows of 2 n elements read as rows of
// one less.
Tensor sheared(const Tensor& a) {
  const Expr batch = a.shape()[0];
  const std::int64_t n = a.size(1);
  const Tensor rows = reshape(pad(transpose(a), {0, 0, 0}, {0, 0, n}), {batch, 2 * n * n});
  return transpose(
      reshape(rows.narrow(1, 0, n * (2 * n - 1)), {batch, n, 2 * n - 1}).narrow(2, 0, n));
}

} // namespace

Tensor lower_inverse(const Tensor& a) {
  const Expr batch = a.shape()[0];
  const std::int64_t n = a.size(1);
  if (n == 0)
    return a;
  std::int64_t whole = 1;
  while (whole < n)
    whole *= 2;
  // The identity behind it.
  const Tensor behind = diag((positions(whole) >= n).to(a.dtype()));
  const Tensor padded = pad(a, {0, 0, 0}, {0, whole - n, whole - n}) + behind;
  Tensor inverse = reshape(reciprocal(diagonal(padded, 0, 1, 2)), {batch, whole, 1, 1});
  // [[a, 0], [c, d]]⁻¹ = [[a⁻¹, 0], [-d⁻¹ c a⁻¹, d⁻¹]], for all pairs of diagonal blocks at once.
  for (std::int64_t s = 1; s < whole; s *= 2) {
    const std::int64_t count = whole / (2 * s);
    const Tensor below =
        reshape(padded, {batch, count, 2, s, count, 2, s}).select(5, 0).select(2, 1);
    const Tensor c = movedim(diagonal(below, 0, 1, 3), -1, 1);
    const Tensor pairs = reshape(inverse, {batch, count, 2, s, s});
    const Tensor first = pairs.select(2, 0), second = pairs.select(2, 1);
    const Tensor low = neg(matmul(matmul(second, c), first));
    const Tensor top = pad(first, {0, 0, 0, 0}, {0, 0, 0, s});
    inverse = cat({top, cat({low, second}, 3)}, 2);
  }
  return corner(reshape(inverse, {batch, whole, whole}), 0, n, 0, n);
}

namespace {

// x with a x = b for lower triangles, [batch, n, n] and [batch, n, k].
Tensor lower_solved(const Tensor& a, const Tensor& b) {
  const std::int64_t n = a.size(1), k = b.size(2);
  if (n <= kBlock)
    return matmul(lower_inverse(a), b);
  const std::int64_t half = half_of(n), rest = n - half;
  const Tensor first = lower_solved(corner(a, 0, half, 0, half), corner(b, 0, half, 0, k));
  const Tensor second =
      lower_solved(corner(a, half, rest, half, rest),
                   corner(b, half, rest, 0, k) - matmul(corner(a, half, rest, 0, half), first));
  return cat({first, second}, 1);
}

} // namespace

Tensor cholesky_steps(const Tensor& a) {
  const NoGrad none;
  const std::int64_t n = a.size(1);
  if (n <= kBlock) {
    if (n == 0)
      return a;
    const Tensor columns = cat(cholesky_columns(stopped(a)), 2);
    return sheared(columns / sqrt(columns.narrow(1, 0, 1)));
  }
  const std::int64_t half = half_of(n), rest = n - half;
  const Tensor first = cholesky_steps(corner(a, 0, half, 0, half));
  const Tensor below = transpose(lower_solved(first, corner(a, 0, half, half, rest)));
  const Tensor second =
      cholesky_steps(corner(a, half, rest, half, rest) - matmul(below, transpose(below)));
  return cat({pad(first, {0, 0, 0}, {0, 0, rest}), cat({below, second}, 2)}, 1);
}

namespace {

// The lower triangle with half the diagonal.
Tensor half_lower(const Tensor& a) {
  const std::int64_t n = a.size(1);
  const Tensor row = reshape(positions(n), {n, 1}), column = positions(n);
  return where(row > column, a, where(row == column, a * 0.5, 0));
}

// The lower triangular k with (1 + k) (1 + k)ᵀ = 1 + e for an e that is 0: k = Φ(e - k kᵀ), of
// which two steps have its first and second derivatives.
Tensor factor_variation(const Tensor& e) {
  const Tensor k = half_lower(e);
  return half_lower(e - matmul(k, transpose(k)));
}

// What an inverse is of a matrix that has none must not meet the 0 of a variation.
Tensor finite(const Tensor& a) {
  return where(isfinite(a), a, 0);
}

// One reflection of [batch, m, 1 + n]: column 0 says which rows have had their turn, column 1 is
// what the reflection leaves one element of. Row and column go to the end; all steps are alike.
struct Reflection {
  Tensor w;
  Tensor v, scale; ///< x - scale v vᵀ x reflects x: [batch, m, 1], [batch, 1, 1]
};
Reflection reflection(const Tensor& w) {
  const DType type = w.dtype();
  const std::int64_t m = w.size(1), n = w.size(2) - 1;
  const Tensor first = reshape(positions(m) == 0, {m, 1});
  const Tensor done = w.narrow(2, 0, 1), x = w.narrow(2, 1, 1);
  const Tensor tail = where(first | (done > 0), 0, x);
  const Tensor row = w.narrow(1, 0, 1), top = row.narrow(2, 1, 1);
  const Tensor products = sum(tail * w, 1, true); // [batch, 1, 1 + n]
  const Tensor square_sum = products.narrow(2, 1, 1);
  const Tensor nothing = square_sum == 0; // as LAPACK does, no reflection then
  const Tensor length = sqrt(square(top) + square_sum);
  const Tensor head = where(top < 0, top - length, top + length);
  const Tensor scale =
      where(nothing, 0, reciprocal(where(nothing, constant(type, 1), length * abs(head))));
  const Tensor v = where(first, head, tail);
  const Tensor by = (products + head * row) * scale;
  const Tensor marks = where(first, constant(type, 1), done);
  const Tensor y = w.narrow(2, 1, n) - v * by.narrow(2, 1, n);
  return {roll(cat({marks, roll(y, {-1}, {2})}, 2), {-1}, {1}), v, scale};
}

// Thin factors of [batch, m, n], m at least n, without a gradient.
linalg::Qr reflected(const Tensor& a) {
  const NoGrad none;
  const Expr batch = a.shape()[0];
  const std::int64_t m = a.size(1), n = a.size(2), steps = std::min(m - 1, n);
  // Each column of the order of 1, so that squares neither overflow nor vanish: a factor of a
  // column is one of r's column.
  const Tensor most = max(abs(stopped(a)), 1, true);
  const Tensor size = where((most > 0) & isfinite(most), most, constant(a.dtype(), 1));
  Tensor w = cat({zeros({batch, m, 1}, a.dtype()), stopped(a) / size}, 2);
  std::vector<Reflection> all;
  in_groups(steps, {&w}, [&](std::int64_t, std::int64_t count) { // and the vectors, as held
    for (std::int64_t i = 0; i < count; ++i) {
      Reflection r = reflection(w);
      w = std::move(r.w);
      all.push_back(std::move(r));
    }
  });
  const Tensor whole = roll(w.narrow(2, 1, n), {steps, steps}, {1, 2});
  // The reflections in reverse order make the first columns of the identity those of q.
  Tensor q = roll(expand(eye(m, n, a.dtype()), {batch, m, n}), {-steps}, {1});
  in_groups(steps, {&q}, [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t i = first; i < first + count; ++i) {
      const Reflection& r = all[static_cast<std::size_t>(steps - 1 - i)];
      q = roll(q, {1}, {1});
      q = q - r.v * (sum(r.v * q, 1, true) * r.scale);
    }
  });
  return {q, triu(corner(whole, 0, n, 0, n)) * size};
}

// The same with derivatives. With a = a0 + da and r = (1 + k)ᵀ r0, r⁻ᵀ aᵀ a r⁻¹ = 1 says what k is;
// q = a r⁻¹.
linalg::Qr thin_factors(const Tensor& a) {
  linalg::Qr f = reflected(a);
  if (!has_gradient(a))
    return f;
  const Tensor inverse = finite(transpose(lower_inverse(transpose(f.r))));
  const Tensor da = matmul(variation(a), inverse);
  const Tensor cross = matmul(transpose(f.q), da);
  const Tensor k =
      transpose(factor_variation(cross + transpose(cross) + matmul(transpose(da), da)));
  return {f.q + da + matmul(f.q + da, matmul(k, k) - k), f.r + matmul(k, f.r)};
}

} // namespace

} // namespace detail

namespace linalg {

using namespace detail;

Tensor cholesky(const Operand& a, bool upper) {
  const Matrices m = square_matrices(a, "cholesky");
  const Tensor symmetric = (m.a + transpose(m.a)) * 0.5;
  const Tensor steps = cholesky_steps(symmetric);
  const Tensor definite = reshape(all(diagonal(steps, 0, 1, 2) > 0, 1), {steps.shape()[0], 1, 1});
  Tensor factor = where(definite, steps, std::numeric_limits<double>::quiet_NaN());
  if (has_gradient(symmetric)) {
    const Tensor inverse = finite(lower_inverse(factor));
    const Tensor e = matmul(matmul(inverse, variation(symmetric)), transpose(inverse));
    factor = factor + matmul(factor, factor_variation(e));
  }
  return m.result(upper ? transpose(factor) : factor);
}

namespace {

Tensor triangular_solution(const Tensor& a, const Tensor& b, const TriangularOptions& options,
                           const char* who) {
  square_matrices(a, who);
  const MatrixPair p = matrix_pair(a, b, who);
  const std::int64_t n = p.a.rows, have = options.left ? p.b.rows : p.b.columns;
  if (have != n)
    fail(ErrorKind::Shape, "{}: {} does not fit {}: {} {} where {} are needed", who, shape_of(b),
         shape_of(a), have, options.left ? "rows" : "columns", n);
  // x a = b is aᵀ xᵀ = bᵀ, and an upper triangle read backwards is a lower one.
  Tensor t = options.left ? p.a.a : transpose(p.a.a);
  Tensor right = options.left ? p.b.a : transpose(p.b.a);
  const bool backwards = options.upper == options.left;
  if (backwards) {
    t = flip(t, {1, 2});
    right = flip(right, 1);
  }
  if (options.unit_diagonal)
    t = where(reshape(positions(n), {n, 1}) == positions(n), constant(t.dtype(), 1), t);
  Tensor x = n == 0 ? right : lower_solved(t, right);
  if (backwards)
    x = flip(x, 1);
  return p.b.result(options.left ? x : transpose(x));
}

} // namespace

Tensor solve_triangular(const Operand& a, const Operand& b, const TriangularOptions& options) {
  return triangular_solution(a, b, options, "solve_triangular");
}

Tensor cholesky_solve(const Operand& b, const Operand& factor, bool upper) {
  constexpr const char* who = "cholesky_solve";
  square_matrices(factor, who);
  const Tensor lower = upper ? transpose(factor) : Tensor(factor);
  const Tensor first = triangular_solution(lower, b, {}, who);
  return triangular_solution(transpose(lower), first, {.upper = true}, who);
}

Qr qr(const Operand& a) {
  const Matrices m = matrices(a, "qr");
  const std::int64_t k = std::min(m.rows, m.columns), rest = m.columns - k;
  if (k == 0)
    return {m.result(zeros({m.a.shape()[0], m.rows, 0}, m.a.dtype())),
            m.result(zeros({m.a.shape()[0], 0, m.columns}, m.a.dtype()))};
  const Qr f = thin_factors(m.a.narrow(2, 0, k));
  if (rest == 0)
    return {m.result(f.q), m.result(f.r)};
  return {m.result(f.q), m.result(cat({f.r, matmul(transpose(f.q), m.a.narrow(2, k, rest))}, 2))};
}

} // namespace linalg

} // namespace egret
