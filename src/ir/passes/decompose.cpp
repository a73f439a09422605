// Intrinsics written with primitives: approximate, since the primitives round on the way.
#include "egret/passes.h"

#include "ir/structure.h"
#include "support/fail.h"

#include <map>
#include <numbers>

namespace egret {
namespace {

using ir::Graph;
using ir::NodeId;

/// Formulas over values of one shape and dtype.
class Formula {
public:
  Formula(Graph& graph, NodeId like)
      : graph_(graph), dtype_(graph[like].dtype), shape_(graph[like].shape) {}

  NodeId number(double value) { return graph_.broadcast(graph_.constant(dtype_, value), shape_); }
  NodeId add(NodeId a, NodeId b) { return graph_.binary(Op::Add, a, b); }
  NodeId mul(NodeId a, NodeId b) { return graph_.binary(Op::Mul, a, b); }
  NodeId scaled(NodeId a, double factor) { return mul(a, number(factor)); }
  NodeId plus(NodeId a, double term) { return add(a, number(term)); }
  NodeId less(NodeId a, double bound) { return graph_.binary(Op::Lt, a, number(bound)); }
  NodeId select(NodeId c, NodeId a, NodeId b) { return graph_.select(c, a, b); }
  NodeId unary(Op op, NodeId a) { return graph_.unary(op, a); }

  NodeId exp(NodeId x) { return unary(Op::Exp2, scaled(x, std::numbers::log2e)); }
  NodeId log(NodeId x) { return scaled(unary(Op::Log2, x), std::numbers::ln2); }
  NodeId sigmoid(NodeId x) { return unary(Op::Recip, plus(exp(scaled(x, -1)), 1)); }

  /// Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26: error below 1.5e-7.
  NodeId erf(NodeId x) {
    NodeId negative = less(x, 0);
    NodeId size = select(negative, scaled(x, -1), x);
    NodeId t = unary(Op::Recip, plus(scaled(size, 0.3275911), 1));
    NodeId sum = number(1.061405429);
    for (double c : {-1.453152027, 1.421413741, -0.284496736, 0.254829592})
      sum = plus(mul(sum, t), c);
    NodeId tail = mul(mul(sum, t), exp(scaled(mul(size, size), -1)));
    NodeId value = plus(scaled(tail, -1), 1);
    return select(negative, scaled(value, -1), value);
  }

private:
  Graph& graph_;
  DType dtype_;
  Shape shape_;
};

NodeId formula_of(Graph& graph, Op op, NodeId x) {
  Formula f(graph, x);
  switch (op) {
  case Op::Exp:
    return f.exp(x);
  case Op::Log:
    return f.log(x);
  case Op::Cos:
    return f.unary(Op::Sin, f.plus(x, std::numbers::pi / 2));
  case Op::Tanh:
    return f.plus(f.scaled(f.sigmoid(f.scaled(x, 2)), 2), -1);
  case Op::Erf:
    return f.erf(x);
  case Op::Log1p:
    return f.log(f.plus(x, 1));
  case Op::Expm1:
    return f.plus(f.exp(x), -1);
  case Op::Sigmoid:
    return f.sigmoid(x);
  default:
    fail(ErrorKind::Value, "decompose: {} is no intrinsic", info_of(op).name);
  }
}

Graph decompose_all(const Graph& graph, Notes& notes) {
  std::map<std::string_view, int> counts;
  Graph result = ir::rebuild(graph, [&](Graph& out, NodeId id, std::span<const NodeId> operands) {
    const ir::Node& node = graph[id];
    if (!info_of(node.op).intrinsic)
      return out.add(node.op, operands, node.attrs);
    ++counts[info_of(node.op).name];
    return decompose(out, node.op, operands[0]);
  });
  for (const auto& [name, count] : counts)
    notes.push_back(fmt::format("{}: {}", name, count));
  return ir::without_dead_code(result);
}

} // namespace

NodeId decompose(Graph& graph, Op op, NodeId a) {
  DType type = graph[a].dtype;
  if (!is_float(type))
    fail(ErrorKind::DType, "{}: takes floats, got {} (cast it first)", info_of(op).name,
         name_of(type));
  NodeId wide = graph.cast(a, accumulator_of(type));
  return graph.cast(formula_of(graph, op, wide), type);
}

namespace passes {
Pass decompose_intrinsics() {
  return {"decompose_intrinsics", decompose_all, true};
}
} // namespace passes

} // namespace egret
