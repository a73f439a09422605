// Search moves that assign other layouts to values (layout assignment by search, as in TVM's layout
// rewriting and XLA's layout assignment, but measured).
#pragma once

#include "compiler/search/moves.h"

#include <vector>

namespace egret::compiler {

/// What a move may take for a parameter or must leave in its place.
struct LayoutContext {
  std::vector<bool> steady;   ///< by slot: Options::steady
  std::vector<bool> replaced; ///< by slot: a state that the graph replaces in place
};

/// Moves that put what a kernel reads into memory as the kernel's generator prefers it: parameters
/// once for all runs, other values in each run, by whoever makes them or by a kernel of its own.
/// Left as they are: values of fewer elements than `least` or of sizes that are not known, what a
/// scatter updates and what a state is replaced in place of, and, where their maker would store
/// them in another order, inputs, outputs and results of scatters.
std::vector<Move> layout_moves_of(const GraphFacts& facts, const Partitioned& parts,
                                  const kernel::Target& target, const LayoutContext& context,
                                  double least = kLeastElements);

/// Whether some generator says what other layouts should save: else no move of these is expected to
/// pay, which is known without looking at readers and sizes.
bool may_expect_layouts(const Partitioned& parts, const kernel::Target& target);

/// The same choices by the nodes of the graph with its values in other layouts.
PartitionChoices choices_in_layouts(const PartitionChoices& choices,
                                    const LayoutAssignment& assigned);

} // namespace egret::compiler
