// What a target may have beside loads, stores and arithmetic: what intrinsics ask for.
#pragma once

#include <cstdint>

namespace egret::kernel {

enum class Capability : std::uint8_t {
  Subgroups,            ///< lanes that execute in step and exchange values
  CoResidentBlocks,     ///< blocks of a launch that run at the same time may wait for each other
  AsyncCopies,          ///< copies to shared memory that go on while the thread does
  BulkTensorCopies,     ///< boxes of tensors, copied by one thread, and barriers in memory
  SubgroupMatrices,     ///< a subgroup multiplies matrices in its registers
  QueuedMatrices,       ///< a group of subgroups multiplies matrices in shared memory, queued
  RegisterReallocation, ///< registers move between subgroups of a block
  MatrixTiles,          ///< registers of a CPU's thread that hold matrices
  Atomics,              ///< integers of 4 and 8 bytes in memory are combined in one step
  BlockClusters,        ///< neighbouring blocks that run at the same time, with a barrier
};
inline constexpr int kCapabilities = static_cast<int>(Capability::BlockClusters) + 1;
const char* name_of(Capability capability) noexcept;

/// Who executes an intrinsic together.
enum class IntrinsicScope : std::uint8_t {
  Lane,          ///< each thread for itself
  Subgroup,      ///< all lanes of a subgroup
  SubgroupGroup, ///< all lanes of four subgroups
  Block,         ///< all threads of a block
  Grid,          ///< all threads of all blocks
  CpuThread      ///< a worker on a CPU
};

} // namespace egret::kernel
