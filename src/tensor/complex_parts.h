// What functions of complex values check of their two parts.
#pragma once

#include "egret/functional/fourier.h"

namespace egret::fourier {

/// Error(Shape) and Error(DType) unless both parts have one shape and one dtype.
void require_parts_alike(const Complex& a, const char* who);
/// Of results: the operand's dtype, f32 for integers and bools.
DType float_type(const Tensor& a);

} // namespace egret::fourier
