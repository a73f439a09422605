// What the generators of a GPU share: lanes of its accesses, and points numbered in row-major order
// and dealt to threads.
#pragma once

#include "kernel/emit.h"
#include "kernel/generator.h"
#include "kernel/region.h"
#include "kernel/schedule.h"
#include "kernel/target.h"

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace egret::kernel {

/// Coordinates in a box, outermost first, of its point number `flat`.
std::vector<Expr> unflatten(const Expr& flat, std::span<const Expr> extents);

/// Lanes along `axis` with which the narrowest type that lies contiguously along it fills an access
/// of `vector_bytes`. Rows that begin at any element get 1, because their lanes would be accessed
/// one by one, each apart from its neighbours in the warp.
int gpu_lanes(const Region& region, int axis, std::int64_t vector_bytes);

/// Streaming stores for results that the next kernel could not find in the cache.
CachePolicy gpu_store_policy(const Region& region, const Target& target);

/// Why a block cannot have so many threads; empty when it can.
std::string gpu_threads_refused(std::int64_t threads);

/// The program, or the refusal of one that asks for more shared memory than a block can have beside
/// what the renderer needs for itself.
Lowered within_block(KernelProgram program, const Target& target);

/// Stores outputs of their stages' results at a point, by the threads whose number is 0.
void store_once(Emitter& emitter, const std::vector<int>& outputs, const Point& point,
                const Expr& number);

/// Several passes over units (rows, columns) that are cut into `slices` for the blocks: all slices
/// of a pass, and behind a barrier of the grid those of the next. With `finishes`, whole units at
/// last: pass number `passes`, whose slice is 0.
void passes_by_slices(
    ProgramBuilder& builder, int passes, const Expr& units, std::int64_t slices, bool finishes,
    const std::function<void(int pass, const Expr& unit, const Expr& slice)>& body);

/// Asks for as few blocks of a multiprocessor as have 512 threads: for more of them, ptxas spills
/// registers of kernels with much at hand.
void keep_registers(Launch& launch);

/// The next stage of a ring of `stages` in shared memory, and the parity of its phase, which
/// changes behind the last one. Both are i32.
void advance_ring(ProgramBuilder& builder, VarId stage, VarId parity, int stages);

/// A power of two: the largest up to `n`, at least 1.
int power_of_two_upto(std::int64_t n);

} // namespace egret::kernel
