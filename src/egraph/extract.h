// Choosing terms: the extraction problem of an e-graph, and its tree-optimal solution.
#pragma once

#include "egraph/engine.h"

#include <functional>
#include <limits>
#include <span>
#include <vector>

namespace egret::egraph {

/// Cost of one node by itself, from its function and arguments. Not negative.
using NodeCost = std::function<double(FunctionId, std::span<const Value>)>;

/// The rows of constructors that may be extracted, with classes numbered densely. A node's children
/// are the classes it mentions, those inside containers included.
struct Extraction {
  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;
  struct Node {
    FunctionId function{};
    std::uint32_t row = 0;
    std::uint32_t cls = 0;
    std::uint32_t first = 0, count = 0; ///< in `children`
    double cost = 0;                    ///< its own and that of its literals
  };
  std::vector<Node> nodes; ///< grouped by class
  std::vector<std::uint32_t> children;
  std::vector<std::uint32_t>
      class_nodes; ///< nodes of class c: class_nodes[c] .. class_nodes[c + 1]
  std::vector<Value> class_ids;
  std::vector<std::uint32_t> dense; ///< by class id; kNone where a class has no nodes

  Extraction(const Engine& engine, const NodeCost& cost);
  std::size_t classes() const { return class_ids.size(); }
  std::span<const std::uint32_t> kids(const Node& node) const {
    return {children.data() + node.first, node.count};
  }
};

/// For each class the best node and the cost of its tree (infinite where there is no finite term).
struct Choice {
  std::vector<std::uint32_t> node;
  std::vector<double> cost;
};
Choice best_trees(const Extraction& problem);

/// Builds terms from chosen nodes. Values of any sort can be roots.
class TermBuilder {
public:
  TermBuilder(const Engine& engine, const Extraction& problem,
              const std::vector<std::uint32_t>& chosen)
      : engine_(engine), problem_(problem), chosen_(chosen) {}
  /// The node of `graph` that stands for a value; throws Error where a class has no term.
  std::uint32_t build(TermGraph& graph, SortId sort, Value value);
  /// As build(), but with this node of the class at the root.
  std::uint32_t build_node(TermGraph& graph, std::uint32_t node);

private:
  const Engine& engine_;
  const Extraction& problem_;
  const std::vector<std::uint32_t>& chosen_;
  std::map<std::pair<std::uint32_t, Value>, std::uint32_t> built_;
};

/// Cost of the literals in a value of any sort, and the classes it mentions.
double mentioned_classes(const Engine& engine, SortId sort, Value value,
                         std::vector<Value>& classes);

/// From the :cost of the declarations.
NodeCost declared_costs(const Engine& engine);

/// The cheapest trees of all classes: enough to extract any value until the e-graph changes.
struct Trees {
  Extraction problem;
  Choice choice;
  Trees(const Engine& engine, const NodeCost& cost)
      : problem(engine, cost), choice(best_trees(problem)) {}
};

/// The cheapest tree of a value, as egglog's extract.
TermGraph extract_tree(const Engine& engine, SortId sort, Value value, const Trees& trees);
/// At most `count` terms of a class with different nodes at the root, cheapest first.
std::vector<TermGraph> extract_variants(const Engine& engine, SortId sort, Value value,
                                        std::size_t count, const Trees& trees);

} // namespace egret::egraph
