// Compiled kernels on disk, so that a second process compiles nothing.
#pragma once

#include "support/hash128.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace egret {

struct ObjectCacheStats {
  std::int64_t objects = 0;
  std::uint64_t bytes = 0;
  std::int64_t stale = 0; ///< of other versions than the cache's
};

/// A folder of objects, each in a file that is named by a hash of all that the object depends on.
/// Any number of threads and processes may use one folder at a time. A file is taken only when this
/// user owns it, nobody else may write to it, and the hash that it begins with is that of the rest.
/// What is damaged or refused counts as missing, with one warning for each cache; a folder that
/// cannot be written to is only read from, with one warning for each process. When the sum of sizes
/// passes the limit, the objects that were not used for longest leave.
class ObjectCache {
public:
  static constexpr std::uint64_t kDefaultLimit = std::uint64_t{512} << 20;

  /// Objects of one kind are kept in `root`/objects/`kind`; without a root nothing is kept.
  /// `version` is that of the code that makes the objects, for stats() and prune_stale(); keys must
  /// contain what it stands for.
  ObjectCache(std::optional<std::filesystem::path> root, std::string_view kind,
              std::string_view version, std::uint64_t limit = kDefaultLimit);
  ~ObjectCache();
  ObjectCache(const ObjectCache&) = delete;
  ObjectCache& operator=(const ObjectCache&) = delete;

  /// Whether something can be found or kept at all.
  bool enabled() const noexcept;
  std::optional<std::string> find(const Hash128& key);
  void keep(const Hash128& key, std::string_view object);
  /// What find() gave is of no use although it is whole; it goes like a damaged one.
  void reject(const Hash128& key, const std::string& why);

  const std::filesystem::path& folder() const noexcept;
  std::uint64_t limit() const noexcept;
  std::filesystem::path path_of(const Hash128& key) const;
  ObjectCacheStats stats() const;
  /// Removes what was not used for longest until the rest is within `limit`, and what killed
  /// writers left behind; how many objects went.
  std::int64_t prune(std::uint64_t limit) const;
  std::int64_t prune_stale() const; ///< those of other versions
  /// What is wrong with each file that is damaged or would be refused; empty when nothing is.
  std::vector<std::string> verify() const;

private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The bound for each kind: EGRET_OBJECTS_MB, or kDefaultLimit. Error(Value) when the variable is
/// no number from 0 (nothing is kept) to 1,000,000.
std::uint64_t object_limit_of_environment();

} // namespace egret
