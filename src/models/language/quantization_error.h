// How far quantized values are from those that they stand for.
#pragma once

#include "egret/tensor.h"

#include <cmath>

namespace egret::models::language {

/// |exact - near| / |exact| over all elements, by the 2-norm; 0 for zeros.
inline double relative_error(const Tensor& exact, const Tensor& near) {
  const Tensor a = exact.to(DType::F32), off = a - near.to(DType::F32);
  const double norm = (a * a).sum().item(), error = (off * off).sum().item();
  return norm > 0 ? std::sqrt(error / norm) : 0;
}

} // namespace egret::models::language
