// How an e-graph came to be, step by step: what a viewer shows of it.
#pragma once

#include "egret/egraph.h"
#include "egret/ir.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace egret::saturate {

/// Nodes of a graph with the e-classes that they are in.
using NodeClasses = std::vector<std::pair<ir::NodeId, egraph::Value>>;

/// E-nodes and joins in the order in which they came. Classes have the numbers that they were made
/// with: one that was joined to an older one is named as it was, and `joins` lead on from there.
struct Growth {
  static constexpr int kNoRule = -1; ///< given, or, of a join, that of equal e-nodes

  /// One group of rules, run once. The first step is the graph as it was given.
  struct Step {
    std::uint64_t round = 0; ///< from 1; 0: the graph as given
    std::string group;
    std::size_t made = 0, joined = 0; ///< entries of the journal behind it
  };
  struct ENode {
    std::string op, attributes;
    std::vector<egraph::Value> operands;
    egraph::Value of_class = 0;
    int step = 0, rule = kNoRule;
    double cost = 0;     ///< as the extraction counts it, in bytes
    bool chosen = false; ///< it is in the cheapest graph
  };
  struct Join {
    egraph::Value lost = 0, kept = 0;
    int step = 0, rule = kNoRule;
  };
  std::vector<std::string> rules;
  std::vector<Step> steps; ///< those that changed something
  std::vector<ENode> enodes;
  std::vector<Join> joins;
  std::vector<std::pair<egraph::Value, std::string>> types; ///< of each class that is mentioned
  NodeClasses given, chosen; ///< of the graph as it was given, and of the cheapest one
  std::size_t left_out = 0;  ///< e-nodes beyond what was asked for
};

} // namespace egret::saturate
