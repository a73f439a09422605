// Graphs in their text form, from files.
#pragma once

#include "egret/ir.h"
#include "egret/record.h"
#include "ir/text.h"

#include <memory>
#include <string>

namespace egret::tool {

/// Error(Parse) naming the file, line and column where the text is no graph.
ir::Graph graph_of_text(const std::string& path, const std::string& text);

/// Says to traces and records which line of the text each node is from.
void note_lines(const std::string& path, const ir::LocatedGraph& located);

/// The record that --record asks for, with the graph's text; null for an empty `record`.
std::unique_ptr<Record> record_of_text(const std::string& record, const std::string& path,
                                       const std::string& text);

} // namespace egret::tool
