// Views: other shapes of the same elements, joins and splits.
#include "support/fail.h"
#include "tensor/ops.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace egret {

using namespace detail;

namespace {

std::string list_of(const std::vector<std::int64_t>& values) {
  return fmt::format("[{}]", fmt::join(values, ","));
}

// The common dtype and the checked axis of what is to be joined.
struct Joint {
  DType type;
  std::size_t axis;
  Expr total;
};

Joint check_join(std::span<const Tensor> tensors, std::int64_t axis, const char* who) {
  if (tensors.empty())
    fail(ErrorKind::Value, "{}: no tensors are given; at least one is needed", who);
  DType type = Access::raw(tensors[0], who)->form.dtype;
  const Shape& first = tensors[0].shape();
  axis = axis_of(axis, static_cast<std::int64_t>(first.size()), first, who);
  const auto along = static_cast<std::size_t>(axis);
  Expr total = 0;
  for (const Tensor& t : tensors) {
    type = promote(type, Access::raw(t, who)->form.dtype);
    const Shape& shape = t.shape();
    bool fits = shape.size() == first.size();
    for (std::size_t i = 0; fits && i < first.size(); ++i)
      fits = i == along || shape[i] == first[i];
    if (!fits)
      fail(ErrorKind::Shape, "{}: {} and {} do not fit along axis {}; all other dims must be equal",
           who, to_string(first), to_string(shape), axis);
    total = total + shape[along];
  }
  return {type, along, total};
}

// Of parts that end at `ends` the one in which the position lies: a tree of choices, so that
// finding the piece takes as many comparisons as its number has bits.
NodePtr choose_part(const NodePtr& position, std::span<const NodePtr> parts,
                    std::span<const Expr> ends, const char* who) {
  if (parts.size() == 1)
    return parts[0];
  const std::size_t half = parts.size() / 2;
  NodePtr is_before = record(Op::Lt, {position, size_at(ends[half - 1], position->form.shape)});
  is_before = broadcast_node(std::move(is_before), parts[0]->form.shape);
  NodePtr front = choose_part(position, parts.first(half), ends.first(half), who);
  NodePtr back = choose_part(position, parts.subspan(half), ends.subspan(half), who);
  return apply_node(Op::Select, {std::move(is_before), std::move(front), std::move(back)}, who);
}

} // namespace

// Each piece is padded to the whole; the position along the axis selects the piece.
Tensor detail::join(std::span<const Tensor> tensors, std::int64_t axis, const char* who) {
  const Joint joint = check_join(tensors, axis, who);
  if (tensors.size() == 1)
    return tensors[0].clone();
  const std::size_t rank = tensors[0].shape().size();
  std::vector<NodePtr> parts;
  std::vector<Expr> ends;
  parts.reserve(tensors.size());
  ends.reserve(tensors.size());
  Expr begin = 0;
  for (const Tensor& t : tensors) {
    const Expr end = begin + t.shape()[joint.axis];
    ir::Attrs attrs;
    attrs.before.assign(rank, Expr(0));
    attrs.after.assign(rank, Expr(0));
    attrs.before[joint.axis] = begin;
    attrs.after[joint.axis] = joint.total - end;
    attrs.value = Scalar::of(joint.type, std::int64_t{0});
    parts.push_back(record(Op::Pad, Access::node(converted(t, joint.type), who), std::move(attrs)));
    ends.push_back(end);
    begin = end;
  }
  Shape line(rank, Expr(1));
  line[joint.axis] = joint.total;
  const Tensor position = coordinate_line(line, joint.axis);
  return Access::wrap(choose_part(Access::node(position, who), parts, ends, who));
}

Tensor reshape(const Operand& a, const Shape& shape) {
  Access::held(a, "reshape");
  Shape wanted = shape;
  std::optional<std::size_t> open;
  Expr known = 1;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] == Expr(-1)) {
      if (open)
        fail(ErrorKind::Shape, "reshape: {} has more than one -1; only one dim can be found",
             to_string(shape));
      open = i;
    } else {
      if (wanted[i].lower() < 0)
        fail(ErrorKind::Shape, "reshape: dim {} of {} is negative; only -1 (to be found) may be", i,
             to_string(shape));
      known = named("reshape", [&] { return known * wanted[i]; });
    }
  }
  const Expr count = element_count(a.shape());
  if (open) {
    if (known == Expr(0))
      fail(ErrorKind::Shape, "reshape: -1 in {} cannot be found beside a dim of size 0",
           to_string(shape));
    wanted[*open] = floordiv(count, known);
  }
  if (const Expr asked = element_count(wanted); !proves_equal(asked, count)) {
    if (open)
      fail(ErrorKind::Shape,
           "reshape: {} has {} elements, which are no multiple of the {} of {} without -1",
           shape_of(a), count.str(), known.str(), to_string(shape));
    fail(ErrorKind::Shape, "reshape: {} has {} elements and {} has {}", shape_of(a), count.str(),
         to_string(shape), asked.str());
  }
  if (wanted == a.shape())
    return a.clone();
  return apply(Op::Reshape, {&a}, {.shape = std::move(wanted)}, "reshape");
}

