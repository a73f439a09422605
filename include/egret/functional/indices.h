// Reading and writing at indices that are data, and masks by position.
#pragma once

#include "egret/tensor.h"

namespace egret {

// Indices are of any integer dtype. One that is out of range reads 0 and gets no gradient; negative
// indices of tensors do not count from the end.
/// Rows of `weight` [v, d]: result [index..., d].
Tensor embedding(const Tensor& weight, const Tensor& index);
/// data's `axis` is replaced by the dims of `index`.
Tensor take(const Tensor& data, const Tensor& index, std::int64_t axis);
/// result[i][j] = data[i][index[i][j]] for axis 1: `index` has data's rank, and its other dims are
/// at most data's (torch.gather).
Tensor gather(const Tensor& data, std::int64_t axis, const Tensor& index);
/// data with updates put (or added) at `index` along `axis`; updates has take()'s shape. Later ones
/// win.
Tensor index_put(const Tensor& data, const Tensor& index, const Tensor& updates, std::int64_t axis);
Tensor index_add(const Tensor& data, const Tensor& index, const Tensor& updates, std::int64_t axis);
Tensor one_hot(const Tensor& index, std::int64_t classes,
               DType dtype = DType::F32); ///< [index..., classes]
Tensor tril(const Tensor& a,
            std::int64_t diagonal = 0); ///< 0 above the diagonal of the last two axes
Tensor triu(const Tensor& a, std::int64_t diagonal = 0);
/// bool [queries, keys]: key j may be seen by query i, j <= i + keys - queries.
Tensor causal_mask(const Expr& queries, const Expr& keys);

} // namespace egret
