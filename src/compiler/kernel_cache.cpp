#include "compiler/kernel_cache.h"

#include <algorithm>
#include <future>
#include <list>
#include <mutex>
#include <unordered_map>

namespace egret::compiler {

using Artifact = std::shared_ptr<const backend::Artifact>;

namespace {

/// Of the machine code that is kept whether or not a plan uses it.
constexpr std::size_t kMostCodeBytes = std::size_t{64} << 20;

} // namespace

struct KernelCache::Impl {
  struct Entry {
    std::shared_future<Artifact> artifact;
    std::list<std::uint64_t>::iterator place;
    std::size_t bytes = 0; // 0 while it is compiled
  };
  void erase(std::unordered_map<std::uint64_t, Entry>::iterator entry) {
    bytes -= entry->second.bytes;
    recent.erase(entry->second.place);
    entries.erase(entry);
  }
  void shrink() {
    while (entries.size() > limit || (bytes > kMostCodeBytes && entries.size() > 1))
      erase(entries.find(recent.front()));
  }
  std::size_t limit, bytes = 0;
  std::mutex guard;
  std::list<std::uint64_t> recent; ///< least recently used first
  std::unordered_map<std::uint64_t, Entry> entries;
};

KernelCache::KernelCache(std::size_t limit) : impl_(std::make_unique<Impl>()) {
  impl_->limit = std::max<std::size_t>(limit, 1);
}
KernelCache::~KernelCache() = default;

std::size_t KernelCache::size() const {
  std::lock_guard lock(impl_->guard);
  return impl_->entries.size();
}

Artifact KernelCache::get(const kernel::KernelProgram& program, backend::Device& device,
                          bool* was_cached) {
  const std::uint64_t key = kernel::hash_of(program) ^ device.target().fingerprint;
  std::promise<Artifact> promise;
  {
    std::unique_lock lock(impl_->guard);
    auto it = impl_->entries.find(key);
    if (was_cached)
      *was_cached = it != impl_->entries.end();
    if (it != impl_->entries.end()) {
      impl_->recent.splice(impl_->recent.end(), impl_->recent, it->second.place);
      std::shared_future<Artifact> artifact = it->second.artifact;
      lock.unlock();
      return artifact.get(); // another thread may still be compiling it
    }
    impl_->recent.push_back(key);
    impl_->entries.emplace(
        key, Impl::Entry{promise.get_future().share(), std::prev(impl_->recent.end())});
    impl_->shrink();
  }
  try {
    Artifact artifact = device.compile(program);
    promise.set_value(artifact);
    std::lock_guard lock(impl_->guard);
    if (auto it = impl_->entries.find(key); it != impl_->entries.end() && it->second.bytes == 0) {
      it->second.bytes = artifact->bytes();
      impl_->bytes += it->second.bytes;
      impl_->shrink();
    }
    return artifact;
  } catch (...) {
    promise.set_exception(std::current_exception());
    std::lock_guard lock(impl_->guard);
    if (auto it = impl_->entries.find(key); it != impl_->entries.end())
      impl_->erase(it);
    throw;
  }
}

} // namespace egret::compiler
