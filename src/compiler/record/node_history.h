// Which nodes of successive graphs are the same, and what each new one took the place of.
#pragma once

#include "egret/ir.h"

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace egret::compiler {

/// Numbers nodes by structure: nodes of all graphs that are shown to one object have equal numbers
/// when they have equal ops, dtypes, shapes, attributes and operands. So a node that a pass leaves
/// alone keeps its number whatever its NodeId becomes.
class NodeHistory {
public:
  using Number = std::uint32_t;

  /// A graph by numbers.
  struct Form {
    std::vector<Number> nodes;   ///< by NodeId
    std::vector<Number> outputs; ///< by graph output
    friend bool operator==(const Form&, const Form&) = default;
  };

  /// A node that no graph before had.
  struct Fresh {
    Number number;
    ir::NodeId id; ///< in the graph that was shown
    /// Nodes of the graph before whose place it took. Found from the outputs on: graphs before and
    /// after a pass have equal outputs; where both have the same op, operands that differ are
    /// paired in order, and where they have different ones, all that is new behind that point
    /// stands for the old node.
    std::vector<Number> replaces;
  };

  struct Seen {
    Form form;
    std::vector<Fresh> fresh; ///< operands before their readers
  };

  /// `before`: what `graph` was made from; null: nothing.
  Seen see(const ir::Graph& graph, const Form* before);
  /// The numbers of the graph's nodes that have one, in ascending order.
  std::vector<Number> known(const ir::Graph& graph) const;

private:
  struct Known {
    Op op;
    std::vector<Number> operands;
  };
  static std::string structure_of(const ir::Node& node, const std::vector<Number>& operands);
  void pair_outputs(const Form& before, const Form& after, Number first_fresh,
                    std::unordered_map<Number, std::vector<Number>>& replaces) const;

  std::unordered_map<std::string, Number> numbers_; ///< by structure
  std::vector<Known> known_;                        ///< by number
};

} // namespace egret::compiler
