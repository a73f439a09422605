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

/// A matrix [..., out, in]: floats in the model's dtype, or integers (u8) with scales of any float
/// dtype, or of blocks.
using Matrix = std::variant<Tensor, Quantized, io::BlockQuantized>;

/// Its values in `dtype`, as a part of the expression that uses them, so that a product reads the
/// integers and no dequantized matrix is stored. Integers times scales are rounded once, to `dtype`
/// from f32: what dequantizing beforehand gives.
Tensor dense(const Matrix& matrix, DType dtype);
/// Rows of a table [count, width] at `index` [n], in `dtype`: [n, width].
Tensor rows_at(const Matrix& table, const Tensor& index, DType dtype);
/// Rows begin .. begin + count.
Matrix narrowed(const Matrix& matrix, std::int64_t begin, std::int64_t count);
/// Those at `index` [n] along the first axis.
Matrix taken(const Matrix& matrices, const Tensor& index);
/// Matrices of the same shape, all floats or all integers of the same bits and group (none of
/// blocks), along a new first axis.
Matrix stacked(const std::vector<Matrix>& each);
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
