// Runs a kernel program statement by statement, for checking generators and renderers: slow, and
// suspicious of everything.
#pragma once

#include "kernel/program.h"

namespace egret::backend::reference {

struct InterpreterOptions {
  int workers = 1; ///< or blocks of a GPU; at most what the program's launch says it can use
  bool check_races =
      true; ///< two workers touch one element between barriers and one of them writes it
  bool check_uninitialized =
      true; ///< a workspace, worker or write-only element is read that nothing wrote
};

/// Executes `program`. Of `block` it uses the pointers of Argument buffers, dims and scalars;
/// workspaces and worker memory are its own, filled with 0xA5 bytes. Workers run one after the
/// other from barrier to barrier, so that a run always does the same. Of a GPU's program, the 32
/// threads of a warp go in step, and warps take turns as workers do.
///
/// Floats are computed as the op table says (in f64, rounded once to the type of the instruction).
/// Throws InternalError naming the program, the buffer and the index for: an access outside a
/// buffer or against its read and written flags, a race, a read of memory that was never written, a
/// loop variable outside its extent, a Core loop within a Core loop, workers that miss a barrier.
void interpret(const kernel::KernelProgram& program, const kernel::ArgBlock& block,
               const InterpreterOptions& options = {});

} // namespace egret::backend::reference
