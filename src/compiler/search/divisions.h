// The search over whole programs: which of the graphs that rules found, and how it is cut into
// kernels.
#pragma once

#include "compiler/assemble.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace egret::compiler {

/// A way to make a program: the form it takes, and changes of that form's greedy division.
struct DivisionChoice {
  int form = 0;                     ///< of those that were extracted, the cheapest first
  std::vector<std::uint64_t> moves; ///< in ascending order
  friend bool operator==(const DivisionChoice&, const DivisionChoice&) = default;
};
/// One line, which parse_schedule() takes too: "division form=1 m000000000000000b=1".
std::string to_string(const DivisionChoice& choice);
/// Error(Parse) for what is no such line.
DivisionChoice parse_division(std::string_view text);

/// Seconds of runs of the best program so far and of a rival, by round.
using CompareDivisions =
    std::function<std::vector<std::vector<double>>(const Compiled& best, const Compiled& rival)>;

/// Finds the division of a program and the schedules of its regions. With Effort::Search and above,
/// beside the cheapest form's greedy division, others are tried that a model of the machine does
/// not put far behind: their new regions are searched, and the whole program is timed in turn with
/// the best one so far, with all of its kernels in their places. What is faster by a clear margin
/// is kept, and so are further changes of it. What was chosen is remembered under the program's
/// hash.
class DivisionSearch {
public:
  DivisionSearch(const ir::Graph& graph, std::vector<std::unique_ptr<Form>> forms,
                 const Options& options, backend::Device& device, KernelCache& cache,
                 CompareDivisions compare = {}); ///< empty: by time_in_turn()
  ~DivisionSearch();
  DivisionSearch(const DivisionSearch&) = delete;
  DivisionSearch& operator=(const DivisionSearch&) = delete;

  /// The division that was remembered, or the greedy one of the cheapest form.
  Partitioned first();
  /// Schedules for the first division, and then other divisions where there is time.
  Proposed propose(Partitioned first);
  /// Of what propose() gave.
  const Form& form() const;
  /// Values that it has in other layouts; null: none.
  const Relaid* relaid() const;
  /// The options with what is left of a memory limit beside values that are kept. Error(Memory)
  /// where nothing is.
  Options options() const;

private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace egret::compiler
