// Targets with matrix units that the machine at hand need not have.
#pragma once

#include "backend/cpu/host.h"
#include "backend/cuda/target.h"

namespace egret::testing {

/// Of a CPU: products of pairs of bf16, and tiles.
inline void set_units(kernel::Target& target, bool pairs, bool tiles = false) {
  backend::cpu::describe_units(target, pairs, tiles);
}
/// Of an NVIDIA GPU, by its compute capability times ten.
inline void set_architecture(kernel::Target& target, int architecture) {
  target.architecture = architecture;
  backend::cuda::describe_units(target);
}
inline bool has_pairs(const kernel::Target& target) {
  return target.unit(kernel::FragmentLayout::Pairs, DType::BF16) != nullptr;
}
inline bool has_tiles(const kernel::Target& target) {
  return target.unit(kernel::FragmentLayout::Tiles) != nullptr;
}

} // namespace egret::testing
