// Products of a matrix unit's tiles, by which of them hold what.
#pragma once

#include "kernel/builder.h"

#include <functional>

namespace egret::kernel {

/// Steps (pairs) of the depth that one product of tiles takes.
inline constexpr int kChunk = kTileBytes / 4;

/// Tiles for `down` rows of them by `across`: first the sums, row by row, then those of the left
/// factor and those of the right one. A side that does not fit is loaded tile by tile.
struct TileRoles {
  int left = 0, right = 0; ///< how many; 0: there are too many sums
};
TileRoles tile_roles(int down, int across);

/// Tiles of sums: 0, or rows of `buffer` from `place` on that are `stride` elements apart; and
/// back.
void clear_sums(ProgramBuilder& b, int down, int across);
void load_sums(ProgramBuilder& b, int down, int across, int buffer, const Expr& place,
               const Expr& stride);
void store_sums(ProgramBuilder& b, int down, int across, int buffer, const Expr& place,
                const Expr& stride);

/// Adds the products of one chunk of the depth to the sums. `left` and `right` load part `i` of a
/// side into a tile.
using LoadTile = std::function<void(int tile, int i)>;
void multiply_tiles(ProgramBuilder& b, int down, int across, const LoadTile& left,
                    const LoadTile& right);

} // namespace egret::kernel
