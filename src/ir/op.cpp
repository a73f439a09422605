// The op table: one row an operation, with its meaning on scalars.
#include "egret/op.h"

#include "support/fail.h"

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <unordered_map>

namespace egret {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Arithmetic on 64-bit words that wraps; narrower types wrap when the caller rounds to the dtype.
std::int64_t wrap(std::uint64_t x) {
  return std::bit_cast<std::int64_t>(x);
}
std::uint64_t word(std::int64_t x) {
  return std::bit_cast<std::uint64_t>(x);
}

bool less(std::int64_t a, std::int64_t b, DType type) {
  return type == DType::U64 ? word(a) < word(b) : a < b;
}

std::int64_t floor_div(std::int64_t a, std::int64_t b, DType type) {
  if (b == 0)
    return 0;
  if (type == DType::U64)
    return wrap(word(a) / word(b));
  if (b == -1)
    return wrap(0 - word(a));
  std::int64_t q = a / b;
  return q - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
}

std::int64_t floor_mod(std::int64_t a, std::int64_t b, DType type) {
  if (b == 0)
    return 0;
  return wrap(word(a) - word(floor_div(a, b, type)) * word(b));
}

double floor_mod(double a, double b) {
  double r = std::fmod(a, b);
  if (r == 0)
    return std::copysign(0.0, b);
  return (r < 0) != (b < 0) ? r + b : r;
}

double maximum(double a, double b) {
  if (std::isnan(a) || std::isnan(b))
    return std::numeric_limits<double>::quiet_NaN();
  if (a == 0 && b == 0)
    return std::signbit(a) ? b : a;
  return a > b ? a : b;
}

// A count is taken as the value of its type, so a negative one is as oversized as one beyond the
// width.
bool oversized(std::int64_t count, DType type) {
  return word(count) >= 8 * size_of(type);
}

std::int64_t shift_left(std::int64_t a, std::int64_t count, DType type) {
  return oversized(count, type) ? 0 : wrap(word(a) << count);
}

std::int64_t shift_right(std::int64_t a, std::int64_t count, DType type) {
  if (is_signed(type))
    return a >> (oversized(count, type) ? 63 : count);
  return oversized(count, type) ? 0 : wrap(word(a) >> count);
}

double sigmoid(double x) {
  double e = std::exp(-std::fabs(x));
  return (x < 0 ? e : 1.0) / (1.0 + e);
}

using C = OpClass;
using T = DTypeRule;
constexpr EvalFloat kNoFloat = nullptr;
constexpr EvalInt kNoInt = nullptr;

#define EGRET_FLOAT(expression)                                                                    \
  [](double a, [[maybe_unused]] double b, [[maybe_unused]] double c) -> double {                   \
    return expression;                                                                             \
  }
#define EGRET_INT(expression)                                                                      \
  [](std::int64_t a, [[maybe_unused]] std::int64_t b, [[maybe_unused]] std::int64_t c,             \
     [[maybe_unused]] DType t) -> std::int64_t { return expression; }

// clang-format off
// op, name, class, arity, dtypes, eval_float, eval_int, intrinsic, differentiable, flops, ulp_f32, term, definition
constexpr std::array<OpInfo, kOps> kTable = {{
  {Op::Input, "input", C::Source, 0, T::Attribute, kNoFloat, kNoInt, false, false, 0, 0, "(Input slot name by_value type)",
   "the tensor that the caller passes in its slot"},
  {Op::Constant, "const", C::Source, 0, T::Attribute, kNoFloat, kNoInt, false, false, 0, 0, "(Fill type scalar)",
   "a value known now, rank 0"},
  {Op::Iota, "iota", C::Source, 0, T::Attribute, kNoFloat, kNoInt, false, false, 1, 0, "(Iota type)",
   "0, 1, .. n-1 converted to the dtype as cast does from i64"},

  {Op::Cast, "cast", C::Convert, 1, T::Attribute, kNoFloat, kNoInt, false, true, 1, 0, "(Cast dtype a)",
   "to a float: round to nearest even; float to integer: truncate, saturate, NaN gives 0; integer to integer: wrap; to bool: a != 0"},
  {Op::Bitcast, "bitcast", C::Convert, 1, T::Attribute, kNoFloat, kNoInt, false, false, 0, 0, "(Bitcast dtype a)",
   "the same bits read as another dtype of the same size; to bool: a != 0"},

  {Op::Exp2, "exp2", C::Unary, 1, T::Float, EGRET_FLOAT(std::exp2(a)), kNoInt, false, true, 18, 2, "(Exp2 a)",
   "2^a; -inf gives 0, inf gives inf"},
  {Op::Log2, "log2", C::Unary, 1, T::Float, EGRET_FLOAT(std::log2(a)), kNoInt, false, true, 20, 2, "(Log2 a)",
   "base-2 logarithm; 0 and -0 give -inf, negatives give NaN"},
  {Op::Sin, "sin", C::Unary, 1, T::Float, EGRET_FLOAT(std::sin(a)), kNoInt, false, true, 24, 2, "(Sin a)",
   "sine of radians at any size of the argument; infinities give NaN, -0 gives -0"},
  {Op::Sqrt, "sqrt", C::Unary, 1, T::Float, EGRET_FLOAT(std::sqrt(a)), kNoInt, false, true, 8, 0, "(Sqrt a)",
   "square root; negatives give NaN, -0 gives -0"},
  {Op::Recip, "recip", C::Unary, 1, T::Float, EGRET_FLOAT(1.0 / a), kNoInt, false, true, 8, 0, "(Recip a)",
   "1/a; 0 gives inf, -0 gives -inf"},
  {Op::Floor, "floor", C::Unary, 1, T::Float, EGRET_FLOAT(std::floor(a)), kNoInt, false, false, 1, 0, "(Floor a)",
   "largest integral value <= a; -0, infinities and NaN are kept"},
  {Op::Trunc, "trunc", C::Unary, 1, T::Float, EGRET_FLOAT(std::trunc(a)), kNoInt, false, false, 1, 0, "(Trunc a)",
   "rounded towards 0; the sign is kept, so -0.5 gives -0"},

  {Op::Exp, "exp", C::Unary, 1, T::Float, EGRET_FLOAT(std::exp(a)), kNoInt, true, true, 20, 2, "(Exp a)",
   "e^a; -inf gives 0, inf gives inf"},
  {Op::Log, "log", C::Unary, 1, T::Float, EGRET_FLOAT(std::log(a)), kNoInt, true, true, 20, 2, "(Log a)",
   "natural logarithm; 0 and -0 give -inf, negatives give NaN"},
  {Op::Cos, "cos", C::Unary, 1, T::Float, EGRET_FLOAT(std::cos(a)), kNoInt, true, true, 24, 2, "(Cos a)",
   "cosine of radians at any size of the argument; infinities give NaN"},
  {Op::Tanh, "tanh", C::Unary, 1, T::Float, EGRET_FLOAT(std::tanh(a)), kNoInt, true, true, 24, 3, "(Tanh a)",
   "hyperbolic tangent; infinities give 1 and -1, -0 gives -0"},
  {Op::Erf, "erf", C::Unary, 1, T::Float, EGRET_FLOAT(std::erf(a)), kNoInt, true, true, 30, 2, "(Erf a)",
   "error function; infinities give 1 and -1, -0 gives -0"},
  {Op::Log1p, "log1p", C::Unary, 1, T::Float, EGRET_FLOAT(std::log1p(a)), kNoInt, true, true, 24, 2, "(Log1p a)",
   "log(1 + a), accurate near 0; -1 gives -inf, less gives NaN, -0 gives -0"},
  {Op::Expm1, "expm1", C::Unary, 1, T::Float, EGRET_FLOAT(std::expm1(a)), kNoInt, true, true, 24, 2, "(Expm1 a)",
   "e^a - 1, accurate near 0; -inf gives -1, -0 gives -0"},
  {Op::Sigmoid, "sigmoid", C::Unary, 1, T::Float, EGRET_FLOAT(sigmoid(a)), kNoInt, true, true, 26, 3, "(Sigmoid a)",
   "1 / (1 + e^-a); infinities give 0 and 1"},

  {Op::Add, "add", C::Binary, 2, T::Number, EGRET_FLOAT(a + b), EGRET_INT(wrap(word(a) + word(b))), false, true, 1, 0, "(Add a b)",
   "a + b; integers wrap"},
  {Op::Mul, "mul", C::Binary, 2, T::Number, EGRET_FLOAT(a * b), EGRET_INT(wrap(word(a) * word(b))), false, true, 1, 0, "(Mul a b)",
   "a * b; integers wrap"},
  {Op::Div, "div", C::Binary, 2, T::Float, EGRET_FLOAT(a / b), kNoInt, false, true, 8, 0, "(Div a b)",
   "a / b as IEEE 754: x/0 is infinite with the sign of both, 0/0 is NaN"},
  {Op::Mod, "mod", C::Binary, 2, T::Number, EGRET_FLOAT(floor_mod(a, b)), EGRET_INT(floor_mod(a, b, t)), false, true, 14, 0, "(Mod a b)",
   "a - b*floor(a/b), with the sign of b; integers: 0 where b is 0; floats: NaN where b is 0 or a infinite, b where b is infinite of the other sign"},
  {Op::IDiv, "idiv", C::Binary, 2, T::Integer, kNoFloat, EGRET_INT(floor_div(a, b, t)), false, false, 8, 0, "(IDiv a b)",
   "floor(a/b); 0 where b is 0; the lowest value by -1 wraps to itself"},
  {Op::Max, "max", C::Binary, 2, T::Any, EGRET_FLOAT(maximum(a, b)), EGRET_INT(less(a, b, t) ? b : a), false, true, 1, 0, "(Max a b)",
   "the larger; NaN where either is NaN; 0 is larger than -0; bool: or"},
  {Op::Pow, "pow", C::Binary, 2, T::Float, EGRET_FLOAT(std::pow(a, b)), kNoInt, false, true, 50, 4, "(Pow a b)",
   "a^b as C's pow: x^0 and 1^y are 1 even for NaN, a negative base with a fractional exponent gives NaN"},
  {Op::Eq, "eq", C::Binary, 2, T::Compare, EGRET_FLOAT(a == b), EGRET_INT(a == b), false, false, 1, 0, "(Eq a b)",
   "a == b; false where either is NaN; 0 equals -0"},
  {Op::Lt, "lt", C::Binary, 2, T::Compare, EGRET_FLOAT(a < b), EGRET_INT(less(a, b, t)), false, false, 1, 0, "(Lt a b)",
   "a < b; false where either is NaN; -0 is not less than 0; false < true"},
  {Op::And, "and", C::Binary, 2, T::IntegerBool, kNoFloat, EGRET_INT(a & b), false, false, 1, 0, "(And a b)", "bitwise and"},
  {Op::Or, "or", C::Binary, 2, T::IntegerBool, kNoFloat, EGRET_INT(a | b), false, false, 1, 0, "(Or a b)", "bitwise or"},
  {Op::Xor, "xor", C::Binary, 2, T::IntegerBool, kNoFloat, EGRET_INT(a ^ b), false, false, 1, 0, "(Xor a b)", "bitwise exclusive or"},
  {Op::Shl, "shl", C::Binary, 2, T::Integer, kNoFloat, EGRET_INT(shift_left(a, b, t)), false, false, 1, 0, "(Shl a b)",
   "a * 2^b, wrapping; 0 where b is negative or not less than the width"},
  {Op::Shr, "shr", C::Binary, 2, T::Integer, kNoFloat, EGRET_INT(shift_right(a, b, t)), false, false, 1, 0, "(Shr a b)",
   "floor(a / 2^b); where b is negative or not less than the width: 0, and -1 for a negative a"},

  {Op::Select, "select", C::Ternary, 3, T::Select, EGRET_FLOAT(a != 0 ? b : c), EGRET_INT(a != 0 ? b : c), false, true, 1, 0, "(Select a b c)",
   "b where a is true, else c; the other one has no influence, NaN included"},

  {Op::ReduceSum, "sum", C::Reduce, 1, T::Number, kNoFloat, kNoInt, false, true, 1, 0, "(Sum axes a)",
   "sum over the axes from 0, in the accumulator type (docs/dtypes.md), rounded once; integers wrap; empty gives 0"},
  {Op::ReduceMax, "amax", C::Reduce, 1, T::Any, kNoFloat, kNoInt, false, true, 1, 0, "(AMax axes a)",
   "largest over the axes, as max; empty gives -inf, the lowest integer or false"},
  {Op::ReduceProd, "prod", C::Reduce, 1, T::Number, kNoFloat, kNoInt, false, true, 1, 0, "(Prod axes a)",
   "product over the axes from 1, in the accumulator type, rounded once; integers wrap; empty gives 1"},
  {Op::ReduceArgMax, "argmax", C::Reduce, 1, T::Index, kNoFloat, kNoInt, false, false, 2, 0, "(ArgMax axes a)",
   "position (i64) of the first largest value along one axis; a NaN is larger than any number; empty gives 0"},
  {Op::ScanSum, "cumsum", C::Scan, 1, T::Number, kNoFloat, kNoInt, false, true, 1, 0, "(CumSum axis a)",
   "element i is the sum of elements 0..i along the axis, in the accumulator type"},
  {Op::ScanMax, "cummax", C::Scan, 1, T::Any, kNoFloat, kNoInt, false, true, 1, 0, "(CumMax axis a)",
   "element i is the largest of elements 0..i along the axis, as max"},
  {Op::ScanProd, "cumprod", C::Scan, 1, T::Number, kNoFloat, kNoInt, false, true, 1, 0, "(CumProd axis a)",
   "element i is the product of elements 0..i along the axis, in the accumulator type"},
  {Op::ScanLinear, "linear_scan", C::Scan, 2, T::Float, kNoFloat, kNoInt, false, true, 2, 0, "(LinearScan axis a b)",
   "h[i] = b[i] h[i-1] + a[i] along the axis, from h[-1] = 0, in the accumulator type; in any grouping of the maps"},

  {Op::ArgSort, "argsort", C::Sort, 1, T::Order, kNoFloat, kNoInt, false, false, 32, 0, "(ArgSort axis type a)",
   "positions (i64) of the elements along the axis in ascending order, equal ones in the order of their positions; the first n of them, where the result's dim is n"},

  {Op::Gather, "gather", C::Gather, 2, T::Gather, kNoFloat, kNoInt, false, true, 1, 0, "(Gather axis a b)",
   "data[.., index[i..], ..]: the dims of index stand in place of the axis; 0 where the index is negative or beyond the axis"},
  {Op::ScatterSet, "scatter_set", C::Scatter, 3, T::Scatter, kNoFloat, kNoInt, false, true, 1, 0, "(ScatterSet axis a b c)",
   "data with updates put where gather would read; out of range is dropped; of repeats the last in row-major order of index wins"},
  {Op::ScatterAdd, "scatter_add", C::Scatter, 3, T::Scatter, kNoFloat, kNoInt, false, true, 1, 0, "(ScatterAdd axis a b c)",
   "data plus the updates put where gather would read, added in row-major order of index in the accumulator type; not for bool"},
  {Op::ScatterMax, "scatter_max", C::Scatter, 3, T::Scatter, kNoFloat, kNoInt, false, true, 1, 0, "(ScatterMax axis a b c)",
   "the larger, as max, of data and the updates put where gather would read; out of range is dropped"},

  {Op::Reshape, "reshape", C::Movement, 1, T::Any, kNoFloat, kNoInt, false, true, 0, 0, "(View moves a)",
   "the same elements in row-major order under another shape"},
  {Op::Permute, "permute", C::Movement, 1, T::Any, kNoFloat, kNoInt, false, true, 0, 0, "(View moves a)",
   "dim i of the result is dim axes[i] of a"},
  {Op::Expand, "expand", C::Movement, 1, T::Any, kNoFloat, kNoInt, false, true, 0, 0, "(View moves a)",
   "dims of size 1 repeated to the shape; same rank"},
  {Op::Pad, "pad", C::Movement, 1, T::Any, kNoFloat, kNoInt, false, true, 0, 0, "(View moves a)",
   "before[i] elements of the fill in front of dim i and after[i] behind it"},
  {Op::Shrink, "shrink", C::Movement, 1, T::Any, kNoFloat, kNoInt, false, true, 0, 0, "(View moves a)",
   "elements begin[i] up to, not including, end[i] of dim i"},
  {Op::Flip, "flip", C::Movement, 1, T::Any, kNoFloat, kNoInt, false, true, 0, 0, "(View moves a)",
   "the order of elements reversed along the axes"},

  {Op::StopGradient, "stop_gradient", C::Marker, 1, T::Any, EGRET_FLOAT(a), EGRET_INT(a), false, true, 0, 0, "(StopGradient a)",
   "a itself; its gradient is zero by decree"},
}};
// clang-format on

constexpr bool rows_stand_at_their_op() {
  for (int i = 0; i < kOps; ++i)
    if (static_cast<int>(kTable[static_cast<std::size_t>(i)].op) != i)
      return false;
  return true;
}
static_assert(rows_stand_at_their_op());

bool is_true(const Scalar& s) {
  return is_float(s.dtype) ? s.as_double() != 0 : s.bits != 0;
}

// An unsigned word to a float, rounded once: above 2^63 half of it is converted, the bit shifted
// out kept as a sticky one.
Scalar float_of_word(DType type, std::uint64_t x) {
  if (x <= word(std::numeric_limits<std::int64_t>::max()))
    return Scalar::of(type, wrap(x));
  return Scalar::of(type, 2 * Scalar::of(type, wrap((x >> 1) | (x & 1))).as_double());
}

Scalar convert(const Scalar& a, DType type) {
  if (a.dtype == type)
    return a;
  if (type == DType::Bool)
    return Scalar::from_bits(type, is_true(a));
  if (is_float(a.dtype))
    return Scalar::of(type, a.as_double());
  if (is_float(type) && a.dtype == DType::U64)
    return float_of_word(type, a.bits);
  return Scalar::of(type, a.as_int());
}

} // namespace

