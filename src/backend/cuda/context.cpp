#include "backend/cuda/context.h"

#include "backend/cuda/nvrtc.h"
#include "backend/cuda/target.h"
#include "support/hash.h"

namespace egret::backend::cuda {

Context::Context(std::shared_ptr<const Driver> driver, int index)
    : driver_(std::move(driver)), name_(fmt::format("cuda:{}", index)) {
  if (index < 0 || index >= driver_->device_count())
    fail(ErrorKind::Device, "{}: there is no such device: this machine has {}", name_,
         driver_->device_count() == 1
             ? "one GPU, cuda:0"
             : fmt::format("{} GPUs, cuda:0 to cuda:{}", driver_->device_count(),
                           driver_->device_count() - 1));
  driver_->check(api().cuDeviceGet(&device_, index), "opening {}", name_);
  describe();
  driver_->check(api().cuDevicePrimaryCtxRetain(&handle_, device_), "making a context on {}",
                 name_);
  try {
    const Use use(*this);
    constexpr unsigned kNonBlocking = 1;
    driver_->check(api().cuStreamCreate(&stream_, kNonBlocking), "making a stream on {}", name_);
  } catch (...) {
    api().cuDevicePrimaryCtxRelease_v2(device_);
    throw;
  }
}

Context::~Context() {
  if (api().cuCtxPushCurrent_v2(handle_) == kSuccess) {
    api().cuStreamDestroy_v2(stream_);
    ContextHandle popped = nullptr;
    api().cuCtxPopCurrent_v2(&popped);
  }
  api().cuDevicePrimaryCtxRelease_v2(device_);
}

int Context::attribute(int which) const {
  int value = 0;
  driver_->check(api().cuDeviceGetAttribute(&value, which, device_), "asking {} for attribute {}",
                 name_, which);
  return value;
}

void Context::describe() {
  char model[256] = {};
  driver_->check(api().cuDeviceGetName(model, sizeof model - 1, device_), "asking {} for its name",
                 name_);
  model_ = model;
  const int capability = attribute(kCapabilityMajor) * 10 + attribute(kCapabilityMinor);
  if (capability < 80)
    fail(ErrorKind::Device, "{}: {} has compute capability {}.{}; 8.0 or later (Ampere) is needed",
         name_, model_, capability / 10, capability % 10);
  if (attribute(kMemoryPoolsSupported) == 0)
    fail(ErrorKind::Device, "{}: {} has no memory pools here, which egret needs", name_, model_);
  std::size_t total = 0;
  driver_->check(api().cuDeviceTotalMem_v2(&total, device_), "asking {} for its memory", name_);
  kernel::Target& t = target_;
  t = known_target(capability);
  t.workers = attribute(kMultiprocessors);
  t.shared_bytes = t.l1_bytes = attribute(kSharedPerMultiprocessor);
  t.block_shared_bytes = attribute(kSharedPerBlockOptIn);
  t.registers = attribute(kRegistersPerMultiprocessor);
  t.threads = attribute(kThreadsPerMultiprocessor);
  t.blocks = attribute(kBlocksPerMultiprocessor);
  t.l2_bytes = t.l3_bytes = attribute(kL2Bytes);
  t.memory_bytes = static_cast<std::int64_t>(total);
  if (driver_->version() < 12010)
    t.parameter_bytes = kOldParameterBytes;
  name_target(t, static_cast<std::uint64_t>(driver_->version()));
}

void Context::synchronize() const {
  const Use use(*this);
  driver_->check(api().cuStreamSynchronize(stream_), "waiting for {}", name_);
}

void Context::synchronize_default() const {
  const Use use(*this);
  auto* const legacy = reinterpret_cast<StreamHandle>(std::uintptr_t{1}); // CU_STREAM_LEGACY
  driver_->check(api().cuStreamSynchronize(legacy), "waiting for the default stream of {}", name_);
}

Context::Use::Use(const Context& context) : context_(context) {
  context.driver_->check(context.api().cuCtxPushCurrent_v2(context.handle_), "turning to {}",
                         context.name_);
}

Context::Use::~Use() {
  ContextHandle popped = nullptr;
  context_.api().cuCtxPopCurrent_v2(&popped);
}

Event::Event(const Context& context, bool timed) : context_(context) {
  const Context::Use use(context_);
  constexpr unsigned kDisableTiming = 2;
  context_.driver().check(context_.api().cuEventCreate(&handle_, timed ? 0 : kDisableTiming),
                          "making an event on {}", context_.name());
}

Event::~Event() {
  context_.api().cuEventDestroy_v2(handle_);
}

void Event::record() {
  const Context::Use use(context_);
  context_.driver().check(context_.api().cuEventRecord(handle_, context_.stream()),
                          "recording an event on {}", context_.name());
}

void Event::wait() const {
  const Context::Use use(context_);
  context_.driver().check(context_.api().cuEventSynchronize(handle_), "waiting for {}",
                          context_.name());
}

bool Event::done() const {
  const Context::Use use(context_);
  const Result result = context_.api().cuEventQuery(handle_);
  if (result == kNotReady)
    return false;
  context_.driver().check(result, "asking {} for its progress", context_.name());
  return true;
}

double Event::seconds_since(const Event& earlier) const {
  float milliseconds = 0;
  context_.driver().check(
      context_.api().cuEventElapsedTime(&milliseconds, earlier.handle_, handle_),
      "timing work on {}", context_.name());
  return static_cast<double>(milliseconds) * 1e-3;
}

Availability availability(const LibraryPaths& paths) {
  Availability a;
  try {
    const auto driver = Driver::load(paths);
    a.driver = fmt::format("CUDA {} ({})", version_text(driver->version()), driver->path());
    for (int i = 0; i < driver->device_count(); ++i) {
      AvailableDevice& found = a.devices.emplace_back();
      found.name = fmt::format("cuda:{}", i);
      try {
        const Context device(driver, i);
        const kernel::Target& t = device.target();
        found.text = fmt::format("{}, {}, {} multiprocessors, {:.1f} GiB", device.model(), t.name,
                                 t.workers, static_cast<double>(t.memory_bytes) / (1 << 30));
        found.usable = a.usable = true;
      } catch (const Error& error) {
        found.text = error.what();
      }
    }
    if (!a.usable)
      a.why_not = a.devices.front().text;
  } catch (const Error& error) {
    a.why_not = error.what();
  }
  try {
    const auto nvrtc = Nvrtc::load(paths);
    a.nvrtc = fmt::format("CUDA {} ({})", version_text(nvrtc->version()), nvrtc->path());
  } catch (const Error& error) {
    if (a.why_not.empty())
      a.why_not = error.what();
    a.usable = false;
  }
  return a;
}

} // namespace egret::backend::cuda
