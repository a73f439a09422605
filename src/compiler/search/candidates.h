// The programs that could compute a region: what every generator proposes, without repetitions.
#pragma once

#include "backend/reference/host_array.h"
#include "compiler/search/machine.h"
#include "kernel/generator.h"
#include "loops/options.h"

#include <optional>
#include <string>
#include <vector>

namespace egret::compiler {

struct Candidate {
  kernel::Schedule schedule;
  kernel::KernelProgram program;
  std::uint64_t hash = 0; ///< of the program
  double predicted = 0;   ///< seconds, by cost_model.h
};

struct Refused {
  kernel::Schedule schedule;
  std::string reason;
};

struct Candidates {
  std::vector<Candidate> list; ///< the greedy one first, then by prediction
  std::vector<Refused> refused;
  std::int64_t repeated = 0; ///< schedules that gave a program which was there already
};

/// The first `per_generator` schedules of each space (0: all) that lower to a program which none
/// before them gave. At most `most` candidates, those predicted slowest leave (0: all).
/// `of_first_generator`: only of the first generator that takes the region.
Candidates candidates_of(const kernel::Region& region, const kernel::Target& target,
                         const Machine& machine, const backend::reference::Bindings& sizes,
                         std::size_t per_generator, std::size_t most);

/// Of the first `most` schedules of the generator's space that the greedy schedule is of, those
/// that effort `quick` may take in its place: with the same policy of stores. The greedy one stands
/// first, the others as in the space. Not verified, since who takes one verifies it. `cold`: no
/// cache holds the operands.
Candidates candidates_like(Candidate greedy, const kernel::Region& region,
                           const kernel::Target& target, const Machine& machine,
                           const backend::reference::Bindings& sizes, std::size_t most, bool cold);

/// Adds the trees that the module `loops` proposes for the region (docs/loops.md), as schedules of
/// the generator `loops`, beside what is there; nothing where the target has no such generator.
/// They take their places by prediction, behind the greedy one.
loops::LoopReport add_loop_trees(Candidates& candidates, const kernel::Region& region,
                                 const kernel::Target& target, const Machine& machine,
                                 const backend::reference::Bindings& sizes,
                                 const loops::LoopOptions& options);

/// With effort `quick`: the tree that should take the least time, where no family takes the region
/// and it should take less than half of what the greedy one does; nothing otherwise. Untried.
/// `report` is filled where trees were asked for.
std::optional<Candidate> quick_loop_tree(const Candidate& greedy, const kernel::Region& region,
                                         const kernel::Target& target, const Machine& machine,
                                         const backend::reference::Bindings& sizes,
                                         std::optional<loops::LoopReport>& report);

/// Values for a region's symbols to try it at: the upper bound, or where that is far away a
/// thousand or so.
backend::reference::Bindings sizes_to_try(const kernel::Region& region);
/// The bytes of all operands and outputs.
double footprint(const kernel::Region& region, const backend::reference::Bindings& sizes);

} // namespace egret::compiler
