// Graphs in their text form, from files.
#pragma once

#include "egret/ir.h"

#include <string>

namespace egret::tool {

/// Error(Parse) naming the file, line and column where the text is no graph.
ir::Graph graph_of_text(const std::string& path, const std::string& text);

} // namespace egret::tool
