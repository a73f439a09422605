// An NVIDIA GPU as a device: memory, code through NVRTC, launches, recorded steps.
#pragma once

#include "backend/common/device.h"
#include "backend/cuda/kernel_artifact.h"
#include "backend/cuda/target.h"

#include <functional>
#include <memory>
#include <string>

namespace egret::backend::cuda {

/// From a program to the text of its kernel, as render.h asks for it.
using MakeText = std::function<KernelText(const kernel::KernelProgram&, const CudaTarget&)>;

/// The text of render_cuda().
KernelText rendered_text(const kernel::KernelProgram& program, const CudaTarget& target);

struct CudaOptions {
  MakeText text = rendered_text;
  LibraryPaths paths = default_paths();
  CubinCache* cache = &CubinCache::instance(); ///< null: none
};

/// GPU number `index`, "cuda:<index>". Throws Error(Device) that says what is missing. NVRTC is
/// looked for at the first compilation.
std::unique_ptr<Device> make_cuda_device(int index, CudaOptions options = {});

/// Of a device that make_cuda_device() made, for events and foreign work in its stream; null for
/// any other device.
const Context* context_of(const Device& device);

} // namespace egret::backend::cuda
