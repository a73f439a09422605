// Eigenvalues of symmetric matrices and singular values, by Jacobi's rotations of all pairs of
// columns, n / 2 of which are disjoint and turn at once.
#include "egret/functional/linalg.h"
#include "egret/functional/order.h"
#include "egret/grad.h"
#include "support/fail.h"
#include "tensor/matrices.h"
#include "tensor/steps.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace egret {

namespace detail {

namespace {

constexpr double kNoResult = std::numeric_limits<double>::quiet_NaN();

double precision(DType type) {
  return type == DType::F64 ? 0x1p-52 : 0x1p-23;
}

// Sweeps over all pairs after which what is not 0 beside the diagonal is so by rounding, with one
// to spare: random, graded, clustered and singular matrices of up to 64 rows take at most 7 in f32,
// and 5, 9 and 12 of 4, 32 and 64 rows in f64.
int sweeps(std::int64_t n, DType type) {
  if (n <= 2)
    return static_cast<int>(n);
  const double digits = std::ceil(std::log2(static_cast<double>(n)));
  return static_cast<int>(type == DType::F64 ? 4 + std::ceil(1.5 * digits) : 3 + digits);
}

std::int64_t rounds_of(std::int64_t n) {
  return n % 2 == 0 ? n - 1 : n;
}

// Who meets whom: in row r of [rounds + kStepsTogether, n] stands the partner of each column in
// round r, itself where it has none; rounds follow each other in a circle. Columns whose numbers
// add up to r meet, modulo an odd number of them; of an even number the last column takes the one
// that is left (the tournament of Brent and Luk 1985).
Tensor partners(std::int64_t n) {
  const std::int64_t rounds = rounds_of(n);
  const Tensor p = reshape(positions(n), {1, n});
  const Tensor r = unsqueeze(positions(rounds + kStepsTogether) % rounds, 1);
  const Tensor met = (r - p) % rounds;
  if (n % 2 != 0)
    return met;
  const Tensor last = r * ((rounds + 1) / 2) % rounds; // twice it is r
  return where(p == n - 1, last, where(met == p, n - 1, met));
}

// The rotation of columns p and q, at both places: column p becomes cosine p - sine q, and for q
// the sine has the other sign. `a`, `b` are the diagonal elements at p and q, `e` what is beside
// them. Elements that are 0 but for rounding stay (`still`), and the larger of both comes first:
// that keeps graded and clustered matrices at few sweeps (de Rijk 1989).
struct Rotation {
  Tensor cosine, sine; ///< [batch, n]
};
Rotation rotation(const Tensor& a, const Tensor& b, const Tensor& e, const Tensor& still,
                  const Tensor& first) {
  const Tensor x = b - a, y = e * 2;
  const Tensor side = where(first, number(e, 1), number(e, -1));
  const Tensor sign_x = where(x == 0, side, where(x < 0, number(e, -1), number(e, 1)));
  const Tensor size = abs(x) + sqrt(square(x) + square(y));
  const Tensor tangent = where(still, 0, sign_x * y / where(size == 0, 1, size));
  const Tensor c = reciprocal(sqrt(square(tangent) + 1)), s = tangent * c;
  // Both columns change places, one of them with the other sign.
  const Tensor wrong = where(first, abs(a) < abs(b), abs(b) < abs(a));
  return {where(wrong, s * side, c), where(wrong, neg(side) * c, s)};
}

// Rows (columns) turned: by a factor of each and its partner's row.
Tensor turned(const Tensor& a, const Rotation& r, const Tensor& partner, std::int64_t axis) {
  const std::int64_t other = axis == 1 ? 2 : 1;
  return unsqueeze(r.cosine, other) * a - unsqueeze(r.sine, other) * take(a, partner, axis);
}

// The sign that makes the element of the largest absolute value of each column positive.
Tensor column_signs(const Tensor& a) {
  return where(max(a, 1, true) >= neg(min(a, 1, true)), number(a, 1), number(a, -1));
}

// The numbers of `order` [batch, n] in row-major order of a batch of lines, whose size may be
// symbolic.
Tensor line_numbers(const Tensor& order) {
  const Expr batch = order.shape()[0];
  return reshape(positions(batch) * order.size(1), {batch, 1}) + order;
}
Tensor ordered_values(const Tensor& a, const Tensor& order) {
  return take(reshape(a, {a.shape()[0] * a.size(1)}), line_numbers(order), 0);
}
Tensor ordered_columns(const Tensor& a, const Tensor& order) {
  const Tensor rows = reshape(transpose(a), {a.shape()[0] * a.size(2), a.shape()[1]});
  return transpose(take(rows, line_numbers(order), 0));
}

// One step to the nearest matrix with orthonormal columns from one that is nearly so (Newton and
// Schulz).
Tensor orthonormal(const Tensor& v) {
  const std::int64_t n = v.size(2);
  return matmul(v, (eye(n, -1, v.dtype()) * 3 - matmul(transpose(v), v)) * 0.5);
}

// Of the order of 1: squares neither overflow nor vanish. [batch, 1, 1]
Tensor magnitude(const Tensor& a) {
  const Tensor most = max(abs(a), {1, 2}, true);
  return where(most > 0, most, where(isnan(most), most, number(a, 1)));
}

// All rounds of all sweeps of the columns of `a`: calls turn(the partner of each column) for each.
// `state`: what it reads and changes.
template <class Turn>
void turn_in_sweeps(const Tensor& a, std::initializer_list<const Tensor*> state, const Turn& turn) {
  const std::int64_t n = a.size(2), rounds = rounds_of(n);
  if (n <= 1)
    return;
  const Tensor table = made_like(partners(n), a);
  compute_between_steps({&table});
  in_groups(sweeps(n, a.dtype()) * rounds, state, [&](std::int64_t first, std::int64_t count) {
    const Tensor rows = table.narrow(0, first % rounds, kStepsTogether);
    compute_between_steps({&rows}); // from another row each time, so that the groups are equal
    for (std::int64_t i = 0; i < count; ++i)
      turn(rows.select(0, i));
  });
}

struct Spectrum {
  Tensor values, vectors; ///< [batch, n], [batch, n, n]
};

// Eigenvalues of symmetric [batch, n, n], ascending, without a gradient.
Spectrum rotated(const Tensor& given, bool with_vectors) {
  const NoGrad none;
  const Expr batch = given.shape()[0];
  const std::int64_t n = given.size(1);
  const Tensor scale = magnitude(stopped(given));
  const Tensor a = stopped(given) / scale;
  const Tensor p = positions(n);
  Tensor w = a, v = expand(eye(n, -1, a.dtype()), a.shape()); // rows of v are the vectors
  const double still = precision(a.dtype()) / 8;
  turn_in_sweeps(a, {&w, &v}, [&](const Tensor& q) {
    const Tensor flat = reshape(w, {batch, n * n});
    const Tensor e = take(flat, minimum(p, q) * n + maximum(p, q), 1);
    const Rotation r = rotation(take(flat, p * (n + 1), 1), take(flat, q * (n + 1), 1), e,
                                (abs(e) <= still) | (p == q), p < q);
    w = turned(turned(w, r, q, 1), r, q, 2);
    if (with_vectors)
      v = turned(v, r, q, 1);
  });
  Tensor values = diagonal(w, 0, 1, 2);
  // A matrix that is not diagonal by now has no result.
  const double most = 1024 * static_cast<double>(n) * precision(a.dtype());
  const Tensor row = reshape(p, {n, 1});
  const Tensor rest = max(where(row == p, 0, abs(w)), {1, 2});
  const Tensor found = unsqueeze(rest <= most, 1);
  Tensor vectors;
  if (with_vectors) {
    // Quotients of Rayleigh's take off what the steps' rounding has left.
    vectors = orthonormal(transpose(v));
    values = sum(vectors * matmul(a, vectors), 1) / sum(square(vectors), 1);
    values = where(found, values, kNoResult);
    const Tensor order = argsort(values, 1);
    vectors = ordered_columns(vectors, order);
    vectors = where(unsqueeze(found, 2), vectors * column_signs(vectors), kNoResult);
    values = ordered_values(values, order);
  } else {
    values = where(found, values, kNoResult);
    values = ordered_values(values, argsort(values, 1));
  }
  return {values * reshape(scale, {batch, 1}), vectors};
}

// x / y, or 0 where `none`, and so is its derivative: vectors of equal values have none.
Tensor quotient(const Tensor& x, const Tensor& y, const Tensor& none) {
  return where(none, 0, x / where(none, 1, y));
}

Tensor column(const Tensor& a) {
  return unsqueeze(a, 2);
}
Tensor row(const Tensor& a) {
  return unsqueeze(a, 1);
}

// Which pairs of different columns have equal values.
Tensor equal_pairs(const Tensor& values) {
  const std::int64_t n = values.size(1);
  return (row(values) == column(values)) & (reshape(positions(n), {n, 1}) != positions(n));
}

// The change of eigenvalues and vectors with `da`, at `at`.
Spectrum change(const Spectrum& at, const Tensor& da) {
  const std::int64_t n = da.size(1);
  const Tensor p = matmul(matmul(transpose(at.vectors), da), at.vectors);
  const Tensor own = reshape(positions(n), {n, 1}) == positions(n);
  const Tensor difference = where(own, number(p, 1), row(at.values) - column(at.values));
  const Tensor k = quotient(where(own, 0, p), difference, equal_pairs(stopped(at.values)));
  return {diagonal(p, 0, 1, 2), matmul(at.vectors, k)};
}

} // namespace

void require_columns(std::int64_t n, const char* who) {
  constexpr std::int64_t kMostColumns = 512;
  if (n > kMostColumns)
    fail(ErrorKind::Value, "{}: matrices of {} columns; rotations are for at most {}", who, n,
         kMostColumns);
}

} // namespace detail

