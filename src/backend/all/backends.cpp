#include "backend/all/backends.h"

#include "backend/c/backend.h"
#include "backend/cpu/backend.h"
#include "backend/cuda/backend.h"

namespace egret::backend {

const BackendRegistry& backends() {
  static const BackendRegistry registry({
      cpu::backend(),
      c::backend(),
      cuda::backend(),
  });
  return registry;
}

} // namespace egret::backend
