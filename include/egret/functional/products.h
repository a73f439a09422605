// Sums of products.
#pragma once

#include "egret/tensor.h"

namespace egret {

/// The matrix product of the last two axes; earlier axes broadcast; a vector of rank 1 is a row on
/// the left, a column on the right, and that axis leaves the result. It is expand, multiply, sum:
/// in f16 and bf16 products and sums are formed in f32 and rounded once.
Tensor matmul(const Tensor& a, const Tensor& b);
Tensor dot(const Tensor& a, const Tensor& b);   ///< rank 1
Tensor outer(const Tensor& a, const Tensor& b); ///< rank 1
Tensor linear(const Tensor& a, const Tensor& weight,
              const Tensor& bias = {}); ///< a @ weightᵀ + bias

} // namespace egret
