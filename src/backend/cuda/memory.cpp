#include "backend/cuda/memory.h"

#include <algorithm>
#include <cstring>

namespace egret::backend::cuda {

DeviceMemory::DeviceMemory(std::shared_ptr<const Context> context) : context_(std::move(context)) {
  const Context::Use use(*context_);
  const DriverApi& api = context_->api();
  PoolProps props;
  props.location.id = std::stoi(context_->name().substr(context_->name().find(':') + 1));
  context_->driver().check(api.cuMemPoolCreate(&pool_, &props), "making a memory pool on {}",
                           context_->name());
  std::uint64_t keep_all = ~std::uint64_t{0};
  context_->driver().check(api.cuMemPoolSetAttribute(pool_, kReleaseThreshold, &keep_all),
                           "setting up the memory pool of {}", context_->name());
}

DeviceMemory::~DeviceMemory() {
  context_->api().cuMemPoolDestroy(pool_);
}

void* DeviceMemory::allocate(std::size_t bytes) {
  const Context::Use use(*context_);
  const DriverApi& api = context_->api();
  DevicePointer memory = 0;
  auto ask = [&] {
    return api.cuMemAllocFromPoolAsync(&memory, std::max<std::size_t>(bytes, 1), pool_,
                                       context_->stream());
  };
  Result result = ask();
  if (result == kOutOfMemory) { // pieces that the pool keeps may be in the way of a large block
    context_->synchronize();
    api.cuMemPoolTrimTo(pool_, 0);
    result = ask();
  }
  if (result == kOutOfMemory) {
    const MemoryState now = state();
    fail(ErrorKind::Memory,
         "{}: {} bytes cannot be had: {} of {} bytes are free, this process holds {}",
         context_->name(), bytes, now.free, now.total, now.held);
  }
  context_->driver().check(result, "allocating {} bytes on {}", bytes, context_->name());
  return reinterpret_cast<void*>(memory);
}

void DeviceMemory::release(void* memory) noexcept {
  const DriverApi& api = context_->api();
  if (api.cuCtxPushCurrent_v2(context_->handle()) != kSuccess)
    return;
  api.cuMemFreeAsync(reinterpret_cast<DevicePointer>(memory), context_->stream());
  ContextHandle popped = nullptr;
  api.cuCtxPopCurrent_v2(&popped);
}

void DeviceMemory::trim() noexcept {
  try {
    const Context::Use use(*context_);
    context_->synchronize(); // what was released is free once the stream got there
    context_->api().cuMemPoolTrimTo(pool_, 0);
  } catch (const Error&) { // a lost context has no memory left to give
  }
}

MemoryState DeviceMemory::state() const {
  const Context::Use use(*context_);
  MemoryState now;
  context_->driver().check(context_->api().cuMemGetInfo_v2(&now.free, &now.total),
                           "asking {} for its free memory", context_->name());
  std::uint64_t held = 0;
  context_->driver().check(context_->api().cuMemPoolGetAttribute(pool_, kReservedNow, &held),
                           "asking {} for its pool's size", context_->name());
  now.held = held;
  return now;
}

Staging::Staging(std::shared_ptr<const Context> context) : context_(std::move(context)) {}

Staging::~Staging() {
  try {
    context_->synchronize();
  } catch (const Error&) { // a lost context: nothing is being copied
  }
  for (void* memory : {ring_, back_})
    if (memory)
      context_->api().cuMemFreeHost(memory);
}

std::byte* Staging::pinned(void*& memory, std::size_t bytes) {
  if (!memory) {
    const Context::Use use(*context_);
    context_->driver().check(context_->api().cuMemHostAlloc(&memory, bytes, 0),
                             "allocating {} bytes of host memory for copies to {}", bytes,
                             context_->name());
  }
  return static_cast<std::byte*>(memory);
}

std::unique_ptr<Event> Staging::fresh_event() {
  if (free_events_.empty())
    return std::make_unique<Event>(*context_);
  auto event = std::move(free_events_.back());
  free_events_.pop_back();
  return event;
}

// The offset of so many bytes of the ring in one piece, once the copies that read them are done.
std::size_t Staging::take(std::size_t bytes) {
  std::size_t begin = head_;
  if (begin % kRing + bytes > kRing)
    begin = (begin / kRing + 1) * kRing;
  auto retire = [&] {
    tail_ = taken_.front().end;
    free_events_.push_back(std::move(taken_.front().event));
    taken_.pop_front();
  };
  while (begin + bytes > tail_ + kRing) {
    taken_.front().event->wait();
    retire();
  }
  while (!taken_.empty() && taken_.size() > 16 && taken_.front().event->done())
    retire();
  head_ = begin + bytes;
  return begin % kRing;
}

void Staging::copy_in(DevicePointer to, const void* from, std::size_t bytes) {
  std::lock_guard lock(in_mutex_);
  const Context::Use use(*context_);
  std::byte* ring = pinned(ring_, kRing);
  const auto* source = static_cast<const std::byte*>(from);
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t piece = std::min(kPiece, bytes - done);
    std::byte* place = ring + take((piece + 63) / 64 * 64);
    std::memcpy(place, source + done, piece);
    context_->driver().check(
        context_->api().cuMemcpyHtoDAsync_v2(to + done, place, piece, context_->stream()),
        "copying {} bytes to {}", bytes, context_->name());
    auto event = fresh_event();
    event->record();
    taken_.push_back({head_, std::move(event)});
    done += piece;
  }
}

void Staging::copy_out(void* to, DevicePointer from, std::size_t bytes) {
  std::lock_guard lock(out_mutex_);
  const Context::Use use(*context_);
  std::byte* back = pinned(back_, 2 * kPiece);
  for (auto& event : arrived_)
    if (!event)
      event = std::make_unique<Event>(*context_);
  auto* target = static_cast<std::byte*>(to);
  auto begin = [&](std::size_t piece) {
    const std::size_t at = piece * kPiece;
    if (at >= bytes)
      return;
    context_->driver().check(
        context_->api().cuMemcpyDtoHAsync_v2(back + piece % 2 * kPiece, from + at,
                                             std::min(kPiece, bytes - at), context_->stream()),
        "copying {} bytes from {}", bytes, context_->name());
    arrived_[piece % 2]->record();
  };
  begin(0);
  for (std::size_t piece = 0; piece * kPiece < bytes; ++piece) {
    begin(piece + 1);
    arrived_[piece % 2]->wait();
    std::memcpy(target + piece * kPiece, back + piece % 2 * kPiece,
                std::min(kPiece, bytes - piece * kPiece));
  }
}

} // namespace egret::backend::cuda
