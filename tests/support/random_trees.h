// Random loop trees of a region: the plain one rewritten step by step, each step legal.
#pragma once

#include "kernel/loops/tree.h"
#include "support/random_graph.h"

namespace egret::testing {

/// What loops may be bound to, beside serial ones.
struct TreeBinds {
  std::vector<kernel::Bind> binds{kernel::Bind::Serial, kernel::Bind::Unroll, kernel::Bind::Vector,
                                  kernel::Bind::Core};
};

/// One random rewriting somewhere in the tree (splits, exchanges, fusing, fission, bindings, parts
/// of sums, copies near, maps with and without a body of their own); the tree itself when it fits
/// nowhere or is not legal.
kernel::loops::TreePtr rewritten(const kernel::Region& region, const kernel::loops::TreePtr& tree,
                                 Rng& rng, const TreeBinds& binds = {});

kernel::loops::TreePtr random_tree(const kernel::Region& region, Rng& rng, int steps,
                                   const TreeBinds& binds = {});

} // namespace egret::testing
