// The graph of primitive operations: what tensors record, autodiff extends and the compiler takes
// apart.
#pragma once

#include "egret/error.h"
#include "egret/expr.h"
#include "egret/index_map.h"
#include "egret/op.h"
#include "egret/scalar.h"

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace egret::ir {

/// A node's place in its graph. Operands always have smaller numbers than the node that reads them.
using NodeId = std::uint32_t;
inline constexpr NodeId kNoNode = 0xffffffffu;
/// The largest rank of a node; more is refused with Error(Shape).
inline constexpr std::size_t kMaxRank = 32;

/// What distinguishes two nodes of one op; each op uses the fields that its row's comment in
/// src/ir/shape_rules.cpp names and leaves the others empty.
struct Attrs {
  DType dtype = DType::F32; ///< Input, Iota, Cast, Bitcast
  Scalar value{};           ///< Constant; Pad: the fill
  Shape shape; ///< Input, Reshape, Expand: the result's shape; ArgSort too; Iota: [n]; Shrink: the
               ///< exclusive ends
  std::vector<Expr> before,
      after; ///< Pad: amounts, may be symbolic, never negative; Shrink: `before` holds the begins
  std::vector<std::int64_t> axes; ///< Permute: order; Flip, reductions, scans, gather, scatter:
                                  ///< axes, ascending, not negative
  std::string name;               ///< Input: how users and printed graphs call it
  std::int64_t slot = -1;         ///< Input: its number among the graph's inputs
  bool by_value = false;          ///< Input of rank 0 passed as a scalar in the argument block
  friend bool operator==(const Attrs&, const Attrs&) = default;
};

struct Node {
  Op op;
  DType dtype;
  Shape shape;
  std::vector<NodeId> inputs;
  Attrs attrs;
};

/// A hash-consed graph in static single assignment form. Equal nodes (op, operands, attributes) are
/// one node; inputs are distinct by slot. add() infers shape and dtype and throws egret::Error
/// naming op, shapes and rule when they do not fit. The builders below it return their operand
/// itself where nothing would change (a cast to the same dtype, a reshape to the same shape, a
/// reduction over no axis).
class Graph {
public:
  /// For an Input with attrs.slot -1 the next free slot is taken.
  NodeId add(Op op, std::span<const NodeId> inputs, Attrs attrs = {});

  NodeId input(std::string name, DType dtype, Shape shape, bool by_value = false);
  NodeId constant(Scalar value);                ///< rank 0
  NodeId constant(DType type, double value);    ///< rank 0
  NodeId iota(Expr n, DType type = DType::I64); ///< [0, 1, .. n-1]
  NodeId unary(Op op, NodeId a);
  NodeId binary(Op op, NodeId a, NodeId b); ///< equal shapes and dtypes; see broadcast()
  NodeId select(NodeId condition, NodeId a, NodeId b);
  NodeId cast(NodeId a, DType type);
  NodeId bitcast(NodeId a, DType type); ///< same element size
  NodeId reduce(Op op, NodeId a,
                std::vector<std::int64_t> axes); ///< axes in any order; argmax takes exactly one
  NodeId scan(Op op, NodeId a, std::int64_t axis);
  /// h[i] = factor[i] h[i-1] + term[i] along an axis, from 0; operands of one shape.
  NodeId linear_scan(NodeId term, NodeId factor, std::int64_t axis);
  /// The positions (i64) of the first `count` elements along `axis` in ascending order; equal
  /// elements in the order of their positions.
  NodeId argsort(NodeId a, std::int64_t axis, const Expr& count);
  /// result[.., i.., ..] = data[.., index[i..], ..]: the dims of `index` stand in place of `axis`.
  /// Out of range reads 0.
  NodeId gather(NodeId data, NodeId index, std::int64_t axis);
  /// The reverse of gather: `updates` has gather's result shape. Out of range is dropped;
  /// duplicates combine in index order (set: last wins).
  NodeId scatter(Op op, NodeId data, NodeId index, NodeId updates, std::int64_t axis);
  NodeId reshape(NodeId a, Shape shape);
  NodeId permute(NodeId a, std::vector<std::int64_t> axes);
  NodeId expand(NodeId a, Shape shape); ///< same rank; dims of size 1 grow
  NodeId pad(NodeId a, std::vector<Expr> before, std::vector<Expr> after, Scalar fill);
  NodeId shrink(NodeId a, std::vector<Expr> begin, std::vector<Expr> end);
  NodeId flip(NodeId a, std::vector<std::int64_t> axes); ///< axes in any order
  /// `a` with dims of size 1 put in front and expanded to `shape`, as NumPy broadcasts.
  NodeId broadcast(NodeId a, Shape shape);

  /// Valid until the next node is added.
  const Node& operator[](NodeId id) const { return nodes_[id]; }
  std::size_t size() const noexcept { return nodes_.size(); }
  const std::vector<NodeId>& inputs() const noexcept { return inputs_; } ///< by slot
  std::vector<NodeId> outputs;

private:
  const Node& operand(Op op, NodeId id) const; ///< throws Error(Value) when there is no such node

  std::vector<Node> nodes_;
  std::vector<NodeId> inputs_;
  std::unordered_multimap<std::uint64_t, NodeId> index_;
};

/// The map of a movement node from its own index domain to its operand's.
IndexMap view_of(const Graph& graph, NodeId movement);

/// Text, one node a line; parse_graph(print(g)) equals g up to dead nodes. The grammar is in
/// docs/graph.md.
std::string print(const Graph& graph);
Graph parse_graph(std::string_view text); ///< throws Error(Parse) with line and column

/// Checks every promise of the form (operands precede, shapes and dtypes as the rules give them, no
/// duplicate nodes); throws InternalError.
void verify(const Graph& graph);

/// Structural hash of what the outputs compute, equal for graphs that differ in node numbers, dead
/// nodes and input names only. The inputs are the graph's signature: all of them count, read or
/// not.
std::uint64_t canonical_hash(const Graph& graph);
/// The graph of what the outputs need, in a canonical order. All inputs stay, in their slots.
Graph without_dead_code(const Graph& graph);
/// The graph with symbols of its dims replaced, all or some, by sizes or other expressions:
/// `replace` is asked for each symbol and returns what to put, or nothing to keep it. Dead code
/// goes. Throws as add() does where a replaced dim breaks a rule.
Graph with_dims(const Graph& graph,
                const std::function<std::optional<Expr>(const Expr& symbol)>& replace);
/// The symbols of a graph's dims, each once, by name.
std::vector<Expr> symbols_of(const Graph& graph);

} // namespace egret::ir