Tensor permute(const Operand& a, std::vector<std::int64_t> axes) {
  Access::held(a, "permute");
  const auto rank = static_cast<std::size_t>(a.rank());
  if (axes.size() != rank)
    fail(ErrorKind::Axis, "permute: {} names {} axes and {} has {}", list_of(axes), axes.size(),
         shape_of(a), rank);
  std::vector<bool> seen(rank);
  for (std::int64_t& axis : axes) {
    axis = axis_of(axis, static_cast<std::int64_t>(rank), a.shape(), "permute");
    if (seen[static_cast<std::size_t>(axis)])
      fail(ErrorKind::Axis, "permute: axis {} is given twice for {}; name each axis once", axis,
           shape_of(a));
    seen[static_cast<std::size_t>(axis)] = true;
  }
  if (std::is_sorted(axes.begin(), axes.end()))
    return a.clone();
  return apply(Op::Permute, {&a}, {.axes = std::move(axes)}, "permute");
}

Tensor transpose(const Operand& a, std::int64_t first, std::int64_t second) {
  Access::held(a, "transpose");
  const std::int64_t rank = a.rank();
  first = axis_of(first, rank, a.shape(), "transpose");
  second = axis_of(second, rank, a.shape(), "transpose");
  std::vector<std::int64_t> axes(static_cast<std::size_t>(rank));
  for (std::size_t i = 0; i < axes.size(); ++i)
    axes[i] = static_cast<std::int64_t>(i);
  std::swap(axes[static_cast<std::size_t>(first)], axes[static_cast<std::size_t>(second)]);
  return permute(a, std::move(axes));
}

Tensor squeeze(const Operand& a, std::optional<std::int64_t> axis) {
  Access::held(a, "squeeze");
  Shape shape;
  if (axis) {
    const auto along = static_cast<std::size_t>(axis_of(*axis, a.rank(), a.shape(), "squeeze"));
    if (!(a.shape()[along] == Expr(1)))
      fail(ErrorKind::Shape, "squeeze: axis {} of {} has size {}; only axes of size 1 can go",
           along, shape_of(a), a.shape()[along].str());
    shape = a.shape();
    shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(along));
  } else {
    for (const Expr& dim : a.shape())
      if (!(dim == Expr(1)))
        shape.push_back(dim);
  }
  return reshape(a, shape);
}

Tensor unsqueeze(const Operand& a, std::int64_t axis) {
  Access::held(a, "unsqueeze");
  const std::int64_t rank = a.rank();
  if (axis < -rank - 1 || axis > rank)
    fail(ErrorKind::Axis, "unsqueeze: axis {} is out of range for {}; places go from {} to {}",
         axis, shape_of(a), -rank - 1, rank);
  Shape shape = a.shape();
  shape.insert(shape.begin() + (axis < 0 ? axis + rank + 1 : axis), Expr(1));
  return apply(Op::Reshape, {&a}, {.shape = std::move(shape)}, "unsqueeze");
}

Tensor expand(const Operand& a, const Shape& shape) {
  Access::held(a, "expand");
  const Shape& from = a.shape();
  Shape wanted = shape;
  bool fits = shape.size() >= from.size();
  const std::size_t front = fits ? shape.size() - from.size() : 0;
  for (std::size_t i = 0; fits && i < shape.size(); ++i) {
    if (i < front) {
      fits = shape[i].lower() >= 0;
      continue;
    }
    const Expr& have = from[i - front];
    if (shape[i] == Expr(-1))
      wanted[i] = have;
    fits = wanted[i] == have || (have == Expr(1) && wanted[i].lower() >= 0);
  }
  if (!fits)
    fail(ErrorKind::Shape,
         "expand: {} to {}: counted from the last axis, dims must be equal, -1 (keep), or grow "
         "from 1",
         to_string(from), to_string(shape));
  return wanted == from ? a.clone() : broadcast_to(a, wanted, "expand");
}

Tensor flip(const Operand& a, const Axes& axes) {
  Access::held(a, "flip");
  auto list = axes_of(axes, a.shape(), "flip");
  if (list.empty())
    return a.clone();
  return apply(Op::Flip, {&a}, {.axes = std::move(list)}, "flip");
}

Tensor cat(std::span<const Tensor> tensors, std::int64_t axis) {
  return join(tensors, axis, "cat");
}

Tensor cat(std::initializer_list<Operand> tensors, std::int64_t axis) {
  return cat(std::vector<Tensor>(tensors.begin(), tensors.end()), axis);
}

Tensor stack(std::span<const Tensor> tensors, std::int64_t axis) {
  std::vector<Tensor> parts;
  parts.reserve(tensors.size());
  for (const Tensor& t : tensors) {
    Access::held(t, "stack");
    if (t.shape() != tensors[0].shape())
      fail(ErrorKind::Shape, "stack: shapes differ: {} and {}; all must be equal",
           shape_of(tensors[0]), shape_of(t));
    parts.push_back(unsqueeze(t, axis));
  }
  return join(parts, axis, "stack");
}

