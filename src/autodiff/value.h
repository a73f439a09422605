// Nodes with operators, so that gradient rules read as formulas.
//
// Elementwise results of expanded operands are computed before the expansion, in the smallest box,
// and a sum over an expanded axis becomes a product: gradients stay small as long as they can.
#pragma once

#include "egret/ir.h"

#include <optional>
#include <span>
#include <vector>

namespace egret::autodiff {

using Axes = std::vector<std::int64_t>;

struct Value {
  ir::Graph* graph = nullptr;
  ir::NodeId id = ir::kNoNode;

  const ir::Node& node() const { return (*graph)[id]; } ///< valid until a node is added
  Shape shape() const { return node().shape; }
  DType dtype() const { return node().dtype; }
  std::size_t rank() const { return node().shape.size(); }
};

Value apply(Op op, std::span<const Value> operands); ///< elementwise, of equal shapes
Value unary(Op op, Value a);
Value binary(Op op, Value a, Value b);
Value operator+(Value a, Value b);
Value operator*(Value a, Value b);
Value operator/(Value a, Value b);
Value operator-(Value a);
Value operator-(Value a, Value b);
Value operator+(Value a, double b); ///< the number in a's dtype
Value operator*(Value a, double b);
Value less(Value a, Value b);
Value equal(Value a, Value b);
Value select(Value condition, Value a, Value b);
Value cast(Value a, DType type);

/// `value` in every element of a tensor like `like`.
Value full_like(Value like, double value);
Value full(ir::Graph& graph, Shape shape, DType type, double value);
/// 0, 1, 2 .. in row-major order, i64.
Value numbers(ir::Graph& graph, Shape shape);
/// The number that every element is known to have.
std::optional<double> constant_of(Value a);

Value reshape(Value a, const Shape& shape);
Value expand(Value a, const Shape& shape);
Value permute(Value a, const Axes& axes);
Value flip(Value a, const Axes& axes);
Value shrink(Value a, std::vector<Expr> begin, std::vector<Expr> end);
Value pad(Value a, std::vector<Expr> before, std::vector<Expr> after, double fill);
Value sum(Value a, const Axes& axes); ///< the axes leave the shape
Value scan(Op op, Value a, std::int64_t axis);
Value linear_scan(Value term, Value factor, std::int64_t axis);
Value gather(Value data, Value index, std::int64_t axis);
Value scatter(Op op, Value data, Value index, Value updates, std::int64_t axis);

/// `a`, whose shape is `shape` without `axes`, repeated along these.
Value unreduce(Value a, const Shape& shape, const Axes& axes);
/// `a` with `axes` moved behind the others and made one, and the way back for a tensor of that
/// form.
Value with_axes_last(Value a, const Axes& axes);
Value with_axes_back(Value a, const Shape& shape, const Axes& axes);

} // namespace egret::autodiff
