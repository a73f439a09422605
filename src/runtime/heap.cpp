#include "runtime/heap.h"

#include "backend/common/memory_cache.h"
#include "support/checked.h"
#include "support/fail.h"
#include "support/memory.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <new>

namespace egret::runtime {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kSmallest = kMiB; ///< of the large blocks
// Of the host: addresses that a segment takes, and what is committed at once in it. Large blocks
// lie in huge pages.
constexpr std::size_t kSmallStep = 64 * kMiB, kLargeStep = 1024 * kMiB;
std::size_t granule_of(bool small) noexcept {
  return small ? kMiB / 16 : 2 * kMiB;
}
// Of other devices: a page that small blocks are cut from grows with what is in use.
constexpr std::size_t kLeastPage = 2 * kMiB, kMostPage = 32 * kMiB;
// Other devices promise as much for what they allocate, and their kernels and libraries use it.
constexpr std::size_t kDeviceUnit = 256;

} // namespace

Heap::Heap(backend::Device& device)
    : device_(device), host_(device.host_memory()), unit_(host_ ? kBlockAlignment : kDeviceUnit) {}

Heap::~Heap() {
  trim();
}

std::size_t Heap::rounded(std::size_t bytes, std::size_t unit) noexcept {
  const std::size_t wanted = std::max<std::size_t>(bytes, 1);
  if (wanted > std::numeric_limits<std::size_t>::max() / 2)
    return wanted; // no device has it
  return round_up(wanted, std::max(unit, std::bit_floor(wanted) / 16));
}

bool Heap::is_small(std::size_t size) noexcept {
  return size < kSmallest;
}

std::size_t Heap::bound() const noexcept {
  const std::size_t peak = std::max(peak_, peak_before_);
  return peak + peak / 4 + slack();
}

void* Heap::allocate(std::size_t bytes, std::size_t limit) {
  const std::size_t size = rounded(bytes, unit_);
  if (++tick_ - window_ >= kWindow)
    turn_window();
  std::byte* block = nullptr;
  if (const auto found = freed_.find(size); found != freed_.end() && !found->second.empty()) {
    block = found->second.back().block;
    found->second.pop_back();
  } else {
    block = take(size, limit);
  }
  if (host_)
    allow_access(block, size);
  in_use_ += bytes;
  peak_ = std::max(peak_, in_use_);
  return block;
}

void Heap::release(void* block, std::size_t bytes) noexcept {
  in_use_ -= bytes;
  const std::size_t size = rounded(bytes, unit_);
  auto* const at = static_cast<std::byte*>(block);
  if (host_)
    forbid_access(block, size);
  try {
    freed_[size].push_back({at, tick_});
    any_freed_ = true;
  } catch (...) { // no memory for the list's own entry
    make_free(at, tick_);
  }
}

// The smallest free range that is large enough.
Heap::Ranges::iterator Heap::best_fit(std::size_t size) {
  const auto& free = lane(is_small(size)).free;
  const auto found = free.lower_bound({size, nullptr});
  return found == free.end() ? ranges_.end() : ranges_.find(found->second);
}

std::byte* Heap::take(std::size_t size, std::size_t limit) {
  auto range = best_fit(size);
  if (range != ranges_.end() && uncommitted(range->second, range->first, size) == 0)
    return cut(range, size);
  join_freed();
  for (;;) {
    range = best_fit(size);
    const bool fresh = range == ranges_.end();
    const std::size_t more =
        fresh ? least_segment(size) : uncommitted(range->second, range->first, size);
    if (more == 0)
      return cut(range, size);
    std::byte* const chosen = fresh ? nullptr : range->first;
    const std::size_t wanted = reserved_ + more;
    const std::size_t most = limit == 0 ? bound() : std::min(bound(), limit);
    if (wanted > most)
      give_back(wanted - most, chosen, tick_ + 1);
    if (limit != 0 && reserved_ + more > limit) {
      if (chosen && give_back(reserved_ + more - limit, nullptr, tick_ + 1) > 0)
        continue; // the range itself may have been given back
      fail(ErrorKind::Memory, "{} bytes cannot be had: {} are reserved, the limit is {}", size,
           reserved_, limit);
    }
    if (fresh)
      range = add_segment(size, limit == 0 ? kMostPage : limit - reserved_);
    std::byte* const block = cut(range, size);
    if (reserved_ > most) // what is left of the range may be given back now
      give_back(reserved_ - most, nullptr, tick_ + 1);
    return block;
  }
}

