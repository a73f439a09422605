// The fake GPU (fake_cuda.h) with kernels that compute: launches of programs that it knows are
// interpreted.
#pragma once

#include "backend/clike/renderer.h"
#include "backend/cuda/cuda_device.h"
#include "backend/reference/program_interpreter.h"
#include "compiler/compile.h"
#include "egret/device.h"
#include "runtime/runtime.h"
#include "support/cpu_levels.h"
#include "support/cuda_kernels.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace egret::testing {

/// While it lives, the driver and NVRTC are the fake ones, and the device in use is its GPU.
class InterpretedGpu {
public:
  explicit InterpretedGpu(const char* library)
      : driver_("EGRET_CUDA_DRIVER", library), nvrtc_("EGRET_NVRTC", library),
        cache_("XDG_CACHE_HOME", folder_.path().c_str()), fake(fake_cuda(library)),
        device_(backend::cuda::make_cuda_device(
            0,
            {[this](const kernel::KernelProgram& program, const backend::cuda::CudaTarget& target) {
               programs_.insert_or_assign(backend::clike::kernel_symbol(program), program);
               return backend::cuda::rendered_text(program, target);
             },
             {{library}, {library}, {}},
             nullptr})) {
    use_device("cuda");
  }
  ~InterpretedGpu() {
    fake.launcher = nullptr;
    use_device("cpu");
  }
  InterpretedGpu(const InterpretedGpu&) = delete;

  backend::Device& device() { return *device_; }

  /// Launches of the graph's kernels compute from now on, and all others are failures. `outputs`:
  /// as the compiler is given them.
  void interpret(const ir::Graph& graph, std::vector<compiler::OutputSpec> outputs = {}) {
    compiler::Options options;
    options.outputs = std::move(outputs);
    runtime::Runtime::instance().complete(options);
    options.chains = true;
    compiler::KernelCache cache;
    compiler::compile_graph(graph, options, *device_, cache);
    fake.launcher = [](const FakeLaunch& launch, void* gpu) {
      static_cast<InterpretedGpu*>(gpu)->launch(launch);
    };
    fake.launcher_data = this;
  }

private:
  /// The parameters are those of backend/cuda/render.h.
  void launch(const FakeLaunch& launch) const {
    const auto found = programs_.find(launch.symbol);
    ASSERT_NE(found, programs_.end()) << launch.symbol;
    const kernel::KernelProgram& program = found->second;
    ASSERT_EQ(static_cast<int>(launch.threads), program.launch.threads);
    std::size_t pointers = 0, counters = 0;
    for (const kernel::Buffer& buffer : program.buffers) {
      pointers +=
          buffer.space == kernel::Space::Argument || buffer.space == kernel::Space::Workspace;
      counters += buffer.space == kernel::Space::Counter;
    }
    const auto* words = static_cast<const std::uint64_t*>(launch.args);
    std::vector<void*> memory;
    for (std::size_t i = 0; i < pointers; ++i)
      memory.push_back(host_address(reinterpret_cast<const void*>(words[i])));
    const std::uint64_t* dims = words + std::max<std::size_t>(1, pointers + counters);
    const std::uint64_t* scalars = dims + std::max<std::size_t>(1, program.dims.size());
    std::vector<std::int64_t> sizes(program.dims.size());
    if (!sizes.empty())
      std::memcpy(sizes.data(), dims, 8 * sizes.size());
    backend::reference::interpret(program, {memory.data(), sizes.data(), scalars, nullptr, nullptr},
                                  {.workers = static_cast<int>(launch.blocks)});
  }

  TemporaryFolder folder_;
  ScopedEnvironment driver_, nvrtc_, cache_;

public:
  FakeCuda& fake;

private:
  std::map<std::string, kernel::KernelProgram> programs_;
  std::unique_ptr<backend::Device> device_;
};

} // namespace egret::testing
