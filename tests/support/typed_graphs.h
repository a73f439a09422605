// Random graphs of up to 40 ops over every op and dtype, with the gradients of a scalar loss,
// compiled for the CPU and compared with the reference.
#pragma once

#include "support/plan_check.h"

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace egret::testing {

/// The graph of a seed, without gradients.
ir::Graph typed_graph(std::uint64_t seed);

/// The graph with a loss, the sum of its float outputs weighed by further inputs, and the loss's
/// gradients for its float inputs as further outputs. The graph itself when it has no float output
/// or input.
ir::Graph with_gradients(const ir::Graph& graph);

/// The ops through which a gradient for a float input passes.
std::set<Op> differentiated_ops(const ir::Graph& graph);

struct TypedFailure {
  std::uint64_t seed;
  std::string problem; ///< of the minimized graph
  ir::Graph minimized; ///< of the graph with gradients
  std::string text() const;
};

class TypedGraphs {
public:
  /// `inject_fault`: see compiler::Options::inject_fault.
  explicit TypedGraphs(std::function<void(kernel::Region&, kernel::Chosen&)> inject_fault = nullptr)
      : alter_(std::move(inject_fault)) {}

  /// Checks the graphs of seeds `first` to `first + count` on all cores; ends early after a few
  /// failures.
  void run(std::uint64_t first, std::uint64_t count);

  std::vector<TypedFailure> failures;
  std::set<Op> drawn, differentiated;
  std::set<std::string> generators; ///< that made a kernel which ran
  std::set<DType> dtypes;
  std::size_t graphs = 0, most_ops = 0;
  std::int64_t checked = 0, vacuous = 0; ///< elements; see PlanCheck

private:
  void check(std::uint64_t seed, backend::Device& device, compiler::KernelCache& cache);

  std::function<void(kernel::Region&, kernel::Chosen&)> alter_;
  std::mutex guard_;
};

} // namespace egret::testing
