// A graph in normal form, with the facts that the partition asks for.
#pragma once

#include "compiler/views.h"

#include <cstddef>

namespace egret::compiler {

/// One of the graphs that rules extracted, after the passes on graphs. Facts refer to the graph, so
/// an object stays where it is made.
class CandidateGraph {
public:
  /// `graph` in normal form, which `ops` operations had before it; 0: as many as now.
  explicit CandidateGraph(ir::Graph graph, std::size_t ops = 0);
  CandidateGraph(const CandidateGraph&) = delete;
  CandidateGraph& operator=(const CandidateGraph&) = delete;

  const ir::Graph& graph() const { return graph_; }
  const GraphFacts& facts() const { return facts_; }
  std::size_t ops() const { return ops_; } ///< before the normal form

private:
  ir::Graph graph_;
  std::size_t ops_;
  GraphFacts facts_;
};

} // namespace egret::compiler
