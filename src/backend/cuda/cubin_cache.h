// Compiled kernels on disk, so that a second process compiles nothing.
#pragma once

#include "backend/cuda/nvrtc.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

namespace egret::backend::cuda {

/// A folder of cubins, named by a hash of all that they depend on. Any number of threads and
/// processes may use one folder at a time. Damaged entries are made anew; a folder that cannot be
/// written to is only read from. When the sum of sizes passes the limit, the entries that were not
/// used for longest leave.
class CubinCache {
public:
  static constexpr std::uint64_t kDefaultLimit = std::uint64_t{512} << 20;

  explicit CubinCache(std::optional<std::filesystem::path> folder,
                      std::uint64_t limit = kDefaultLimit);
  /// In the user's cache folder.
  static CubinCache& instance();

  /// The cubin of `text`, from the folder or else compiled and put there. Throws what
  /// Nvrtc::compile throws.
  Cubin get(const Nvrtc& nvrtc, std::string_view text, const std::string& architecture,
            const NvrtcOptions& options = {}, const std::string& name = "kernel");

  const std::optional<std::filesystem::path>& folder() const noexcept { return folder_; }
  /// The file in which a text's cubin is kept.
  std::filesystem::path path_of(const Nvrtc& nvrtc, std::string_view text,
                                const std::string& architecture, const NvrtcOptions& options) const;
  /// Removes entries until the rest is below the limit.
  void prune() const;

private:
  std::optional<Cubin> read(const std::filesystem::path& path) const;

  std::optional<std::filesystem::path> folder_;
  std::uint64_t limit_;
};

} // namespace egret::backend::cuda
