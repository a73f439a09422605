#include "backend/all/backends.h"

#include "backend/cpu/backend.h"
#include "backend/cuda/backend.h"

namespace egret::backend {

const BackendRegistry& backends() {
  static const BackendRegistry registry({
      cpu::backend(),
      cuda::backend(),
  });
  return registry;
}

} // namespace egret::backend
