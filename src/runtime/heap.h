// Blocks of a device's memory: cut from larger segments, joined again when they are free, and given
// back to the system by pressure and by age.
#pragma once

#include "backend/common/device.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

namespace egret::runtime {

/// A best-fit allocator with boundary coalescing (Knuth, The Art of Computer Programming 1, 2.5)
/// over segments, behind lists of freed blocks by size that serve a steady loop.
///
/// A segment is memory of the device, or a range of the host's addresses in which memory is
/// committed as blocks need it and given back where nothing uses it. Blocks below 1 MiB and larger
/// ones have segments of their own, so that a small value never keeps a large range from being one.
///
/// What is reserved (committed) stays below 1.25 times the recent peak of what is in use, plus
/// slack(), on the host; on other devices segments that are in part in use can exceed it. A free
/// range that was not used for two windows of kWindow allocations is given back. Not thread-safe.
class Heap {
public:
  explicit Heap(backend::Device& device);
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  /// A block for `bytes` bytes, aligned to 64 bytes at least. Error(Memory) when the device has
  /// none, or when `limit` (0: none) would be passed; what is free was given back before.
  void* allocate(std::size_t bytes, std::size_t limit);
  void release(void* block, std::size_t bytes) noexcept; ///< with the bytes that were asked for
  /// Gives all free memory back; the bytes that were given.
  std::size_t trim() noexcept;

  std::size_t in_use() const noexcept { return in_use_; }     ///< as asked for
  std::size_t reserved() const noexcept { return reserved_; } ///< had from the system
  /// Times that memory was had from the system: segments, and parts of them that were committed.
  std::uint64_t system_allocations() const noexcept { return system_allocations_; }

  static constexpr std::uint64_t kWindow = 16384; ///< allocations
  static constexpr std::size_t slack() noexcept { return std::size_t{4} << 20; }

  /// The size of the block for a request: up to 1/16 more, or up to a multiple of `unit`.
  static std::size_t rounded(std::size_t bytes, std::size_t unit) noexcept;

private:
  struct Segment {
    std::byte* base;
    std::size_t bytes, granule;  ///< what is committed and given back at once
    std::vector<bool> committed; ///< by granule
    bool small;
  };
  struct Range {
    std::size_t bytes;
    std::uint64_t used_at; ///< the tick at which it was freed
    Segment* segment;
    bool free;
  };
  using Ranges = std::map<std::byte*, Range>;
  struct Freed {
    std::byte* block;
    std::uint64_t at;
  };
  struct Lane {
    std::set<std::pair<std::size_t, std::byte*>> free; ///< ranges by size, then address
  };

  std::byte* take(std::size_t size, std::size_t limit);
  std::byte* cut(Ranges::iterator range, std::size_t size);
  Ranges::iterator best_fit(std::size_t size);
  std::size_t least_segment(std::size_t size) const noexcept;
  Ranges::iterator add_segment(std::size_t size, std::size_t most);
  void make_free(std::byte* block, std::uint64_t at) noexcept;
  void join_freed() noexcept;
  std::size_t uncommitted(const Range& range, std::byte* begin, std::size_t size) const noexcept;
  void commit(const Range& range, std::byte* begin, std::size_t size) noexcept;
  static std::pair<std::size_t, std::size_t> granules_in(const Ranges::value_type& range) noexcept;
  static std::size_t committed(const Ranges::value_type& range) noexcept;
  std::size_t give_back(Ranges::iterator range) noexcept;
  std::size_t give_back(std::size_t wanted, std::byte* but, std::uint64_t older_than) noexcept;
  void* system_memory(std::size_t bytes, bool small);
  void to_system(const Segment& segment) noexcept;
  void turn_window() noexcept;
  std::size_t bound() const noexcept;
  Lane& lane(bool small) noexcept { return lanes_[small]; }
  static bool is_small(std::size_t size) noexcept;

  backend::Device& device_;
  const bool host_;
  const std::size_t unit_;
  std::map<std::byte*, std::unique_ptr<Segment>> segments_;
  Ranges ranges_;
  Lane lanes_[2];
  std::unordered_map<std::size_t, std::vector<Freed>> freed_; ///< not joined yet, by size
  bool any_freed_ = false;
  std::size_t in_use_ = 0, reserved_ = 0;
  std::size_t peak_ = 0, peak_before_ = 0; ///< of in_use_, in this window and the one before
  std::uint64_t tick_ = 0, window_ = 0, window_before_ = 0, system_allocations_ = 0;
};

} // namespace egret::runtime
