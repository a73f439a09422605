// Layout assignment: some readers of a value take it from memory in another order, in the layout
// that their kernels prefer; by a copy, or because its producer stores it so.
#pragma once

#include "compiler/fold_parameters.h"
#include "compiler/views.h"
#include "kernel/layouts.h"

#include <map>
#include <span>
#include <vector>

namespace egret::compiler {

/// One value in one more layout.
struct LayoutChange {
  ir::NodeId value = ir::kNoNode; ///< no movement node
  kernel::Layout layout;          ///< of its elements, row-major
  std::vector<Use> readers;       ///< operands of non-movement nodes that read it so
  bool kept = false; ///< made once and again only when what it is made of has changed: it depends
                     ///< on steady inputs only
  std::string what;  ///< the layout, for people
  friend bool operator==(const LayoutChange&, const LayoutChange&) = default;
};

/// A graph with such copies. Those that are kept are its last inputs, which `fill` makes of the
/// graph's inputs; the others are identities of a view, which a partition must store.
struct LayoutAssignment {
  ir::Graph graph;
  std::vector<ir::NodeId> now;         ///< by node of the graph before; kNoNode: movements
  std::vector<ir::NodeId> copies;      ///< made in each run
  ir::Graph fill;                      ///< gives what is kept, in order
  std::vector<std::size_t> sources;    ///< by input of `fill`: the graph's input
  std::vector<FoldedParameter> report; ///< by kept value
  double kept_bytes = 0;
};

/// Where two of `changes` have a reader in common, the first one has it. Sizes are known.
LayoutAssignment with_layouts(const GraphFacts& facts, std::span<const LayoutChange> changes);

/// What depends on inputs for which `steady` holds, by slot, and on one at least.
std::vector<bool> parameters_of(const ir::Graph& graph, const std::vector<bool>& steady);

/// Adds node `id` of `graph`, with all it is made of, to `to`, whose new inputs go to `sources` by
/// the slot they have in `graph`.
class FillCopier {
public:
  FillCopier(const ir::Graph& graph, ir::Graph& to, std::vector<std::size_t>& sources)
      : graph_(graph), to_(to), sources_(sources) {}
  ir::NodeId operator()(ir::NodeId id);

private:
  const ir::Graph& graph_;
  ir::Graph& to_;
  std::vector<std::size_t>& sources_;
  std::map<ir::NodeId, ir::NodeId> known_;
};

/// One derivation of a graph with `outside` inputs from two steps: `first`, whose main graph was
/// changed, or null, and `assigned`, or null. Values of `first` that are not read any more are no
/// longer made: one zero stands for each.
ParameterFolding compose(std::size_t outside, const ParameterFolding* first,
                         const LayoutAssignment* assigned, const ir::Graph& main);

} // namespace egret::compiler
