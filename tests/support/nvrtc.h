// NVRTC for tests of generated CUDA text, which go without a GPU.
#pragma once

#include "backend/cuda/nvrtc.h"
#include "egret/error.h"

#include <memory>

namespace egret::testing {

/// Null where it is not installed: such tests are skipped then.
inline std::shared_ptr<const backend::cuda::Nvrtc> nvrtc() {
  try {
    return backend::cuda::Nvrtc::instance();
  } catch (const Error&) {
    return nullptr;
  }
}

} // namespace egret::testing
