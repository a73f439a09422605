#include "kernel/tile_products.h"

#include <algorithm>

namespace egret::kernel {

TileRoles tile_roles(int down, int across) {
  const int free = kTiles - down * across;
  if (free > down)
    return {down, std::min(across, free - down)};
  if (free > across)
    return {std::min(down, free - across), across};
  return {};
}

void clear_sums(ProgramBuilder& b, int down, int across) {
  for (int i = 0; i < down * across; ++i)
    b.tile_zero(i);
}

namespace {

Expr place_of(int i, int v, const Expr& place, const Expr& stride) {
  return place + stride * Expr(std::int64_t(i) * kTileRows) + Expr(std::int64_t(v) * kChunk);
}

} // namespace

void load_sums(ProgramBuilder& b, int down, int across, int buffer, const Expr& place,
               const Expr& stride) {
  for (int i = 0; i < down; ++i)
    for (int v = 0; v < across; ++v)
      b.tile_load(i * across + v, buffer, place_of(i, v, place, stride), stride);
}

void store_sums(ProgramBuilder& b, int down, int across, int buffer, const Expr& place,
                const Expr& stride) {
  for (int i = 0; i < down; ++i)
    for (int v = 0; v < across; ++v)
      b.tile_store(i * across + v, buffer, place_of(i, v, place, stride), stride);
}

void multiply_tiles(ProgramBuilder& b, int down, int across, const LoadTile& left,
                    const LoadTile& right) {
  const TileRoles held = tile_roles(down, across);
  const int first_left = down * across, first_right = first_left + held.left;
  if (held.left == down) {
    for (int v = 0; v < across; ++v) {
      const int r = first_right + v % held.right;
      right(r, v);
      for (int i = 0; i < down; ++i) {
        if (v == 0)
          left(first_left + i, i);
        b.tile_multiply(i * across + v, first_left + i, r);
      }
    }
    return;
  }
  for (int i = 0; i < down; ++i) {
    const int l = first_left + i % held.left;
    left(l, i);
    for (int v = 0; v < across; ++v) {
      if (i == 0)
        right(first_right + v, v);
      b.tile_multiply(i * across + v, l, first_right + v);
    }
  }
}

} // namespace egret::kernel
