#include "kernel/target.h"

#include <algorithm>

namespace egret::kernel {

const MatrixUnit* Target::unit(FragmentLayout layout) const {
  for (const MatrixUnit& u : units)
    if (u.layout == layout)
      return &u;
  return nullptr;
}

const MatrixUnit* Target::unit(FragmentLayout layout, DType element) const {
  for (const MatrixUnit& u : units)
    if (u.layout == layout &&
        std::find(u.elements.begin(), u.elements.end(), element) != u.elements.end())
      return &u;
  return nullptr;
}

} // namespace egret::kernel
