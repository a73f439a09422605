#include "tensor/ops.h"

#include "support/fail.h"
#include "support/hash.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace egret::detail {

Tensor apply(Op op, std::initializer_list<const Tensor*> operands, ir::Attrs attrs,
             const char* who) {
  std::vector<NodePtr> inputs;
  inputs.reserve(operands.size());
  Placement placement;
  for (const Tensor* operand : operands) {
    inputs.push_back(Access::node(*operand, who));
    if (const Placement other = inputs.back()->placement(); other != placement)
      placement = joined(placement, other, who);
  }
  return Access::wrap(record(op, std::move(inputs), std::move(attrs)));
}

Tensor unary(Op op, const Tensor& a, const char* who) {
  auto node = Access::node(a, who);
  const DType type = node->form.dtype;
  Shape shape = node->form.shape;
  if (info_of(op).dtypes == DTypeRule::Float && !is_float(type))
    fail(ErrorKind::DType, "{}: takes floats, got {}; convert with to(DType::F32)", who,
         name_of(type));
  return Access::wrap(record_known(op, type, std::move(shape), {std::move(node)}, {}));
}

Tensor binary(Op op, const Tensor& a, const Tensor& b, const char* who) {
  return apply(op, {&a, &b}, {}, who);
}

Tensor reduce(Op op, const Tensor& a, std::vector<std::int64_t> axes, bool keepdim,
              const char* who) {
  const Shape shape = a.shape();
  Tensor result = a;
  if (!axes.empty())
    result = apply(op, {&a}, {.axes = axes}, who);
  if (!keepdim || axes.empty())
    return result;
  Shape kept = shape;
  for (std::int64_t axis : axes)
    kept[static_cast<std::size_t>(axis)] = 1;
  return apply(Op::Reshape, {&result}, {.shape = std::move(kept)}, who);
}

Tensor constant(Scalar value) {
  return Access::wrap(record_known(Op::Constant, value.dtype, {}, {}, {.value = value}));
}

Tensor constant(DType type, double value) {
  return constant(Scalar::of(type, value));
}

namespace {

// Whether a number that the user wrote is a constant of the graph.
bool is_kept(DType type, double v) {
  return type == DType::Bool || v == 0 || v == 1 || v == -1 || v == 2 || v == 0.5 ||
         std::abs(v) == std::numeric_limits<double>::infinity();
}

NodePtr literal_node(DType type, Number value) {
  const Scalar scalar = value.in(type);
  return is_kept(type, value.as_double())
             ? record_known(Op::Constant, type, {}, {}, {.value = scalar})
             : number_node(scalar);
}

// A value of rank 0 at a shape, as broadcast_to() records it.
NodePtr spread(NodePtr node, const Shape& shape) {
  if (shape.empty())
    return node;
  const DType type = node->form.dtype;
  Shape line(shape.size(), Expr(1));
  const bool is_line = line == shape;
  node = record_known(Op::Reshape, type, line, {std::move(node)}, {.shape = line});
  if (is_line)
    return node;
  return record_known(Op::Expand, type, shape, {std::move(node)}, {.shape = shape});
}

// literal() at a shape. Of constants, a stream keeps the last ones that it has recorded: the same
// formula in a loop records them once. Not numbers that are passed by value: that two of them are
// equal for once would be another structure.
NodePtr literal_at(DType type, Number value, const Shape& shape) {
  if (current_scope() || !is_kept(type, value.as_double()))
    return spread(literal_node(type, value), shape);
  const Scalar scalar = value.in(type);
  std::uint64_t key = combine(scalar.bits, static_cast<std::uint64_t>(type));
  for (const Expr& dim : shape)
    key = combine(key, dim.hash());
  auto& [kept, bits] = this_stream().constants[key % Stream::kConstants];
  if (!kept || bits != scalar.bits || kept->form.dtype != type || kept->form.shape != shape) {
    kept = spread(literal_node(type, value), shape);
    bits = scalar.bits;
    for (Node* node = kept.get(); node;
         node = node->inputs.empty() ? nullptr : node->inputs[0].get())
      node->leave_queue(); // it waits for nothing
  }
  return kept;
}

} // namespace

