// Chains: launches one after the other that run the same few kernels on other memory, as the steps
// of an unrolled loop over time do, as one launch whose blocks go through the steps.
#pragma once

#include "kernel/generator.h"
#include "kernel/region.h"
#include "kernel/target.h"
#include "kernel/touched_memory.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace egret::kernel {

/// `period` kernels, launched in turn, `turns` times.
struct ChainProblem {
  std::string name;
  std::vector<const Region*> period;
  std::int64_t turns = 0;
  /// By launch, by operand in memory and then output of the region.
  std::vector<std::vector<MemoryRange>> places;
};

/// An argument of a chain's program: where it begins.
struct ChainArgument {
  int base = -1;
  std::int64_t offset = 0;
};

struct LoweredChain {
  bool ok = false;
  KernelProgram program;
  std::vector<ChainArgument> arguments; ///< by pointer argument
  double seconds = 0;                   ///< of all turns, predicted
  double launch_seconds = 0;            ///< of launches of their own instead, predicted
  std::string reason;
  bool has_too_many_arguments = false; ///< for a launch; fewer turns may have few enough
  /// Blocks of some rows each would share memory: if what the steps write had memory of its own,
  /// they might not.
  bool rows_mix = false;
};

/// The chain as one program. Rows of the result belong to one block, or to a cluster of blocks that
/// share its columns (clusters.h). A step of a block waits for nothing but the block itself and its
/// cluster: all that steps read of what other steps have written, and what they write over, must be
/// of the rows of the result that the same block or cluster has in each of them, or it has all
/// rows. Factors that do not change from step to step are loaded once (gpu_stationary.h).
LoweredChain lower_chain(const ChainProblem& problem, const Target& target);

} // namespace egret::kernel
