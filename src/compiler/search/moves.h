// Other ways to cut a graph into kernels than the greedy one, a step away from it each.
#pragma once

#include "compiler/partitioned.h"

#include <cstdint>
#include <string>
#include <vector>

namespace egret::compiler {

/// A change of a fusion plan: a value stored or computed anew, two values in different kernels, or
/// one kind of fusion left out. Values that look alike in their graph, as those of a model's layers
/// do, change together.
struct Move {
  std::uint64_t id = 0; ///< depends on what it changes and not on node numbers
  std::string what;     ///< for people
  PartitionChoices choices;
  double elements = 0;   ///< of the values that it is about, in all places
  bool expected = false; ///< to pay by far: part of the first fusion plan
};

/// Values of fewer elements decide nothing.
inline constexpr double kLeastElements = 1024;

/// Those worth a try, those about most elements first; none is about values of fewer elements than
/// `least`.
std::vector<Move> moves_of(const GraphFacts& facts, const Partition& greedy,
                           double least = kLeastElements);

/// All changes together.
PartitionChoices together(const std::vector<Move>& moves, const std::vector<std::uint64_t>& ids);

} // namespace egret::compiler
