// What stands beside the operands in a term of the tensor e-graph, as text: types ("f32[2,N]"),
// numbers ("f32:0.5"), sets of axes (bits of an i64) and chains of movements ("permute[1,0];
// expand[4,3]"). Rules compute with these texts by primitives; here they are read, written and
// computed with. Everything is remembered, so that equal layers cost little after the first.
#pragma once

#include "egret/ir.h"

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace egret::saturate {

struct Type {
  DType dtype = DType::F32;
  Shape shape;
  friend bool operator==(const Type&, const Type&) = default;
};

std::string to_text(const Type& type);
std::string to_text(const Scalar& scalar);
std::int64_t mask_of(std::span<const std::int64_t> axes);
std::vector<std::int64_t> axes_of(std::int64_t mask);

/// One movement: its op, and the attributes that Graph::add takes.
struct Step {
  Op op = Op::Reshape;
  ir::Attrs attrs;
};
using Steps = std::vector<Step>;
std::string to_text(const Steps& steps);

/// The movement nodes from a node that is no movement down to `node`, in the order in which they
/// apply, and that node.
std::pair<ir::NodeId, Steps> movements_of(const ir::Graph& graph, ir::NodeId node);
/// Adds the movements to a graph; those that would change nothing are left out.
ir::NodeId add_movements(ir::Graph& graph, ir::NodeId node, const Steps& steps);

/// A chain of movements on a source of known type, taken together.
struct Moved {
  Steps steps;
  IndexMap map; ///< from the result's box to the source's
  Shape shape;  ///< of the result
};

/// Reads and computes attributes. Functions throw Error(Parse or Shape) for texts that are none or
/// do not fit; primitives built on them have no result then. Not for several threads at once.
class Attributes {
public:
  /// Makes a symbol known by its name, for types and movements that mention it.
  void declare_dim(const Expr& symbol);
  const std::map<std::string, Expr>& dims() const { return dims_; }

  const Type& type(const std::string& text);
  Scalar scalar(std::string_view text) const;
  const Moved& moved(const std::string& type, const std::string& moves);

  /// One text for all chains with the same index map from a type: equal views are equal terms.
  /// Empty for the identity.
  std::string canonical_moves(const std::string& type, const Steps& steps);
  std::string canonical_moves(const std::string& type, const std::string& moves) {
    return canonical_moves(type, moved(type, moves).steps);
  }
  /// First `first`, then `second`.
  std::string joined_moves(const std::string& type, const std::string& first,
                           const std::string& second);

  /// What Graph::add gives for an op that is no movement, on operands of these types.
  std::string result_type(Op op, const ir::Attrs& attrs, std::span<const std::string> operands);

  // --- what rules ask (src/rules, docs/search.md) ---

  std::string type_of_moved(const std::string& type, const std::string& moves);
  /// Dims of the result along which it can differ, where the source differs along `dep`.
  std::int64_t dep_of_moved(const std::string& type, const std::string& moves, std::int64_t dep);
  /// The one value that everywhere stands in the result, where `value` everywhere stands in the
  /// source.
  std::optional<std::string> value_of_moved(const std::string& type, const std::string& moves,
                                            const std::string& value);
  bool is_total(const std::string& type, const std::string& moves);
  /// The result has provably at least as many elements as the source.
  bool keeps_size(const std::string& type, const std::string& moves);
  /// Provably more.
  bool grows(const std::string& type, const std::string& moves);
  /// Every one of these dims has provably at least one element.
  bool has_elements(const std::string& type, std::int64_t axes);
  /// Element 0 along `axes`, which leave the shape. Nothing where a dim might be empty.
  std::optional<std::string> first_along(const std::string& type, std::int64_t axes);
  /// A tensor without `axes` repeated along them: the view that brings a reduction's result back to
  /// the shape it came from.
  std::optional<std::string> spread_along(const std::string& type, std::int64_t axes);
  /// A reduction over `axes` of a view, as a view of a reduction over other axes: those axes, and
  /// that view. Nothing where the axes are not whole axes of the source in the same order.
  std::optional<std::pair<std::int64_t, std::string>>
  reduced_source(const std::string& type, const std::string& moves, std::int64_t axes);

  /// How sum_l(view(sum_k(a * b)) * c) becomes sum_k(a * sum_l(b * c)): the inner product is made
  /// in the box of the outer one with the axes k behind it. Nothing where the view moves more than
  /// whole axes.
  struct Lift {
    std::int64_t along = 0;  ///< axes of the inner box that lie along l: a must not vary there
    std::string inner;       ///< view of b (or a) in the larger box
    std::string outer;       ///< view of c in it
    std::string first, rest; ///< views of a without `along`, and of that in the box without l
    std::int64_t summed = 0; ///< the axes k in the box without l
  };
  /// `inner` is the type of a * b, `moves` the view of its sum over `k`, `l` are axes of that view.
  std::optional<Lift> lift(const std::string& inner, const std::string& moves, std::int64_t k,
                           std::int64_t l);

private:
  struct Known {
    IndexMap map;
    std::string moves;
  };
  Expr expression(std::string_view text) const;
  Steps parse_moves(const std::string& text) const;

  std::map<std::string, Expr> dims_;
  std::unordered_map<std::string, Type> types_;
  std::unordered_map<std::string, Moved> moved_;
  std::unordered_map<std::string, std::string> canonical_, joined_, results_;
  std::unordered_map<std::string, std::vector<Known>> known_; ///< by source type
};

/// The axes of an inner reduction and of an outer one that follows it, as axes of the inner one's
/// operand.
std::int64_t joined_axes(std::int64_t inner, std::int64_t outer);
/// A set of axes of a box as it stands after `axes` left the box.
std::int64_t without_axes(std::int64_t set, std::int64_t axes);

} // namespace egret::saturate