Tensor literal(DType type, Number value) {
  return Access::wrap(literal_node(type, value));
}

Tensor iota(const Expr& n, DType type) {
  return Access::wrap(record(Op::Iota, {}, {.dtype = type, .shape = {n}}));
}

std::string shape_of(const Tensor& a) {
  return to_string(a.shape());
}

DType default_dtype(Number::Category category) {
  switch (category) {
  case Number::Category::Bool:
    return DType::Bool;
  case Number::Category::Integer:
    return DType::I64;
  default:
    return DType::F32;
  }
}

DType with_number(DType type, Number number) {
  if (number.category() == Number::Category::Float && !is_float(type))
    return DType::F32;
  if (number.category() == Number::Category::Integer && type == DType::Bool)
    return DType::I64;
  return type;
}

Shape broadcast_shapes(const Shape& a, const Shape& b, const char* who) {
  const std::size_t rank = std::max(a.size(), b.size());
  Shape result(rank, Expr(1));
  for (std::size_t i = 0; i < rank; ++i) {
    const Expr da = i + a.size() >= rank ? a[i + a.size() - rank] : Expr(1);
    const Expr db = i + b.size() >= rank ? b[i + b.size() - rank] : Expr(1);
    if (da == db || db == Expr(1))
      result[i] = da;
    else if (da == Expr(1))
      result[i] = db;
    else
      fail(ErrorKind::Shape,
           "{}: shapes do not broadcast: {} and {} ({} != {} at axis {}); counted from the last "
           "axis, dims must be equal or 1",
           who, to_string(a), to_string(b), da.str(), db.str(),
           static_cast<std::int64_t>(i) - static_cast<std::int64_t>(rank));
  }
  return result;
}

bool broadcasts_to(const Shape& from, const Shape& to) {
  if (from.size() > to.size())
    return false;
  const std::size_t front = to.size() - from.size();
  for (std::size_t i = 0; i < from.size(); ++i)
    if (!(from[i] == to[i + front]) && !(from[i] == Expr(1)))
      return false;
  return true;
}

Tensor broadcast_to(const Tensor& a, const Shape& shape, const char* who) {
  if (a.shape() == shape)
    return a;
  Tensor result = a;
  if (a.shape().size() != shape.size()) {
    Shape front(shape.size() - a.shape().size(), Expr(1));
    front.insert(front.end(), a.shape().begin(), a.shape().end());
    result = apply(Op::Reshape, {&result}, {.shape = std::move(front)}, who);
  }
  if (result.shape() == shape)
    return result;
  return apply(Op::Expand, {&result}, {.shape = shape}, who);
}

DType bits_of(DType type) noexcept {
  switch (size_of(type)) {
  case 1:
    return DType::U8;
  case 2:
    return DType::U16;
  case 4:
    return DType::U32;
  default:
    return DType::U64;
  }
}

Tensor top_bit(DType type) {
  const auto width = static_cast<int>(8 * size_of(type));
  return constant(Scalar::from_bits(bits_of(type), std::uint64_t{1} << (width - 1)));
}

Tensor as_tensor(const Arg& a, std::optional<DType> type) {
  if (a.is_tensor()) {
    // The same handle where a scope does not have to see which object is read.
    const bool kept = !type || (!current_scope() && a.tensor().dtype() == *type);
    return kept ? a.tensor() : a.tensor().to(*type);
  }
  return literal(type ? *type : default_dtype(a.number().category()), a.number());
}

Pair promoted(const Arg& a, const Arg& b, const char* who) {
  DType type;
  if (a.is_tensor() && b.is_tensor()) {
    const DType ta = Access::held(a.tensor(), who).dtype, tb = Access::held(b.tensor(), who).dtype;
    type = promote(ta, tb);
  } else if (a.is_tensor()) {
    type = with_number(Access::held(a.tensor(), who).dtype, b.number());
  } else if (b.is_tensor()) {
    type = with_number(Access::held(b.tensor(), who).dtype, a.number());
  } else {
    type = promote(default_dtype(a.number().category()), default_dtype(b.number().category()));
  }
  return {as_tensor(a, type), as_tensor(b, type)};
}