Tensor stack(std::initializer_list<Operand> tensors, std::int64_t axis) {
  return stack(std::vector<Tensor>(tensors.begin(), tensors.end()), axis);
}

std::vector<Tensor> split(const Operand& a, std::int64_t length, std::int64_t axis) {
  Access::held(a, "split");
  axis = axis_of(axis, a.rank(), a.shape(), "split");
  if (length <= 0)
    fail(ErrorKind::Value, "split: parts of length {} are not possible; it must be positive",
         length);
  std::vector<Tensor> parts;
  const std::int64_t size = a.size(axis), count = size == 0 ? 0 : (size - 1) / length + 1;
  require_parts(count, "split");
  for (std::int64_t i = 0; i < count; ++i)
    parts.push_back(a.narrow(axis, i * length, std::min(length, size - i * length)));
  if (parts.empty())
    parts.push_back(a.clone());
  return parts;
}

std::vector<Tensor> chunk(const Operand& a, std::int64_t parts, std::int64_t axis) {
  Access::held(a, "chunk");
  axis = axis_of(axis, a.rank(), a.shape(), "chunk");
  if (parts <= 0)
    fail(ErrorKind::Value, "chunk: {} parts are not possible; the number must be positive", parts);
  const std::int64_t size = a.size(axis), length = size == 0 ? 1 : (size - 1) / parts + 1;
  require_parts(std::min(size, parts), "chunk");
  return split(a, length, axis);
}

std::vector<Tensor> tensor_split(const Operand& a, std::int64_t parts, std::int64_t axis) {
  constexpr const char* who = "tensor_split";
  Access::held(a, who);
  axis = axis_of(axis, a.rank(), a.shape(), who);
  if (parts <= 0)
    fail(ErrorKind::Value, "{}: {} parts are not possible; the number must be positive", who,
         parts);
  require_parts(parts, who);
  const std::int64_t length = a.size(axis) / parts, longer = a.size(axis) % parts;
  std::vector<Tensor> slices;
  for (std::int64_t i = 0; i < parts; ++i)
    slices.push_back(a.narrow(axis, i * length + std::min(i, longer), length + (i < longer)));
  return slices;
}

std::vector<Tensor> tensor_split(const Operand& a, const std::vector<std::int64_t>& places,
                                 std::int64_t axis) {
  constexpr const char* who = "tensor_split";
  Access::held(a, who);
  axis = axis_of(axis, a.rank(), a.shape(), who);
  const std::int64_t size = a.size(axis);
  const auto clamped = [&](std::int64_t place) {
    return std::clamp(place < 0 ? std::max(place, -size) + size : place, std::int64_t{0}, size);
  };
  std::vector<Tensor> slices;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i <= places.size(); ++i) {
    const std::int64_t end = i < places.size() ? clamped(places[i]) : size;
    slices.push_back(a.narrow(axis, begin, std::max(end - begin, std::int64_t{0})));
    begin = end;
  }
  return slices;
}

Tensor pad(const Operand& a, std::vector<std::int64_t> before, std::vector<std::int64_t> after,
           Number value) {
  Access::held(a, "pad");
  const auto rank = static_cast<std::size_t>(a.rank());
  if (before.size() != rank || after.size() != rank)
    fail(ErrorKind::Shape, "pad: {} before and {} after for {}; one for each axis is needed",
         list_of(before), list_of(after), shape_of(a));
  ir::Attrs attrs;
  for (std::size_t i = 0; i < rank; ++i) {
    if (before[i] < 0 || after[i] < 0)
      fail(ErrorKind::Value, "pad: {} before and {} after: amounts must not be negative",
           list_of(before), list_of(after));
    attrs.before.push_back(before[i]);
    attrs.after.push_back(after[i]);
  }
  attrs.value = value.in(a.dtype());
  return named("pad", [&] { return apply(Op::Pad, {&a}, std::move(attrs), "pad"); });
}

Tensor repeat(const Operand& a, std::vector<std::int64_t> times) {
  Access::held(a, "repeat");
  if (times.size() < static_cast<std::size_t>(a.rank()))
    fail(ErrorKind::Shape, "repeat: {} names {} axes and {} has more", list_of(times), times.size(),
         shape_of(a));
  // [n] as [1, n], grown to [times, n], then one axis again.
  Shape split, grown, whole;
  const std::size_t front = times.size() - static_cast<std::size_t>(a.rank());
  for (std::size_t i = 0; i < times.size(); ++i) {
    if (times[i] < 0)
      fail(ErrorKind::Value, "repeat: {} has a negative count", list_of(times));
    const Expr dim = i < front ? Expr(1) : a.shape()[i - front];
    split.insert(split.end(), {Expr(1), dim});
    grown.insert(grown.end(), {Expr(times[i]), dim});
    whole.push_back(named("repeat", [&] { return Expr(times[i]) * dim; }));
  }
  return named("repeat", [&] { return reshape(expand(reshape(a, split), grown), whole); });
}

} // namespace egret
