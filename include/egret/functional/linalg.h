// Linear algebra of batches of small matrices (torch.linalg).
//
// The last two axes are the matrices, those before them batches, whose sizes may be symbolic; sizes
// of matrices are known numbers. Floats keep their dtype (f16 and bf16 are computed in f32 and
// rounded once), integers and bools become f32.
//
// Of lazy tensors, qr(), eigh(), svd() and what rests on them are computed when they are called, a
// few steps at a time, so that one program of these is compiled and run again.
//
// All are compositions of the op table, as every function here. A factorization of n columns is n
// steps of one to seven kernels each, which are the same in every step, for the whole batch: right
// for many matrices of up to a few hundred rows, not for one of thousands. Eigenvalues and singular
// values take n steps for each of several sweeps: they are for up to about a hundred columns, and
// Error(Value) for more than 512.
//
// Data throw no errors: results of a matrix that has none (a singular one, one that is not positive
// definite) are NaN, and those of the others in the batch are not touched. First and second
// derivatives are those of the mathematics, not of the steps; a step costs nothing on the way back.
#pragma once

#include "egret/tensor.h"

#include <cstdint>
#include <initializer_list>
#include <optional>
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

// Eigenvalues and singular values by Jacobi's rotations, n / 2 disjoint pairs of columns at a time
// (Brent and Luk 1985), in as many sweeps as the dtype and n need: errors are a few roundings of
// the largest one. Vectors are unique but for signs where values differ; here the element of the
// largest absolute value of each eigenvector, and of each column of u, is positive. A derivative of
// vectors whose values are equal does not exist; what one of them has of the other counts as 0
// then, as everywhere where a derivative is not finite (PyTorch: not finite). Derivatives of the
// values are right there. NaN for a matrix with elements that are not finite.
struct Eigh {
  Tensor values, vectors;
};
/// values [..., n], ascending, and orthonormal columns `vectors` [..., n, n] of the symmetric
/// matrix (a + aᵀ) / 2 = vectors diag(values) vectorsᵀ.
Eigh eigh(const Operand& a);
Tensor eigvalsh(const Operand& a); ///< the values alone: fewer steps

struct Svd {
  Tensor u, s, vt;
};
/// a = u diag(s) vt, thin: u [..., m, k] and vt [..., k, n] with orthonormal columns (rows), s
/// [..., k] not negative, descending, k the smaller one of m and n (full_matrices=False in
/// PyTorch). By rotations of the columns of a (Hestenes 1958), not of aᵀ a: small values are as
/// accurate as large ones.
Svd svd(const Operand& a);
Tensor svdvals(const Operand& a); ///< s alone: fewer steps

/// What counts as 0 among singular values: at most the larger one of `absolute` and `relative`
/// times the largest value. Without both, relative is max(m, n) times the distance from 1 to the
/// next number of the dtype of the arithmetic; without one of them it is 0. Error(Value) unless
/// they are at least 0.
struct Tolerance {
  std::optional<double> absolute = {}, relative = {};
};
/// Moore and Penrose's inverse [..., n, m] by svd(). Its first and second derivatives are those at
/// constant rank (Golub and Pereyra 1973).
Tensor pinv(const Operand& a, const Tolerance& tolerance = {});
/// The number of singular values that do not count as 0, i64 [...].
Tensor matrix_rank(const Operand& a, const Tolerance& tolerance = {});

/// One (MinusOne): the largest (smallest) sum of absolute values of a column, Inf of a row; Two the
/// largest (smallest) singular value; Nuclear the sum of singular values; Frobenius the root of the
/// sum of squares.
enum class MatrixNorm { Frobenius, Nuclear, One, MinusOne, Two, MinusTwo, Inf, MinusInf };
/// Of the last two axes, which leave the shape or stay with size 1: [...]. The largest of nothing
/// is 0, the smallest Error(Shape).
Tensor matrix_norm(const Operand& a, MatrixNorm norm = MatrixNorm::Frobenius, bool keepdim = false);
/// The condition: the largest over the smallest singular value (Two; MinusTwo its inverse), else
/// the norm of square `a` times that of its inverse; inf of a singular matrix (0 for MinusTwo).
Tensor cond(const Operand& a, MatrixNorm norm = MatrixNorm::Two);

/// exp(a) of square matrices: a Taylor polynomial of a / 2^s (Paterson and Stockmeyer 1973),
/// squared s times, s by the 1-norm of each matrix. NaN where that is above 2^15.
Tensor matrix_exp(const Operand& a);
/// a^n: by squares, of the inverse where n is negative (NaN where it is singular).
Tensor matrix_power(const Operand& a, std::int64_t n);

/// The product of several matrices in the order that costs least; the first and the last may be
/// vectors. Error(Value) for less than two.
Tensor multi_dot(std::span<const Tensor> matrices);
Tensor multi_dot(std::initializer_list<Operand> matrices);

} // namespace egret::linalg
