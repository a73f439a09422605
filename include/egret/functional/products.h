// Sums of products.
#pragma once

#include "egret/tensor.h"

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace egret {

/// The matrix product of the last two axes; earlier axes broadcast; a vector of rank 1 is a row on
/// the left, a column on the right, and that axis leaves the result. It is expand, multiply, sum:
/// in f16 and bf16 products and sums are formed in f32 and rounded once. Error(Shape) where inner
/// dims differ or an operand has rank 0, Error(DType) for two bools.
Tensor matmul(const Operand& a, const Operand& b);
/// [n] and [n] to a number; Error(Shape) for other ranks.
Tensor dot(const Operand& a, const Operand& b);
/// Sums of products over the last axes: the other axes of a and then those of b; of a single number
/// the product. Error(Shape) where the last axes differ.
Tensor inner(const Operand& a, const Operand& b);
/// Sums of products along an axis of operands that broadcast, in their dtype.
Tensor vecdot(const Operand& a, const Operand& b, std::int64_t axis = -1);
/// [m] and [n] to [m, n]; Error(Shape) for other ranks.
Tensor outer(const Operand& a, const Operand& b);
Tensor linear(const Operand& a, const Operand& weight,
              const Operand& bias = {}); ///< a @ weightᵀ + bias

// Error(Shape) for other ranks; bmm does not broadcast batches.
Tensor mm(const Operand& a, const Operand& b);  ///< matmul of matrices
Tensor bmm(const Operand& a, const Operand& b); ///< matmul of batches of matrices
Tensor mv(const Operand& a, const Operand& b);  ///< matmul of a matrix and a vector
/// beta · c + alpha · (a @ b), c broadcast to the product.
Tensor addmm(const Operand& c, const Operand& a, const Operand& b, const Arg& beta = 1,
             const Arg& alpha = 1);
Tensor baddbmm(const Operand& c, const Operand& a, const Operand& b, const Arg& beta = 1,
               const Arg& alpha = 1);
/// Einstein's sums, "bij,bjk->bik": an axis for each letter, sums over letters that the result
/// lacks, a letter twice in one operand for its diagonal, "..." for axes that broadcast. Without
/// "->" the result has the letters that stand once, in alphabetical order. Of up to 8 operands two
/// are multiplied at a time in the order of the fewest multiplications, of more from left to right;
/// letters that nothing else has are summed at once.
Tensor einsum(std::string_view formula, std::span<const Tensor> operands);
Tensor einsum(std::string_view formula, std::initializer_list<Operand> operands);
/// Sums over pairs of axes, one of each; the other axes of a and then of b remain.
Tensor tensordot(const Operand& a, const Operand& b, const std::vector<std::int64_t>& axes_a,
                 const std::vector<std::int64_t>& axes_b);
Tensor tensordot(const Operand& a, const Operand& b, std::int64_t axes = 2); ///< the last and first
Tensor kron(const Operand& a, const Operand& b); ///< each element of a times all of b
Tensor trace(const Operand& a);                  ///< sum of a matrix's diagonal
Tensor cross(const Operand& a, const Operand& b, std::int64_t axis = -1); ///< of size 3
/// Distances in the p-norm between rows of a [.., m, d] and b [.., n, d]: [.., m, n].
Tensor cdist(const Operand& a, const Operand& b, double p = 2);

/// result[.., o] = sum over i, j of a[.., i] weight[o, i, j] b[.., j] + bias[o].
Tensor bilinear(const Operand& a, const Operand& b, const Operand& weight,
                const Operand& bias = {});
/// beta · c + alpha · (a @ b) of a matrix and a vector; of the outer product of two vectors; of the
/// sum of a batch's products.
Tensor addmv(const Operand& c, const Operand& a, const Operand& b, const Arg& beta = 1,
             const Arg& alpha = 1);
Tensor addr(const Operand& c, const Operand& a, const Operand& b, const Arg& beta = 1,
            const Arg& alpha = 1);
Tensor addbmm(const Operand& c, const Operand& a, const Operand& b, const Arg& beta = 1,
              const Arg& alpha = 1);
Tensor matrix_power(const Operand& a, std::int64_t n); ///< of the last two axes, n not negative

} // namespace egret
