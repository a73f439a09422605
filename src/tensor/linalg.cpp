// Linear algebra of batches of matrices: elimination, and what rests on it.
#include "egret/functional/linalg.h"

#include "egret/functional/order.h"
#include "egret/grad.h"
#include "support/fail.h"
#include "tensor/matrices.h"

#include <algorithm>
#include <limits>

namespace egret {

namespace detail {

Tensor Matrices::result(const Tensor& y) const {
  Shape shape = batch;
  shape.insert(shape.end(), y.shape().begin() + 1, y.shape().end());
  return reshape(y, shape).to(type);
}

Matrices matrices(const Tensor& a, const char* who) {
  Access::held(a, who);
  const Shape& shape = a.shape();
  const std::size_t rank = shape.size();
  if (rank < 2 || !shape[rank - 2].is_constant() || !shape[rank - 1].is_constant())
    fail(ErrorKind::Shape, "{}: got {}; it must be [..., rows, columns], known numbers of them",
         who, shape_of(a));
  const Tensor given = as_float(a, who);
  Matrices m{{}, Shape(shape.begin(), shape.end() - 2), a.size(-2), a.size(-1), given.dtype()};
  Expr count(1);
  for (const Expr& dim : m.batch)
    count = count * dim;
  m.a = reshape(widened(given), {count, m.rows, m.columns});
  return m;
}

Matrices square_matrices(const Tensor& a, const char* who) {
  Matrices m = matrices(a, who);
  if (m.rows != m.columns)
    fail(ErrorKind::Shape, "{}: matrices of {} are not square: {} rows and {} columns", who,
         shape_of(a), m.rows, m.columns);
  return m;
}

MatrixPair matrix_pair(const Tensor& a, const Tensor& b, const char* who) {
  Access::held(a, who);
  Access::held(b, who);
  if (a.dtype() != b.dtype())
    fail(ErrorKind::DType, "{}: matrices of {} and {}; dtypes must be equal", who,
         name_of(a.dtype()), name_of(b.dtype()));
  matrices(a, who);
  matrices(b, who);
  const auto batch_of = [](const Tensor& t) {
    return Shape(t.shape().begin(), t.shape().end() - 2);
  };
  const Shape batch = broadcast_shapes(batch_of(a), batch_of(b), who);
  const auto expanded = [&](const Tensor& t) {
    Shape shape = batch;
    shape.insert(shape.end(), t.shape().end() - 2, t.shape().end());
    return matrices(broadcast_to(t, shape, who), who);
  };
  return {expanded(a), expanded(b)};
}

bool has_gradient(const Tensor& a) {
  return grad_enabled() && a.requires_grad();
}

Tensor variation(const Tensor& a) {
  return a - stopped(a);
}

namespace {

// Elimination of one column after the other. All steps are alike, so that they share their kernels:
// the column to eliminate is the first one and leaves, a column of zeros comes in at the end.
struct Elimination {
  Tensor w;      ///< [batch, n, columns]
  Tensor age;    ///< [batch, n, 1]: for how many steps the row has been one that is done
  Tensor pivots; ///< [batch, n, 1]: what the row was divided by
};

// The row with the column's largest element, of those that are not done, is divided by it, and a
// multiple of it is taken from each of the others.
Elimination step(const Elimination& e, const Expr& batch, std::int64_t n, std::int64_t columns) {
  const Tensor best = argmax(where(e.age > 0, -1, abs(e.w.narrow(2, 0, 1))), 1, true);
  const Tensor number = positions(batch) * n + reshape(best, {batch});
  const Tensor found =
      reshape(take(reshape(e.w, {batch * n, columns}), number, 0), {batch, 1, columns});
  const Tensor pivot = expand(found.narrow(2, 0, 1), found.shape());
  // A column of zeros: the matrix is singular. What follows stays finite, so that the other pivots
  // are those of the rest.
  const Tensor row = found / where(pivot == 0, 1, pivot);
  const Tensor chosen = reshape(positions(n), {n, 1}) == best;
  const Tensor w = where(chosen, row, e.w - e.w.narrow(2, 0, 1) * row);
  return {pad(w.narrow(2, 1, columns - 1), {0, 0, 0}, {0, 0, 1}),
          e.age + (chosen | (e.age > 0)).to(e.age.dtype()),
          where(chosen, e.w.narrow(2, 0, 1), e.pivots)};
}

} // namespace

Eliminated eliminated(const Tensor& a, const Tensor& b) {
  const NoGrad none;
  const Expr batch = a.shape()[0];
  const std::int64_t n = a.size(1), columns = b.size(2);
  if (n == 0)
    return {b, zeros({batch, 0}, a.dtype()), ones({batch}, a.dtype())};
  Elimination e{cat({stopped(a), stopped(b)}, 2), zeros({batch, n, 1}, a.dtype()),
                zeros({batch, n, 1}, a.dtype())};
  for (std::int64_t i = 0; i < n; ++i)
    e = step(e, batch, n, n + columns);
  // Row i of the solution is the one that was chosen i-th.
  const Tensor order = argsort(squeeze(e.age, 2), 1, true);
  const Tensor number = reshape(positions(batch) * n, {batch, 1}) + order;
  const Tensor x = take(reshape(e.w.narrow(2, 0, columns), {batch * n, columns}), number, 0);
  const Tensor pivots = take(reshape(e.pivots, {batch * n}), number, 0);
  // The parity of the permutation, by its inversions: rows that stand before ones chosen earlier.
  const Tensor later = unsqueeze(order, 2) > unsqueeze(order, 1);
  const Tensor inversions = sum(triu(later, 1), {1, 2});
  const Tensor parity = 1 - (inversions % 2 * 2).to(a.dtype());
  const Tensor singular = reshape(any(pivots == 0, 1), {batch, 1, 1});
  return {where(singular, std::numeric_limits<double>::quiet_NaN(), x), pivots, parity};
}

} // namespace detail

namespace linalg {

using namespace detail;

namespace {

// x with a x = b, [batch, n, n] and [batch, n, k]. With a = a0 + da, b = b0 + db the solution is x0
// + a0⁻¹ (db - da x): two steps of this make its first and second derivatives, and as both are 0
// the value is x0.
Tensor solved(const Tensor& a, const Tensor& b) {
  if (!has_gradient(a) && !has_gradient(b))
    return eliminated(a, b).solution;
  const std::int64_t n = a.size(1), columns = b.size(2);
  const Tensor unit = expand(eye(n, -1, a.dtype()), a.shape());
  const Tensor both = eliminated(a, cat({stopped(b), unit}, 2)).solution;
  const Tensor first = both.narrow(2, 0, columns), inverse = both.narrow(2, columns, n);
  const Tensor da = variation(a), db = variation(b);
  Tensor x = first;
  for (int i = 0; i < 2; ++i)
    x = first + matmul(inverse, db - matmul(da, x));
  return x;
}

// b as matrices: vectors get an axis.
struct RightSide {
  Tensor b;
  bool vectors;
};
RightSide right_side(const Tensor& a, const Tensor& b, const char* who) {
  Access::held(a, who);
  Access::held(b, who);
  bool vectors = b.rank() == 1;
  if (a.rank() >= 2 && b.rank() == a.rank() - 1)
    vectors = vectors || std::equal(b.shape().begin(), b.shape().end(), a.shape().begin());
  return {vectors ? unsqueeze(b, -1) : b, vectors};
}

MatrixPair fitting(const Tensor& a, const Tensor& b, const Tensor& given, const char* who) {
  MatrixPair p = matrix_pair(a, b, who);
  if (p.b.rows != p.a.rows)
    fail(ErrorKind::Shape, "{}: {} does not fit {}: {} rows where {} are needed", who,
         shape_of(given), shape_of(a), p.b.rows, p.a.rows);
  return p;
}

// log |det| near a: log |det a0| + tr(v da) - tr((v da)²) / 2 with v the inverse, which has its
// first and second derivatives; a singular matrix has none. The value is 0.
Tensor log_variation(const Tensor& a, const Tensor& inverse, const Tensor& singular) {
  const Tensor v = where(reshape(singular, {a.shape()[0], 1, 1}), 0, inverse);
  const Tensor m = matmul(v, variation(a));
  return sum(diagonal(m, 0, 1, 2), 1) - sum(m * transpose(m), {1, 2}) * 0.5;
}

struct Determinant {
  Matrices m;
  Tensor pivots, parity, vary; ///< vary: 0 with the derivatives of log |det|, or empty
};
Determinant determinant(const Tensor& a, const char* who) {
  const Matrices m = square_matrices(a, who);
  const bool differentiable = has_gradient(m.a);
  const std::int64_t n = m.rows;
  const Tensor unit = expand(eye(n, -1, m.a.dtype()), m.a.shape());
  const Eliminated e = eliminated(m.a, differentiable ? unit : unit.narrow(2, 0, 0));
  if (!differentiable)
    return {m, e.pivots, e.parity, {}};
  return {m, e.pivots, e.parity, log_variation(m.a, e.solution, any(e.pivots == 0, 1))};
}

} // namespace

Tensor solve(const Operand& a, const Operand& b) {
  constexpr const char* who = "solve";
  square_matrices(a, who);
  const RightSide right = right_side(a, b, who);
  const MatrixPair p = fitting(a, right.b, b, who);
  const Tensor x = p.b.result(solved(p.a.a, p.b.a));
  return right.vectors ? squeeze(x, -1) : x;
}

Tensor inv(const Operand& a) {
  const Matrices m = square_matrices(a, "inv");
  return m.result(solved(m.a, expand(eye(m.rows, -1, m.a.dtype()), m.a.shape())));
}

Tensor det(const Operand& a) {
  const Determinant d = determinant(a, "det");
  const Tensor value = prod(d.pivots, 1) * d.parity;
  return d.m.result(d.vary.defined() ? value * exp(d.vary) : value);
}

namespace {

SignLog sign_and_log(const Tensor& a, const char* who) {
  const Determinant d = determinant(a, who);
  const Tensor value = sum(log(abs(d.pivots)), 1);
  return {d.m.result(prod(sign(d.pivots), 1) * d.parity),
          d.m.result(d.vary.defined() ? value + d.vary : value)};
}

} // namespace

SignLog slogdet(const Operand& a) {
  return sign_and_log(a, "slogdet");
}

Tensor logdet(const Operand& a) {
  const SignLog d = sign_and_log(a, "logdet");
  return where(d.sign < 0, std::numeric_limits<double>::quiet_NaN(), d.log);
}

Tensor lstsq(const Operand& a, const Operand& b) {
  constexpr const char* who = "lstsq";
  const RightSide right = right_side(a, b, who);
  const MatrixPair p = fitting(a, right.b, b, who);
  Tensor x;
  if (p.a.rows >= p.a.columns) {
    const Qr f = qr(p.a.a);
    x = solve_triangular(f.r, matmul(transpose(f.q), p.b.a), {.upper = true});
  } else {
    const Qr f = qr(transpose(p.a.a));
    x = matmul(f.q, solve_triangular(transpose(f.r), p.b.a));
  }
  x = p.b.result(x);
  return right.vectors ? squeeze(x, -1) : x;
}

namespace {

// Matrices first..last in the order of least cost (Cormen, Leiserson, Rivest and Stein, chapter on
// dynamic programming).
class Chain {
public:
  explicit Chain(const std::vector<Tensor>& m) : m_(m), n_(m.size()), split_(n_ * n_) {
    std::vector<double> sizes;
    for (const Tensor& t : m)
      sizes.push_back(static_cast<double>(t.size(0)));
    sizes.push_back(static_cast<double>(m.back().size(1)));
    std::vector<double> cost(n_ * n_);
    for (std::size_t length = 2; length <= n_; ++length)
      for (std::size_t i = 0; i + length <= n_; ++i) {
        const std::size_t j = i + length - 1;
        cost[i * n_ + j] = std::numeric_limits<double>::infinity();
        for (std::size_t k = i; k < j; ++k) {
          const double c =
              cost[i * n_ + k] + cost[(k + 1) * n_ + j] + sizes[i] * sizes[k + 1] * sizes[j + 1];
          if (c < cost[i * n_ + j]) {
            cost[i * n_ + j] = c;
            split_[i * n_ + j] = k;
          }
        }
      }
  }

