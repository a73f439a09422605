// Parts of the text form of graphs that the printer, the parser and reports share.
#pragma once

#include "egret/ir.h"

#include <string>
#include <string_view>
#include <vector>

namespace egret::ir {

/// Whether the op's text says `axis=1` and not `axes=[1]`.
bool takes_one_axis(Op op) noexcept;
/// In double quotes, with \" \\ and \xHH for control characters.
std::string quoted(std::string_view text);
/// What follows the operands in the text: " axes=[2]"; empty when there is nothing.
std::string attrs_text(const Node& node);
/// "f32[2,3]"
std::string type_text(const Node& node);
/// The line of one node: "%5: f32[1,5] = sum(%4) axes=[2]".
std::string node_text(const Graph& graph, NodeId id);

/// A graph with the line of its text, from 1, that first made each node.
struct LocatedGraph {
  Graph graph;
  std::vector<int> lines; ///< by node
};
/// parse_graph() with lines.
LocatedGraph parse_located(std::string_view text);

} // namespace egret::ir
