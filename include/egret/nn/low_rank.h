// Updates of low rank beside matrices that stay as they are.
#pragma once

#include "egret/random.h"
#include "egret/tensor.h"
#include "egret/tree.h"

#include <cstdint>

namespace egret::nn {

/// A trainable update of a frozen matrix W [out, in] (LoRA, Hu et al. 2021): what W maps x to gets
/// scale · b (a x) added.
///
///   Tensor y = linear(x, w) + update(x); // trains a and b only
///
/// Leading axes stand for several matrices, each with an update of its own, as experts have them.
struct LowRank {
  Tensor a; ///< [..., rank, in]
  Tensor b; ///< [..., out, rank]
  double scale = 1;

  LowRank() = default;
  LowRank(Tensor a_matrix, Tensor b_matrix, double its_scale);
  /// f32 parameters: a uniform in ±1/√in, b zeros, so that the update begins as nothing; the scale
  /// is alpha / rank. Error(Value) unless all of them are positive.
  LowRank(std::int64_t in, std::int64_t out, std::int64_t rank, double alpha, Generator& generator,
          const Shape& leading = {});
  /// [..., in] to [..., out], with products in the dtype of x; leading axes broadcast as those of
  /// matmul().
  Tensor operator()(const Tensor& x) const;
  Tensor matrix() const; ///< scale b a, f32 [..., out, in]: what merging adds to W
  EGRET_FIELDS(a, b, scale)
};

} // namespace egret::nn