  Tensor product(std::size_t i, std::size_t j) const {
    if (i == j)
      return m_[i];
    const std::size_t k = split_[i * n_ + j];
    return matmul(product(i, k), product(k + 1, j));
  }

private:
  const std::vector<Tensor>& m_;
  std::size_t n_;
  std::vector<std::size_t> split_;
};

} // namespace

Tensor multi_dot(std::span<const Tensor> matrices) {
  constexpr const char* who = "multi_dot";
  if (matrices.size() < 2)
    fail(ErrorKind::Value, "{}: {} matrices; at least two are needed", who, matrices.size());
  std::vector<Tensor> m;
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    const Tensor& t = matrices[i];
    Access::held(t, who);
    const bool end = i == 0 || i + 1 == matrices.size();
    if (t.rank() != 2 && !(end && t.rank() == 1))
      fail(ErrorKind::Shape, "{}: operand {} is {}; it must be a matrix{}", who, i, shape_of(t),
           end ? " or a vector" : "");
    m.push_back(t.rank() == 2 ? t : unsqueeze(t, i == 0 ? 0 : 1));
  }
  for (std::size_t i = 0; i + 1 < m.size(); ++i)
    if (!(m[i].shape()[1] == m[i + 1].shape()[0]))
      fail(ErrorKind::Shape, "{}: operands {} and {} do not fit: {} x {}", who, i, i + 1,
           shape_of(matrices[i]), shape_of(matrices[i + 1]));
  Tensor y = named(who, [&] { return Chain(m).product(0, m.size() - 1); });
  if (matrices.back().rank() == 1)
    y = squeeze(y, -1);
  return matrices.front().rank() == 1 ? squeeze(y, 0) : y;
}

Tensor multi_dot(std::initializer_list<Operand> matrices) {
  return multi_dot(std::vector<Tensor>(matrices.begin(), matrices.end()));
}

} // namespace linalg

} // namespace egret
