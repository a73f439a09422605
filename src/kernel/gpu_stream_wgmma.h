// Streams on GPUs of compute capability 9.0: one warp group brings tiles by the copy engine, the
// others make scores by `wgmma` and keep them in registers.
#pragma once

#include "kernel/generator.h"
#include "kernel/stream_form.h"

#include <string>

namespace egret::kernel {

/// A block's warp groups have 64 rows each and go along the places by tiles.
struct WgmmaStreamTiles {
  int groups = 2; ///< that multiply; one more copies
  int places = 128;
  int stages = 2;            ///< of the rings along the places
  bool ahead = true;         ///< the next tile's scores are made beside this one's sums
  bool turns = true;         ///< the groups issue products in turn
  bool stays = true;         ///< a block does one tile of rows after the other
  int blocks = 1;            ///< of a multiprocessor
  bool dynamic = false;      ///< blocks that stay take the next tile that none has
  std::int64_t together = 1; ///< points of the batch whose tiles of rows are done beside each other
  int rows() const { return 64 * groups; }
  int threads() const { return 128 * (groups + 1); }
};

/// Why a stream cannot be made so; empty when it can.
std::string wgmma_stream_refused(const Region& region, const StreamForm& form,
                                 const WgmmaStreamTiles& tiles, const Target& target);

/// Of a region with late divisors that is not refused.
KernelProgram make_wgmma_stream(const Region& region, const StreamForm& form,
                                const WgmmaStreamTiles& tiles, const Schedule& schedule,
                                const Target& target);

} // namespace egret::kernel
