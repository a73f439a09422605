// Graphs as pictures: text for Graphviz (dot -Tsvg).
#pragma once

#include "egret/ir.h"

#include <string>
#include <vector>

namespace egret::ir {

/// Nodes drawn together in a box, for instance those of one kernel. A node belongs to the first box
/// that names it.
struct Highlight {
  std::vector<NodeId> nodes;
  std::string label;             ///< over the box
  std::string color = "#ffe08a"; ///< fill of its nodes, as Graphviz writes colours
};

/// Live nodes with op, attributes and type; inputs as ellipses, movements dashed, outputs with a
/// double border.
std::string to_dot(const Graph& graph, const std::vector<Highlight>& highlights = {});

} // namespace egret::ir
