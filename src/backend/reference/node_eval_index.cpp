// Gather, scatter and movement: where an element goes to or comes from.
#include "backend/reference/node_eval.h"

#include "support/fail.h"

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
  const auto middle = point.begin() + static_cast<std::ptrdiff_t>(axis);
  const auto last = middle + static_cast<std::ptrdiff_t>(rank);
  const Estimate at = index.at(Dims(middle, last));
  if (at.error > 0)
    return {-1, true};
  const bool huge = index.dtype() == DType::U64 && at.value.i < 0; // beyond the largest i64
  if (huge || at.value.i < 0 || at.value.i >= data[axis])
    return {};
  Dims place(point.begin(), middle);
  place.push_back(at.value.i);
  place.insert(place.end(), last, point.end());
  return {number_of_point(data, place)};
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
    for (std::int64_t i = 0; i < result.size(); ++i)
      result.set(i, from.at(i));
    return;
  }
  const ir::Attrs& attrs = node.attrs;
  const Dims before = bindings.values_of(attrs.before);
  std::vector<bool> flipped(from.dims().size(), false);
  if (node.op == Op::Flip)
    for (std::int64_t axis : attrs.axes)
      flipped[static_cast<std::size_t>(axis)] = true;

  for_each_point(result.dims(), [&](const Dims& point, std::int64_t number) {
    Dims source = point;
    bool outside = false;
    for (std::size_t i = 0; i < point.size(); ++i) {
      const std::int64_t extent = from.dims()[i];
      switch (node.op) {
      case Op::Permute:
        source[static_cast<std::size_t>(attrs.axes[i])] = point[i];
        break;
      case Op::Expand:
        source[i] = extent == 1 ? 0 : point[i];
        break;
      case Op::Pad:
        source[i] = point[i] - before[i];
        outside |= source[i] < 0 || source[i] >= extent;
        break;
      case Op::Shrink:
        source[i] = point[i] + before[i];
        break;
      case Op::Flip:
        source[i] = flipped[i] ? extent - 1 - point[i] : point[i];
        break;
      default:
        throw InternalError("internal error: no movement");
      }
    }
    result.set(number, outside ? Estimate{number_of(attrs.value)} : from.at(source));
  });
}

} // namespace egret::backend::reference
