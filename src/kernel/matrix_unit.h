// Matrix units: a row each for what multiplies small matrices in one instruction.
#pragma once

#include "egret/dtype.h"
#include "kernel/capability.h"

#include <string>
#include <vector>

namespace egret::kernel {

/// How a unit's operands and sums lie in registers or memory: what code for it has to know.
enum class FragmentLayout : std::uint8_t {
  Pairs,              ///< vectors of u32, two neighbours of the depth each: bf16 (AVX-512 BF16), or
                      ///< i16 that narrower integers are widened to
  Tiles,              ///< registers of 16 rows of 64 bytes (AMX): see IntrinsicId::TileMultiply
  SubgroupFragments,  ///< spread over a subgroup's registers: see IntrinsicId::MatrixMultiply
  SwizzledSharedRows, ///< operands in shared memory: see IntrinsicId::MatrixMultiplyAsync
};

enum class OperandSource : std::uint8_t { Vector, Fragment, Shared, Tile };

/// One product: m x k by k x n, added to m x n sums.
struct MatrixUnit {
  std::string name; ///< as schedules say it, "m16n8k16"
  FragmentLayout layout = FragmentLayout::Pairs;
  int m = 0, n = 0, k = 0;     ///< n 0: any multiple of 8
  std::vector<DType> elements; ///< of both factors
  DType accumulator = DType::F32;
  std::vector<OperandSource> left, right; ///< where the factors may be
  IntrinsicScope scope = IntrinsicScope::CpuThread;
  bool queued = false; ///< products go on while the threads do
  double cycles = 1;   ///< of a scheduler, from one product to the next
};

} // namespace egret::kernel
