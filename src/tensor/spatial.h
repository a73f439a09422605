// What convolutions, pooling and interpolation check of their operands.
#pragma once

#include "egret/functional/convolutions.h"
#include "tensor/windows.h"

namespace egret::detail {

/// An operand with a batch axis, and whether it had one.
struct Batched {
  Tensor a;
  bool added;
  Tensor result(const Tensor& y) const { return added ? squeeze(y, 0) : y; }
};
/// Error(Shape) unless the rank is spatial + 2, or spatial + 1.
Batched batched(const Tensor& a, std::size_t spatial, const char* who);

/// One value an axis, each at least `lowest`; Error(Shape), Error(Value). `what` names the option.
std::vector<std::int64_t> per_axis(const PerAxis& values, std::size_t spatial, std::int64_t lowest,
                                   const char* what, const char* who);

} // namespace egret::detail
