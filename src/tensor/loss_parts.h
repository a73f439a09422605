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

/// Class numbers in a type that holds the number of classes, so that none of them wraps.
Tensor class_numbers(const Tensor& target);

/// 1 for each target that names one of `classes` or is `ignored`, NaN for all others, in `dtype`:
/// a loss times this is one that nobody takes for a loss. Error(Index) that names the first of the
/// others where the targets are values in host memory, or execution is checked and they can be
/// computed now.
Tensor class_check(const Tensor& target, const Expr& classes, std::optional<std::int64_t> ignored,
                   DType dtype, const char* who);

} // namespace egret::detail
