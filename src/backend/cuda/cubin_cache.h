// Compiled kernels on disk, so that a second process compiles nothing.
#pragma once

#include "backend/cuda/nvrtc.h"
#include "support/object_cache.h"

namespace egret::backend::cuda {

/// Cubins by a hash of all that they depend on. Safe for many threads and processes.
class CubinCache {
public:
  /// In `root`/objects/cuda; see ObjectCache.
  explicit CubinCache(std::optional<std::filesystem::path> root,
                      std::uint64_t limit = ObjectCache::kDefaultLimit);
  /// In the user's cache folder, bounded by EGRET_OBJECTS_MB; of the whole process.
  static CubinCache& instance();

  /// The cubin of `text`, from the folder or else compiled and put there. Throws what
  /// Nvrtc::compile throws.
  Cubin get(const Nvrtc& nvrtc, std::string_view text, const std::string& architecture,
            const NvrtcOptions& options = {}, const std::string& name = "kernel");

  static Hash128 key_of(const Nvrtc& nvrtc, std::string_view text, const std::string& architecture,
                        const NvrtcOptions& options);
  ObjectCache& objects() noexcept { return objects_; }

private:
  ObjectCache objects_;
};

} // namespace egret::backend::cuda
