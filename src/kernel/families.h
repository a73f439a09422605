// The generators, one file each.
#pragma once

#include "kernel/generator.h"

namespace egret::kernel {

/// Maps over one box, any views, several outputs.
const Generator& elementwise_generator();

/// Reductions of many short rows on a CPU, a row a lane.
const Generator& reduction_generator();

/// Reductions over one set of axes, one or several passes, with maps before, between and after:
/// lanes along the reduced axis (rows) or along a parallel one (columns).
const Generator& rows_generator();
const Generator& columns_generator();

/// Sums of products (matmuls in any layout, batched) with register tiles, packing and an epilogue.
const Generator& contraction_generator();

/// The same on a GPU: tiles in shared memory, sums in registers, fused multiply-adds or matrix
/// instructions.
const Generator& gpu_contraction_generator();

/// Products of up to eight rows with a matrix on a GPU: as fast as the matrix can be read.
const Generator& gpu_skinny_generator();

/// The same where the matrix is long: its rows come through a ring in shared memory, and may do so
/// before the launch before has ended.
const Generator& gpu_ring_generator();

/// Products by a vendor's library, where the target has one: never the greedy choice.
const Generator& gpu_library_generator();
/// Sums over products that are made tile by tile and never stored (attention and its gradients), on
/// a CPU and on a GPU.
const Generator& stream_generator();
const Generator& gpu_stream_generator();
/// Whether kernels of their own for a stream's products and sums, with the scores in memory between
/// them, are predicted to take less time than the stream: on a GPU those that multiply f32, on a
/// CPU those that multiply pairs of bf16.
bool stored_scores_take_less(const Region& region, const Target& target);
/// Whether a stream makes one product, once in one pass, and has work for a whole GPU: its rows are
/// tiles for all multiprocessors, or few enough to share out the places.
bool is_whole_stream(const Region& region, const Target& target);
/// Sums over the columns of a product of any depth, which is made once and never stored.
const Generator& gpu_row_products_generator();

/// Scans along one axis, with maps before and after: whole rows, or an axis cut into pieces that
/// workers share; of a CPU and of a GPU.
const Generator& scans_generator();
const Generator& gpu_scans_generator();

/// Sorts along one axis: by radix, or of the first few only by selection; of a CPU and of a GPU.
const Generator& sort_generator();
const Generator& gpu_sort_generator();

/// Scatters of integers, or of many updates to few elements: every worker or thread combines a
/// share of the updates in memory of its own; of a CPU and of a GPU.
const Generator& scatter_generator();
const Generator& gpu_scatter_generator();

/// Several independent regions in one launch, each as its own family would have it; of a CPU and of
/// a GPU.
const Generator& batch_generator();
/// The program that a region would be in a batch; not ok where it cannot be part of one.
Lowered lower_part(const Region& region, const Target& target);

/// Any region except sorts, as schedule trees: one loop nest a stage, with a barrier between stages
/// that feed each other through memory.
const Generator& generic_generator();

/// Any region except sorts, as a schedule's loop tree says: see loops/tree.h. Never the greedy
/// choice: searches propose its trees, and people write them.
const Generator& loops_generator();

// Of a GPU.
/// Reductions of few terms: a thread makes whole results.
const Generator& gpu_points_generator();
const Generator& gpu_window_sums_generator();
const Generator& gpu_rows_generator();
/// Reductions across the contiguous axis, as schedule trees.
const Generator& reduction_threads_generator();

} // namespace egret::kernel
