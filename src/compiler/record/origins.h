// Where the nodes of a compiled graph come from, read from the record of its compilation.
#pragma once

#include "compiler/record/record.h"

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace egret::compiler {

/// Where a node of the compiled graph comes from.
struct NodeOrigin {
  std::vector<int> lines;          ///< of the text that was given, from 1
  std::vector<std::string> places; ///< of a program that recorded it, "main.cpp:12"
  std::vector<std::string> rules;  ///< without which the node would not be there
  std::string pass;                ///< that made it; empty: it was given
};

/// Follows the compilation of one graph, for the origins of the nodes that came of it.
class OriginRecord {
public:
  /// `graph` lives until pass() is called the first time.
  explicit OriginRecord(const ir::Graph& graph);
  /// The text that the graph was read from, with the line of each node from 1, if it was one.
  OriginRecord(const ir::Graph& graph, std::string_view file, std::string_view text,
               std::vector<int> lines);
  /// As Options::after_pass is called.
  void pass(const PassEvent& event);
  /// Of the graph that was compiled, by NodeId. Nothing comes behind it.
  std::vector<NodeOrigin> finished(const CompileReport& report);

private:
  const ir::Graph& graph_;
  std::vector<std::string> lines_; ///< of the record
  RecordWriter writer_;
  std::unique_ptr<ProgramRecord> program_;
};

/// Of the `size` nodes of the graph that was compiled last, by NodeId; `record` is what a
/// RecordWriter wrote, line by line.
std::vector<NodeOrigin> origins_of_record(const std::vector<std::string>& record, std::size_t size);

} // namespace egret::compiler
