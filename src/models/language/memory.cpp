#include "models/language/memory.h"

#include "egret/device.h"
#include "egret/memory.h"
#include "support/fail.h"
#include "support/host_memory.h"

#include <algorithm>
#include <array>

namespace egret::models::language {

namespace {

/// Bytes that values may still take on a device; 0: not known.
std::uint64_t free_bytes(const std::string& device) {
  const MemoryStats stats = memory_stats(device);
  const std::uint64_t idle = stats.reserved - std::min(stats.in_use, stats.reserved);
  if (stats.limit > 0)
    return std::max<std::uint64_t>(stats.limit - std::min(stats.in_use, stats.limit), 1);
  const std::uint64_t system = stats.device_total > 0 ? stats.device_free : free_host_memory();
  return system == 0 ? 0 : system + idle;
}

std::string size_text(std::uint64_t bytes) {
  constexpr std::array kUnits = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  double size = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; size >= 1024 && unit + 1 < kUnits.size(); ++unit)
    size /= 1024;
  return unit == 0 ? fmt::format("{} bytes", bytes) : fmt::format("{:.1f} {}", size, kUnits[unit]);
}

/// A smaller cache beside the weights, or smaller weights.
std::string what_fits(std::uint64_t weights, std::uint64_t free, const LanguageConfig& config,
                      CacheSizes sizes) {
  const auto fits = [&](const CacheSizes& other) {
    return weights + static_cast<std::uint64_t>(cache_bytes(config, other)) <= free;
  };
  CacheSizes integers = sizes;
  integers.dtype = DType::I8;
  if (sizes.dtype != DType::I8 && fits(integers))
    return "a cache in i8 would fit";
  // Blocks of one text at its most, or fewer that were asked for.
  CacheSizes one = sizes;
  one.sequences = 1;
  one.blocks = 0;
  if ((sizes.blocks > 0 || sizes.sequences > 1) && fits(one))
    return fmt::format("a cache of at most {} MiB (--cache-mb) would fit", (free - weights) >> 20U);
  sizes.blocks = 0;
  for (std::int64_t capacity = sizes.capacity / 2; capacity >= 64; capacity /= 2) {
    sizes.capacity = capacity;
    if (fits(sizes))
      return fmt::format("a context of {} would fit", capacity);
  }
  return "weights of fewer bits (egret quantize) or a smaller model may fit";
}

} // namespace

void require_memory(const std::string& path, std::int64_t weight_bytes,
                    const LanguageConfig& config, const CacheSizes& sizes) {
  const std::string device = egret::device();
  const std::uint64_t free = free_bytes(device);
  const auto weights = static_cast<std::uint64_t>(weight_bytes);
  const auto cache = static_cast<std::uint64_t>(cache_bytes(config, sizes));
  if (free == 0 || weights + cache <= free)
    return;
  fail(ErrorKind::Memory,
       "LanguageModel: {}: weights of {} and a cache of {} ({} of {} positions in {}) are needed, "
       "{} are free on {}; {}",
       path, size_text(weights), size_text(cache),
       sizes.blocks > 0 ? fmt::format("{} blocks", sizes.blocks) : std::to_string(sizes.sequences),
       sizes.blocks > 0 ? CacheSizes::kBlock : sizes.capacity, egret::name_of(sizes.dtype),
       size_text(free), device, what_fits(weights, free, config, sizes));
}

} // namespace egret::models::language
