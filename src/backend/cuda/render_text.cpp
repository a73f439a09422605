#include "backend/clike/renderer.h"
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/render.h"

namespace egret::backend::cuda {

KernelText rendered_text(const kernel::KernelProgram& program, const CudaTarget& target) {
  return {render_cuda(program, target), clike::kernel_symbol(program),
          dynamic_shared_bytes(program)};
}

} // namespace egret::backend::cuda
