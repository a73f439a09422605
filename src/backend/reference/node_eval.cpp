// Sources, elementwise ops, reductions and scans.
#include "backend/reference/node_eval.h"

#include "backend/reference/terms.h"
#include "support/fail.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace egret::backend::reference {

void eval_source(const ir::Node& node, Cells& result) {
  if (node.op == Op::Constant)
    return result.set(0, {number_of(node.attrs.value)});
  ensure(node.op == Op::Iota, "{} is no source that can be computed", info_of(node.op).name);
  for (std::int64_t i = 0; i < result.size(); ++i)
    result.set(i, {convert({.i = i}, DType::I64, node.dtype)});
}

void eval_elementwise(Terms& terms, Cells& result) {
  terms.each(Dims(result.dims().size(), 0),
             [&](std::int64_t number, std::int64_t, const Estimate& e) { result.set(number, e); });
}

void eval_reduce(const ir::Node& node, DType from, Terms& terms, Cells& result) {
  const Accumulator empty(monoid_of(node.op), from, accumulator_of(from));
  std::vector<Accumulator> sums(static_cast<std::size_t>(result.size()), empty);
  std::vector<bool> reduced(terms.dims().size(), false);
  for (std::int64_t axis : node.attrs.axes)
    reduced[static_cast<std::size_t>(axis)] = true;
  Dims strides(terms.dims().size(), 0); // to the result's elements
  std::int64_t stride = 1;
  for (std::size_t i = strides.size(); i-- > 0;)
    if (!reduced[i]) {
      strides[i] = stride;
      stride *= terms.dims()[i];
    }
  terms.each(strides, [&](std::int64_t, std::int64_t place, const Estimate& e) {
    sums[static_cast<std::size_t>(place)].add(e);
  });
  for (std::int64_t i = 0; i < result.size(); ++i)
    result.set(i, sums[static_cast<std::size_t>(i)].result(node.dtype));
}

void eval_scan(const ir::Node& node, Operands operands, Cells& result) {
  const Cells& from = *operands[0];
  const auto run = [&](auto state, const auto& add) {
    const auto axis = static_cast<std::size_t>(node.attrs.axes[0]);
    const std::int64_t length = from.dims()[axis];
    Dims starts = from.dims(); // the first element of each line
    starts[axis] = length > 0 ? 1 : 0;
    for_each_point(starts, [&](const Dims& start, std::int64_t) {
      auto scanned = state;
      Dims point = start;
      for (std::int64_t i = 0; i < length; ++i) {
        point[axis] = i;
        const std::int64_t number = number_of_point(from.dims(), point);
        add(scanned, number);
        result.set(number, scanned.result(node.dtype));
      }
    });
  };
  const DType acc = accumulator_of(from.dtype());
  if (node.op == Op::ScanLinear)
    return run(Recurrence(from.dtype(), acc),
               [&](Recurrence& r, std::int64_t i) { r.add(from.at(i), operands[1]->at(i)); });
  run(Accumulator(monoid_of(node.op), from.dtype(), acc),
      [&](Accumulator& a, std::int64_t i) { a.add(from.at(i)); });
}

std::vector<Estimate> order_of(std::span<const Estimate> keys, DType dtype) {
  std::vector<std::int64_t> places(keys.size());
  std::iota(places.begin(), places.end(), 0);
  const auto value = [&](std::int64_t i) { return keys[static_cast<std::size_t>(i)].value.i; };
  std::stable_sort(places.begin(), places.end(), [&](std::int64_t a, std::int64_t b) {
    return is_signed(dtype)
               ? value(a) < value(b)
               : static_cast<std::uint64_t>(value(a)) < static_cast<std::uint64_t>(value(b));
  });
  const bool in_doubt =
      std::any_of(keys.begin(), keys.end(), [](const Estimate& key) { return key.error > 0; });
  std::vector<Estimate> order;
  for (const std::int64_t place : places)
    order.push_back({{.i = place}, in_doubt ? std::numeric_limits<double>::infinity() : 0});
  return order;
}

void eval_sort(const ir::Node& node, Operands operands, Cells& result) {
  const Cells& from = *operands[0];
  const auto axis = static_cast<std::size_t>(node.attrs.axes[0]);
  const std::int64_t length = from.dims()[axis], kept = result.dims()[axis];
  Dims starts = from.dims(); // the first element of each line
  starts[axis] = kept > 0 ? 1 : 0;
  for_each_point(starts, [&](const Dims& start, std::int64_t) {
    Dims point = start;
    std::vector<Estimate> keys;
    for (point[axis] = 0; point[axis] < length; ++point[axis])
      keys.push_back(from.at(point));
    const std::vector<Estimate> order = order_of(keys, from.dtype());
    for (point[axis] = 0; point[axis] < kept; ++point[axis])
      result.set(number_of_point(result.dims(), point),
                 order[static_cast<std::size_t>(point[axis])]);
  });
}

} // namespace egret::backend::reference
