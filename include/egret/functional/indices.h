// Reading and writing at indices that are data, and masks by position.
#pragma once

#include "egret/tensor.h"

#include <initializer_list>
#include <span>
#include <vector>

namespace egret {

// Indices are of any integer dtype. One that is out of range reads 0 and gets no gradient; negative
// indices of tensors do not count from the end.
/// Rows of `weight` [v, d]: result [index..., d].
Tensor embedding(const Operand& weight, const Operand& index);
/// data's `axis` is replaced by the dims of `index`.
Tensor take(const Operand& data, const Operand& index, std::int64_t axis);
/// result[i][j] = data[i][index[i][j]] for axis 1: `index` has data's rank, and its other dims are
/// at most data's (torch.gather).
Tensor gather(const Operand& data, std::int64_t axis, const Operand& index);
/// data with updates put (or added) at `index` along `axis`; updates has take()'s shape. Later ones
/// win.
Tensor index_put(const Operand& data, const Operand& index, const Operand& updates,
                 std::int64_t axis);
Tensor index_add(const Operand& data, const Operand& index, const Operand& updates,
                 std::int64_t axis);
Tensor one_hot(const Operand& index, std::int64_t classes,
               DType dtype = DType::F32); ///< [index..., classes]
Tensor tril(const Operand& a,
            std::int64_t diagonal = 0); ///< 0 above the diagonal of the last two axes
Tensor triu(const Operand& a, std::int64_t diagonal = 0);
/// bool [queries, keys]: key j may be seen by query i, j <= i + keys - queries.
Tensor causal_mask(const Expr& queries, const Expr& keys);

/// 0 .. count-1, i64: arange() of a size that may be symbolic.
Tensor positions(const Expr& count);
/// A size as a tensor of rank 0, i64; of a symbolic one the value in each call.
Tensor extent(const Expr& size);

/// data's `axis` at the positions of a vector (take).
Tensor index_select(const Operand& data, std::int64_t axis, const Operand& index);
/// gather() with dims that broadcast, but for the axis.
Tensor take_along_dim(const Operand& data, const Operand& index, std::int64_t axis);
/// `value` at all positions of a vector along the axis.
Tensor index_fill(const Operand& data, std::int64_t axis, const Operand& index, Number value);

/// What a scatter does where an update meets an element: replaces it (the last one wins), or
/// combines both.
enum class Scatter { Set, Add, Max, Min, Mean, Prod };
/// data with updates[i][j] put at data[index[i][j]][j] for axis 0 (torch.scatter, scatter_reduce):
/// ranks are equal, index's dims are at most those of updates, and but for the axis at most data's.
/// A product sorts the updates of each line and combines them in log2(updates) steps.
/// A mean is of the updates and, with `include_self`, of data's element; without it the elements
/// that any update meets do not count. It is computed wide and rounded once.
Tensor scatter(const Operand& data, std::int64_t axis, const Operand& index, const Operand& updates,
               Scatter how = Scatter::Set, bool include_self = true);
Tensor scatter(const Operand& data, std::int64_t axis, const Operand& index, Number value);
Tensor scatter_add(const Operand& data, std::int64_t axis, const Operand& index,
                   const Operand& updates);

/// data with the slices of `source` along an axis combined with data's slices at the positions of a
/// vector (torch.index_reduce): source has data's shape but for the axis, which has as many
/// positions as `index`. Means and `include_self` as of scatter(). Error(Shape) where they do not
/// fit.
Tensor index_reduce(const Operand& data, std::int64_t axis, const Operand& index,
                    const Operand& source, Scatter how, bool include_self = true);

// Slices along an axis that fall into segments, as nodes of a graph or samples of a packed batch
// do: element i of the axis is in segment index[i], a vector of integers in any order; indices that
// are none of 0 .. segments-1 belong to no segment. Error(Shape) for an index that does not fit,
// Error(Value) for a negative number of segments.
/// The slices of each segment combined: the axis becomes `segments`. Zeros of an empty segment; of
/// several slices Set keeps the last one.
Tensor segment_reduce(const Operand& a, const Operand& index, std::int64_t segments,
                      Scatter how = Scatter::Add, std::int64_t axis = 0);
/// log of the sum of exp over each segment, without overflow, in the dtype of floats, f32 of
/// integers; -inf of an empty segment.
Tensor segment_logsumexp(const Operand& a, const Operand& index, std::int64_t segments,
                         std::int64_t axis = 0);
/// softmax (log_softmax) over the slices of each segment, in a's shape; 0 (-inf) of what belongs to
/// no segment.
Tensor segment_softmax(const Operand& a, const Operand& index, std::int64_t segments,
                       std::int64_t axis = 0);
Tensor segment_log_softmax(const Operand& a, const Operand& index, std::int64_t segments,
                           std::int64_t axis = 0);

/// An entry of an index list that may hold a tensor.
class At {
public:
  At(Index index) : index_(index) {}
  template <std::integral T>
  At(T position) : index_(position) {}
  At(Slice slice) : index_(slice) {}
  At(NewAxis axis) : index_(axis) {}
  At(Ellipsis rest) : index_(rest) {}
  At(const Tensor& tensor) : index_(0), tensor_(tensor) {}
  At(Tensor&& tensor) : index_(0), tensor_(std::move(tensor)) { detail::let_go(tensor_); }

