// Contractions on GPUs of compute capability 9.0: one warp group copies tiles by the copy engine,
// the others multiply.
#pragma once

#include "kernel/generator.h"
#include "kernel/gpu_contraction_tiles.h"

#include <string>

namespace egret::kernel {

/// Why the copy engine cannot bring a side; empty when it can. `panel`: elements of a tile along
/// the group.
std::string tensor_map_reason(const Region& region, const ContractionForm& form, const Side& side,
                              const AxisGroup& group, int panel);

Lowered lower_wgmma(const Region& region, const ContractionForm& form, const GpuTiles& tiles,
                    const Schedule& schedule);

} // namespace egret::kernel
