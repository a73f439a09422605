#include "backend/cuda/driver.h"

#include <mutex>

namespace egret::backend::cuda {
namespace {

// After one of these the context answers every call with the same error.
bool loses_context(Result result) {
  return (result >= kIllegalAddress && result <= kLaunchFailed && result != 701 &&
          !(result >= 704 && result <= 708) && result != 711 && result != 712 && result != 713) ||
         result == 214;
}

} // namespace

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::shared_ptr<const Driver> Driver::load(const LibraryPaths& paths) {
  const Library library = Library::open_first(paths.driver);
  if (!library)
    fail(ErrorKind::Device,
         "cuda: no driver: {}; CUDA needs an NVIDIA GPU with a driver for CUDA {} or later (the "
         "CPU serves all programs)",
         library.failures(), version_text(kLeastDriver));
  auto driver = std::make_shared<Driver>();
  driver->path_ = library.path();
  DriverApi& api = driver->api;
  std::string missing;
#define EGRET_CUDA_LOAD(name, ...)                                                                 \
  api.name = reinterpret_cast<Result (*)(__VA_ARGS__)>(library.symbol(#name));                     \
  if (!api.name)                                                                                   \
    missing += (missing.empty() ? "" : ", ") + std::string(#name);
  EGRET_CUDA_FUNCTIONS(EGRET_CUDA_LOAD)
#undef EGRET_CUDA_LOAD

  // The version can be asked before anything else, and says best why functions are missing.
  if (api.cuDriverGetVersion && api.cuDriverGetVersion(&driver->version_) == kSuccess &&
      driver->version_ < kLeastDriver)
    fail(ErrorKind::Device,
         "cuda: the driver {} is for CUDA {}, which is too old: CUDA {} or later is needed "
         "(install a newer NVIDIA driver)",
         library.path(), version_text(driver->version_), version_text(kLeastDriver));
  if (!missing.empty())
    fail(ErrorKind::Device, "cuda: {} is no usable driver: it lacks {}", library.path(), missing);
  const Result started = api.cuInit(0);
  if (started == kStubLibrary)
    fail(ErrorKind::Device,
         "cuda: {} is the toolkit's stand-in for a driver, not a driver: install one",
         library.path());
  if (started != kSuccess && started != kNoDevice)
    fail(ErrorKind::Device, "cuda: the driver {} does not start: {}", library.path(),
         driver->text_of(started));
  if (started == kSuccess)
    driver->check(api.cuDeviceGetCount(&driver->devices_), "counting the GPUs");
  if (driver->devices_ == 0)
    fail(ErrorKind::Device,
         "cuda: the driver {} (CUDA {}) sees no GPU; CUDA_VISIBLE_DEVICES may hide it",
         library.path(), version_text(driver->version_));
  return driver;
}

std::shared_ptr<const Driver> Driver::instance() {
  // Kept until the process ends: tensors of static duration may outlive everything else.
  static auto* const mutex = new std::mutex;
  static auto* const driver = new std::shared_ptr<const Driver>;
  std::lock_guard lock(*mutex);
  if (!*driver)
    *driver = load();
  return *driver;
}

std::string Driver::text_of(Result result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (api.cuGetErrorName)
    api.cuGetErrorName(result, &name);
  if (api.cuGetErrorString)
    api.cuGetErrorString(result, &text);
  return fmt::format("{} ({})", text ? text : "unknown error",
                     name ? std::string(name) : fmt::format("error {}", result));
}

void Driver::raise(Result result, const std::string& doing) const {
  if (result == kOutOfMemory)
    fail(ErrorKind::Memory, "cuda: {}: {}", doing, text_of(result));
  if (loses_context(result))
    fail(ErrorKind::Device,
         "cuda: {}: {}; an earlier kernel may be the cause. The GPU's memory is lost to this "
         "process: only the CPU can be used from here on",
         doing, text_of(result));
  fail(ErrorKind::Device, "cuda: {}: {}", doing, text_of(result));
}

} // namespace egret::backend::cuda