  bool is_tensor() const noexcept { return tensor_.defined(); }
  const Index& index() const noexcept { return index_; }
  const Tensor& tensor() const noexcept { return tensor_; }

private:
  Index index_;
  Tensor tensor_;
};
/// a[...] as NumPy and PyTorch index with tensors of integers among positions and slices: the
/// tensors broadcast, and their dims stand where they are side by side, else in front. Here
/// negative indices count from the end. A bool mask is an Error(Value): the size of the result
/// would depend on data (where, masked_fill).
Tensor index(const Operand& a, std::initializer_list<At> where);
Tensor index(const Operand& a, std::span<const At> where);
/// `a` with values put (or added) there; they broadcast.
Tensor index_assign(const Operand& a, std::span<const At> where, const Operand& values,
                    bool accumulate = false);
Tensor index_assign(const Operand& a, std::initializer_list<At> where, const Operand& values,
                    bool accumulate = false);
/// Always Error(Value): the size of the result would depend on data, which a graph cannot say. Use
/// where, masked_fill or a weighted sum.
Tensor masked_select(const Operand& a, const Operand& mask);

/// How often each of 0 .. length-1 stands in `index`, i64, or the sums of their weights. Others do
/// not count.
Tensor bincount(const Operand& index, std::int64_t length, const Operand& weights = {});
/// The coordinates of row-major numbers in a tensor of `shape` (known sizes): one i64 tensor an
/// axis. What an index below 0 or beyond the elements gives is not defined. Error(Shape) for an
/// empty or negative dim.
std::vector<Tensor> unravel_index(const Operand& index, const Shape& shape);
Tensor isin(const Operand& a, const Operand& set); ///< bool; every element against all of the set

/// data with source's positions along an axis put at those of a vector: source has data's shape but
/// for the axis, which has as many positions as `index`.
Tensor index_copy(const Operand& data, std::int64_t axis, const Operand& index,
                  const Operand& source);
/// data with the elements of `source`, in row-major order, where `mask` (bool, broadcast) holds.
Tensor masked_scatter(const Operand& data, const Operand& mask, const Operand& source);

enum class Bag { Sum, Mean, Max };
struct EmbeddingBagOptions {
  Bag mode = Bag::Mean;
  Tensor weights = {};                          ///< of each index, for sums only
  std::optional<std::int64_t> padding_idx = {}; ///< an index that does not count
};
/// Rows of `weight` [v, d] at index [bags, n], combined in each bag: [bags, d]; zeros of a bag that
/// is empty.
Tensor embedding_bag(const Operand& weight, const Operand& index,
                     const EmbeddingBagOptions& options = {});
/// The same for bags of any length: index [n], bag b from offsets[b] (ascending, the first 0) up to
/// the next.
Tensor embedding_bag(const Operand& weight, const Operand& index, const Operand& offsets,
                     const EmbeddingBagOptions& options = {});

} // namespace egret
