// Matrices of a model's weights: floats, or packed integers that stay packed in memory.
#pragma once

#include "egret/functional/packed.h"
#include "egret/gguf.h"
#include "egret/nn.h"
#include "egret/tensor.h"
#include "egret/tree.h"

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

namespace egret::models::language {

/// Small values with a scale for each group of neighbours along the last axis.
struct Grouped {
  Tensor values; ///< u8 [..., n bits / 8], as pack_bits gives, or f8e4m3 [..., n]
  Tensor scale;  ///< [..., n / group], of any float dtype
  /// u8 [..., n / group]: the integer that stands for 0; without it that is 2^(bits-1).
  std::optional<Tensor> zero;
  int bits = 8;
  std::int64_t group = 32;
  EGRET_FIELDS(values, scale, zero, bits, group)
};

/// A matrix [..., out, in]: floats in the model's dtype, or values of fewer bits in groups or
/// blocks.
using Matrix = std::variant<Tensor, Grouped, io::BlockQuantized>;

/// Its values in `dtype`, as a part of the expression that uses them, so that a product reads the
/// small values and no dequantized matrix is stored. Small values times scales are rounded once, to
/// `dtype` from f32: what dequantizing beforehand gives.
Tensor dense(const Matrix& matrix, DType dtype);
/// Rows of a table [count, width] at `index` [n], in `dtype`: [n, width].
Tensor rows_at(const Matrix& table, const Tensor& index, DType dtype);
/// How many there are along the first axis.
std::int64_t count_of(const Matrix& matrix);
/// Rows begin .. begin + count.
Matrix narrowed(const Matrix& matrix, std::int64_t begin, std::int64_t count);
/// Those at `index` [n] along the first axis.
Matrix taken(const Matrix& matrices, const Tensor& index);
/// Computes it now.
void evaluate(Matrix& matrix);

/// x weightᵀ + bias, in the dtype of x.
struct Projection {
  Matrix weight;                     ///< [out, in]
  std::optional<Tensor> bias;        ///< [out]
  std::optional<nn::LowRank> update; ///< added to what the matrix gives
  /// The module of the checkpoint that the matrix is rows of, as "model.layers.0.self_attn.q_proj",
  /// and the first of them; empty for what adapters do not change.
  std::string module = {};
  std::int64_t row = 0;
  Tensor operator()(const Tensor& x) const;
  EGRET_FIELDS(weight, bias, update)
};

} // namespace egret::models::language
