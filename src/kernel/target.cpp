#include "kernel/target.h"

namespace egret::kernel {

const MatrixUnit* Target::unit(FragmentLayout layout) const {
  for (const MatrixUnit& u : units)
    if (u.layout == layout)
      return &u;
  return nullptr;
}

} // namespace egret::kernel
