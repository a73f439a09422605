// Positions, slices and integer indices.
#include "support/fail.h"
#include "tensor/ops.h"

#include <algorithm>

namespace egret {

using namespace detail;

namespace {

// What an index list means for one axis of the operand: begin + step * i for 0 <= i < count.
struct Range {
  Expr begin, count;
  std::int64_t step = 1;
  Expr size;
  bool whole() const { return begin == Expr(0) && step == 1 && count == size; }
};

// An index list worked out: ranges by axis of the operand, and the shape of the result.
struct Selection {
  std::vector<Range> ranges;
  Shape shape;
};

Range range_of(const Slice& slice, const Expr& size, const char* who) {
  if (slice.step == 0)
    fail(ErrorKind::Index, "{}: a slice with step 0 goes nowhere; give a positive or negative step",
         who);
  // A step beyond the axis takes one element, as one of the axis' size does.
  const std::int64_t most = std::max<std::int64_t>(1, size.upper());
  const std::int64_t step = std::clamp(slice.step, -most, most);
  const bool back = step < 0;
  const Expr lowest = back ? -1 : 0, highest = back ? size - 1 : size;
  auto cut = [&](std::optional<std::int64_t> end, const Expr& otherwise) {
    if (!end)
      return otherwise;
    const Expr at = *end < 0 ? size + *end : Expr(*end);
    return egret::min(egret::max(at, lowest), highest);
  };
  Range range;
  range.size = size;
  range.step = step;
  range.begin = cut(slice.begin, back ? highest : lowest);
  const Expr end = cut(slice.end, back ? lowest : highest);
  const Expr distance = egret::max(back ? range.begin - end : end - range.begin, 0);
  range.count = ceildiv(distance, back ? -step : step);
  return range;
}

// A position counted from the front, which must lie within the axis whatever its size is.
Expr position_of(std::int64_t position, const Expr& size, std::size_t axis, const Shape& shape,
                 const char* who) {
  const Expr at = position < 0 ? size + position : Expr(position);
  if (!proves_less_equal(0, at) || !proves_less(at, size))
    fail(ErrorKind::Index, "{}: position {} is out of range for axis {} of {} (size {})", who,
         position, axis, to_string(shape), size.str());
  return at;
}

Selection select_of(const Shape& shape, std::span<const Index> indices, const char* who) {
  std::size_t used = 0, ellipses = 0;
  for (const Index& index : indices) {
    used += index.kind() == Index::Kind::Position || index.kind() == Index::Kind::Slice;
    ellipses += index.kind() == Index::Kind::Ellipsis;
  }
  if (ellipses > 1)
    fail(ErrorKind::Index, "{}: more than one ellipsis; only one can be filled", who);
  if (used > shape.size())
    fail(ErrorKind::Index, "{}: {} indices for {}, which has {} axes", who, used, to_string(shape),
         shape.size());
  Selection selection;
  selection.ranges.reserve(shape.size());
  selection.shape.reserve(shape.size() + indices.size());
  auto take_whole = [&](std::size_t count) {
    for (; count > 0; --count) {
      const Expr size = shape[selection.ranges.size()];
      selection.ranges.push_back({0, size, 1, size});
      selection.shape.push_back(size);
    }
  };
  for (const Index& index : indices) {
    const std::size_t axis = selection.ranges.size();
    switch (index.kind()) {
    case Index::Kind::Position:
      selection.ranges.push_back(
          {position_of(index.position(), shape[axis], axis, shape, who), 1, 1, shape[axis]});
      break;
    case Index::Kind::Slice:
      selection.ranges.push_back(range_of(index.slice(), shape[axis], who));
      selection.shape.push_back(selection.ranges.back().count);
      break;
    case Index::Kind::NewAxis:
      selection.shape.push_back(1);
      break;
    case Index::Kind::Ellipsis:
      take_whole(shape.size() - used);
      break;
    }
  }
  take_whole(shape.size() - selection.ranges.size());
  return selection;
}

// The elements that a range names begin, in ascending order, here; and how far apart they are.
struct Ascending {
  Expr begin;
  std::int64_t stride;
  Expr span; ///< from the first to behind the last
};
Ascending ascending(const Range& r) {
  if (r.step == 1)
    return {r.begin, 1, r.count};
  const std::int64_t stride = r.step < 0 ? -r.step : r.step;
  if (r.count == Expr(0))
    return {0, stride, 0};
  const Expr span = egret::max((r.count - 1) * stride + 1, 0);
  return {r.step < 0 ? r.begin - span + 1 : r.begin, stride, span};
}

bool steps(const std::vector<Range>& ranges) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [](const Range& r) { return r.step > 1 || r.step < -1; });
}

