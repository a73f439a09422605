#include "backend/cuda/backend.h"

#include "backend/cuda/context.h"
#include "backend/cuda/cubin_cache.h"
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/nvtx.h"

#include <utility>

namespace egret::backend::cuda {

Backend backend() {
  Backend cuda;
  cuda.name = "cuda";
  cuda.dlpack = 2; // kDLCUDA
  cuda.numbered = true;
  cuda.diagnose = [] {
    Availability found = availability();
    Diagnosis diagnosis{found.usable,
                        std::move(found.why_not),
                        {{"driver", std::move(found.driver)}, {"nvrtc", std::move(found.nvrtc)}},
                        {}};
    for (AvailableDevice& device : found.devices)
      diagnosis.devices.push_back({std::move(device.name), device.usable, std::move(device.text)});
    return diagnosis;
  };
  cuda.open = [](int index) { return make_cuda_device(index); };
  cuda.cache = []() -> ObjectCache& { return CubinCache::instance().objects(); };
  cuda.range_tool = &nvtx_tool;
  return cuda;
}

} // namespace egret::backend::cuda
