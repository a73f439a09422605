// What rows of losses share.
#pragma once

#include "functions.h"

namespace egret::testing {

// The dtype of losses.
inline std::optional<DType> loss_type(const Draw& d) {
  return d.dtype == DType::F64 ? DType::F64 : DType::F32;
}

inline Array reduced(Array losses, Reduction reduction, std::optional<DType> type) {
  if (reduction != Reduction::None) {
    double total = 0;
    for (double x : losses.values)
      total += x;
    const double count = reduction == Reduction::Mean ? double(losses.values.size()) : 1;
    losses = Array(Sizes{}, total / count);
  }
  losses.type = type;
  return losses;
}

inline Reduction draw_reduction(Draw& d) {
  return d.pick({Reduction::Mean, Reduction::Sum, Reduction::None});
}

} // namespace egret::testing
