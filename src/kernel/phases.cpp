#include "kernel/phases.h"

#include <algorithm>

namespace egret::kernel {

namespace {

std::int64_t meetings(const Block& block, bool one_worker) {
  std::int64_t count = 0;
  for (const Stmt& stmt : block) {
    switch (stmt.kind) {
    case StmtKind::Barrier: // on a GPU it is that of one block
      count += one_worker ? 1 : 0;
      break;
    case StmtKind::GridBarrier:
      count += 1;
      break;
    case StmtKind::For: {
      const std::int64_t inside = meetings(stmt.body, one_worker);
      if (inside > 0)
        count +=
            inside * std::max<std::int64_t>(0, ceildiv(stmt.end - stmt.begin, stmt.step).upper());
      break;
    }
    default:
      count += std::max(meetings(stmt.body, one_worker), meetings(stmt.otherwise, one_worker));
      break;
    }
  }
  return count;
}

} // namespace

std::int64_t phases_of(const KernelProgram& program) {
  return 1 + meetings(program.body, program.launch.threads == 0);
}

} // namespace egret::kernel
