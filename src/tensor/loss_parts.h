// What losses share.
#pragma once

#include "egret/functional/losses.h"
#include "tensor/ops.h"

namespace egret::detail {

/// The mean or sum of losses, or all of them.
Tensor reduced(const Tensor& losses, Reduction reduction);

/// Both operands as floats of one type, f32 at least, with equal shapes: broadcasting here is
/// nearly always a slip, Error(Shape).
Pair loss_operands(const Tensor& a, const Tensor& b, const char* who);

/// A weight that broadcasts to `like`, in its type; Error(Shape).
Tensor factor(const Tensor& weight, const Tensor& like, const char* who);

} // namespace egret::detail
