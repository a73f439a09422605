// Rows combined in bags, and scatters to indices that are data.
#include "egret/functional/indices.h"
#include "egret/functional/order.h"

#include "support/fail.h"
#include "tensor/ops.h"

namespace egret {

using namespace detail;

namespace {

constexpr const char* kBag = "embedding_bag";

void check(const Tensor& weight, const Tensor& index, std::int64_t rank,
           const EmbeddingBagOptions& options) {
  Access::held(weight, kBag);
  Access::held(index, kBag);
  require_float(weight, kBag);
  require_integer(index, kBag, "the indices");
  if (weight.rank() != 2)
    fail(ErrorKind::Shape, "{}: weight is {}; it must be [entries, width]", kBag, shape_of(weight));
  if (index.rank() != rank)
    fail(ErrorKind::Shape, "{}: index {}; it must be {}", kBag, shape_of(index),
         rank == 2 ? "[bags, n], or [n] with offsets" : "[n] with offsets");
  if (!options.weights.defined())
    return;
  if (options.mode != Bag::Sum)
    fail(ErrorKind::Value, "{}: weights go with sums", kBag);
  if (options.weights.shape() != index.shape())
    fail(ErrorKind::Shape, "{}: weights {} do not fit index {}; shapes must be equal", kBag,
         shape_of(options.weights), shape_of(index));
}

// Which indices count, as the index.
Tensor counted(const Tensor& index, const EmbeddingBagOptions& options) {
  return options.padding_idx ? ne(index, *options.padding_idx) : ones(index.shape(), DType::Bool);
}

// The rows at the indices, weighted; of those that do not count `fill`.
Tensor rows_of(const Tensor& weight, const Tensor& index, const Tensor& counts,
               const EmbeddingBagOptions& options) {
  const Tensor wide = widened(weight);
  Tensor rows = embedding(wide, index);
  if (options.weights.defined())
    rows = rows * unsqueeze(options.weights.to(wide.dtype()), -1);
  const Scalar fill = options.mode == Bag::Max ? identity_of(Monoid::Max, wide.dtype())
                                               : Scalar::of(wide.dtype(), std::int64_t{0});
  return where(unsqueeze(counts, -1), rows, constant(fill));
}

// Sums or largest ones of the bags, whose indices are counted in `sizes`.
Tensor finished(const Tensor& combined, const Tensor& sizes, const Tensor& weight,
                const EmbeddingBagOptions& options) {
  const Tensor n = unsqueeze(sizes, -1);
  Tensor result = combined;
  if (options.mode == Bag::Mean)
    result = combined / maximum(n, 1).to(combined.dtype());
  if (options.mode == Bag::Max)
    result = where(n > 0, combined, 0);
  return rounded_to(result, weight.dtype());
}

} // namespace

Tensor embedding_bag(const Operand& weight, const Operand& index,
                     const EmbeddingBagOptions& options) {
  check(weight, index, 2, options);
  const Tensor counts = counted(index, options);
  const Tensor rows = rows_of(weight, index, counts, options);
  return finished(options.mode == Bag::Max ? max(rows, 1) : sum(rows, 1), sum(counts, 1), weight,
                  options);
}

Tensor embedding_bag(const Operand& weight, const Operand& index, const Operand& offsets,
                     const EmbeddingBagOptions& options) {
  check(weight, index, 1, options);
  Access::held(offsets, kBag);
  require_integer(offsets, kBag, "offsets");
  if (offsets.rank() != 1)
    fail(ErrorKind::Shape, "{}: offsets {}; a vector is needed", kBag, shape_of(offsets));
  const Tensor counts = counted(index, options);
  const Tensor rows = rows_of(weight, index, counts, options);
  // The bag of an index is the last one that begins at it or before.
  const Tensor bag =
      searchsorted(offsets.to(DType::I64), iota(index.shape()[0], DType::I64), true) - 1;
  const Expr bags = offsets.shape()[0];
  const Tensor sizes = index_add(zeros({bags}, DType::I64), bag, counts.to(DType::I64), 0);
  const Shape shape = {bags, weight.shape()[1]};
  if (options.mode != Bag::Max)
    return finished(index_add(zeros(shape, rows.dtype()), bag, rows, 0), sizes, weight, options);
  const Tensor lowest =
      detail::broadcast_to(constant(identity_of(Monoid::Max, rows.dtype())), shape, kBag);
  const Tensor top = apply(Op::ScatterMax, {&lowest, &bag, &rows}, {.axes = {0}}, kBag);
  return finished(top, sizes, weight, options);
}

Tensor index_copy(const Operand& data, std::int64_t axis, const Operand& index,
                  const Operand& source) {
  constexpr const char* who = "index_copy";
  Access::held(data, who);
  Access::held(index, who);
  Access::held(source, who);
  axis = axis_of(axis, data.rank(), data.shape(), who);
  if (index.rank() != 1)
    fail(ErrorKind::Shape, "{}: index {}; a vector is needed", who, shape_of(index));
  Shape wanted = data.shape();
  wanted[static_cast<std::size_t>(axis)] = index.shape()[0];
  if (source.shape() != wanted)
    fail(ErrorKind::Shape, "{}: source {} does not fit data {} and {} positions; it must be {}",
         who, shape_of(source), shape_of(data), index.shape()[0].str(), to_string(wanted));
  return index_put(data, index, source, axis);
}

Tensor masked_scatter(const Operand& data, const Operand& mask, const Operand& source) {
  constexpr const char* who = "masked_scatter";
  Access::held(data, who);
  Access::held(mask, who);
  Access::held(source, who);
  if (mask.dtype() != DType::Bool)
    fail(ErrorKind::DType, "{}: the mask is {}; it must be bool", who, name_of(mask.dtype()));
  if (!broadcasts_to(mask.shape(), data.shape()))
    fail(ErrorKind::Shape, "{}: mask {} does not broadcast to {}", who, shape_of(mask),
         shape_of(data));
  const Tensor wide = detail::broadcast_to(mask, data.shape(), who);
  // How many indices before each one take an element.
  const Tensor number = cumsum(wide.flatten().to(DType::I64), 0) - 1;
  const Tensor found = take(source.to(data.dtype()).flatten(), number, 0).reshape(data.shape());
  return where(wide, found, data);
}

} // namespace egret
