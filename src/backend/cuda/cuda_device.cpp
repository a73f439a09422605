#include "backend/cuda/cuda_device.h"

#include "backend/common/default_stream.h"
#include "backend/common/memory_cache.h"
#include "backend/cuda/c_library.h"
#include "backend/cuda/cublaslt.h"
#include "backend/cuda/step_graph.h"
#include "support/fail.h"

#include <chrono>
#include <mutex>
#include <thread>

namespace egret::backend::cuda {
namespace {

using kernel::ArgBlock;
using kernel::KernelProgram;

class CudaLibraries final : public LibraryWriter {
public:
  CudaLibraries(const kernel::Target& target, std::shared_ptr<const Nvrtc> nvrtc, CubinCache* cache)
      : target_(target), nvrtc_(std::move(nvrtc)), cache_(cache) {}
  c::LibraryText text(const kernel::Plan& plan, std::span<const LibraryStep> steps,
                      const ir::Graph& graph, const c::LibraryInterface& interface) const override {
    return render_library(plan, steps, graph, interface, target_, *nvrtc_, cache_);
  }

private:
  const kernel::Target& target_;
  std::shared_ptr<const Nvrtc> nvrtc_;
  CubinCache* cache_;
};

class CudaDevice final : public Device, public MemoryCache, public DefaultStream {
public:
  CudaDevice(std::shared_ptr<const Context> context, CudaOptions options)
      : core_(std::make_shared<DeviceCore>(std::move(context))), options_(std::move(options)) {}

  const kernel::Target& target() const override { return core_->context->target(); }
  std::unique_ptr<LibraryWriter> library_writer() override {
    return std::make_unique<CudaLibraries>(target(), nvrtc(), options_.cache);
  }
  std::string name() const override { return core_->context->name(); }

  void* allocate(std::size_t bytes) override { return core_->memory.allocate(bytes); }
  void release(void* memory, std::size_t) noexcept override { core_->memory.release(memory); }
  void release_cached() noexcept override { core_->memory.trim(); }
  MemoryState memory() const override { return core_->memory.state(); }
  bool host_memory() const override { return false; }

  void copy_in(void* to, const void* from, std::size_t bytes) override {
    core_->staging.copy_in(reinterpret_cast<DevicePointer>(to), from, bytes);
  }
  void copy_out(void* to, const void* from, std::size_t bytes) override {
    core_->staging.copy_out(to, reinterpret_cast<DevicePointer>(from), bytes);
  }
  void copy(void* to, const void* from, std::size_t bytes, int) override {
    const Context& context = *core_->context;
    const Context::Use use(context);
    context.driver().check(context.api().cuMemcpyDtoDAsync_v2(reinterpret_cast<DevicePointer>(to),
                                                              reinterpret_cast<DevicePointer>(from),
                                                              bytes, context.stream()),
                           "copying {} bytes on {}", bytes, context.name());
  }

  ProductLibrary product_library() override {
    std::lock_guard lock(nvrtc_mutex_);
    open_cublaslt();
    return {cublaslt_ ? cublaslt_->version() : 0, why_no_cublaslt_};
  }

  std::shared_ptr<const Artifact> compile(const KernelProgram& program) override {
    if (program.product)
      return std::make_shared<LibraryArtifact>(core_->context, cublaslt(), program);
    const auto begin = std::chrono::steady_clock::now();
    const CudaTarget target = cuda_target(core_->context->target());
    KernelText text = options_.text(program, target);
    const std::shared_ptr<const Nvrtc> compiler = nvrtc();
    std::string architecture = compiler->architecture_for(target.capability, target.specific);
    Cubin cubin = options_.cache
                      ? options_.cache->get(*compiler, text.text, architecture, {}, text.symbol)
                      : compiler->compile(text.text, architecture, {}, text.symbol);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return std::make_shared<KernelArtifact>(core_, program, std::move(text), std::move(cubin),
                                            seconds, CodeOrigin{compiler, std::move(architecture)});
  }
  int compile_threads() const override {
    return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  }

