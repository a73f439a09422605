// Sub-graph patterns: describe a piece of a graph, find every place where it occurs, replace it.
// docs/patterns.md has examples.
//
// clang-format off
//   using namespace egret::pattern;
//   auto product = node(Op::Mul, {any("a").shape("MNK").broadcast("N"),
//                                 any("b").shape("MNK").broadcast("M")});
//   auto matmul = node(Op::ReduceSum, {product.shape("MNK").single_use()}).over("K");
//   for (const Match& m : find(graph, matmul)) ... // m["a"], m["b"], m.dims.at('K')
// clang-format on
#pragma once

#include "egret/ir.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace egret::pattern {

using ir::Graph;
using ir::NodeId;

/// One occurrence of a pattern.
struct Match {
  NodeId root = ir::kNoNode;
  std::map<std::string, NodeId> nodes; ///< what each name stands for
  std::map<char, Expr> dims;           ///< what each letter of a shape stands for
  Shape batch;                         ///< what ".." at the front of a shape stands for
  bool has_batch = false;
  std::map<std::string, IndexMap> views; ///< of names under viewed(): from the place where the node
                                         ///< is read to the node's own domain
  std::vector<NodeId> covered; ///< the nodes that node() patterns stand for and the movements
                               ///< looked through, ascending

  /// The node with that name; Error(Value) when the pattern has none.
  NodeId operator[](std::string_view name) const;
  /// The dim with that letter; Error(Value) when the pattern has none.
  const Expr& dim(char letter) const;
};

struct Spec;

/// A description of a node and of what it reads. An immutable value: each method returns a new
/// pattern with one more demand. A letter stands for one dim and a name for one node in the whole
/// pattern: where they come again, the same is demanded.
class Pattern {
public:
  Pattern named(std::string name) const;
  /// A dim a token: a letter stands for any size, equal letters for equal sizes; digits are a size;
  /// _ is any size; .. at the front stands for any number of dims, the same ones everywhere. Spaces
  /// separate. "MNK", "..MK", "M 1 K".
  Pattern shape(std::string_view letters) const;
  /// The value does not vary along these dims of shape() (their stride is 0), seen through all
  /// movements below.
  Pattern broadcast(std::string_view letters) const;
  /// The value varies along these dims of shape(), or they have size 1.
  Pattern varies(std::string_view letters) const;
  /// For a reduction, scan, gather or flip: its axes are exactly these letters of the first
  /// operand's shape().
  Pattern over(std::string_view letters) const;
  Pattern dtype(DType type) const;
  /// Read by one node only and no output of the graph.
  Pattern single_use() const;
  /// Operands only in the order written. Without it, those of add, mul, max, eq, and, or, xor are
  /// tried in both orders.
  Pattern ordered() const;
  /// Any other demand.
  Pattern where(std::function<bool(const Graph&, NodeId)> holds) const;

  const Spec& spec() const noexcept { return *spec_; }
  explicit Pattern(std::shared_ptr<const Spec> spec) : spec_(std::move(spec)) {}

private:
  Pattern with(const std::function<void(Spec&)>& change) const;
  std::shared_ptr<const Spec> spec_;
};

Pattern any(std::string name = {}); ///< any node
Pattern node(Op op, std::vector<Pattern> operands =
                        {}); ///< Error(Value) when the number of operands is not the op's
Pattern node(std::vector<Op> ops, std::vector<Pattern> operands); ///< one of several ops
Pattern constant(double value); ///< a constant of this value, however broadcast
Pattern any_constant(
    std::string name); ///< a constant, however broadcast; the name stands for the const node
/// `source` read through any number of movements (none included). The deepest node that fits is
/// taken.
Pattern viewed(Pattern source);
Pattern one_of(std::vector<Pattern> alternatives); ///< the first that fits

/// Every live node that fits, each once with the first way in which it does (operands in the order
/// written first), by ascending root.
std::vector<Match> find(const Graph& graph, const Pattern& pattern);
/// Whether this node fits.
std::optional<Match> match_at(const Graph& graph, NodeId root, const Pattern& pattern);

/// Replaces what a pattern describes.
struct Rewrite {
  std::string name;
  Pattern pattern;
  /// Builds the replacement in `out` and returns it; kNoNode to leave this match alone. All ids of
  /// the match are nodes of `out`.
  std::function<NodeId(Graph& out, const Match& match)> replace;
};

struct Rewritten {
  Graph graph; ///< verified, without dead nodes
  std::size_t applied = 0;
  std::size_t rounds = 0; ///< that changed something
};

/// Applies the rewrite to every match, in rounds until nothing matches or `max_rounds` are done. A
/// match that covers a node replaced in the same round waits for the next one. Throws Error(Shape
/// or DType) naming the rewrite when a replacement's shape or dtype differs.
Rewritten rewrite(const Graph& graph, const Rewrite& rule, std::size_t max_rounds = 1);

} // namespace egret::pattern