Pair matched(const Arg& a, const Arg& b, const char* who) {
  if (a.is_tensor() != b.is_tensor()) {
    const Number number = a.is_tensor() ? b.number() : a.number();
    const Tensor& tensor = a.is_tensor() ? a.tensor() : b.tensor();
    const DType type = with_number(Access::held(tensor, who).dtype, number);
    Tensor x = as_tensor(tensor, type);
    Tensor y = Access::wrap(literal_at(type, number, Access::shape(x, who)));
    return a.is_tensor() ? Pair{std::move(x), std::move(y)} : Pair{std::move(y), std::move(x)};
  }
  Pair pair = promoted(a, b, who);
  if (pair.a.shape() == pair.b.shape())
    return pair;
  const Shape shape = broadcast_shapes(pair.a.shape(), pair.b.shape(), who);
  return {broadcast_to(pair.a, shape, who), broadcast_to(pair.b, shape, who)};
}

Tensor as_float(const Tensor& a, const char* who) {
  Access::raw(a, who);
  return is_float(a.dtype()) ? a : a.to(DType::F32);
}

Tensor stopped(const Tensor& x) {
  return unary(Op::StopGradient, x, "stop_gradient");
}

Tensor widened(const Tensor& a) {
  return a.to(accumulator_of(a.dtype()));
}

std::int64_t axis_of(std::int64_t axis, std::int64_t rank, const Shape& shape, const char* who) {
  if (axis < -rank || axis >= rank)
    fail(ErrorKind::Axis, "{}: axis {} is out of range for {}; {}", who, axis, to_string(shape),
         rank == 0 ? std::string("it has no axes")
                   : fmt::format("axes go from {} to {}", -rank, rank - 1));
  return axis < 0 ? axis + rank : axis;
}

std::vector<std::int64_t> axes_of(const Axes& axes, const Shape& shape, const char* who) {
  const auto rank = static_cast<std::int64_t>(shape.size());
  std::vector<std::int64_t> list;
  if (axes.all()) {
    for (std::int64_t i = 0; i < rank; ++i)
      list.push_back(i);
    return list;
  }
  for (std::int64_t axis : axes.list())
    list.push_back(axis_of(axis, rank, shape, who));
  std::sort(list.begin(), list.end());
  for (std::size_t i = 1; i < list.size(); ++i)
    if (list[i] == list[i - 1])
      fail(ErrorKind::Axis, "{}: axis {} is given twice for {}; name each axis once", who, list[i],
           to_string(shape));
  return list;
}

Tensor coordinate(const Shape& shape, std::size_t axis, const char* who) {
  Shape line(shape.size(), Expr(1));
  line[axis] = shape[axis];
  const Tensor steps = iota(shape[axis], DType::I64);
  return broadcast_to(apply(Op::Reshape, {&steps}, {.shape = line}, who), shape, who);
}

Expr count_along(const Shape& shape, const std::vector<std::int64_t>& axes) {
  Expr count = 1;
  for (std::int64_t axis : axes)
    count = count * shape[static_cast<std::size_t>(axis)];
  return count;
}

Tensor number_of(const Expr& size, DType type) {
  if (auto value = size.constant())
    return constant(Scalar::of(type, *value));
  // Element n of 0, 1 .. n, counted from the least value: a view that costs nothing.
  const std::int64_t least = size.lower();
  ensure(least > -(std::int64_t{1} << 62), "a size without a least value is asked for");
  const Expr place = size - least;
  const Tensor steps = iota(place + 1, DType::I64);
  const Tensor one = apply(Op::Shrink, {&steps}, {.shape = {place + 1}, .before = {place}}, "size");
  const Tensor number = apply(Op::Reshape, {&one}, {.shape = {}}, "size");
  return (number + constant(Scalar::of(DType::I64, least))).to(type);
}

void require_float(const Tensor& a, const char* who) {
  if (!is_float(a.dtype()))
    fail(ErrorKind::DType, "{}: takes floats, got {}; convert with to(DType::F32)", who,
         name_of(a.dtype()));
}

void require_integer(const Tensor& a, const char* who, const char* what) {
  if (!is_integer(a.dtype()))
    fail(ErrorKind::DType, "{}: {} must be integers, got {}; convert with to(DType::I64)", who,
         what, name_of(a.dtype()));
}

} // namespace egret::detail