const OpInfo& info_of(Op op) noexcept {
  return kTable[static_cast<std::size_t>(op)];
}

std::optional<Op> op_named(std::string_view name) noexcept {
  static const auto* const by_name = [] {
    auto* map = new std::unordered_map<std::string_view, Op>;
    for (const OpInfo& row : kTable)
      map->emplace(row.name, row.op);
    return map;
  }();
  auto found = by_name->find(name);
  return found == by_name->end() ? std::nullopt : std::optional<Op>(found->second);
}

Monoid monoid_of(Op op) {
  switch (op) {
  case Op::ReduceSum:
  case Op::ScanSum:
  case Op::ScatterAdd:
    return Monoid::Sum;
  case Op::ReduceMax:
  case Op::ScanMax:
  case Op::ScatterMax:
    return Monoid::Max;
  case Op::ReduceProd:
  case Op::ScanProd:
    return Monoid::Prod;
  case Op::ReduceArgMax:
    return Monoid::ArgMax;
  case Op::ScanLinear:
    return Monoid::Linear;
  default:
    ensure(false, "{} has no monoid", info_of(op).name);
    return Monoid::Sum;
  }
}

Op op_of(Monoid monoid) {
  ensure(monoid != Monoid::ArgMax && monoid != Monoid::Linear, "no binary op combines two values");
  return monoid == Monoid::Sum ? Op::Add : monoid == Monoid::Max ? Op::Max : Op::Mul;
}