std::byte* Heap::cut(Ranges::iterator at, std::size_t size) {
  Range& range = at->second;
  std::byte* const block = at->first;
  if (range.bytes > size) { // before anything is changed: it may throw
    std::byte* const rest = block + size;
    auto [behind, added] =
        ranges_.emplace(rest, Range{range.bytes - size, range.used_at, range.segment, true});
    try {
      lane(range.segment->small).free.emplace(range.bytes - size, rest);
    } catch (...) {
      ranges_.erase(behind);
      throw;
    }
  }
  lane(range.segment->small).free.erase({range.bytes, block});
  range.bytes = size;
  range.free = false;
  commit(range, block, size);
  return block;
}

void* Heap::system_memory(std::size_t bytes, bool small) {
  return host_ ? allocate_pages(bytes, !small) : device_.allocate(bytes);
}

void Heap::to_system(const Segment& segment) noexcept {
  if (!host_)
    return device_.release(segment.base, segment.bytes);
  allow_access(segment.base, segment.bytes);
  release_pages(segment.base, segment.bytes);
}

// The bytes of a segment that holds one block only.
std::size_t Heap::least_segment(std::size_t size) const noexcept {
  return host_ && size <= kLargestBlock ? round_up(size, granule_of(is_small(size))) : size;
}

// A segment that is one free range, of at most `most` bytes unless the block needs more. It is
// committed as a whole where parts of it cannot be given back.
Heap::Ranges::iterator Heap::add_segment(std::size_t size, std::size_t most) {
  const bool small = is_small(size);
  const std::size_t least = least_segment(size);
  std::size_t bytes = least;
  if (host_)
    bytes = std::max(least, small ? kSmallStep : kLargeStep);
  else if (small)
    bytes = std::max(least, std::min(most, std::clamp(round_up(in_use_ / 16, kLeastPage),
                                                      kLeastPage, kMostPage)));
  auto segment = std::make_unique<Segment>();
  void* memory = nullptr;
  try {
    memory = system_memory(bytes, small);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Memory)
      throw;
    trim();
    bytes = least;
    memory = system_memory(bytes, small);
  }
  auto* const base = static_cast<std::byte*>(memory);
  *segment = {base, bytes, host_ ? granule_of(small) : bytes, {}, small};
  auto range = ranges_.end();
  try {
    segment->committed.assign(bytes / segment->granule, false);
    range = ranges_.emplace(base, Range{bytes, tick_, segment.get(), true}).first;
    lane(small).free.emplace(bytes, base);
    segments_.emplace(base, std::move(segment));
  } catch (const std::bad_alloc&) {
    if (segment) {
      to_system(*segment);
      lane(small).free.erase({bytes, base});
      if (range != ranges_.end())
        ranges_.erase(range);
    }
    throw;
  }
  return range;
}

std::size_t Heap::uncommitted(const Range& range, std::byte* begin,
                              std::size_t size) const noexcept {
  const Segment& segment = *range.segment;
  const auto offset = static_cast<std::size_t>(begin - segment.base);
  std::size_t count = 0;
  for (std::size_t g = offset / segment.granule; g * segment.granule < offset + size; ++g)
    count += !segment.committed[g];
  return count * segment.granule;
}

void Heap::commit(const Range& range, std::byte* begin, std::size_t size) noexcept {
  const std::size_t more = uncommitted(range, begin, size);
  if (more == 0)
    return;
  Segment& segment = *range.segment;
  const auto offset = static_cast<std::size_t>(begin - segment.base);
  for (std::size_t g = offset / segment.granule; g * segment.granule < offset + size; ++g)
    segment.committed[g] = true;
  reserved_ += more;
  ++system_allocations_;
}

