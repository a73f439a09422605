// The op table as text of a C-like language. What all of them write alike stands here; what each
// has its own words for is virtual. Operands are one word or in parentheses.
#pragma once

#include "egret/op.h"
#include "egret/scalar.h"

#include <string>
#include <string_view>
#include <vector>

namespace egret::backend::clike {

class Language {
public:
  virtual ~Language() = default;

  std::string constant(const Scalar& value) const;
  /// One lane of an elementwise op. `operand` is the dtype of the last operand.
  std::string op(Op op, DType result, DType operand, const std::vector<std::string>& args) const;
  std::string cast(const std::string& value, DType from, DType to) const;
  /// An f32 that rounds to a float of 16 bits or fewer as a value does that is none.
  std::string f32_to_round(const std::string& value, DType from) const;
  /// Of a reduction: the combination of two values.
  std::string combine(Monoid monoid, DType type, const std::string& a, const std::string& b) const;

  /// A call of the function `name` on values of one type: "floordiv" and "floormod" (both rounded
  /// down), "min", "max", "mod", "pow", "sigmoid"; of integers "idiv", "imod", "shl", "shr" as the
  /// op table says; "odd", a number as f32 with the last bit set when inexact.
  virtual std::string call(std::string_view name, DType type, const std::string& args) const = 0;
  /// An f32 or f64 by an unsigned integer with its bits, and back.
  virtual std::string from_bits(DType type, const std::string& bits) const = 0;
  virtual std::string bits_of(DType type, const std::string& value) const = 0;

protected:
  /// A number of f32 or f64 truncated to an integer type; saturates, NaN gives 0.
  virtual std::string float_to_int(const std::string& value, DType from, DType to) const = 0;
  /// A sum or product (`sign`) of two integers of one type that wraps.
  virtual std::string wrapped(std::string_view sign, DType type, const std::string& a,
                              const std::string& b) const;

private:
  std::string float_op(Op op, DType type, const std::vector<std::string>& args) const;
  std::string int_op(Op op, DType type, const std::vector<std::string>& args) const;
  std::string bitcast(const std::string& value, DType from, DType to) const;
};

/// The C type in which values of an element type are held: floats of 16 and 8 bits as their bits.
const char* register_type(DType type);
/// An element as it lies in memory.
const char* memory_type(DType type);

} // namespace egret::backend::clike
