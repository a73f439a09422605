#include "backend/cuda/cubin_cache.h"

#include "support/cache_folder.h"
#include "support/fail.h"

#include <cstring>

namespace egret::backend::cuda {

namespace {

// An object: the seconds, the log's size, log, code.
constexpr std::size_t kHead = sizeof(double) + sizeof(std::uint64_t);
constexpr std::string_view kVersion = "cubin 2";

std::string packed(const Cubin& cubin) {
  const std::uint64_t log_size = cubin.log.size();
  std::string object(kHead, '\0');
  std::memcpy(object.data(), &cubin.seconds, sizeof cubin.seconds);
  std::memcpy(object.data() + sizeof cubin.seconds, &log_size, sizeof log_size);
  return object + cubin.log + cubin.code;
}

Cubin unpacked(std::string_view object) {
  Cubin cubin;
  std::uint64_t log_size = 0;
  if (object.size() < kHead)
    fail(ErrorKind::File, "it is too short");
  std::memcpy(&cubin.seconds, object.data(), sizeof cubin.seconds);
  std::memcpy(&log_size, object.data() + sizeof cubin.seconds, sizeof log_size);
  if (log_size > object.size() - kHead)
    fail(ErrorKind::File, "its log is too short");
  cubin.log = object.substr(kHead, log_size);
  cubin.code = object.substr(kHead + log_size);
  cubin.cached = true;
  cubin.kernels = resources_of_log(cubin.log);
  if (cubin.kernels.empty())
    cubin.kernels = resources_of_cubin(cubin.code);
  return cubin;
}

} // namespace

CubinCache::CubinCache(std::optional<std::filesystem::path> root, std::uint64_t limit)
    : objects_(std::move(root), "cuda", kVersion, limit) {}

CubinCache& CubinCache::instance() {
  static auto* const cache = new CubinCache(cache_folder(), object_limit_of_environment());
  return *cache;
}

Hash128 CubinCache::key_of(const Nvrtc& nvrtc, std::string_view text,
                           const std::string& architecture, const NvrtcOptions& options) {
  return hash128(fmt::format("{}\n{}\n{}\n{}\n{}\n{}", kVersion, nvrtc.version(), architecture,
                             options.max_registers, options.line_info, text));
}

Cubin CubinCache::get(const Nvrtc& nvrtc, std::string_view text, const std::string& architecture,
                      const NvrtcOptions& options, const std::string& name) {
  const Hash128 key = key_of(nvrtc, text, architecture, options);
  if (const auto object = objects_.find(key))
    try {
      return unpacked(*object);
    } catch (const Error& error) {
      objects_.reject(key, error.what());
    }
  Cubin cubin = nvrtc.compile(text, architecture, options, name);
  objects_.keep(key, packed(cubin));
  return cubin;
}

} // namespace egret::backend::cuda