// Joins a block with the free ranges before and behind it.
void Heap::make_free(std::byte* block, std::uint64_t at) noexcept {
  auto range = ranges_.find(block);
  Segment* const segment = range->second.segment;
  auto& free = lane(segment->small).free;
  // The entry of a neighbour in the set serves the joined range: nothing is allocated then.
  std::set<std::pair<std::size_t, std::byte*>>::node_type entry;
  range->second.free = true;
  range->second.used_at = at;
  const auto behind = std::next(range);
  if (behind != ranges_.end() && behind->second.segment == segment && behind->second.free) {
    entry = free.extract({behind->second.bytes, behind->first});
    range->second.bytes += behind->second.bytes;
    range->second.used_at = std::max(at, behind->second.used_at);
    ranges_.erase(behind);
  }
  if (range != ranges_.begin()) {
    const auto before = std::prev(range);
    if (before->second.segment == segment && before->second.free) {
      entry = free.extract({before->second.bytes, before->first});
      before->second.bytes += range->second.bytes;
      before->second.used_at = std::max(before->second.used_at, range->second.used_at);
      ranges_.erase(range);
      range = before;
    }
  }
  if (entry) {
    entry.value() = {range->second.bytes, range->first};
    free.insert(std::move(entry));
    return;
  }
  try {
    free.emplace(range->second.bytes, range->first);
  } catch (...) { // no memory for the entry: the range is found again when a neighbour is freed
    range->second.free = false;
  }
}

void Heap::join_freed() noexcept {
  if (!any_freed_)
    return;
  for (auto& [size, blocks] : freed_) {
    for (const Freed& freed : blocks)
      make_free(freed.block, freed.at);
    blocks.clear();
  }
  any_freed_ = false;
}

// Granules that lie in a free range as a whole: the first one, and the one behind the last.
std::pair<std::size_t, std::size_t> Heap::granules_in(const Ranges::value_type& range) noexcept {
  const Segment& segment = *range.second.segment;
  const auto begin = static_cast<std::size_t>(range.first - segment.base);
  const std::size_t first = (begin + segment.granule - 1) / segment.granule;
  return {first, std::max(first, (begin + range.second.bytes) / segment.granule)};
}

// What of a free range can be given back.
std::size_t Heap::committed(const Ranges::value_type& range) noexcept {
  const auto [first, end] = granules_in(range);
  const Segment& segment = *range.second.segment;
  const auto at = segment.committed.begin();
  return segment.granule *
         static_cast<std::size_t>(std::count(at + static_cast<std::ptrdiff_t>(first),
                                             at + static_cast<std::ptrdiff_t>(end), true));
}

// Does so; a range that is a whole segment is gone then.
std::size_t Heap::give_back(Ranges::iterator at) noexcept {
  Segment& segment = *at->second.segment;
  const std::size_t bytes = committed(*at);
  reserved_ -= bytes;
  if (at->second.bytes == segment.bytes) {
    std::byte* const base = segment.base;
    lane(segment.small).free.erase({segment.bytes, base});
    ranges_.erase(at);
    to_system(segment);
    segments_.erase(base);
    return bytes;
  }
  const auto [first, end] = granules_in(*at); // none on a device, whose granule is the segment
  for (std::size_t g = first; g < end; ++g) {
    if (!segment.committed[g])
      continue;
    discard_pages(segment.base + g * segment.granule, segment.granule);
    segment.committed[g] = false;
  }
  return bytes;
}

// At least `wanted` bytes of free ranges, if there are so many, but not of the one at `but`: those
// that were not used for longest first, and none that was used at `older_than` or later.
std::size_t Heap::give_back(std::size_t wanted, std::byte* but, std::uint64_t older_than) noexcept {
  std::size_t given = 0;
  try {
    std::vector<Ranges::iterator> candidates;
    for (const Lane& each : lanes_)
      for (const auto& [bytes, block] : each.free) {
        const auto range = ranges_.find(block);
        if (block != but && range->second.used_at < older_than && committed(*range) > 0)
          candidates.push_back(range);
      }
    std::sort(candidates.begin(), candidates.end(),
              [](auto a, auto b) { return a->second.used_at < b->second.used_at; });
    for (auto range = candidates.begin(); range != candidates.end() && given < wanted; ++range)
      given += give_back(*range);
  } catch (const std::bad_alloc&) { // no memory for the list: nothing is given back
  }
  if (auto* cache = given > 0 ? dynamic_cast<backend::MemoryCache*>(&device_) : nullptr)
    cache->release_cached();
  return given;
}

std::size_t Heap::trim() noexcept {
  join_freed();
  return give_back(std::numeric_limits<std::size_t>::max(), nullptr, tick_ + 1);
}

void Heap::turn_window() noexcept {
  join_freed();
  give_back(std::numeric_limits<std::size_t>::max(), nullptr, window_before_);
  window_before_ = window_;
  window_ = tick_;
  peak_before_ = peak_;
  peak_ = in_use_;
  if (const std::size_t most = bound(); reserved_ > most)
    give_back(reserved_ - most, nullptr, tick_ + 1);
}

} // namespace egret::runtime
