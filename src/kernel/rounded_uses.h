// Which f32 values of a program have their effect only through roundings to 16 bits, and what is
// then asked of them: a relative error of 2^-17 is nothing beside the 2^-9 of bf16, or the 2^-12 of
// f16, so that a device may compute them by cheaper forms.
#pragma once

#include "kernel/program.h"

#include <map>
#include <vector>

namespace egret::kernel {

/// What the uses of a value ask of it, from the most to the least.
enum class Asked : std::uint8_t {
  F32, ///< the op table's error, and the bits of the instructions that make it
  /// An error like that of the f32 instructions that make it, by others: it is rounded to 16 bits
  /// behind functions in which a small error stays small.
  Rounded,
  Close, ///< 2^-18 of itself: it is rounded to 16 bits behind sums
  Narrow ///< 2^-17 of itself: it is rounded to 16 bits behind products, quotients and choices
};

/// A sum that is 1 + tanh(u) or 1 - tanh(u)^2.
struct TangentForm {
  ValueId operand; ///< u
  bool squared;
};

struct RoundedUses {
  std::vector<Asked> asked; ///< by value; F32 for what is unused or of another type
  /// By value: sums of which no more than Close is asked. Their operands are Rounded, as far as
  /// other uses do not ask for more.
  std::map<ValueId, TangentForm> tangents;
};

RoundedUses rounded_uses(const KernelProgram& program);

} // namespace egret::kernel
