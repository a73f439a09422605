// Other shapes of the same elements, joins and splits.
#pragma once

#include "egret/tensor.h"

#include <span>
#include <vector>

namespace egret {

Tensor reshape(const Tensor& a, const Shape& shape);
Tensor permute(const Tensor& a, std::vector<std::int64_t> axes);
Tensor transpose(const Tensor& a, std::int64_t first = -2, std::int64_t second = -1);
Tensor squeeze(const Tensor& a, std::optional<std::int64_t> axis = {});
Tensor unsqueeze(const Tensor& a, std::int64_t axis);
Tensor expand(const Tensor& a, const Shape& shape);
Tensor flip(const Tensor& a, const Axes& axes);
/// Along an existing axis; the other dims agree, dtypes promote.
Tensor cat(std::span<const Tensor> tensors, std::int64_t axis = 0);
Tensor cat(std::initializer_list<Tensor> tensors, std::int64_t axis = 0);
Tensor stack(std::span<const Tensor> tensors, std::int64_t axis = 0); ///< along a new axis
Tensor stack(std::initializer_list<Tensor> tensors, std::int64_t axis = 0);
/// Pieces of `length` along an axis, the last one shorter.
std::vector<Tensor> split(const Tensor& a, std::int64_t length, std::int64_t axis = 0);
std::vector<Tensor> chunk(const Tensor& a, std::int64_t pieces, std::int64_t axis = 0);
/// `before` and `after` by axis, from the first.
Tensor pad(const Tensor& a, std::vector<std::int64_t> before, std::vector<std::int64_t> after,
           Number value = 0.0);
Tensor repeat(const Tensor& a, std::vector<std::int64_t> times); ///< the whole, `times` by axis

} // namespace egret
