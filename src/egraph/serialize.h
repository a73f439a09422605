// The e-graph for other tools: JSON in the form of egraph-serialize, and Graphviz.
#pragma once

#include "egraph/engine.h"

#include <limits>
#include <string>

namespace egret::egraph {

struct SerializeOptions {
  std::size_t max_functions = std::numeric_limits<std::size_t>::max();
  std::size_t max_calls_per_function = std::numeric_limits<std::size_t>::max();
};

std::string to_json(const Engine& engine, const SerializeOptions& options = {});
std::string to_dot(const Engine& engine, const SerializeOptions& options = {});

} // namespace egret::egraph
