#include "kernel/phases.h"

#include <algorithm>

namespace egret::kernel {

namespace {

std::int64_t meetings(const Block& block, bool one_worker) {
  std::int64_t count = 0;
  for (const Stmt& stmt : block)
    count += std::visit(
        overloaded{[](const Let&) { return std::int64_t{0}; },
                   [](const Assign&) { return std::int64_t{0}; },
                   [](const Store&) { return std::int64_t{0}; },
                   // On a GPU it is that of one block.
                   [&](const Barrier&) { return std::int64_t{one_worker}; },
                   [](const Intrinsic& use) {
                     return std::int64_t{info_of(use.id).scope == IntrinsicScope::Grid &&
                                         info_of(use.id).acquires};
                   },
                   [&](const For& loop) {
                     const std::int64_t inside = meetings(loop.body, one_worker);
                     const std::int64_t trips =
                         inside > 0 ? ceildiv(loop.end - loop.begin, loop.step).upper() : 0;
                     return inside * std::max<std::int64_t>(0, trips);
                   },
                   [&](const If& choice) {
                     return std::max(meetings(choice.body, one_worker),
                                     meetings(choice.otherwise, one_worker));
                   },
                   [&](const Acquire& behind) { return meetings(behind.body, one_worker); },
                   [&](const InProblem& one) { return meetings(one.body, one_worker); }},
        stmt.node);
  return count;
}

} // namespace

std::int64_t phases_of(const KernelProgram& program) {
  return 1 + meetings(program.body, program.launch.threads == 0);
}

} // namespace egret::kernel