  void launch(const Artifact& artifact, const KernelProgram&, const ArgBlock& block, int) override {
    std::lock_guard lock(mutex_);
    const Context::Use use(*core_->context);
    launch_locked(artifact, block, false);
  }

  int submit(std::span<const Work> work, std::unique_ptr<Recording>* recording,
             int workers) override {
    std::lock_guard lock(mutex_);
    if (!recording || work.size() < 2 || !all_have_work(work))
      return submit_each(work, workers);
    if (!*recording)
      *recording = std::make_unique<StepGraph>(core_, work);
    static_cast<StepGraph&>(**recording).run(work);
    return 1;
  }

  void synchronize() override { core_->context->synchronize(); }
  void synchronize_default() override { core_->context->synchronize_default(); }
  const Context& context() const { return *core_->context; }

private:
  std::shared_ptr<const Nvrtc> nvrtc() {
    std::lock_guard lock(nvrtc_mutex_);
    if (!nvrtc_)
      nvrtc_ = Nvrtc::load(options_.paths);
    return nvrtc_;
  }

  void open_cublaslt() {
    if (!cublaslt_ && why_no_cublaslt_.empty())
      cublaslt_ = CublasLt::open(options_.paths, why_no_cublaslt_);
  }
  std::shared_ptr<const CublasLt> cublaslt() {
    std::lock_guard lock(nvrtc_mutex_);
    open_cublaslt();
    if (!cublaslt_)
      fail(ErrorKind::Unsupported, "{}: {}", core_->context->name(), why_no_cublaslt_);
    return cublaslt_;
  }

  void launch_locked(const Artifact& artifact, const ArgBlock& block, bool settled) {
    const auto* kernel = static_cast<const CudaArtifact&>(artifact).kernel();
    if (!kernel)
      return static_cast<const LibraryArtifact&>(artifact).launch(block, core_->context->stream());
    kernel->pack(block, settled, args_);
    if (args_.blocks > 0)
      kernel->launch(args_, core_->context->stream());
  }

  // A graph cannot hold a launch of no blocks.
  bool all_have_work(std::span<const Work> work) {
    for (const Work& item : work) {
      if (!item.artifact) {
        if (item.bytes == 0)
          return false;
        continue;
      }
      const auto* kernel = static_cast<const CudaArtifact&>(*item.artifact).kernel();
      if (!kernel)
        continue;
      kernel->pack(item.block, item.settled, args_);
      if (args_.blocks == 0)
        return false;
    }
    return true;
  }

  int submit_each(std::span<const Work> work, int) {
    const Context::Use use(*core_->context);
    for (const Work& item : work)
      if (item.artifact)
        launch_locked(*item.artifact, item.block, item.settled);
      else if (item.bytes > 0)
        copy(item.to, item.from, item.bytes, 0);
    return static_cast<int>(work.size());
  }

  std::shared_ptr<DeviceCore> core_;
  CudaOptions options_;
  std::mutex nvrtc_mutex_;
  std::shared_ptr<const Nvrtc> nvrtc_; ///< as the library below, guarded by nvrtc_mutex_
  std::shared_ptr<const CublasLt> cublaslt_;
  std::string why_no_cublaslt_; ///< when it was looked for in vain
  std::mutex mutex_;            ///< keeps the parts of a step together in the stream; guards args_
  LaunchArgs args_;
};

} // namespace

std::unique_ptr<Device> make_cuda_device(int index, CudaOptions options) {
  auto context = std::make_shared<const Context>(Driver::load(options.paths), index);
  return std::make_unique<CudaDevice>(std::move(context), std::move(options));
}

const Context* context_of(const Device& device) {
  const auto* cuda = dynamic_cast<const CudaDevice*>(&device);
  return cuda ? &cuda->context() : nullptr;
}

} // namespace egret::backend::cuda