namespace linalg {

using namespace detail;

namespace {

Eigh symmetric_spectrum(const Tensor& a, bool with_vectors, const char* who) {
  const Matrices m = square_matrices(a, who);
  require_columns(m.rows, who);
  if (m.rows == 0)
    return {m.result(zeros({m.a.shape()[0], 0}, m.a.dtype())), m.result(m.a)};
  const Tensor symmetric = (m.a + transpose(m.a)) * 0.5;
  Spectrum s = rotated(symmetric, with_vectors || has_gradient(symmetric));
  if (has_gradient(symmetric)) {
    // The rule of the midpoint has the first and second derivatives, and as da is 0 no value.
    const Tensor da = variation(symmetric);
    const Spectrum half = change(s, da);
    const Spectrum middle = {s.values + half.values * 0.5, s.vectors + half.vectors * 0.5};
    const Spectrum whole = change(middle, da);
    s = {s.values + whole.values, s.vectors + whole.vectors};
  }
  return {m.result(s.values), with_vectors ? m.result(s.vectors) : Tensor()};
}

} // namespace

Eigh eigh(const Operand& a) {
  return symmetric_spectrum(a, true, "eigh");
}

Tensor eigvalsh(const Operand& a) {
  return symmetric_spectrum(a, false, "eigvalsh").values;
}

namespace {

// Thin factors of [batch, m, n], m at least n: a = u diag(s) vᵀ.
struct Factors {
  Tensor u, s, v;
};

// Columns of a turned until they are orthogonal (Hestenes 1958): their lengths are the singular
// values. Without a gradient.
Factors orthogonal_columns(const Tensor& given, bool with_vectors) {
  const NoGrad none;
  const Expr batch = given.shape()[0];
  const std::int64_t n = given.size(2);
  const Tensor scale = magnitude(stopped(given));
  const double eps = precision(given.dtype());
  const Tensor p = positions(n);
  Tensor w = stopped(given) / scale;
  Tensor v = expand(eye(n, -1, w.dtype()), {batch, n, n});
  const Tensor least = square(max(abs(w), {1, 2}, true)).reshape({batch, 1}) * (eps * eps);
  turn_in_sweeps(given, {&w, &v, &least}, [&](const Tensor& q) {
    const Tensor low = take(w, minimum(p, q), 2), high = take(w, maximum(p, q), 2);
    // One number for both places: they have to turn by the same angle.
    const Tensor e = take(sum(low * high, 1), minimum(p, q), 1), squares = sum(square(w), 1);
    const Tensor a = squares, b = take(squares, q, 1);
    const Tensor still = (square(e) <= a * b * (eps * eps / 4)) | (minimum(a, b) <= least);
    const Rotation r = rotation(a, b, e, still | (p == q), p < q);
    w = turned(w, r, q, 2);
    if (with_vectors)
      v = turned(v, r, q, 2);
  });
  // Columns that are not orthogonal by now have no result.
  const Tensor products = matmul(transpose(w), w);
  const Tensor beside = where(reshape(p, {n, 1}) == p, 0, abs(products));
  const double most = 1024 * static_cast<double>(n) * eps;
  const Tensor largest = max(diagonal(products, 0, 1, 2), 1, true);
  const Tensor found = reshape(max(beside, {1, 2}), {batch, 1}) <= largest * most;
  const Tensor lengths = where(found, sqrt(sum(square(w), 1)), kNoResult);
  const Tensor order = argsort(lengths, 1, true);
  const Tensor s = ordered_values(lengths, order) * reshape(scale, {batch, 1});
  if (!with_vectors)
    return {{}, s, {}};
  v = orthonormal(ordered_columns(v, order));
  // Columns of length 0 get a direction at right angles to the others.
  const Qr f = qr(ordered_columns(w, order));
  const Tensor sides = where(row(diagonal(f.r, 0, 1, 2)) < 0, number(w, -1), number(w, 1));
  return {f.q * sides, s, v};
}

// What a has beside the columns of u: (1 - u uᵀ) a.
Tensor beside(const Tensor& u, const Tensor& a) {
  return a - matmul(u, matmul(transpose(u), a));
}

// The change of the factors with `da`, at `at` (Townsend 2016).
Factors change(const Factors& at, const Tensor& da) {
  const std::int64_t m = da.size(1), n = da.size(2);
  const Tensor p = matmul(matmul(transpose(at.u), da), at.v);
  const Tensor own = reshape(positions(n), {n, 1}) == positions(n);
  const Tensor difference =
      where(own, number(p, 1), (row(at.s) - column(at.s)) * (row(at.s) + column(at.s)));
  const Tensor equal = equal_pairs(stopped(at.s));
  const auto mixed = [&](const Tensor& x) { return quotient(where(own, 0, x), difference, equal); };
  const Tensor s_rows = column(at.s), s_columns = row(at.s), t = transpose(p);
  Tensor u = matmul(at.u, mixed(p * s_columns + s_rows * t));
  const Tensor v = matmul(at.v, mixed(s_rows * p + t * s_columns));
  if (m > n) {
    const Tensor zero = expand(row(stopped(at.s)) == 0, da.shape());
    u = u + quotient(beside(at.u, matmul(da, at.v)), expand(s_columns, da.shape()), zero);
  }
  return {u, diagonal(p, 0, 1, 2), v};
}

// [batch, rows, columns] of any shape but empty ones.
Factors thin_factors(const Tensor& given, bool with_vectors) {
  const bool wide = given.size(1) < given.size(2);
  const Tensor a = wide ? transpose(given) : given;
  Factors f = orthogonal_columns(a, with_vectors || has_gradient(a));
  if (has_gradient(a)) {
    const Tensor da = variation(a);
    const Factors half = change(f, da);
    const Factors middle = {f.u + half.u * 0.5, f.s + half.s * 0.5, f.v + half.v * 0.5};
    const Factors whole = change(middle, da);
    f = {f.u + whole.u, f.s + whole.s, f.v + whole.v};
  }
  if (wide)
    std::swap(f.u, f.v);
  if (!with_vectors)
    return f;
  const Tensor signs = column_signs(stopped(f.u));
  return {f.u * signs, f.s, f.v * signs};
}

Svd factors(const Tensor& a, bool with_vectors, const char* who) {
  const Matrices m = matrices(a, who);
  require_columns(std::min(m.rows, m.columns), who);
  const Expr batch = m.a.shape()[0];
  const std::int64_t k = std::min(m.rows, m.columns);
  if (k == 0)
    return {m.result(zeros({batch, m.rows, 0}, m.a.dtype())),
            m.result(zeros({batch, 0}, m.a.dtype())),
            m.result(zeros({batch, 0, m.columns}, m.a.dtype()))};
  const Factors f = thin_factors(m.a, with_vectors);
  if (!with_vectors)
    return {{}, m.result(f.s), {}};
  return {m.result(f.u), m.result(f.s), m.result(transpose(f.v))};
}

} // namespace

Svd svd(const Operand& a) {
  return factors(a, true, "svd");
}

Tensor svdvals(const Operand& a) {
  return factors(a, false, "svdvals").s;
}

} // namespace linalg

} // namespace egret
