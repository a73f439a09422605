#include "backend/cuda/nvrtc.h"

#include "backend/cuda/driver.h"
#include "backend/cuda/files.h"
#include "support/fail.h"
#include "support/hash.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <mutex>

namespace egret::backend::cuda {
namespace {

using Handle = struct OpaqueProgram*;

/// NVRTC's functions; all give a result that is 0 on success.
#define EGRET_NVRTC_FUNCTIONS(X)                                                                   \
  X(nvrtcVersion, int*, int*)                                                                      \
  X(nvrtcGetNumSupportedArchs, int*)                                                               \
  X(nvrtcGetSupportedArchs, int*)                                                                  \
  X(nvrtcCreateProgram, Handle*, const char*, const char*, int, const char* const*,                \
    const char* const*)                                                                            \
  X(nvrtcDestroyProgram, Handle*)                                                                  \
  X(nvrtcCompileProgram, Handle, int, const char* const*)                                          \
  X(nvrtcGetCUBINSize, Handle, std::size_t*)                                                       \
  X(nvrtcGetCUBIN, Handle, char*)                                                                  \
  X(nvrtcGetPTXSize, Handle, std::size_t*)                                                         \
  X(nvrtcGetPTX, Handle, char*)                                                                    \
  X(nvrtcGetProgramLogSize, Handle, std::size_t*)                                                  \
  X(nvrtcGetProgramLog, Handle, char*)

struct Functions {
#define EGRET_NVRTC_POINTER(name, ...) int (*name)(__VA_ARGS__) = nullptr;
  EGRET_NVRTC_FUNCTIONS(EGRET_NVRTC_POINTER)
#undef EGRET_NVRTC_POINTER
  const char* (*nvrtcGetErrorString)(int) = nullptr;
};

} // namespace

std::string reason_of_log(std::string_view log) {
  constexpr std::size_t kLines = 8;
  std::vector<std::string_view> all, errors;
  while (!log.empty()) {
    const std::size_t end = std::min(log.find('\n'), log.size());
    const std::string_view line = log.substr(0, end);
    log.remove_prefix(std::min(end + 1, log.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos)
      continue;
    all.push_back(line);
    if (line.find("error") != std::string_view::npos ||
        line.find("fatal") != std::string_view::npos)
      errors.push_back(line);
  }
  const std::vector<std::string_view>& lines = errors.empty() ? all : errors;
  const std::size_t first = lines.size() > kLines ? lines.size() - kLines : 0;
  return fmt::format(
      "{}", fmt::join(lines.begin() + static_cast<std::ptrdiff_t>(first), lines.end(), "\n"));
}

struct Nvrtc::Impl {
  Functions call;
  std::string path;
  int version = 0;
  std::vector<int> architectures;

  void check(int result, const char* doing) const {
    if (result != 0)
      fail(ErrorKind::Device, "nvrtc: {}: {}", doing, call.nvrtcGetErrorString(result));
  }
};

Nvrtc::Nvrtc() : impl_(std::make_unique<Impl>()) {}
Nvrtc::~Nvrtc() = default;

int Nvrtc::version() const noexcept {
  return impl_->version;
}
const std::string& Nvrtc::path() const noexcept {
  return impl_->path;
}
const std::vector<int>& Nvrtc::architectures() const noexcept {
  return impl_->architectures;
}

std::shared_ptr<const Nvrtc> Nvrtc::load(const LibraryPaths& paths) {
  const Library library = Library::open_first(paths.nvrtc);
  if (!library)
    fail(ErrorKind::Device,
         "cuda: no NVRTC (CUDA's run-time compiler): {}; install it (libnvrtc of CUDA 12 or 13) or "
         "set EGRET_NVRTC to its path",
         library.failures());
  std::shared_ptr<Nvrtc> nvrtc(new Nvrtc);
  Impl& impl = *nvrtc->impl_;
  impl.path = library.path();
  std::string missing;
#define EGRET_NVRTC_LOAD(name, ...)                                                                \
  impl.call.name = reinterpret_cast<int (*)(__VA_ARGS__)>(library.symbol(#name));                  \
  if (!impl.call.name)                                                                             \
    missing += (missing.empty() ? "" : ", ") + std::string(#name);
  EGRET_NVRTC_FUNCTIONS(EGRET_NVRTC_LOAD)
#undef EGRET_NVRTC_LOAD
  impl.call.nvrtcGetErrorString =
      reinterpret_cast<const char* (*)(int)>(library.symbol("nvrtcGetErrorString"));
  if (!missing.empty() || !impl.call.nvrtcGetErrorString)
    fail(ErrorKind::Device, "cuda: {} is no usable NVRTC: it lacks {}", library.path(),
         missing.empty() ? "nvrtcGetErrorString" : missing);
  int major = 0, minor = 0, count = 0;
  impl.check(impl.call.nvrtcVersion(&major, &minor), "asking for its version");
  impl.version = major * 1000 + minor * 10;
  if (major < 12)
    fail(ErrorKind::Device,
         "cuda: NVRTC {} is of CUDA {}, which is too old: 12.0 or later is needed", library.path(),
         version_text(impl.version));
  impl.check(impl.call.nvrtcGetNumSupportedArchs(&count), "asking for its architectures");
  impl.architectures.resize(static_cast<std::size_t>(count));
  impl.check(impl.call.nvrtcGetSupportedArchs(impl.architectures.data()),
             "asking for its architectures");
  std::sort(impl.architectures.begin(), impl.architectures.end());
  return nvrtc;
}

std::shared_ptr<const Nvrtc> Nvrtc::instance() {
  static auto* const mutex = new std::mutex;
  static auto* const nvrtc = new std::shared_ptr<const Nvrtc>;
  std::lock_guard lock(*mutex);
  if (!*nvrtc)
    *nvrtc = load();
  return *nvrtc;
}

std::string Nvrtc::architecture_for(int capability, bool specific) const {
  const auto& all = impl_->architectures;
  if (std::binary_search(all.begin(), all.end(), capability))
    return fmt::format("sm_{}{}", capability, specific ? "a" : "");
  auto above = std::upper_bound(all.begin(), all.end(), capability);
  if (above == all.begin())
    fail(ErrorKind::Device, "cuda: NVRTC {} ({}) cannot compile for compute capability {}.{}",
         version_text(impl_->version), impl_->path, capability / 10, capability % 10);
  return fmt::format("compute_{}", *std::prev(above));
}

Cubin Nvrtc::compile(std::string_view text, const std::string& architecture,
                     const NvrtcOptions& options, const std::string& name) const {
  const auto begin = std::chrono::steady_clock::now();
  const Functions& call = impl_->call;
  const bool to_ptx = architecture.starts_with("compute_");
  std::vector<std::string> flags{"--gpu-architecture=" + architecture, "--std=c++17",
                                 "-default-device", "--fmad=false"};
  if (!to_ptx)
    flags.emplace_back("--ptxas-options=-v");
  if (options.max_registers > 0)
    flags.push_back(fmt::format("--maxrregcount={}", options.max_registers));
  if (options.line_info)
    flags.emplace_back("-lineinfo");
  std::vector<const char*> arguments;
  for (const std::string& flag : flags)
    arguments.push_back(flag.c_str());

  Handle handle = nullptr;
  const std::string source(text);
  impl_->check(
      call.nvrtcCreateProgram(&handle, source.c_str(), (name + ".cu").c_str(), 0, nullptr, nullptr),
      "making a program");
  struct Destroy {
    const Functions& call;
    Handle handle;
    ~Destroy() { call.nvrtcDestroyProgram(&handle); }
  } destroy{call, handle};

  const int result =
      call.nvrtcCompileProgram(handle, static_cast<int>(arguments.size()), arguments.data());
  Cubin cubin;
  std::size_t size = 0;
  impl_->check(call.nvrtcGetProgramLogSize(handle, &size), "asking for the log");
  cubin.log.resize(size);
  if (size > 0)
    impl_->check(call.nvrtcGetProgramLog(handle, cubin.log.data()), "asking for the log");
  while (!cubin.log.empty() && cubin.log.back() == '\0')
    cubin.log.pop_back();
  if (result != 0) {
    const std::string kept =
        keep_text(fmt::format("{}-{:016x}.cu", name, hash_text(text)),
                  fmt::format("// {} for {}\n{}\n/* What NVRTC {} said:\n{}\n*/\n", name,
                              architecture, text, version_text(impl_->version), cubin.log));
    fail(ErrorKind::Unsupported,
         "cuda: kernel {} does not compile for {}: {} (its text is kept in {})\n{}", name,
         architecture, call.nvrtcGetErrorString(result),
         kept.empty() ? "no file: none could be written" : kept, reason_of_log(cubin.log));
  }
  auto size_of = to_ptx ? call.nvrtcGetPTXSize : call.nvrtcGetCUBINSize;
  auto get = to_ptx ? call.nvrtcGetPTX : call.nvrtcGetCUBIN;
  impl_->check(size_of(handle, &size), "asking for the code's size");
  cubin.code.resize(size);
  impl_->check(get(handle, cubin.code.data()), "asking for the code");
  cubin.kernels = resources_of_log(cubin.log);
  if (cubin.kernels.empty() && !to_ptx)
    cubin.kernels = resources_of_cubin(cubin.code);
  cubin.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return cubin;
}

} // namespace egret::backend::cuda
