// Chains: launches one after the other that run the same few kernels on other memory, as the steps
// of an unrolled loop over time do, as one launch whose blocks go through the steps.
#pragma once

#include "kernel/generator.h"
#include "kernel/region.h"
#include "kernel/target.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace egret::kernel {

/// Bytes of memory from the begin of some allocation.
struct ChainPlace {
  int base = -1; ///< which allocation
  std::int64_t offset = 0, bytes = 0;
  std::int64_t end() const { return offset + bytes; }
};

/// `period` kernels, launched in turn, `turns` times.
struct ChainProblem {
  std::string name;
  std::vector<const Region*> period;
  std::int64_t turns = 0;
  /// By launch, by operand in memory and then output of the region.
  std::vector<std::vector<ChainPlace>> places;
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
  double step_seconds = 0;              ///< of one turn, predicted
  std::string reason;
};

/// The chain as one program. A step of a block waits for nothing but the block itself: all that
/// steps read of what other steps have written, and what they write over, must be of the rows of
/// the result that the same block has in each of them, or there is one block. Factors that do not
/// change from step to step are loaded once (gpu_stationary.h).
LoweredChain lower_chain(const ChainProblem& problem, const Target& target);

} // namespace egret::kernel
