// A schedule: how a region becomes a kernel. Plain data, one text form, the unit that a search
// enumerates and a database remembers.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace egret::kernel {

/// What a loop becomes on the machine. A CPU uses Serial, Unroll, Vector, Core and Matrix; the
/// others are a GPU's. Matrix: one of the rows, columns and depth of a matrix unit's product.
enum class Bind : std::uint8_t {
  Serial,
  Unroll,
  Vector,
  Core,
  Grid,
  Cluster,
  Warpgroup,
  Warp,
  Lane,
  Matrix
};
const char* name_of(Bind bind) noexcept;
std::optional<Bind> bind_named(std::string_view name) noexcept;

enum class WorkOrder : std::uint8_t { Fixed, Drawn };
enum class CachePolicy : std::uint8_t { Default, Streaming, EvictFirst, EvictLast };

struct Schedule {
  std::string generator; ///< "generic", "elementwise", "rows", "contraction" ...
  std::map<std::string, std::int64_t>
      knobs;        ///< of the generator: "mr", "nr", "kc", "mc", "unroll", "vectors" ...
  std::string tree; ///< the loops of all stages, for the generator `loops`: see loops/tree.h
  std::int64_t vector_bytes = 0; ///< width of vectors; 0: the target's
  std::int64_t split_reduce =
      1; ///< workers that share one reduction; a finishing region combines their partial results
  WorkOrder order = WorkOrder::Fixed;
  std::int64_t order_group = 1;
  CachePolicy load_policy = CachePolicy::Default, store_policy = CachePolicy::Default;
  std::string mma;               ///< matrix instruction, empty for none
  int blocks_per_core = 0;       ///< 0: whatever fits
  std::int64_t least_shared = 0; ///< bytes of shared memory to ask for at the least
  friend bool operator==(const Schedule&, const Schedule&) = default;

  std::int64_t knob(const std::string& name, std::int64_t otherwise) const;
};

/// One line, "contraction mr=6 nr=64 kc=256 ..."; only what differs from the default is written.
std::string to_string(const Schedule& schedule);
Schedule parse_schedule(std::string_view text); ///< throws Error(Parse)

} // namespace egret::kernel
