// Graphs in their text form, from files.
#pragma once

#include "egret/ir.h"

#include <string>

namespace egret::tool {

/// Error(File) naming the path where it cannot be read.
std::string text_of_file(const std::string& path);
/// Error(Parse) naming the file, line and column where the text is no graph.
ir::Graph graph_of_text(const std::string& path, const std::string& text);
/// Error(File) naming the path where it cannot be written.
void write_file(const std::string& path, const std::string& text);

} // namespace egret::tool