Scalar identity_of(Monoid monoid, DType type) {
  switch (monoid) {
  case Monoid::Sum:
  case Monoid::Linear:
    return Scalar::of(type, std::int64_t{0});
  case Monoid::Prod:
    return Scalar::of(type, std::int64_t{1});
  case Monoid::Max:
    if (type == DType::F8E4M3) // without an infinity
      return Scalar::of(type, -448.0);
    if (is_float(type))
      return Scalar::of(type, -kInf);
    if (!is_signed(type))
      return Scalar::from_bits(type, 0);
    return Scalar::from_bits(type, std::uint64_t{1} << (8 * size_of(type) - 1));
  case Monoid::ArgMax:
    break;
  }
  return Scalar::of(DType::I64, std::int64_t{0});
}

Scalar apply(Op op, DType result, std::span<const Scalar> operands) {
  const OpInfo& row = info_of(op);
  ensure(is_elementwise(op) && operands.size() == static_cast<std::size_t>(row.arity),
         "apply: {} on {} operands", row.name, operands.size());
  switch (op) {
  case Op::Cast:
    return convert(operands[0], result);
  case Op::Bitcast:
    return Scalar::from_bits(result,
                             result == DType::Bool ? operands[0].bits != 0 : operands[0].bits);
  case Op::Select:
    return is_true(operands[0]) ? operands[1] : operands[2];
  case Op::StopGradient:
    return operands[0];
  default:
    break;
  }
  DType type = operands[0].dtype;
  if (is_float(type)) {
    ensure(row.eval_float != nullptr, "apply: {} is not defined for {}", row.name, name_of(type));
    double v[3] = {0, 0, 0};
    for (std::size_t i = 0; i < operands.size(); ++i)
      v[i] = operands[i].as_double();
    return Scalar::of(result, row.eval_float(v[0], v[1], v[2]));
  }
  ensure(row.eval_int != nullptr, "apply: {} is not defined for {}", row.name, name_of(type));
  std::int64_t v[3] = {0, 0, 0};
  for (std::size_t i = 0; i < operands.size(); ++i)
    v[i] = operands[i].as_int();
  return Scalar::of(result, row.eval_int(v[0], v[1], v[2], type));
}

} // namespace egret
