// The analysis that the partition rests on: each value seen through its chain of movement
// operations (reshape, permute, expand, shrink, pad, flip) as one index map, its readers, and the
// axes along which it can vary.
#pragma once

#include "egret/ir.h"

#include <deque>
#include <map>
#include <utility>
#include <vector>

namespace egret::compiler {

/// Whether an extent is known to be 1.
inline bool is_unit(const Expr& e) {
  return e.is_constant() && e.value() == 1;
}

/// A value read through a chain of movement nodes: element p of the view is element map(p) of
/// `base`, or a fill.
struct View {
  ir::NodeId base = ir::kNoNode; ///< never a movement node
  IndexMap map;
};

/// A read of `base` by operand `operand` of the non-movement node `reader`.
struct Use {
  ir::NodeId reader;
  int operand;
  friend bool operator==(const Use&, const Use&) = default;
};

/// A read by a stored node of another stored node or graph input, through the elementwise nodes
/// inlined between them. `map` goes from the reader's iteration domain to the domain of `base`.
struct Read {
  ir::NodeId base;
  IndexMap map;
  bool indirect; ///< through a gather: not a map
};

/// What stored nodes read and compute together, where the values between them and what they read
/// are stored or not in one way.
struct ConeReads {
  std::vector<std::pair<ir::NodeId, bool>> stored; ///< of each value that it depends on
  std::vector<Read> reads;
  double work = 0; ///< in additions
};

/// Facts about every node of a graph without dead nodes, computed once. For one thread at a time.
class GraphFacts {
public:
  explicit GraphFacts(const ir::Graph& graph);

  const ir::Graph& graph() const { return graph_; }
  /// The view that node `id` is (identity of itself when it is no movement).
  const View& view(ir::NodeId id) const { return views_[id]; }
  /// Where point p of `frame`, which is mapped to points of node `id`, reads the base of its view.
  /// Composed once: passes ask for the same reads again and again.
  const IndexMap& view_through(ir::NodeId id, const IndexMap& frame) const;
  /// Readers of a non-movement node, looking through movement.
  const std::vector<Use>& uses(ir::NodeId id) const { return uses_[id]; }
  bool is_output(ir::NodeId id) const {
    return output_[id];
  } ///< it or a view of it is a graph output
  /// By dim of the node's box: can the value differ along it? (False along expanded dims.)
  const std::vector<bool>& depends(ir::NodeId id) const { return depends_[id]; }
  /// For a sum of products whose factors each have axes of their own: the product's node; else
  /// kNoNode. Along each summed axis one factor varies at least.
  ir::NodeId product_of(ir::NodeId reduce) const { return product_[reduce]; }
  bool is_product(ir::NodeId id) const { return is_product_[id]; }
  /// What is known of these stored nodes, for inlining.h: partitions of a graph, of which several
  /// are tried, differ in few cones.
  std::deque<ConeReads>& cones(const std::vector<ir::NodeId>& nodes) const { return cones_[nodes]; }

private:
  void find_dependence(ir::NodeId id);
  void find_product(ir::NodeId id);

  const ir::Graph& graph_;
  std::vector<View> views_;
  struct Through {
    IndexMap frame, view;
  };
  mutable std::map<std::pair<ir::NodeId, std::uint64_t>, std::deque<Through>>
      through_; ///< by node and the frame's hash
  mutable std::map<std::vector<ir::NodeId>, std::deque<ConeReads>> cones_;
  std::vector<std::vector<Use>> uses_;
  std::vector<bool> output_;
  std::vector<std::vector<bool>> depends_;
  std::vector<ir::NodeId> product_;
  std::vector<bool> is_product_;
};

/// The axis number when `e` is exactly one axis variable, -1 when it is the constant 0, -2
/// otherwise.
int plain_axis(const Expr& e);
inline constexpr int kZeroAxis = -1, kNotPlain = -2;

/// Upper bound of an element count, for heuristics: unknown dims count as their largest value, at
/// most 2^40.
double elements_of(const Shape& shape);

} // namespace egret::compiler
