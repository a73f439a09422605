// Clusters: blocks of a launch, neighbours in number, that are on one part of a GPU at the same
// time and wait for each other by a barrier of their own.
#pragma once

#include "kernel/program.h"
#include "support/fail.h"

namespace egret::kernel {

/// Blocks of a cluster by which a launch of it is portable to all GPUs with clusters; at the most.
inline constexpr int kPortableCluster = 8, kMostCluster = 16;

/// Blocks of each of the program's clusters: as many as its barriers ask for; 0 where there are
/// none.
inline int cluster_blocks(const KernelProgram& program) {
  int blocks = 0;
  each_statement(program.body, [&](const Stmt& s) {
    const auto* use = get_if<Intrinsic>(s);
    if (!use || use->id != IntrinsicId::GridBarrier)
      return;
    const int own = static_cast<int>(use->number("blocks"));
    ensure(blocks == 0 || own == 0 || own == blocks,
           "program {}: barriers of clusters of {} and of {} blocks", program.name, blocks, own);
    blocks = own == 0 ? blocks : own;
  });
  return blocks;
}

} // namespace egret::kernel
