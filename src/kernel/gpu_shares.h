// Shares of the depth of tiles that different blocks multiply, on a GPU.
#pragma once

#include "kernel/gpu_wgmma.h"

namespace egret::kernel {

/// Puts each share of a tile's sums into a workspace. Behind a barrier of the grid all warps of all
/// blocks have a part of the tiles: they add the shares up in order, so that results do not depend
/// on the number of blocks, apply the maps that follow and store all outputs.
std::unique_ptr<TileSums> shares_of_tiles(Emitter& emitter, const ContractionForm& form,
                                          const GpuTiles& tiles);

} // namespace egret::kernel
