// Batches of matrices, for linear algebra: what its functions share.
#pragma once

#include "tensor/ops.h"

namespace egret::detail {

/// Matrices as [batch, rows, columns] in the type of the arithmetic, f32 or f64.
struct Matrices {
  Tensor a;
  Shape batch;
  std::int64_t rows, columns;
  DType type; ///< of the result

  /// [batch, ...] as the user's batches of something, in the user's dtype.
  Tensor result(const Tensor& y) const;
};
/// Error(Shape) unless an operand is [..., rows, columns], both known numbers.
Matrices matrices(const Tensor& a, const char* who);
/// And of as many rows as columns.
Matrices square_matrices(const Tensor& a, const char* who);
/// The same with batches expanded to a common shape.
struct MatrixPair {
  Matrices a, b;
};
MatrixPair matrix_pair(const Tensor& a, const Tensor& b, const char* who);

/// Error(Value) for more columns than rotations are for.
void require_columns(std::int64_t n, const char* who);

/// Whether what is computed of it now may be differentiated.
bool has_gradient(const Tensor& a);
/// 0, with the derivatives of `a`.
Tensor variation(const Tensor& a);

/// The inverse of the lower triangles [batch, n, n], by halves.
Tensor lower_inverse(const Tensor& a);
/// The lower factor of symmetric [batch, n, n]; by steps, without a gradient.
Tensor cholesky_steps(const Tensor& a);

/// Gauss-Jordan elimination with partial pivoting of [a | b], without a gradient.
struct Eliminated {
  Tensor solution; ///< of b's shape; NaN where a is singular
  Tensor pivots;   ///< [batch, n], the determinant's factors but for the sign
  Tensor parity;   ///< [batch], 1 or -1: of the exchanges of rows
};
Eliminated eliminated(const Tensor& a, const Tensor& b);

} // namespace egret::detail
