// Where the nodes of a compiled graph come from, read from the record of its compilation.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace egret::compiler {

/// Where a node of the compiled graph comes from.
struct NodeOrigin {
  std::vector<int> lines;         ///< of the text that was given, from 1
  std::vector<std::string> rules; ///< without which the node would not be there
  std::string pass;               ///< that made it; empty: it was given
};

/// Of the `size` nodes of the graph that was compiled last, by NodeId; `record` is what a
/// RecordWriter wrote, line by line.
std::vector<NodeOrigin> origins_of_record(const std::vector<std::string>& record, std::size_t size);

} // namespace egret::compiler
