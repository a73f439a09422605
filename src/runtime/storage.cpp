#include "runtime/storage.h"

#include "runtime/count.h"
#include "support/fail.h"

#include <bit>

namespace egret::runtime {

std::size_t rounded_size(std::size_t bytes) noexcept {
  constexpr std::size_t kLeast = 64;
  if (bytes <= kLeast)
    return kLeast;
  const std::size_t step = std::bit_floor(bytes - 1) / 4;
  return step < kLeast ? (bytes + kLeast - 1) / kLeast * kLeast : (bytes + step - 1) / step * step;
}

bool share_memory(const backend::Device& a, const backend::Device& b) noexcept {
  return &a == &b || (a.host_memory() && b.host_memory());
}

void copy_storage(const Storage& to, const Storage& from, std::size_t bytes) {
  if (bytes == 0)
    return;
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

backend::Device& Storage::device() const noexcept {
  return pool_->device();
}

Storage::~Storage() {
  pool_->put_back(data_, bytes_, reserved_);
}

Pool::~Pool() {
  trim_locked();
}

StoragePtr Pool::allocate(std::size_t bytes) {
  const std::size_t reserved = rounded_size(bytes);
  void* data = nullptr;
  {
    std::lock_guard lock(mutex_);
    auto found = free_.find(reserved);
    if (found != free_.end() && !found->second.empty()) {
      data = found->second.back();
      found->second.pop_back();
    } else {
      if (limit_ != 0 && held_ + reserved > limit_)
        trim_locked();
      if (limit_ != 0 && held_ + reserved > limit_)
        fail(ErrorKind::Memory, "memory: {} bytes asked for, {} held, the limit is {}", reserved,
             held_, limit_);
      try {
        data = device_.allocate(reserved);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::Memory)
          throw;
        trim_locked();
        data = device_.allocate(reserved);
      }
      held_ += reserved;
      count().device_allocations.add(1);
      count().bytes_reserved.add(reserved);
    }
  }
  count().pool_allocations.add(1);
  count().use(bytes);
  try {
    return std::make_shared<Storage>(shared_from_this(), data, bytes, reserved);
  } catch (...) {
    put_back(data, bytes, reserved);
    throw;
  }
}

void Pool::put_back(void* data, std::size_t bytes, std::size_t reserved) noexcept {
  count().unuse(bytes);
  std::lock_guard lock(mutex_);
  try {
    free_[reserved].push_back(data);
  } catch (...) { // no memory for the list's own entry: the device takes the block back
    device_.release(data, reserved);
    held_ -= reserved;
    count().bytes_reserved.subtract(reserved);
  }
}

void Pool::trim_locked() noexcept {
  for (auto& [size, blocks] : free_) {
    for (void* block : blocks) {
      device_.release(block, size);
      held_ -= size;
      count().bytes_reserved.subtract(size);
    }
    blocks.clear();
  }
}

void Pool::trim() {
  std::lock_guard lock(mutex_);
  trim_locked();
}

void Pool::set_limit(std::size_t bytes) {
  std::lock_guard lock(mutex_);
  limit_ = bytes;
}

} // namespace egret::runtime
