// The gradient of every op: a table, one line an op.
#pragma once

#include "autodiff/value.h"

namespace egret::autodiff {

/// Where a rule is applied: a node, its operands and the gradient of its result.
struct Site {
  Value g;       ///< gradient of the result, of its shape and dtype
  Value y;       ///< the node itself
  Value a, b, c; ///< operands, as many as there are
  ir::Attrs attrs;
};

/// The gradient of one operand, of its shape and dtype.
using Rule = Value (*)(const Site&);

/// The rule for operand `operand` of an op; null where the gradient is zero: integers and indices,
/// steps, stop_gradient.
Rule rule_of(Op op, std::size_t operand) noexcept;

} // namespace egret::autodiff
