// Functions that work element by element.
#include "support/fail.h"
#include "tensor/ops.h"

#include <cmath>
#include <limits>

namespace egret {

using namespace detail;

namespace {

// Unsigned and signed integers reverse their order by ~a, without the overflow that -a has.
Tensor inverted_bits(const Tensor& a, const char* who) {
  return binary(Op::Xor, matched_nodes(a, -1, who), who);
}

// The sign of a - b where it is the same for every value of the tensor among them: an integer that
// its dtype does not hold.
std::optional<int> known_order(const Arg& a, const Arg& b, const char* who) {
  if (a.is_tensor() == b.is_tensor())
    return {};
  const Tensor& x = a.is_tensor() ? a.tensor() : b.tensor();
  const int side = beyond(Access::held(x, who).dtype, a.is_tensor() ? b.number() : a.number());
  return side == 0 ? std::nullopt : std::optional(a.is_tensor() ? -side : side);
}

// bool in the shape of the tensor among both, `value` everywhere.
Tensor everywhere(const Arg& a, const Arg& b, bool value, const char* who) {
  const Tensor& x = a.is_tensor() ? a.tensor() : b.tensor();
  const Tensor same = binary(Op::Eq, x, x, who);
  return value ? same : logical_not(same);
}

Tensor equal(const Arg& a, const Arg& b, const char* who) {
  if (known_order(a, b, who))
    return everywhere(a, b, false, who);
  return binary(Op::Eq, matched_nodes(a, b, who), who);
}

// In place of an integer beyond the range of x, the nearest end of it: for bounds.
Arg within(const Arg& bound, const Arg& x, const char* who) {
  if (bound.is_tensor() || !x.is_tensor())
    return bound;
  const DType type = Access::held(x.tensor(), who).dtype;
  const int side = beyond(type, bound.number());
  return side == 0 ? bound : Arg(Number(Scalar::of(type, side * kInfinity).as_int()));
}

Tensor arithmetic(Op op, const Arg& a, const Arg& b, const char* who) {
  Nodes operands = matched_nodes(a, b, who);
  if (operands.a->form.dtype == DType::Bool)
    fail(ErrorKind::DType,
         "{}: takes numbers, got bool and bool; use & | ^ or logical_and ..., or convert with "
         "to(DType::I64)",
         who);
  return binary(op, std::move(operands), who);
}

Tensor bitwise(Op op, const Arg& a, const Arg& b, const char* who) {
  Nodes operands = matched_nodes(a, b, who);
  if (is_float(operands.a->form.dtype))
    fail(ErrorKind::DType, "{}: takes bools and integers, got {}", who,
         name_of(operands.a->form.dtype));
  return binary(op, std::move(operands), who);
}

Tensor shift(Op op, const Arg& a, const Arg& b, const char* who) {
  Nodes operands = matched_nodes(a, b, who);
  if (!is_integer(operands.a->form.dtype))
    fail(ErrorKind::DType, "{}: takes integers, got {}", who, name_of(operands.a->form.dtype));
  return binary(op, std::move(operands), who);
}

// -n beside a tensor of `type`; that of an integer beyond 64 bits wraps, or is a float.
Number opposite(Number n, DType type) {
  if (n.category() == Number::Category::Float ||
      (is_float(type) && std::abs(n.as_double()) >= 0x1p63))
    return -n.as_double();
  return static_cast<std::int64_t>(0 - static_cast<std::uint64_t>(n.as_int()));
}

// What neg() records.
NodePtr negated(NodePtr node, const char* who) {
  NodePtr minus = literal_at(node->form.dtype, -1, node->form.shape);
  return apply_node(Op::Mul, {std::move(node), std::move(minus)}, who);
}

// A node as a float: integers and bools as f32.
NodePtr float_node(NodePtr node) {
  const DType type = node->form.dtype;
  return cast_node(std::move(node), is_float(type) ? type : DType::F32);
}

Tensor calculus(Op op, const Tensor& a, const char* who) {
  return unary(op, as_float(a, who), who);
}

// x / y rounded down. The rounded quotient may be the integer above the exact one, so the remainder
// is taken off first; what is left is a multiple of y. A zero keeps the sign of x / y.
Tensor wide_floor_divide(const Tensor& a, const Tensor& b) {
  const Tensor x = stopped(widened(a)), y = stopped(widened(b));
  const Tensor size = abs(x), step = abs(y), rest = mod(size, step);
  const Tensor whole = round((size - rest) / step);
  const Tensor down = neg(whole + where(rest > 0, number(x, 1), number(x, 0)));
  const Tensor quotient = where((x < 0) == (y < 0), whole, down);
  return converted_own(where((y == 0) | (x == 0), x / y, quotient), a.dtype());
}

// Of integers, by squaring; n, a number of any size, counts as unsigned.
Tensor integer_power(Tensor x, std::int64_t n) {
  Tensor result;
  for (auto left = static_cast<std::uint64_t>(n); left != 0; left >>= 1U) {
    if ((left & 1U) != 0)
      result = result.defined() ? result * x : x.clone();
    if (left > 1)
      x = x * x;
  }
  return result.defined() ? result : ones_like(x);
}

Tensor as_bool(const Arg& a) {
  return as_tensor(a, DType::Bool);
}

} // namespace

Tensor add(const Arg& a, const Arg& b) {
  return arithmetic(Op::Add, a, b, "add");
}

Tensor sub(const Arg& a, const Arg& b) {
  if (a.is_tensor() && !b.is_tensor() && b.number().category() != Number::Category::Bool) {
    return add(a, opposite(b.number(), Access::held(a.tensor(), "sub").dtype));
  }
  auto [x, y] = matched_nodes(a, b, "sub");
  if (x->form.dtype == DType::Bool)
    fail(ErrorKind::DType, "sub: takes numbers, got bool and bool; use ^, or convert with "
                           "to(DType::I64)");
  y = negated(std::move(y), "sub");
  return binary(Op::Add, Nodes{std::move(x), std::move(y)}, "sub");
}

Tensor mul(const Arg& a, const Arg& b) {
  return arithmetic(Op::Mul, a, b, "mul");
}

Tensor div(const Arg& a, const Arg& b) {
  if (a.is_tensor() && !b.is_tensor() && !is_float(Access::held(a.tensor(), "div").dtype))
    return div(as_float(a.tensor(), "div"), b);
  if (!a.is_tensor() && b.is_tensor() && !is_float(Access::held(b.tensor(), "div").dtype))
    return div(a, as_float(b.tensor(), "div"));
  auto [x, y] = matched_nodes(a, b, "div");
  return binary(Op::Div, Nodes{float_node(std::move(x)), float_node(std::move(y))}, "div");
}

Tensor floor_divide(const Arg& a, const Arg& b) {
  auto [x, y] = matched(a, b, "floor_divide");
  if (is_integer(x.dtype()))
    return binary(Op::IDiv, x, y, "floor_divide");
  return wide_floor_divide(as_float(x, "floor_divide"), as_float(y, "floor_divide"));
}

Tensor mod(const Arg& a, const Arg& b) {
  return arithmetic(Op::Mod, a, b, "mod");
}

Tensor pow(const Arg& a, const Arg& b) {
  if (a.is_tensor() && !b.is_tensor()) {
    const Tensor& x = a.tensor();
    const double exponent = b.number().as_double();
    const bool integer = b.number().category() != Number::Category::Float;
    if (integer && exponent >= 0 && !is_float(Access::held(x, "pow").dtype))
      return integer_power(converted(x, with_number(x.dtype(), b.number())), b.number().as_int());
    if (exponent == 1)
      return as_float(x, "pow").clone();
    if (exponent == 2)
      return square(as_float(x, "pow"));
    if (exponent == 3) {
      const Tensor y = as_float(x, "pow");
      return y * y * y;
    }
    if (exponent == 0.5)
      return sqrt(x);
    if (exponent == -0.5)
      return rsqrt(x);
    if (exponent == -1)
      return reciprocal(x);
  }
  auto [x, y] = matched_floats(a, b, "pow");
  return binary(Op::Pow, x, y, "pow");
}

Tensor maximum(const Arg& a, const Arg& b) {
  return binary(Op::Max, matched_nodes(within(a, b, "maximum"), within(b, a, "maximum"), "maximum"),
                "maximum");
}

Tensor minimum(const Arg& a, const Arg& b) {
  auto [x, y] = matched(within(a, b, "minimum"), within(b, a, "minimum"), "minimum");
  if (is_float(x.dtype()))
    return neg(binary(Op::Max, neg(x), neg(y), "minimum"));
  if (x.dtype() == DType::Bool)
    return binary(Op::And, x, y, "minimum");
  return inverted_bits(
      binary(Op::Max, inverted_bits(x, "minimum"), inverted_bits(y, "minimum"), "minimum"),
      "minimum");
}

Tensor neg(const Operand& a) {
  Access::held(a, "neg");
  if (a.dtype() == DType::Bool)
    fail(ErrorKind::DType, "neg: takes numbers, got bool; use ! or logical_not");
  return a * -1;
}

Tensor abs(const Operand& a) {
  Access::held(a, "abs");
  if (a.dtype() == DType::Bool || (is_integer(a.dtype()) && !is_signed(a.dtype())))
    return a.clone();
  return binary(Op::Max, a, neg(a), "abs");
}

Tensor sign(const Operand& a) {
  Access::held(a, "sign");
  if (a.dtype() == DType::Bool)
    return a.clone();
  const Tensor positive = (a > 0).to(a.dtype());
  Tensor result =
      is_float(a.dtype()) || is_signed(a.dtype()) ? positive - (a < 0).to(a.dtype()) : positive;
  return is_float(a.dtype()) ? where(isnan(a), a, result) : result;
}

Tensor square(const Operand& a) {
  return arithmetic(Op::Mul, a, a, "square");
}
Tensor reciprocal(const Operand& a) {
  return calculus(Op::Recip, a, "reciprocal");
}
Tensor sqrt(const Operand& a) {
  return calculus(Op::Sqrt, a, "sqrt");
}
Tensor exp(const Operand& a) {
  return calculus(Op::Exp, a, "exp");
}
Tensor exp2(const Operand& a) {
  return calculus(Op::Exp2, a, "exp2");
}
Tensor expm1(const Operand& a) {
  return calculus(Op::Expm1, a, "expm1");
}
Tensor log(const Operand& a) {
  return calculus(Op::Log, a, "log");
}
Tensor log2(const Operand& a) {
  return calculus(Op::Log2, a, "log2");
}
Tensor log1p(const Operand& a) {
  return calculus(Op::Log1p, a, "log1p");
}
Tensor sin(const Operand& a) {
  return calculus(Op::Sin, a, "sin");
}
Tensor cos(const Operand& a) {
  return calculus(Op::Cos, a, "cos");
}
Tensor tanh(const Operand& a) {
  return calculus(Op::Tanh, a, "tanh");
}
Tensor erf(const Operand& a) {
  return calculus(Op::Erf, a, "erf");
}

Tensor floor(const Operand& a) {
  Access::held(a, "floor");
  return is_float(a.dtype()) ? unary(Op::Floor, a, "floor") : a.clone();
}
Tensor ceil(const Operand& a) {
  Access::held(a, "ceil");
  return is_float(a.dtype()) ? neg(unary(Op::Floor, neg(a), "ceil")) : a.clone();
}
Tensor trunc(const Operand& a) {
  Access::held(a, "trunc");
  return is_float(a.dtype()) ? unary(Op::Trunc, a, "trunc") : a.clone();
}
Tensor round(const Operand& a) {
  Access::held(a, "round");
  if (!is_float(a.dtype()))
    return a.clone();
  // Away from zero where the rest says so: trunc() keeps the sign of a, so that what is between
  // -1/2 and -0 becomes -0. floor(a + 1/2) would round up what lies just below a half, and halves
  // always up.
  const Tensor whole = trunc(a);
  const Tensor rest = abs(a - whole);
  const Tensor odd = whole - trunc(whole * 0.5) * 2 != 0;
  const Tensor away = (rest > 0.5) | ((rest == 0.5) & odd);
  return where(away, where(a < 0, whole - 1, whole + 1), whole);
}

Tensor isnan(const Operand& a) {
  Access::held(a, "isnan");
  return a != a;
}
Tensor isinf(const Operand& a) {
  Access::held(a, "isinf");
  if (!is_float(a.dtype()))
    return zeros(a.shape(), DType::Bool);
  return abs(a) == std::numeric_limits<double>::infinity();
}
Tensor isposinf(const Operand& a) {
  return logical_and(isinf(a), gt(a, 0));
}
Tensor isneginf(const Operand& a) {
  return logical_and(isinf(a), lt(a, 0));
}
Tensor isfinite(const Operand& a) {
  Access::held(a, "isfinite");
  if (!is_float(a.dtype()))
    return ones(a.shape(), DType::Bool);
  if (a.dtype() == DType::F8E4M3)
    return a == a; // there is no infinity to compare with
  return abs(a) < std::numeric_limits<double>::infinity();
}

Tensor clamp(const Operand& a, std::optional<Number> low, std::optional<Number> high) {
  Access::held(a, "clamp");
  if (!low && !high)
    fail(ErrorKind::Value, "clamp: neither a low nor a high bound is given; give at least one");
  Tensor result = a;
  if (low)
    result = maximum(result, *low);
  if (high)
    result = minimum(result, *high);
  return result;
}

Tensor where(const Operand& condition, const Arg& a, const Arg& b) {
  Access::held(condition, "where");
  if (condition.dtype() != DType::Bool)
    fail(ErrorKind::DType, "where: the condition must be bool, got {}; compare it (x != 0)",
         name_of(condition.dtype()));
  auto [x, y] = promoted(a, b, "where");
  const Shape shape = broadcast_shapes(
      Access::shape(condition, "where"),
      broadcast_shapes(Access::shape(x, "where"), Access::shape(y, "where"), "where"), "where");
  Inputs inputs;
  for (const Tensor* operand : std::initializer_list<const Tensor*>{&condition, &x, &y})
    inputs.push_back(operand_at(Access::node(*operand, "where"), shape));
  return Access::wrap(apply_node(Op::Select, std::move(inputs), "where"));
}

Tensor masked_fill(const Operand& a, const Operand& mask, Number value) {
  Access::held(a, "masked_fill");
  return where(mask, literal(a.dtype(), value), a);
}

Tensor eq(const Arg& a, const Arg& b) {
  return equal(a, b, "eq");
}
Tensor ne(const Arg& a, const Arg& b) {
  return logical_not(equal(a, b, "ne"));
}
Tensor lt(const Arg& a, const Arg& b) {
  if (const auto order = known_order(a, b, "lt"))
    return everywhere(a, b, *order < 0, "lt");
  return binary(Op::Lt, matched_nodes(a, b, "lt"), "lt");
}
Tensor gt(const Arg& a, const Arg& b) {
  if (const auto order = known_order(a, b, "gt"))
    return everywhere(a, b, *order > 0, "gt");
  auto [x, y] = matched_nodes(a, b, "gt");
  return binary(Op::Lt, Nodes{std::move(y), std::move(x)}, "gt");
}

namespace {

// x <= y: for floats not (y < x), which would be true for NaN.
Tensor less_equal(const Tensor& x, const Tensor& y, const char* who) {
  if (!is_float(x.dtype()))
    return logical_not(binary(Op::Lt, y, x, who));
  return binary(Op::Or, binary(Op::Lt, x, y, who), binary(Op::Eq, x, y, who), who);
}

} // namespace

Tensor le(const Arg& a, const Arg& b) {
  if (const auto order = known_order(a, b, "le"))
    return everywhere(a, b, *order < 0, "le");
  auto [x, y] = matched(a, b, "le");
  return less_equal(x, y, "le");
}
Tensor ge(const Arg& a, const Arg& b) {
  if (const auto order = known_order(a, b, "ge"))
    return everywhere(a, b, *order > 0, "ge");
  auto [x, y] = matched(a, b, "ge");
  return less_equal(y, x, "ge");
}

Tensor logical_and(const Arg& a, const Arg& b) {
  return bitwise(Op::And, as_bool(a), as_bool(b), "logical_and");
}
Tensor logical_or(const Arg& a, const Arg& b) {
  return bitwise(Op::Or, as_bool(a), as_bool(b), "logical_or");
}
Tensor logical_not(const Operand& a) {
  Access::held(a, "logical_not");
  return bitwise(Op::Xor, converted(a, DType::Bool), true, "logical_not");
}

// --- operators

Tensor operator-(const Operand& a) {
  return neg(a);
}
Tensor operator!(const Operand& a) {
  return logical_not(a);
}

#define EGRET_OPERATOR(op, call)                                                                   \
  Tensor operator op(const Operand& a, const Operand& b) {                                         \
    return call;                                                                                   \
  }                                                                                                \
  Tensor operator op(const Operand& a, Number b) {                                                 \
    return call;                                                                                   \
  }                                                                                                \
  Tensor operator op(Number a, const Operand& b) {                                                 \
    return call;                                                                                   \
  }
EGRET_OPERATOR(+, add(a, b))
EGRET_OPERATOR(-, sub(a, b))
EGRET_OPERATOR(*, mul(a, b))
EGRET_OPERATOR(/, div(a, b))
EGRET_OPERATOR(%, mod(a, b))
EGRET_OPERATOR(==, eq(a, b))
EGRET_OPERATOR(!=, ne(a, b))
EGRET_OPERATOR(<, lt(a, b))
EGRET_OPERATOR(<=, le(a, b))
EGRET_OPERATOR(>, gt(a, b))
EGRET_OPERATOR(>=, ge(a, b))
EGRET_OPERATOR(&, bitwise(Op::And, a, b, "bitwise_and"))
EGRET_OPERATOR(|, bitwise(Op::Or, a, b, "bitwise_or"))
EGRET_OPERATOR(^, bitwise(Op::Xor, a, b, "bitwise_xor"))
EGRET_OPERATOR(<<, shift(Op::Shl, a, b, "shift_left"))
EGRET_OPERATOR(>>, shift(Op::Shr, a, b, "shift_right"))
#undef EGRET_OPERATOR

} // namespace egret
