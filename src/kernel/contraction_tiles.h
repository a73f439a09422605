// Sizes of the blocks in which a contraction is computed.
#pragma once

#include "kernel/contraction_form.h"
#include "kernel/schedule.h"
#include "kernel/target.h"
#include "kernel/tile_products.h"

#include <string>
#include <vector>

namespace egret::kernel {

/// A tile of mr rows by nv vectors of columns stays in registers while it goes along kc of the
/// depth; tiles make up blocks of mc rows by nc columns, one after the other on one worker.
struct Tiles {
  int lanes = 1;       ///< of a vector of accumulators
  int mr = 1, nv = 1;  ///< rows and vectors of the register tile
  int unroll = 1;      ///< steps along the depth in one iteration
  int width = 1;       ///< elements of the depth in a step: 2 where pairs of bf16 are multiplied
  bool matrix = false; ///< the register tile is made of tiles of a matrix unit: mr is a multiple of
                       ///< kTileRows, lanes are 16, and the depth goes by kChunk steps
  bool late = false; ///< such a tile's results are made of its sums behind the next one's products,
                     ///< which a CPU is still busy with then
  std::int64_t kc = 1;
  std::int64_t mc = 1, nc = 1;              ///< multiples of mr and of nr()
  bool pack_left = true, pack_right = true; ///< copied into the order in which tiles read them
  /// The right side is read from a copy of its windows, or packed from it where pack_right is set.
  bool window = false;
  /// The innermost axis of the columns, of several, counts whole vectors: none goes over its end.
  bool padded = false;
  bool shared =
      true; ///< workers pack together, behind a barrier; else each packs what its block needs
  /// Of shared: each worker packs the left side of its block by itself, one part of the depth at a
  /// time, which stays in its second cache while the columns go by (Goto & van de Geijn 2008).
  bool own_left = false;
  /// Shares that the depth of every tile is cut into; their sums meet in memory and are added up in
  /// order, each tile by one worker.
  std::int64_t split = 1;
  int nr() const { return nv * lanes; }
};

/// The @mma of schedules that multiply pairs of bf16: both sides are packed, two neighbours along
/// the depth in a word. kc counts such steps.
inline constexpr const char* kPairs = "bf16_pairs";
/// Whether the region's factors are bf16 and the target multiplies them in pairs: empty, or why
/// not.
std::string pairs_refused(const Region& region, const ContractionForm& form, const Target& target);

/// The same of integers of 8 and 16 bits, which are widened to 16: exact.
inline constexpr const char* kIntegerPairs = "i16_pairs";
std::string integer_pairs_refused(const Region& region, const ContractionForm& form,
                                  const Target& target);

/// The @mma of schedules whose register tile is made of tiles of a matrix unit (AMX), of bf16.
inline constexpr const char* kMatrix = "bf16_tiles";
/// Whether the target multiplies tiles of the form's factors: empty, or why not.
std::string matrix_refused(const Region& region, const ContractionForm& form, const Target& target);
/// Whether a side is tiles of a matrix unit where it lies: rows (or pairs of columns) that are
/// whole and lie evenly, with a depth of whole chunks.
bool left_is_tiles(const Region& region, const ContractionForm& form);
bool right_is_tiles(const Region& region, const ContractionForm& form);
/// The sizes of a schedule with @mma=bf16_tiles, made fit for the region.
Tiles matrix_sizes(const Schedule& schedule, const Region& region, const ContractionForm& form);
/// Such schedules, the likely best first.
std::vector<Schedule> matrix_space(const Region& region, const ContractionForm& form,
                                   const Target& target);

/// The sizes that a schedule asks for, made fit for the region and the target.
Tiles tiles_of(const Schedule& schedule, const Region& region, const ContractionForm& form,
               const Target& target);

/// Schedules worth trying, the likely best first.
std::vector<Schedule> contraction_space(const Region& region, const ContractionForm& form,
                                        const Target& target);

/// Columns (of one slice) that a panel of the right side should hold for such a product.
std::int64_t preferred_tile(const ContractionForm& form, const Target& target, bool pairs);

/// Bytes of a worker's packed panels and waiting sums, about; unknown sizes are taken for 1024.
double worker_bytes(const ContractionForm& form, const Tiles& tiles);

} // namespace egret::kernel
