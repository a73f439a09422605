#include "runtime/storage.h"

#include "runtime/count.h"
#include "runtime/profile.h"
#include "support/fail.h"

#include <algorithm>
#include <vector>

namespace egret::runtime {

bool share_memory(const backend::Device& a, const backend::Device& b) noexcept {
  return &a == &b || (a.host_memory() && b.host_memory());
}

namespace {

void tell_memory(const Pool& pool) noexcept {
  try {
    const Observers seen = observers();
    if (!seen ||
        std::ranges::none_of(*seen, [](const auto& one) { return one->memory != nullptr; }))
      return;
    const std::string name = pool.device().name();
    const MemoryStats now = pool.stats();
    tell(seen, &Observer::memory,
         MemoryRecord{name, std::chrono::steady_clock::now(), now.in_use, now.reserved});
  } catch (...) { // an observer without memory: what it observes goes on
  }
}

void copy_between(const Storage& to, const Storage& from, std::size_t bytes) {
  backend::Device& target = to.device();
  backend::Device& source = from.device();
  if (&target == &source)
    target.copy(to.data(), from.data(), bytes);
  else if (source.host_memory())
    target.copy_in(to.data(), from.data(), bytes);
  else if (target.host_memory())
    source.copy_out(to.data(), from.data(), bytes);
  else {
    std::vector<std::byte> between(bytes);
    source.copy_out(between.data(), from.data(), bytes);
    target.copy_in(to.data(), between.data(), bytes);
  }
}

} // namespace

void copy_storage(const Storage& to, const Storage& from, std::size_t bytes) {
  if (bytes > 0)
    observed_copy([&] { return fmt::format("{} to {}", from.device().name(), to.device().name()); },
                  bytes, [&] { copy_between(to, from, bytes); });
}

backend::Device& Storage::device() const noexcept {
  return pool_->device();
}

Storage::~Storage() {
  if (let_go_)
    let_go_();
  else
    pool_->put_back(data_, bytes_, use_);
}

// What the heap has from the system now, and how often it asked until now, in the counters.
void Pool::count_changes(std::size_t reserved, std::uint64_t system_allocations) noexcept {
  count().bytes_reserved.add(heap_.reserved() - reserved);
  count().device_allocations.add(heap_.system_allocations() - system_allocations);
}

StoragePtr Pool::allocate(std::size_t bytes, MemoryUse use) {
  void* data = nullptr;
  {
    std::lock_guard lock(mutex_);
    const std::size_t reserved = heap_.reserved();
    const std::uint64_t asked = heap_.system_allocations();
    try {
      data = heap_.allocate(bytes, limit_);
    } catch (const Error& error) {
      count_changes(reserved, asked);
      if (error.kind() != ErrorKind::Memory)
        throw;
      refuse(bytes, error.what());
    }
    count_changes(reserved, asked);
    ++allocations_;
    if (!has_blocks())
      self_ = shared_from_this();
    ++used(use).count;
    used(use).bytes += bytes;
    peak_ = std::max(peak_, heap_.in_use());
  }
  count().pool_allocations.add(1);
  levels().use(bytes);
  tell_memory(*this);
  try {
    return std::make_shared<Storage>(*this, data, bytes, use);
  } catch (...) {
    put_back(data, bytes, use);
    throw;
  }
}

void Pool::refuse(std::size_t bytes, const std::string& why) const {
  const Used& values = used_[static_cast<std::size_t>(MemoryUse::Value)];
  const Used& programs = used_[static_cast<std::size_t>(MemoryUse::Program)];
  fail(ErrorKind::Memory,
       "memory: {} bytes for a block on {}: {}; in use are {} bytes of {} values{}", bytes,
       device_.name(), why, values.bytes, values.count,
       programs.count > 0
           ? fmt::format(" and {} bytes of {} programs that run", programs.bytes, programs.count)
           : "");
}

void Pool::put_back(void* data, std::size_t bytes, MemoryUse use) noexcept {
  levels().unuse(bytes);
  std::shared_ptr<Pool> last; // let go after everything else: the pool may go with it
  {
    std::lock_guard lock(mutex_);
    --used(use).count;
    used(use).bytes -= bytes;
    heap_.release(data, bytes);
    if (!has_blocks())
      last = std::move(self_);
  }
  tell_memory(*this);
}

std::size_t Pool::trim() {
  std::lock_guard lock(mutex_);
  const std::size_t reserved = heap_.reserved();
  const std::size_t given = heap_.trim();
  count_changes(reserved, heap_.system_allocations());
  return given;
}

void Pool::set_limit(std::size_t bytes) {
  std::lock_guard lock(mutex_);
  limit_ = bytes;
  // A device's own cache may hold more than the heap has.
  if (limit_ != 0 && (heap_.reserved() > limit_ || !device_.host_memory())) {
    const std::size_t reserved = heap_.reserved();
    heap_.trim();
    count_changes(reserved, heap_.system_allocations());
  }
}

MemoryStats Pool::stats() const {
  MemoryStats stats;
  {
    std::lock_guard lock(mutex_);
    stats.in_use = heap_.in_use();
    stats.values = used_[static_cast<std::size_t>(MemoryUse::Value)].bytes;
    stats.programs = used_[static_cast<std::size_t>(MemoryUse::Program)].bytes;
    stats.peak = peak_;
    stats.reserved = heap_.reserved();
    stats.limit = limit_;
    stats.allocations = allocations_;
    stats.system_allocations = heap_.system_allocations();
  }
  const backend::MemoryState device = device_.memory();
  stats.device_free = device.free;
  stats.device_total = device.total;
  return stats;
}

void Pool::reset_peak() {
  std::lock_guard lock(mutex_);
  peak_ = heap_.in_use();
}

} // namespace egret::runtime
