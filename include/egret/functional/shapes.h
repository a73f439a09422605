// Other shapes of the same elements, joins and splits.
#pragma once

#include "egret/tensor.h"

#include <optional>
#include <span>
#include <vector>

namespace egret {

/// The same elements in row-major order; one dim may be -1. Error(Shape) unless the element counts
/// agree.
Tensor reshape(const Operand& a, const Shape& shape);
/// Dim i of the result is dim axes[i]; Error(Axis) unless each axis is named once.
Tensor permute(const Operand& a, std::vector<std::int64_t> axes);
/// Two axes swapped.
Tensor transpose(const Operand& a, std::int64_t first = -2, std::int64_t second = -1);
/// Without axes of size 1; Error(Shape) for a given axis of another size.
Tensor squeeze(const Operand& a, std::optional<std::int64_t> axis = {});
/// A new axis of size 1 at `axis`, from -rank-1 to rank (Error(Axis)).
Tensor unsqueeze(const Operand& a, std::int64_t axis);
/// Dims of size 1, and new ones in front, are repeated; -1 keeps a dim. Error(Shape) where another
/// dim would change.
Tensor expand(const Operand& a, const Shape& shape);
/// The elements of these axes in reverse order.
Tensor flip(const Operand& a, const Axes& axes);
/// Along an existing axis; the other dims agree, dtypes promote.
Tensor cat(std::span<const Tensor> tensors, std::int64_t axis = 0);
Tensor cat(std::initializer_list<Operand> tensors, std::int64_t axis = 0);
Tensor stack(std::span<const Tensor> tensors, std::int64_t axis = 0); ///< along a new axis
Tensor stack(std::initializer_list<Operand> tensors, std::int64_t axis = 0);
/// Slices of `length` along an axis, the last one shorter; Error(Value) unless length > 0. What
/// returns a list of slices has Error(Value) for more than 2^24 of them.
std::vector<Tensor> split(const Operand& a, std::int64_t length, std::int64_t axis = 0);
/// At most `pieces` slices of equal length, ceil(size / pieces), the last one shorter; Error(Value)
/// unless positive.
std::vector<Tensor> chunk(const Operand& a, std::int64_t pieces, std::int64_t axis = 0);
/// `parts` slices, lengths of which differ by at most one, the longer ones first; or slices that
/// end at each of `places` (as slices end: negative ones count from the back) and a last one with
/// the rest. Error(Value) unless `parts` is positive.
std::vector<Tensor> tensor_split(const Operand& a, std::int64_t parts, std::int64_t axis = 0);
std::vector<Tensor> tensor_split(const Operand& a, const std::vector<std::int64_t>& places,
                                 std::int64_t axis = 0);
/// `before` and `after` by axis, from the first.
Tensor pad(const Operand& a, std::vector<std::int64_t> before, std::vector<std::int64_t> after,
           Number value = 0.0);
Tensor repeat(const Operand& a, std::vector<std::int64_t> times); ///< the whole, `times` by axis

Tensor tile(const Operand& a,
            std::vector<std::int64_t> times); ///< repeat, counted from the last axis
/// Each element `times` times in a row along an axis.
Tensor repeat_interleave(const Operand& a, std::int64_t times, std::int64_t axis);

/// Element i of the axis counts[i] times in a row, `total` elements in all: counts are integers
/// [n], or [1] for all elements alike. Data do not make shapes here, so the total is given (torch's
/// output_size): elements beyond it are left out, and where counts add up to less zeros follow.
/// Negative counts count as 0. Error(Shape) for counts that do not fit, Error(DType) for counts
/// that are no integers, Error(Value) for a negative total.
Tensor repeat_interleave(const Operand& a, const Operand& counts, std::int64_t axis,
                         std::int64_t total);

enum class PadMode { Reflect, Replicate, Circular };
/// Elements of the tensor itself in front and behind: mirrored at the first and the last (less than
/// a whole axis), the first and the last repeated, or from the other end (at most a whole axis).
Tensor pad(const Operand& a, std::vector<std::int64_t> before, std::vector<std::int64_t> after,
           PadMode mode);

/// The axes first..last as one.
Tensor flatten(const Operand& a, std::int64_t first = 0, std::int64_t last = -1);
Tensor unflatten(const Operand& a, std::int64_t axis, const Shape& dims); ///< one dim may be -1
Tensor movedim(const Operand& a, const std::vector<std::int64_t>& from,
               const std::vector<std::int64_t>& to); ///< the others keep their order
Tensor movedim(const Operand& a, std::int64_t from, std::int64_t to);
Tensor swapaxes(const Operand& a, std::int64_t first, std::int64_t second); ///< transpose
Tensor broadcast_to(const Operand& a, const Shape& shape);                  ///< expand
/// All expanded to their common shape; Error(Shape) where there is none.
std::vector<Tensor> broadcast_tensors(std::span<const Tensor> tensors);
std::vector<Tensor> unbind(const Operand& a, std::int64_t axis = 0); ///< every slice of the axis
Tensor hstack(std::span<const Tensor> tensors); ///< cat along axis 1, or 0 of vectors
Tensor vstack(std::span<const Tensor> tensors); ///< cat of rows
Tensor dstack(std::span<const Tensor> tensors); ///< cat along axis 2
Tensor hstack(std::initializer_list<Operand> tensors);
Tensor vstack(std::initializer_list<Operand> tensors);
Tensor dstack(std::initializer_list<Operand> tensors);
/// The second (first) axis in reverse order; Error(Axis) where there is none.
Tensor fliplr(const Operand& a);
Tensor flipud(const Operand& a);
/// At least so many axes: a vector is [1, n] of two and [1, n, 1] of three, a matrix [m, n, 1].
Tensor atleast_1d(const Operand& a);
Tensor atleast_2d(const Operand& a);
Tensor atleast_3d(const Operand& a);
Tensor column_stack(std::span<const Tensor> tensors); ///< cat along axis 1; vectors are columns
Tensor column_stack(std::initializer_list<Operand> tensors);
/// Element i becomes i + shift, around the end; without axes, of the flattened tensor.
Tensor roll(const Operand& a, const std::vector<std::int64_t>& shifts,
            const std::vector<std::int64_t>& axes = {});
/// Rotations by quarter turns, from the first axis towards the second.
Tensor rot90(const Operand& a, std::int64_t turns = 1, std::int64_t first = 0,
             std::int64_t second = 1);
/// Windows of `length` elements every `step`: the axis becomes their number, a last axis holds
/// them.
Tensor unfold(const Operand& a, std::int64_t axis, std::int64_t length, std::int64_t step);
/// Elements whose second position less the first is `offset`, as a last axis.
Tensor diagonal(const Operand& a, std::int64_t offset = 0, std::int64_t first = 0,
                std::int64_t second = 1);
/// The last axis on the diagonal of two new last axes, zeros elsewhere.
Tensor diag_embed(const Operand& a, std::int64_t offset = 0);
Tensor diag(const Operand& a,
            std::int64_t offset = 0); ///< of a vector a matrix, of a matrix a vector
/// Coordinates of a grid, one tensor an axis; "ij" axes in order, "xy" the first two swapped.
std::vector<Tensor> meshgrid(std::span<const Tensor> lines, bool xy = false);
/// base^x for x from begin to end in equal steps.
Tensor logspace(double begin, double end, std::int64_t count, double base = 10,
                DType dtype = DType::F32);
/// [.., c·f², h, w] to [.., c, h·f, w·f] and back.
Tensor pixel_shuffle(const Operand& a, std::int64_t factor);
Tensor pixel_unshuffle(const Operand& a, std::int64_t factor);

/// Powers of each element of a vector as a row, the highest first, or the lowest if `increasing`.
Tensor vander(const Operand& a, std::optional<std::int64_t> columns = {}, bool increasing = false);
/// i64 [2, n]: rows and columns of the elements that tril and triu keep, in row-major order.
Tensor tril_indices(std::int64_t rows, std::int64_t columns, std::int64_t offset = 0);
Tensor triu_indices(std::int64_t rows, std::int64_t columns, std::int64_t offset = 0);
/// Matrices (or vectors, as rows) along a diagonal, zeros elsewhere.
Tensor block_diag(std::span<const Tensor> blocks);
/// Every choice of one element of each vector, a row each: [n1 n2 ..., vectors].
Tensor cartesian_prod(std::span<const Tensor> lines);
/// Every choice of r elements of a vector, in their order, a row each: [choices, r] ([0] for r =
/// 0); with replacement an element may stand several times. Error(Value) for a negative r and for
/// more than 2^24 numbers in all.
Tensor combinations(const Operand& a, std::int64_t r = 2, bool with_replacement = false);
/// Channels (axis 1) of [batch, channels, ...] shuffled: one of each of g groups in turn.
Tensor channel_shuffle(const Operand& a, std::int64_t groups);
/// `a` with a slice of it, [begin:end:step] along an axis or one position, replaced.
Tensor slice_scatter(const Operand& a, const Operand& values, std::int64_t axis,
                     const Slice& slice);
Tensor select_scatter(const Operand& a, const Operand& values, std::int64_t axis,
                      std::int64_t position);

} // namespace egret
