// The e-graph for other tools: JSON in the form of egraph-serialize, and Graphviz.
#pragma once

#include "egraph/engine.h"

#include <iosfwd>
#include <limits>
#include <string>

namespace egret::egraph {

struct SerializeOptions {
  std::size_t max_functions = std::numeric_limits<std::size_t>::max();
  std::size_t max_calls_per_function = std::numeric_limits<std::size_t>::max();
  /// Rows of functions that have a primitive or a container as value get a class each, instead of
  /// all those of one value sharing its class.
  bool split_primitives = false;
  /// So many times, classes of a single node without children become text in their parents.
  std::uint32_t inline_leaves = 0;
};

/// Written piece by piece, from a few words for each node. An e-class with globals has their names
/// as "let" in its class_data, as egglog writes it; those of equality sorts are the root_eclasses.
void write_json(const Engine& engine, const SerializeOptions& options, std::ostream& out);
std::string to_json(const Engine& engine, const SerializeOptions& options = {});
/// What the limits leave out, in words; "" where everything is exported.
std::string left_out(const Engine& engine, const SerializeOptions& options);
/// Edges of nodes with several arguments tell which one they are.
void write_dot(const Engine& engine, const SerializeOptions& options, std::ostream& out);
std::string to_dot(const Engine& engine, const SerializeOptions& options = {});

} // namespace egret::egraph
