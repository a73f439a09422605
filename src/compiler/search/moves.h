// Other ways to cut a graph into kernels than the greedy one, a step away from it each.
#pragma once

#include "compiler/partitioned.h"

#include <cstdint>
#include <string>
#include <vector>

namespace egret::compiler {

/// A change of a fusion plan: a value stored or computed anew, two values in different kernels, or one
/// kind of fusion left out. Values that look alike in their graph, as those of a model's layers do,
/// change together.
struct Move {
  std::uint64_t id = 0; ///< depends on what it changes and not on node numbers
  std::string what;     ///< for people
  PartitionChoices choices;
  double elements = 0; ///< of the values that it is about, in all places
};

/// Values of fewer elements decide nothing.
inline constexpr double kLeastElements = 1024;

/// Those worth a try, those about most elements first; none is about values of fewer elements than
/// `least`.
std::vector<Move> moves_of(const GraphFacts& facts, const Partition& greedy,
                           double least = kLeastElements);

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

/// The same choices by the nodes of the graph with its values in other layouts.
PartitionChoices choices_in_layouts(const PartitionChoices& choices, const LayoutAssignment& assigned);

/// All changes together.
PartitionChoices together(const std::vector<Move>& moves, const std::vector<std::uint64_t>& ids);

} // namespace egret::compiler
