#include "tensor/ops.h"

#include "support/fail.h"
#include "support/hash.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <vector>

namespace egret::detail {

namespace {

bool is_one(const Expr& dim) noexcept {
  return dim.node().kind == ExprKind::Constant && dim.node().value == 1;
}

} // namespace

void rethrow_as(const Error& error, const char* who) {
  const std::string_view message = error.what();
  const std::size_t end = std::min(message.find(": "), message.size());
  const std::string_view name = message.substr(0, end);
  if (name != "expression" && !op_named(name))
    throw; // the same, whatever its class
  fail(error.kind(), "{}{}", who, message.substr(end));
}

NodePtr apply_node(Op op, Inputs&& inputs, const ir::Attrs& attrs, const char* who) {
  Placement placement;
  for (const NodePtr& input : inputs)
    placement = joined_by(placement, input->placement(), who);
  return record(op, std::move(inputs), attrs);
}

NodePtr apply_node(Op op, Inputs&& inputs, const char* who) {
  static const ir::Attrs kNone;
  return apply_node(op, std::move(inputs), kNone, who);
}

Tensor apply(Op op, std::initializer_list<const Tensor*> operands, const ir::Attrs& attrs,
             const char* who) {
  Inputs inputs;
  for (const Tensor* operand : operands)
    inputs.push_back(Access::node(*operand, who));
  return Access::wrap(apply_node(op, std::move(inputs), attrs, who));
}

Tensor unary(Op op, const Tensor& a, const char* who) {
  auto node = Access::node(a, who);
  const DType type = node->form.dtype;
  if (info_of(op).dtypes == DTypeRule::Float && !is_float(type))
    fail(ErrorKind::DType, "{}: takes floats, got {}; convert with to(DType::F32)", who,
         name_of(type));
  return Access::wrap(record(op, std::move(node)));
}

Tensor binary(Op op, const Tensor& a, const Tensor& b, const char* who) {
  return Access::wrap(apply_node(op, {Access::node(a, who), Access::node(b, who)}, who));
}

Tensor binary(Op op, Nodes operands, const char* who) {
  return Access::wrap(apply_node(op, {std::move(operands.a), std::move(operands.b)}, who));
}

NodePtr cast_node(NodePtr node, DType type) {
  if (node->form.dtype == type)
    return node;
  if (node->kind == Node::Kind::Number)
    return number_node(egret::apply(Op::Cast, type, std::span(&node->number, 1)));
  return record(Op::Cast, std::move(node), {.dtype = type});
}

Tensor reduce(Op op, const Tensor& a, std::vector<std::int64_t> axes, bool keepdim,
              const char* who) {
  if (axes.empty())
    return a.clone(); // a value of its own, as of any function
  NodePtr node = Access::node(a, who);
  Shape kept;
  if (keepdim) {
    kept = node->form.shape;
    for (std::int64_t axis : axes)
      kept[static_cast<std::size_t>(axis)] = 1;
  }
  node = record(op, std::move(node), {.axes = std::move(axes)});
  if (keepdim)
    node = record(Op::Reshape, std::move(node), {.shape = std::move(kept)});
  return Access::wrap(std::move(node));
}

Tensor constant(Scalar value) {
  return Access::wrap(record_known(Op::Constant, value.dtype, {}, {}, {.value = value}));
}

Tensor constant(DType type, double value) {
  return constant(Scalar::of(type, value));
}

namespace {

// Whether a number that the user wrote is a constant of the graph: rules look for these, and small
// integers are masks, shifts, divisors and zero points, with which code for any number is slow.
bool is_kept(DType type, double v) {
  constexpr double kSmall = 65536;
  if (is_integer(type) && std::abs(v) <= kSmall)
    return true;
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
  node = record_known(Op::Reshape, type, line, std::move(node), {.shape = line});
  if (is_line)
    return node;
  return record_known(Op::Expand, type, shape, std::move(node), {.shape = shape});
}

// A value made of nothing: of those of a key, a stream keeps the one that it has recorded last, so
// that the same formula in a loop records it once.
template <class Make>
NodePtr kept(Stream::Formula::Kind kind, DType type, std::uint64_t bits, const Shape& shape,
             Make&& make) {
  if (current_scope())
    return make();
  std::uint64_t key =
      combine(bits, static_cast<std::uint64_t>(type) | static_cast<std::uint64_t>(kind) << 8);
  for (const Expr& dim : shape)
    key = combine(key, dim.hash());
  Stream::Formula& place = this_stream().formulas[key % Stream::kFormulas];
  if (!place.node || place.kind != kind || place.bits != bits || place.node->form.dtype != type ||
      place.node->form.shape != shape) {
    place = {make(), bits, kind};
    for (Node* node = place.node.get(); node;
         node = node->inputs.empty() ? nullptr : node->inputs[0].get())
      node->leave_queue(); // it waits for nothing
  }
  return place.node;
}

NodePtr constant_at(Scalar value, const Shape& shape) {
  return kept(Stream::Formula::Kind::Constant, value.dtype, value.bits, shape, [&] {
    return spread(record_known(Op::Constant, value.dtype, {}, {}, {.value = value}), shape);
  });
}

// A constant of rank 0 that has been recorded, but not at a place.
bool is_plain_constant(const Node& node) noexcept {
  return node.kind == Node::Kind::Op && node.form.op == Op::Constant && !node.scope &&
         node.placement() == Placement{};
}

} // namespace

// Not kept are numbers that are passed by value: that two of them are equal for once would be
// another structure.
NodePtr literal_at(DType type, Number value, const Shape& shape) {
  return is_kept(type, value.as_double()) ? constant_at(value.in(type), shape)
                                          : spread(literal_node(type, value), shape);
}

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

int beyond(DType type, Number number) {
  if (number.category() != Number::Category::Integer || !is_integer(type))
    return 0;
  const std::int64_t value = number.as_int();
  const bool vast = value < 0 && number.as_double() > 0; // 2^63 and more
  if (type == DType::U64)
    return value < 0 && !vast ? -1 : 0;
  const std::int64_t least = Scalar::of(type, -kInfinity).as_int();
  const std::int64_t most = Scalar::of(type, kInfinity).as_int();
  return vast || value > most ? 1 : value < least ? -1 : 0;
}

Shape broadcast_shapes(const Shape& a, const Shape& b, const char* who) {
  const bool a_longer = a.size() > b.size();
  const Shape &longer = a_longer ? a : b, &other = a_longer ? b : a;
  Shape result = longer;
  const std::size_t front = longer.size() - other.size();
  for (std::size_t i = 0; i < other.size(); ++i) {
    const Expr &have = longer[i + front], &more = other[i];
    if (have == more || is_one(more))
      continue;
    if (is_one(have)) {
      result[i + front] = more;
      continue;
    }
    const Expr &da = a_longer ? have : more, &db = a_longer ? more : have;
    fail(ErrorKind::Shape,
         "{}: shapes do not broadcast: {} and {} ({} != {} at axis {}); counted from the last "
         "axis, dims must be equal or 1",
         who, to_string(a), to_string(b), da.str(), db.str(),
         static_cast<std::int64_t>(i + front) - static_cast<std::int64_t>(longer.size()));
  }
  return result;
}

bool broadcasts_to(const Shape& from, const Shape& to) {
  if (from.size() > to.size())
    return false;
  const std::size_t front = to.size() - from.size();
  for (std::size_t i = 0; i < from.size(); ++i)
    if (!(from[i] == to[i + front]) && !is_one(from[i]))
      return false;
  return true;
}

NodePtr broadcast_node(NodePtr node, const Shape& shape) {
  const Shape& from = node->form.shape;
  if (&from == &shape || from == shape)
    return node;
  if (from.size() != shape.size()) {
    Shape front;
    front.reserve(shape.size());
    front.assign(shape.size() - from.size(), Expr(1));
    front.insert(front.end(), from.begin(), from.end());
    node = record(Op::Reshape, std::move(node), {.shape = std::move(front)});
    if (node->form.shape == shape)
      return node;
  }
  return record(Op::Expand, std::move(node), {.shape = shape});
}

NodePtr operand_at(NodePtr node, const Shape& shape) {
  if (node->form.shape != shape && is_plain_constant(*node))
    return constant_at(node->form.attrs.value, shape);
  return broadcast_node(std::move(node), shape);
}

Tensor broadcast_to(Tensor a, const Shape& shape, const char* who) {
  if (Access::shape(a, who) == shape)
    return a;
  return Access::wrap(broadcast_node(Access::node(a, who), shape));
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

Tensor converted(const Tensor& a, DType type) {
  // The same handle where a scope does not have to see which object is read.
  return !current_scope() && a.dtype() == type ? a : a.to(type);
}

Tensor converted_own(Tensor a, DType type) {
  return Access::handle(a).use_count() == 1 ? converted(a, type) : a.to(type);
}

Tensor as_tensor(const Arg& a, std::optional<DType> type) {
  if (a.is_tensor())
    return type ? converted(a.tensor(), *type) : a.tensor();
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

Nodes matched_nodes(const Arg& a, const Arg& b, const char* who) {
  if (a.is_tensor() != b.is_tensor()) {
    const Number number = a.is_tensor() ? b.number() : a.number();
    NodePtr x = Access::node(a.is_tensor() ? a.tensor() : b.tensor(), who);
    const DType type = with_number(x->form.dtype, number);
    x = cast_node(std::move(x), type);
    NodePtr y = literal_at(type, number, x->form.shape);
    return a.is_tensor() ? Nodes{std::move(x), std::move(y)} : Nodes{std::move(y), std::move(x)};
  }
  if (!a.is_tensor()) {
    const Pair pair = promoted(a, b, who);
    return {Access::node(pair.a, who), Access::node(pair.b, who)};
  }
  NodePtr x = Access::node(a.tensor(), who), y = Access::node(b.tensor(), who);
  const DType type = promote(x->form.dtype, y->form.dtype);
  x = cast_node(std::move(x), type);
  y = cast_node(std::move(y), type);
  if (&x->form == &y->form || x->form.shape == y->form.shape)
    return {std::move(x), std::move(y)};
  const Shape shape = broadcast_shapes(x->form.shape, y->form.shape, who);
  return {operand_at(std::move(x), shape), operand_at(std::move(y), shape)};
}

Pair matched(const Arg& a, const Arg& b, const char* who) {
  if (a.is_tensor() && b.is_tensor() && !current_scope()) {
    const Handle &x = Access::held(a.tensor(), who), &y = Access::held(b.tensor(), who);
    if (x.dtype == y.dtype && x.shape == y.shape)
      return {a.tensor(), b.tensor()};
  }
  Nodes nodes = matched_nodes(a, b, who);
  return {Access::wrap(std::move(nodes.a)), Access::wrap(std::move(nodes.b))};
}

Tensor as_float(const Tensor& a, const char* who) {
  Access::held(a, who);
  return is_float(a.dtype()) ? a : a.to(DType::F32);
}

Pair matched_floats(const Arg& a, const Arg& b, const char* who) {
  if (a.is_tensor() == b.is_tensor()) {
    const Pair pair = matched(a, b, who);
    return {as_float(pair.a, who), as_float(pair.b, who)};
  }
  const Tensor x = as_float(a.is_tensor() ? a.tensor() : b.tensor(), who);
  return a.is_tensor() ? matched(x, b, who) : matched(a, x, who);
}

Tensor stopped(const Tensor& x) {
  return unary(Op::StopGradient, x, "stop_gradient");
}

Tensor widened(const Tensor& a) {
  return converted(a, accumulator_of(a.dtype()));
}

std::int64_t axis_of(std::int64_t axis, std::int64_t rank, const Shape& shape, const char* who) {
  if (axis < -rank || axis >= rank)
    fail(ErrorKind::Axis, "{}: axis {} is out of range for {}; {}", who, axis, to_string(shape),
         rank == 0 ? std::string("it has no axes")
                   : fmt::format("axes go from {} to {}", -rank, rank - 1));
  return axis < 0 ? axis + rank : axis;
}

void require_parts(std::int64_t count, const char* who) {
  constexpr std::int64_t kMost = std::int64_t{1} << 24; // each takes some hundred bytes
  if (count > kMost)
    fail(ErrorKind::Value, "{}: {} tensors are too many; at most {} are possible", who, count,
         kMost);
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

Tensor coordinate_line(const Shape& shape, std::size_t axis) {
  Shape line(shape.size(), Expr(1));
  line[axis] = shape[axis];
  return Access::wrap(kept(Stream::Formula::Kind::Coordinates, DType::I64, axis, line, [&] {
    NodePtr steps = record(Op::Iota, {}, {.dtype = DType::I64, .shape = {shape[axis]}});
    return line.size() == 1 ? steps : record(Op::Reshape, std::move(steps), {.shape = line});
  }));
}

Tensor coordinate(const Shape& shape, std::size_t axis, const char* who) {
  return broadcast_to(coordinate_line(shape, axis), shape, who);
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

NodePtr size_at(const Expr& size, const Shape& shape) {
  if (const auto value = size.constant())
    return constant_at(Scalar::of(DType::I64, *value), shape);
  return broadcast_node(Access::node(number_of(size, DType::I64), "size"), shape);
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
