// The op table: one row an operation of the graph. Adding one touches its row here and in
// src/ir/op.cpp, its gradient line in src/autodiff/rules.cpp and one renderer line a backend; its
// tests are generated from the table (docs/add-an-op.md).
#pragma once

#include "egret/dtype.h"
#include "egret/scalar.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace egret {

enum class Op : std::uint8_t {
  // sources
  Input,
  Constant,
  Iota,
  // conversions
  Cast,
  Bitcast,
  // unary primitives
  Exp2,
  Log2,
  Sin,
  Sqrt,
  Recip,
  Floor,
  Trunc,
  // unary intrinsics: rows with a decomposition into primitives (decompose in passes.h) and an
  // accuracy of their own
  Exp,
  Log,
  Cos,
  Tanh,
  Erf,
  Log1p,
  Expm1,
  Sigmoid,
  // binary; both operands have the result's dtype unless the row says otherwise
  Add,
  Mul,
  Div,
  Mod,
  IDiv,
  Max,
  Pow,
  Eq,
  Lt,
  And,
  Or,
  Xor,
  Shl,
  Shr,
  // ternary
  Select,
  // reductions over attrs.axes, which leave the shape; a scan keeps it and runs along attrs.axes[0]
  ReduceSum,
  ReduceMax,
  ReduceProd,
  ReduceArgMax,
  ScanSum,
  ScanMax,
  ScanProd,
  ScanLinear,
  // the order of the elements along attrs.axes[0]
  ArgSort,
  // indexed access along attrs.axes[0]
  Gather,
  ScatterSet,
  ScatterAdd,
  ScatterMax,
  // movement: costs nothing, is an IndexMap
  Reshape,
  Permute,
  Expand,
  Pad,
  Shrink,
  Flip,
  // identity in value, zero in gradient
  StopGradient,
};

inline constexpr int kOps = static_cast<int>(Op::StopGradient) + 1;

enum class OpClass : std::uint8_t {
  Source,
  Convert,
  Unary,
  Binary,
  Ternary,
  Reduce,
  Scan,
  Sort,
  Gather,
  Scatter,
  Movement,
  Marker
};

/// How the dtype of the result follows from the operands.
enum class DTypeRule : std::uint8_t {
  Attribute,   ///< attrs.dtype
  Float,       ///< floats only, result the same
  Integer,     ///< integers only, result the same
  IntegerBool, ///< integers and bool, result the same
  Number,      ///< floats and integers, result the same
  Any,         ///< any, result the same (for a movement, a reduction by max, a marker)
  Compare,     ///< any, operands equal, result bool
  Select,      ///< bool, T, T -> T
  Index,       ///< numbers; result i64 (argmax)
  Order,       ///< integers; result i64 (argsort)
  Gather,      ///< T, integer -> T
  Scatter,     ///< T, integer, T -> T
};

/// Operations that combine many values into one. Linear: maps h -> a h + b, one after the other; of
/// scans alone.
enum class Monoid : std::uint8_t { Sum, Max, Prod, ArgMax, Linear };

/// Scalar semantics in the widest type: floats are evaluated in f64 and then rounded to the dtype
/// once; integers wrap in the dtype afterwards. Unused operands are passed as 0.
using EvalFloat = double (*)(double, double, double);
using EvalInt = std::int64_t (*)(std::int64_t, std::int64_t, std::int64_t, DType);

struct OpInfo {
  Op op;
  std::string_view name; ///< in printed graphs and in .egg terms' comments: "add", "sum", "reshape"
  OpClass cls;
  int arity;
  DTypeRule dtypes;
  EvalFloat eval_float; ///< null where floats are not defined
  EvalInt eval_int;     ///< null where integers are not defined
  bool intrinsic;       ///< has a decomposition
  bool differentiable;  ///< false: gradient is zero by convention
  double flops;         ///< cost of one element, in additions
  double ulp_f32; ///< largest error of any backend in f32, in units in the last place; 0: correctly
                  ///< rounded
  std::string_view term;       ///< the e-graph term, "(Add a b)"
  std::string_view definition; ///< one line: what it means at the edges (NaN, zero, overflow)
};

const OpInfo& info_of(Op op) noexcept;
std::optional<Op> op_named(std::string_view name) noexcept;
inline bool is_elementwise(Op op) noexcept {
  auto c = info_of(op).cls;
  return c == OpClass::Convert || c == OpClass::Unary || c == OpClass::Binary ||
         c == OpClass::Ternary || c == OpClass::Marker;
}
inline bool is_movement(Op op) noexcept {
  return info_of(op).cls == OpClass::Movement;
}
Monoid monoid_of(Op op); ///< of a reduction, scan or scatter (ScatterSet has none: InternalError)
Op op_of(Monoid monoid); ///< the binary op that combines two values: Add, Max, Mul (ArgMax and
                         ///< Linear have none: InternalError)
/// What an empty reduction gives: 0, 1, and for Max the lowest value (-inf, false). ArgMax: 0.
/// Linear: what a scan begins with, 0.
Scalar identity_of(Monoid monoid, DType type);

/// The meaning of an elementwise op on scalars: what constant folding does and what every backend
/// is compared with. `result` is the dtype of the result; conversions to bool test != 0, floats to
/// integers saturate with NaN giving 0, integers to integers wrap.
Scalar apply(Op op, DType result, std::span<const Scalar> operands);

} // namespace egret
