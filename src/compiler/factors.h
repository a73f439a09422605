// The factors of what sums add up, each with the axes of the sum along which it lies.
#pragma once

#include "compiler/views.h"

#include <optional>
#include <set>
#include <vector>

namespace egret::compiler {

/// Whether a node is a sum of f32.
bool is_sum(const ir::Node& node);
std::set<int> summed_axes(const ir::Node& reduce);
/// The dims of a value as axes of a box of its own; -1 for those of size 1.
std::vector<int> own_axes(const ir::Graph& graph, ir::NodeId id);

/// Whether a sum of products (GraphFacts::product_of) has more elements than each of their factors,
/// as the scores of attention have.
bool is_larger_than_its_factors(const GraphFacts& facts, ir::NodeId sum);
/// Whether a value is computed of such a sum, element by element and through movement.
bool is_made_of_large_products(const GraphFacts& facts, ir::NodeId id);

/// The operand of a sum: its dims as axes, their extents, and which are summed but for those of
/// size 1.
struct SumBox {
  SumBox(const ir::Graph& graph, ir::NodeId sum);

  std::vector<int> axis;
  Shape shape;
  std::set<int> over;
};

/// A factor of a term: by dim of its base, the axis of the term's box, or -1 for dims of size 1.
struct Leaf {
  ir::NodeId base = ir::kNoNode;
  std::vector<int> axis;
  bool divides = false;

  bool depends(const std::set<int>& axes) const;
  friend bool operator==(const Leaf&, const Leaf&) = default;
};

/// Minus a value, as movement shows it.
struct MinusOfRows {
  ir::NodeId base = ir::kNoNode; ///< that value
  IndexMap map;                  ///< from what is shown to it
  std::vector<ir::NodeId>
      path; ///< movement, markers and the factor -1 between, the last shown first
};

class FactorReader {
public:
  explicit FactorReader(const GraphFacts& facts) : facts_(facts), graph_(facts.graph()) {}

  /// Adds the factors of a value whose dims are these axes, in their order; false when a factor is
  /// seen through anything but plain axes, or when there are very many.
  bool read(ir::NodeId id, const std::vector<int>& axis, bool divides,
            std::vector<Leaf>& leaves) const;
  /// A sum of exp(x - m) over axes along which m is the largest x: at least 1, or NaN.
  bool is_sum_of_exponentials(ir::NodeId id) const;
  /// Whether a value has the axes that are summed, each once and all of it.
  bool has_all(const Leaf& value, const SumBox& box) const;
  /// Whether a factor has_all() and is x + m, m being minus the mean of x over just the axes that
  /// are summed. `mean`, if it is not null, becomes the sum for it.
  bool is_deviation(const Leaf& factor, const SumBox& box, ir::NodeId* mean = nullptr) const;
  /// Whether a sum adds up the squares of deviations from the mean that `mean` is the sum for.
  bool is_spread(ir::NodeId sum, ir::NodeId mean) const;
  /// What a value is minus of, the factor -1 being anywhere among movement.
  std::optional<MinusOfRows> minus_of_rows(ir::NodeId id) const;
  /// Which factor of a product is -1; -1 where none is.
  int minus_one_of(const ir::Node& mul) const;
  /// Whether a reduction of x, seen by the map from x's box, is that of the same row.
  bool is_own_row(ir::NodeId reduce, ir::NodeId x, const IndexMap& map) const;
  /// The number that all elements of a value are, of a float type.
  std::optional<double> value_of(ir::NodeId id) const;

private:
  /// select(l == 0, something, l) where l cannot be 0, as gradients of quotients have it.
  bool is_guard_of_exponentials(const ir::Node& node) const;
  /// Whether a value is -max(x) over the axes, of the same row.
  bool is_minus_maximum(ir::NodeId id, ir::NodeId x, const std::vector<std::int64_t>& axes) const;

  bool is_minus_mean(ir::NodeId m, ir::NodeId x, const std::vector<int>& axis, const SumBox& box,
                     ir::NodeId* mean) const;
  /// A value whose dims are these axes, by the dims of its base, all of which it has.
  std::optional<Leaf> seen(ir::NodeId id, const std::vector<int>& axis) const;

  const GraphFacts& facts_;
  const ir::Graph& graph_;
};

} // namespace egret::compiler
