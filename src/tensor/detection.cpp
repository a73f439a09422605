// Boxes: their overlap, and the suppression of those that overlap better ones.
#include "egret/functional/indices.h"
#include "egret/functional/order.h"
#include "egret/functional/vision.h"

#include "support/fail.h"
#include "tensor/ops.h"
#include "tensor/steps.h"

#include <cmath>

namespace egret {

using namespace detail;

namespace {

// Boxes in the type of the arithmetic.
Tensor boxes_of(const Tensor& given, bool set, const char* who) {
  const Tensor boxes = as_float(given, who);
  if (boxes.rank() < 1 || !(boxes.shape().back() == Expr(4)) || (set && boxes.rank() != 2))
    fail(ErrorKind::Shape, "{}: boxes {}; they must be {}", who, shape_of(given),
         set ? "[n, 4]" : "[..., 4]");
  return widened(boxes);
}

// The size of boxes from one corner to the other, 0 where they are the wrong way round.
Tensor extents(const Tensor& low, const Tensor& high) {
  const Tensor sides = maximum(high - low, 0);
  return sides.select(-1, 0) * sides.select(-1, 1);
}

Tensor areas_of(const Tensor& boxes) {
  return (boxes.select(-1, 2) - boxes.select(-1, 0)) * (boxes.select(-1, 3) - boxes.select(-1, 1));
}

struct Overlap {
  Tensor low_a, high_a, low_b, high_b; ///< corners, [n, 1, 2] and [1, m, 2]
  Tensor iou, join;                    ///< [n, m]
};
Overlap overlap(const Tensor& a, const Tensor& b) {
  const auto corner = [](const Tensor& boxes, std::int64_t begin, std::int64_t axis) {
    return unsqueeze(boxes.narrow(1, begin, 2), axis);
  };
  Overlap o{corner(a, 0, 1), corner(a, 2, 1), corner(b, 0, 0), corner(b, 2, 0), {}, {}};
  const Tensor both = extents(maximum(o.low_a, o.low_b), minimum(o.high_a, o.high_b));
  o.join = unsqueeze(areas_of(a), 1) + unsqueeze(areas_of(b), 0) - both;
  o.iou = both / o.join;
  return o;
}

// Two sets of boxes in one type.
Pair box_sets(const Tensor& a, const Tensor& b, const char* who) {
  const Tensor x = boxes_of(a, true, who), y = boxes_of(b, true, who);
  return promoted(x, y, who);
}

DType type_of(const Tensor& a, const Tensor& b) {
  const DType type = promote(a.dtype(), b.dtype());
  return is_float(type) ? type : DType::F32;
}

} // namespace

Tensor box_convert(const Operand& boxes, BoxFormat from, BoxFormat to) {
  constexpr const char* who = "box_convert";
  const Tensor x = boxes_of(boxes, false, who);
  const DType type = as_float(boxes, who).dtype();
  if (from == to)
    return rounded_to(x, type);
  const std::int64_t axis = x.rank() - 1;
  const Tensor first = x.narrow(axis, 0, 2), second = x.narrow(axis, 2, 2);
  const Tensor low = from == BoxFormat::CenterSize ? first - second * 0.5 : first;
  const Tensor size = from == BoxFormat::Corners ? second - first : second;
  switch (to) {
  case BoxFormat::Corners:
    return rounded_to(
        cat({low, from == BoxFormat::CenterSize ? first + second * 0.5 : low + size}, axis), type);
  case BoxFormat::CornerSize:
    return rounded_to(cat({low, size}, axis), type);
  default:
    return rounded_to(
        cat({from == BoxFormat::Corners ? (first + second) * 0.5 : low + size * 0.5, size}, axis),
        type);
  }
}

Tensor box_area(const Operand& boxes) {
  const Tensor x = boxes_of(boxes, false, "box_area");
  return rounded_to(areas_of(x), as_float(boxes, "box_area").dtype());
}

Tensor box_iou(const Operand& a, const Operand& b) {
  const Pair sets = box_sets(a, b, "box_iou");
  return rounded_to(overlap(sets.a, sets.b).iou, type_of(a, b));
}

Tensor generalized_box_iou(const Operand& a, const Operand& b) {
  const Pair sets = box_sets(a, b, "generalized_box_iou");
  const Overlap o = overlap(sets.a, sets.b);
  const Tensor around = extents(minimum(o.low_a, o.low_b), maximum(o.high_a, o.high_b));
  return rounded_to(o.iou - (around - o.join) / around, type_of(a, b));
}

namespace {

constexpr double kTiny = 1e-7;

Tensor distance_iou(const Overlap& o) {
  const Tensor around = maximum(o.high_a, o.high_b) - minimum(o.low_a, o.low_b);
  const Tensor between = (o.low_a + o.high_a - o.low_b - o.high_b) * 0.5;
  return o.iou - sum(square(between), -1) / (sum(square(around), -1) + kTiny);
}

} // namespace

Tensor distance_box_iou(const Operand& a, const Operand& b) {
  const Pair sets = box_sets(a, b, "distance_box_iou");
  return rounded_to(distance_iou(overlap(sets.a, sets.b)), type_of(a, b));
}

Tensor complete_box_iou(const Operand& a, const Operand& b) {
  const Pair sets = box_sets(a, b, "complete_box_iou");
  const Overlap o = overlap(sets.a, sets.b);
  const auto angle = [](const Tensor& low, const Tensor& high) {
    const Tensor sides = high - low;
    return atan(sides.select(-1, 0) / sides.select(-1, 1));
  };
  const Tensor v =
      square(angle(o.low_a, o.high_a) - angle(o.low_b, o.high_b)) * (4 / (M_PI * M_PI));
  const Tensor weight = stopped(v / (1 - o.iou + v + kTiny));
  return rounded_to(distance_iou(o) - weight * v, type_of(a, b));
}

KeptBoxes nms(const Operand& boxes, const Operand& scores, double threshold,
              const NmsOptions& options) {
  constexpr const char* who = "nms";
  constexpr std::int64_t kMost = 4096;
  const Tensor all = boxes_of(boxes, true, who).detach();
  Access::held(scores, who);
  const std::int64_t n = all.size(0);
  if (scores.rank() != 1 || scores.size(0) != n)
    fail(ErrorKind::Shape, "{}: scores {} do not fit boxes {}; they must be [{}]", who,
         shape_of(scores), shape_of(boxes), n);
  if (std::isnan(threshold))
    fail(ErrorKind::Value, "{}: the threshold is not a number", who);
  const std::int64_t most = options.most.value_or(n);
  if (most < 0 || most > kMost)
    fail(ErrorKind::Value, "{}: at most {} boxes; the number must be from 0 to {}", who, most,
         kMost);
  const Tensor order = argsort(scores.detach(), 0, true);
  const Tensor sorted = take(all, order, 0);
  Tensor meet = overlap(sorted, sorted).iou > threshold;
  if (options.classes.defined()) {
    require_integer(options.classes, who, "the classes");
    if (options.classes.rank() != 1 || options.classes.size(0) != n)
      fail(ErrorKind::Shape, "{}: classes {} do not fit boxes {}; they must be [{}]", who,
           shape_of(options.classes), shape_of(boxes), n);
    const Tensor own = take(options.classes, order, 0);
    meet = meet & (unsqueeze(own, 0) == unsqueeze(own, 1));
  }
  if (n == 0 || most == 0)
    return {zeros({n}, DType::Bool), full({most}, -1, DType::I64), zeros({}, DType::I64)};
  const Tensor place = positions(n);
  meet = (meet | (unsqueeze(place, 0) == unsqueeze(place, 1))).to(DType::U8);
  // The first box that is left has the highest score; it and what it meets go. All steps are alike:
  // what says when a box was taken is for how many steps it has been.
  Tensor left = ones({n}, DType::U8), age = zeros({n}, DType::I64);
  in_groups(most, {&order, &meet, &left, &age}, [&](std::int64_t, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      const Tensor at = argmax(left, 0, true);
      age = age + (((place == at) & (left > 0)) | (age > 0)).to(DType::I64);
      left = left * (1 - reshape(take(meet, at, 0), {n}));
    }
  });
  const Tensor taken = age > 0, turn = where(taken, most - age, -1);
  // Boxes that were never taken are put nowhere.
  const Tensor indices = index_put(full({most}, -1, DType::I64), turn, order, 0);
  const Tensor mask = index_put(zeros({n}, DType::Bool), order, taken, 0);
  return {mask, indices, sum(taken)};
}

} // namespace egret
