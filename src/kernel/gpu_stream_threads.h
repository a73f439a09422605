// Streams on a GPU whose factors are f32: threads multiply them by fused multiply-adds.
#pragma once

#include "kernel/gpu_stream_memory.h"
#include "kernel/schedule.h"
#include "kernel/target.h"

#include <string>
#include <vector>

namespace egret::kernel {

/// Why such a kernel cannot be made of a stream found with StreamTakes::Vectors; empty where it
/// can. A product of two 16-bit factors is left to matrix units.
std::string thread_stream_refused(const Region& region, const StreamForm& form);

/// Tiles that a thread's registers and a block's shared memory hold, by their estimated time.
std::vector<StreamTiles> thread_stream_space(const Region& region, const StreamForm& form,
                                             const Target& target);

/// Of few rows, whose places warps share out; how many blocks do is not set.
std::vector<StreamTiles> shared_thread_tiles(const Region& region, const StreamForm& form,
                                             const Target& target);

/// Whether kernels of their own for the products and sums, with the scores in memory between them,
/// are predicted to take less time than the best tiles. Of scores that fill a cache a few times at
/// the most: what a stream is for as well is that larger ones need no memory.
bool stored_scores_take_less(const Region& region, const StreamForm& form, const Target& target);

/// 32-bit registers of a thread for what stays in them over a tile.
std::int64_t thread_stream_registers(const StreamForm& form, const StreamTiles& tiles);

KernelProgram make_thread_stream(const Region& region, const StreamForm& form,
                                 const StreamTiles& tiles, const Schedule& schedule,
                                 const Target& target);

} // namespace egret::kernel