std::vector<std::int64_t> backward_axes(const std::vector<Range>& ranges) {
  std::vector<std::int64_t> axes;
  for (std::size_t i = 0; i < ranges.size(); ++i)
    if (ranges[i].step < 0)
      axes.push_back(static_cast<std::int64_t>(i));
  return axes;
}

// Every stride-th element: the axis is padded to whole strides, split, and the first of each kept.
Tensor strided(const Tensor& a, const std::vector<Range>& ranges, const char* who) {
  Shape split, whole;
  ir::Attrs pad, keep;
  for (const Range& r : ranges) {
    const Ascending up = ascending(r);
    pad.before.push_back(0);
    pad.after.push_back(r.count * up.stride - up.span);
    split.insert(split.end(), {Expr(r.count), Expr(up.stride)});
    keep.before.insert(keep.before.end(), {Expr(0), Expr(0)});
    keep.shape.insert(keep.shape.end(), {Expr(r.count), Expr(1)});
    whole.push_back(r.count);
  }
  pad.value = Scalar::of(a.dtype(), std::int64_t{0});
  Tensor result = apply(Op::Pad, {&a}, std::move(pad), who);
  result = apply(Op::Reshape, {&result}, {.shape = std::move(split)}, who);
  result = apply(Op::Shrink, {&result}, std::move(keep), who);
  return apply(Op::Reshape, {&result}, {.shape = std::move(whole)}, who);
}

// The elements that the ranges name, same rank.
NodePtr picked_node(const Tensor& a, const std::vector<Range>& ranges, const char* who) {
  NodePtr node = Access::node(a, who);
  if (!std::all_of(ranges.begin(), ranges.end(), [](const Range& r) { return r.whole(); })) {
    ir::Attrs attrs;
    attrs.before.reserve(ranges.size());
    attrs.shape.reserve(ranges.size());
    for (const Range& r : ranges) {
      const Ascending up = ascending(r);
      attrs.before.push_back(up.begin);
      attrs.shape.push_back(up.begin + up.span);
    }
    node = record(Op::Shrink, std::move(node), std::move(attrs));
  }
  if (steps(ranges))
    node = Access::node(strided(Access::wrap(std::move(node)), ranges, who), who);
  if (auto axes = backward_axes(ranges); !axes.empty())
    node = record(Op::Flip, std::move(node), {.axes = std::move(axes)});
  return node;
}

Tensor picked(const Tensor& a, const std::vector<Range>& ranges, const char* who) {
  return Access::wrap(picked_node(a, ranges, who));
}

Tensor selected(const Tensor& a, std::span<const Index> indices, const char* who) {
  Selection selection = select_of(Access::shape(a, who), indices, who);
  NodePtr node = picked_node(a, selection.ranges, who);
  if (node->form.shape != selection.shape)
    node = record(Op::Reshape, std::move(node), {.shape = std::move(selection.shape)});
  return Access::wrap(std::move(node));
}

// The reverse of picked: a tensor of the operand's shape with `a` at the named elements, else 0.
Tensor placed(const Tensor& a, const std::vector<Range>& ranges, const char* who) {
  Tensor result = a;
  const Scalar zero = Scalar::of(a.dtype(), std::int64_t{0});
  if (auto axes = backward_axes(ranges); !axes.empty())
    result = apply(Op::Flip, {&result}, {.axes = std::move(axes)}, who);
  if (steps(ranges)) {
    Shape split, whole;
    ir::Attrs pad, cut;
    for (const Range& r : ranges) {
      const Ascending up = ascending(r);
      split.insert(split.end(), {Expr(r.count), Expr(1)});
      pad.before.insert(pad.before.end(), {Expr(0), Expr(0)});
      pad.after.insert(pad.after.end(), {Expr(0), Expr(up.stride - 1)});
      whole.push_back(r.count * up.stride);
      cut.before.push_back(0);
      cut.shape.push_back(up.span);
    }
    pad.value = zero;
    result = apply(Op::Reshape, {&result}, {.shape = std::move(split)}, who);
    result = apply(Op::Pad, {&result}, std::move(pad), who);
    result = apply(Op::Reshape, {&result}, {.shape = std::move(whole)}, who);
    result = apply(Op::Shrink, {&result}, std::move(cut), who);
  }
  ir::Attrs attrs;
  for (const Range& r : ranges) {
    const Ascending up = ascending(r);
    attrs.before.push_back(up.begin);
    attrs.after.push_back(r.size - up.begin - up.span);
  }
  attrs.value = zero;
  return apply(Op::Pad, {&result}, std::move(attrs), who);
}

} // namespace

Tensor Tensor::operator[](std::int64_t position) const& {
  const Index list[] = {Index(position)};
  return index(list);
}

Tensor Tensor::operator[](Slice slice) const& {
  const Index list[] = {Index(slice)};
  return index(list);
}

