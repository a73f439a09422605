// Passes: functions from a graph to a graph that computes the same values, composed with | and run
// in order, each with a report.
//
//   Pass mine("swap_pools", [](const ir::Graph& g, Notes& notes) { ...; return changed; });
//   Pass all = passes::simplify() | mine | passes::dead_code();
//   std::vector<PassReport> reports;
//   ir::Graph better = all(graph, &reports);
#pragma once

#include "egret/ir.h"
#include "egret/pattern.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace egret {

/// What a pass wants to tell: one line each, "mul(x, 1) = x: 3".
using Notes = std::vector<std::string>;

struct PassReport {
  std::string pass;
  std::size_t nodes_before = 0, nodes_after = 0;
  bool changed = false;     ///< what the outputs are computed from is not the same as before
  bool approximate = false; ///< values may differ in the last places
  double seconds = 0;
  Notes notes;
  std::string text() const; ///< "simplify: 12 -> 9 nodes" and the notes, indented, a line each
};

/// One pass or several in order. A value; calling it twice is the same as calling it once on each
/// graph.
class Pass {
public:
  using Transform = std::function<ir::Graph(const ir::Graph&, Notes&)>;

  Pass(std::string name, Transform transform, bool approximate = false);
  /// A rewrite as a pass, in rounds until nothing matches or 64 are done.
  Pass(pattern::Rewrite rule);

  /// The graph after all steps. Each step's result is verified and must keep the graph's inputs and
  /// the dtypes and shapes of its outputs: Error(Value) naming the pass when it does not. A report
  /// for each step is appended to `reports`.
  ir::Graph operator()(const ir::Graph& graph, std::vector<PassReport>* reports = nullptr) const;
  std::string name() const; ///< "simplify | dead_code"
  /// The least of the limits that steps set, in bytes; empty: none does. See MemoryLimit.
  std::optional<std::int64_t> memory_limit() const;

  friend Pass operator|(Pass first, const Pass& second);

protected:
  /// Changes no graph and sets a limit.
  explicit Pass(std::int64_t memory_limit);

private:
  struct Step {
    std::string name;
    Transform transform;
    bool approximate;
    std::optional<std::int64_t> memory_limit = {};
  };
  std::vector<Step> steps_;
};

namespace passes {

Pass dead_code();      ///< nodes that no output needs leave; the rest in canonical order
Pass fold_constants(); ///< what is the same known value everywhere becomes a broadcast constant, by
                       ///< the op table's definitions
Pass simplify();       ///< exact identities of algebra, selections, conversions and movements
                       ///< (docs/graph.md lists them)
/// stop_gradient becomes its operand. Only after differentiation.
Pass drop_markers();
/// Intrinsics become primitives, approximately: for backends without them, and for looking at.
Pass decompose_intrinsics();
/// What the compiler runs first: drop_markers, then fold_constants and simplify together until
/// neither finds anything, then dead_code.
Pass normalize();

} // namespace passes

/// The decomposition of an intrinsic (info_of(op).intrinsic) of `a` into primitives; f16 and bf16
/// are computed in f32 and rounded once.
ir::NodeId decompose(ir::Graph& graph, Op op, ir::NodeId a);

} // namespace egret
