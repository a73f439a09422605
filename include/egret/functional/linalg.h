// Linear algebra of batches of small matrices (torch.linalg).
//
// The last two axes are the matrices, those before them batches, whose sizes may be symbolic; sizes
// of matrices are known numbers. Floats keep their dtype (f16 and bf16 are computed in f32 and
// rounded once), integers and bools become f32.
//
// All are compositions of the op table, as every function here. A factorization of n columns is n
// steps of one to seven kernels each, which are the same in every step, for the whole batch: right
// for many matrices of up to a few hundred rows, not for one of thousands.
//
// Data throw no errors: results of a matrix that has none (a singular one, one that is not positive
// definite) are NaN, and those of the others in the batch are not touched. First and second
// derivatives are those of the mathematics, not of the steps; a step costs nothing on the way back.
#pragma once

#include "egret/tensor.h"

#include <initializer_list>
#include <span>

namespace egret::linalg {

// Error(Shape) for an operand of rank below 2, matrices that must be square and are not, and sizes
// that do not fit; Error(DType) for operands of different dtypes.

/// The lower triangular L with positive diagonal and L Lᵀ = (a + aᵀ) / 2, or Lᵀ if `upper`; NaN
/// where that is not positive definite.
Tensor cholesky(const Operand& a, bool upper = false);

struct TriangularOptions {
  bool upper = false;         ///< the upper triangle of the matrix is read, else the lower one
  bool left = true;           ///< a x = b, else x a = b
  bool unit_diagonal = false; ///< the diagonal is taken to be 1 and not read
};
/// The x with a x = b for triangular a [..., n, n] and b [..., n, k]; batches broadcast. Diagonal
/// blocks are inverted by halves and multiplied: log2(n) products instead of n steps.
Tensor solve_triangular(const Operand& a, const Operand& b, const TriangularOptions& options = {});
/// The x with L Lᵀ x = b for the result of cholesky(), or of cholesky(a, true) with `upper`.
Tensor cholesky_solve(const Operand& b, const Operand& factor, bool upper = false);

/// The x with a x = b for b [..., n, k] or, where b has one axis less than a and its sizes without
/// the last, or one axis alone, vectors [..., n]: Gauss-Jordan elimination with partial pivoting.
/// Batches broadcast. NaN where a is singular.
Tensor solve(const Operand& a, const Operand& b);
/// The inverse: solve() of the identity.
Tensor inv(const Operand& a);
/// The determinant, 1 of a matrix without rows. Its gradient where a is singular is 0 here.
Tensor det(const Operand& a);

struct SignLog {
  Tensor sign, log;
};
/// Sign and logarithm of the absolute value of the determinant; 0 and -inf of a singular matrix.
SignLog slogdet(const Operand& a);
/// The logarithm of the determinant; NaN where that is negative.
Tensor logdet(const Operand& a);

struct Qr {
  Tensor q, r;
};
/// q [..., m, k] with orthonormal columns and upper triangular r [..., k, n] with q r = a, k the
/// smaller one of m and n, by Householder's reflections; signs are those of LAPACK. Derivatives are
/// right where the first k columns are linearly independent.
Qr qr(const Operand& a);

/// The x that makes the 2-norm of a x - b smallest, for a [..., m, n] of full rank and b [..., m,
/// k] (vectors as of solve()); of several the shortest one. By qr().
Tensor lstsq(const Operand& a, const Operand& b);

/// The product of several matrices in the order that costs least; the first and the last may be
/// vectors. Error(Value) for less than two.
Tensor multi_dot(std::span<const Tensor> matrices);
Tensor multi_dot(std::initializer_list<Operand> matrices);

} // namespace egret::linalg
