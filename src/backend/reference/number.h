// One number of any element type, and the operations of the table on it: the scalar semantics that
// the executor, the region evaluator and the program interpreter share.
#pragma once

#include "egret/dtype.h"
#include "egret/op.h"
#include "egret/scalar.h"

#include <cstdint>
#include <span>
#include <vector>

namespace egret::backend::reference {

/// A value in the widest type of its category: floats in `f`; integers and bool in `i`, sign- or
/// zero-extended (a u64 by its bits). Which of the two counts follows from the element type that
/// goes with it.
struct Number {
  double f = 0;
  std::int64_t i = 0;
};

Number read_number(DType type, const void* memory);
void write_number(DType type, Number value, void* memory);
Number number_of(const Scalar& value);
Scalar scalar_of(DType type, Number value);

/// A float rounded to nearest even, an integer wrapped, a bool made 0 or 1.
Number round_to(DType type, Number value);
/// As a double: exact but for large 64-bit integers.
double as_double(DType type, Number value);
/// Equal bits, all NaNs being equal: for exact comparisons.
bool same(DType type, Number a, Number b);

/// The cast of the op table: a float to an integer truncates and saturates, NaN gives 0; integers
/// wrap; anything but zero is true.
Number convert(Number value, DType from, DType to);
/// An elementwise op of the table, the result rounded once to `result`. `operand` is the dtype of
/// the last operand, which is that of every value operand (a Select's condition is bool). Unused
/// operands are ignored.
Number apply(Op op, DType result, DType operand, Number a, Number b = {}, Number c = {});

/// One step of a Sum, Max or Prod in `type`.
Number combine(Monoid monoid, DType type, Number a, Number b);
/// All of a power of two: halves are combined until one is left, number i with number i + half.
Number combine_halves(Monoid monoid, DType type, std::vector<Number> parts);

} // namespace egret::backend::reference
