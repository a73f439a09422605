// Gather, scatter and movement: where an element goes to or comes from.
#include "backend/reference/node_eval.h"

#include "backend/reference/terms.h"

#include <limits>

namespace egret::backend::reference {

namespace {

/// A point of gather's result, taken apart: the index element that it reads and the data element
/// that this index names.
struct Access {
  std::int64_t data = -1; ///< number of the element of data; -1: the index is out of range
  bool in_doubt = false;  ///< the index depends on rounding
};

Access access_of(const Dims& data, const Cells& index, std::size_t axis, const Dims& point) {
  const std::size_t rank = index.dims().size();
  std::int64_t number = 0; // of the index element
  for (std::size_t i = 0; i < rank; ++i)
    number = number * index.dims()[i] + point[axis + i];
  const Estimate at = index.at(number);
  if (at.error > 0)
    return {-1, true};
  const bool huge = index.dtype() == DType::U64 && at.value.i < 0; // beyond the largest i64
  if (huge || at.value.i < 0 || at.value.i >= data[axis])
    return {};
  std::int64_t place = 0;
  for (std::size_t i = 0; i < data.size(); ++i)
    place = place * data[i] + (i < axis ? point[i] : i == axis ? at.value.i : point[i + rank - 1]);
  return {place};
}

constexpr double kUnknownIndex = std::numeric_limits<double>::infinity();

} // namespace

void eval_gather(const ir::Node& node, Operands operands, Cells& result) {
  const Cells &data = *operands[0], &index = *operands[1];
  const auto axis = static_cast<std::size_t>(node.attrs.axes[0]);
  for_each_point(result.dims(), [&](const Dims& point, std::int64_t number) {
    const Access access = access_of(data.dims(), index, axis, point);
    if (access.data >= 0)
      result.set(number, data.at(access.data));
    else
      result.set(number, {{}, access.in_doubt ? kUnknownIndex : 0});
  });
}

void eval_scatter(const ir::Node& node, Operands operands, Cells& result) {
  const Cells &data = *operands[0], &index = *operands[1], &updates = *operands[2];
  const auto axis = static_cast<std::size_t>(node.attrs.axes[0]);
  const DType type = node.dtype;
  const bool set = node.op == Op::ScatterSet;
  std::vector<Accumulator> sums;
  for (std::int64_t i = 0; i < data.size(); ++i) {
    result.set(i, data.at(i));
    if (!set)
      sums.emplace_back(monoid_of(node.op), type, accumulator_of(type), data.at(i));
  }
  bool in_doubt = false;
  for_each_point(updates.dims(), [&](const Dims& point, std::int64_t number) {
    const Access access = access_of(data.dims(), index, axis, point);
    in_doubt |= access.in_doubt;
    if (access.data < 0)
      return;
    if (set)
      result.set(access.data, updates.at(number));
    else
      sums[static_cast<std::size_t>(access.data)].add(updates.at(number));
  });
  for (std::int64_t i = 0; i < data.size(); ++i) {
    if (!set)
      result.set(i, sums[static_cast<std::size_t>(i)].result(type));
    if (in_doubt) // an update of unknown place may have gone anywhere
      result.set(i, {result.array.at(i), kUnknownIndex});
  }
}

void eval_movement(const ir::Node& node, Operands operands, const Bindings& bindings,
                   Cells& result) {
  const Cells& from = *operands[0];
  if (node.op == Op::Reshape) {
    result.array.bytes = from.array.bytes;
    result.errors = from.errors;
    return;
  }
  if (node.op == Op::Pad) {
    for (std::int64_t i = 0; i < result.size(); ++i)
      result.set(i, {number_of(node.attrs.value)});
    const ArrayView to = whole(result);
    std::int64_t start = 0;
    const Dims before = bindings.values_of(node.attrs.before);
    for (std::size_t i = 0; i < before.size(); ++i)
      start += before[i] * to.strides[i];
    for_each_position(from.dims(), {start}, {to.strides},
                      [&](std::int64_t number, const std::vector<std::int64_t>& positions) {
                        result.set(positions[0], from.at(number));
                      });
    return;
  }
  const ArrayView view = moved(node, whole(from), bindings, result.dims());
  for_each_position(result.dims(), {view.start}, {view.strides},
                    [&](std::int64_t number, const std::vector<std::int64_t>& positions) {
                      result.set(number, from.at(positions[0]));
                    });
}

} // namespace egret::backend::reference