Tensor Tensor::operator[](std::initializer_list<Index> indices) const& {
  return index({indices.begin(), indices.size()});
}

Tensor Tensor::index(std::span<const Index> indices) const& {
  return selected(*this, indices, "index");
}

Tensor Tensor::select(std::int64_t axis, std::int64_t position) const& {
  Access::held(*this, "select");
  axis = axis_of(axis, rank(), shape(), "select");
  std::vector<Index> list(static_cast<std::size_t>(axis), Index(Slice::all()));
  list.push_back(Index(position));
  return selected(*this, list, "select");
}

Tensor Tensor::narrow(std::int64_t axis, const Expr& begin, const Expr& length) const& {
  Access::held(*this, "narrow");
  axis = axis_of(axis, rank(), shape(), "narrow");
  const Expr& size = shape()[static_cast<std::size_t>(axis)];
  const bool from_end = begin.is_constant() && *begin.constant() < 0;
  const Expr first = from_end ? size + begin : begin;
  if (!proves_less_equal(0, first) || !proves_less_equal(0, length) ||
      !proves_less_equal(length, size - first))
    fail(ErrorKind::Index, "narrow: {} elements from {} do not lie within axis {} of {} (size {})",
         length.str(), begin.str(), axis, shape_of(*this), size.str());
  std::vector<Range> ranges;
  for (const Expr& n : shape())
    ranges.push_back({0, n, 1, n});
  ranges[static_cast<std::size_t>(axis)] = {first, length, 1, size};
  return picked(*this, ranges, "narrow");
}

Tensor& Tensor::assign(std::initializer_list<Index> where, const Arg& value) {
  return assign(std::span<const Index>(where.begin(), where.size()), value);
}

namespace detail {

Tensor replaced(const Tensor& a, std::span<const Index> where, const Arg& value) {
  Access::held(a, "assign");
  const Selection selection = select_of(a.shape(), where, "assign");
  const Tensor given = as_tensor(value, a.dtype());
  if (!broadcasts_to(given.shape(), selection.shape))
    fail(ErrorKind::Shape, "assign: {} does not broadcast to {}, the shape of what is indexed",
         shape_of(given), to_string(selection.shape));
  Shape box;
  for (const Range& r : selection.ranges)
    box.push_back(r.count);
  const Tensor piece = egret::reshape(broadcast_to(given, selection.shape, "assign"), box);
  const Tensor mask =
      placed(broadcast_to(constant(DType::Bool, 1), box, "assign"), selection.ranges, "assign");
  return egret::where(mask, placed(piece, selection.ranges, "assign"), a);
}

} // namespace detail

Tensor& Tensor::assign(std::span<const Index> where, const Arg& value) {
  Access::held(*this, "assign");
  update(
      *this, [&](const Tensor& now) { return replaced(now, where, value); }, "assign");
  return *this;
}

namespace {

// bool: column - row <= diagonal, over the last two axes.
Tensor lower_mask(const Expr& rows, const Expr& columns, const Expr& diagonal, const char* who) {
  const Shape box = {rows, columns};
  return coordinate(box, 1, who) < coordinate(box, 0, who) + number_of(diagonal + 1, DType::I64);
}

// A diagonal that can be counted with: no axis is longer.
std::int64_t within_sizes(std::int64_t diagonal) {
  constexpr std::int64_t kMost = std::int64_t{1} << 62;
  return std::clamp(diagonal, -kMost, kMost);
}

void require_matrix(const Tensor& a, const char* who) {
  Access::held(a, who);
  if (a.rank() < 2)
    fail(ErrorKind::Shape, "{}: {} has no last two axes; a matrix or a batch of them is needed",
         who, shape_of(a));
}

} // namespace

Tensor tril(const Operand& a, std::int64_t diagonal) {
  require_matrix(a, "tril");
  diagonal = within_sizes(diagonal);
  const Shape& s = a.shape();
  return where(lower_mask(s[s.size() - 2], s[s.size() - 1], diagonal, "tril"), a, false);
}

Tensor triu(const Operand& a, std::int64_t diagonal) {
  require_matrix(a, "triu");
  diagonal = within_sizes(diagonal);
  const Shape& s = a.shape();
  return where(lower_mask(s[s.size() - 2], s[s.size() - 1], diagonal - 1, "triu"), zeros_like(a),
               a);
}

Tensor causal_mask(const Expr& queries, const Expr& keys) {
  if (!proves_less_equal(0, queries) || !proves_less_equal(0, keys))
    fail(ErrorKind::Value, "causal_mask: {} queries and {} keys; sizes must not be negative",
         queries.str(), keys.str());
  return lower_mask(queries, keys, keys - queries, "causal_mask");
}

} // namespace egret
