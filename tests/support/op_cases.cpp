#include "support/op_cases.h"

#include <fmt/format.h>

#include <functional>

namespace egret::testing {

using ir::Graph;
using ir::NodeId;

namespace {

NodeId dense(Graph& g, DType type, const Shape& shape) {
  return g.input(fmt::format("x{}", g.inputs().size()), type, shape);
}

NodeId repeated(Graph& g, DType type, const Shape& shape) {
  Shape row = shape;
  row[0] = 1;
  return g.expand(dense(g, type, row), shape);
}

NodeId turned(Graph& g, DType type, const Shape& shape) {
  return g.permute(dense(g, type, {shape[1], shape[0]}), {1, 0});
}

NodeId cut(Graph& g, DType type, const Shape& shape) {
  NodeId whole = g.flip(dense(g, type, {shape[0] + 1, shape[1] + 3}), {1});
  return g.shrink(whole, {1, 2}, {shape[0] + 1, shape[1] + 2});
}

NodeId framed(Graph& g, DType type, const Shape& shape) {
  NodeId inside = dense(g, type, {shape[0] - 1, shape[1] - 2});
  return g.pad(inside, {0, 1}, {1, 1}, Scalar::of(type, 1.0));
}

struct Layout {
  const char* name;
  Shape shape;
  NodeId (*operand)(Graph&, DType, const Shape&);
};

std::vector<Layout> layouts() {
  return {{"dense", {3, 5}, dense},       {"ones", {1, 1}, dense},    {"empty", {0, 4}, dense},
          {"repeated", {3, 5}, repeated}, {"turned", {3, 5}, turned}, {"cut", {3, 5}, cut},
          {"framed", {3, 5}, framed},     {"long", {2, 131}, dense}};
}

/// All graphs of one op on operands of one layout; several when there are several axes.
class Cases {
public:
  Cases(Op op, DType dtype, const Layout& layout) : op_(op), dtype_(dtype), layout_(layout) {}

  std::vector<OpCase> make() {
    const OpInfo& row = info_of(op_);
    switch (row.cls) {
    case OpClass::Source:
      add("", [&](Graph& g) { return g.iota(layout_.shape[1], dtype_); });
      break;
    case OpClass::Convert:
      for (DType to : all_dtypes())
        if (to != dtype_ && (op_ == Op::Cast || size_of(to) == size_of(dtype_)))
          add(fmt::format(" to {}", name_of(to)), [&](Graph& g) {
            NodeId a = operand(g);
            return op_ == Op::Cast ? g.cast(a, to) : g.bitcast(a, to);
          });
      break;
    case OpClass::Unary:
    case OpClass::Marker:
      add("", [&](Graph& g) { return g.unary(op_, operand(g)); });
      break;
    case OpClass::Binary:
      add("", [&](Graph& g) {
        NodeId a = operand(g);
        return g.binary(op_, a, other(g));
      });
      break;
    case OpClass::Ternary:
      add("", [&](Graph& g) {
        NodeId c = layout_.operand(g, DType::Bool, layout_.shape);
        NodeId a = operand(g);
        return g.select(c, a, other(g));
      });
      break;
    case OpClass::Reduce:
      for (const std::vector<std::int64_t>& axes : {std::vector<std::int64_t>{0}, {1}, {0, 1}})
        if (axes.size() == 1 || op_ != Op::ReduceArgMax)
          add(fmt::format(" over {}", axes.size() == 2 ? "both"
                                      : axes[0] == 0   ? "0"
                                                       : "1"),
              [&](Graph& g) { return g.reduce(op_, operand(g), axes); });
      break;
    case OpClass::Scan:
      for (std::int64_t axis : {0, 1})
        add(fmt::format(" along {}", axis), [&](Graph& g) {
          if (op_ != Op::ScanLinear)
            return g.scan(op_, operand(g), axis);
          const NodeId term = operand(g);
          return g.linear_scan(term, other(g), axis);
        });
      break;
    case OpClass::Sort:
      for (std::int64_t axis : {0, 1})
        for (std::int64_t fewer : {0, 1}) {
          if (layout_.shape[static_cast<std::size_t>(axis)].lower() < fewer)
            continue;
          add(fmt::format(" along {}{}", axis, fewer ? ", all but one" : ""), [&](Graph& g) {
            return g.argsort(operand(g), axis,
                             layout_.shape[static_cast<std::size_t>(axis)] - Expr(fewer));
          });
        }
      break;
    case OpClass::Gather:
      for (std::int64_t axis : {0, 1})
        add(fmt::format(" along {}", axis), [&](Graph& g) {
          NodeId data = operand(g);
          return g.gather(data, dense(g, DType::I32, {2, 3}), axis);
        });
      break;
    case OpClass::Scatter:
      for (std::int64_t axis : {0, 1})
        add(fmt::format(" along {}", axis), [&](Graph& g) {
          NodeId data = operand(g), index = dense(g, DType::I64, {4});
          Shape updates = layout_.shape;
          updates[static_cast<std::size_t>(axis)] = 4;
          return g.scatter(op_, data, index, dense(g, dtype_, updates), axis);
        });
      break;
    case OpClass::Movement:
      add("", [&](Graph& g) { return moved(g); });
      break;
    }
    return std::move(cases_);
  }

private:
  NodeId operand(Graph& g) const { return layout_.operand(g, dtype_, layout_.shape); }
  NodeId other(Graph& g) const { return dense(g, dtype_, layout_.shape); }

  NodeId moved(Graph& g) const {
    NodeId a = operand(g);
    const Shape& s = layout_.shape;
    switch (op_) {
    case Op::Reshape:
      return g.reshape(a, {s[0] * s[1]});
    case Op::Permute:
      return g.permute(a, {1, 0});
    case Op::Expand:
      return g.expand(g.reshape(a, {s[0], 1, s[1]}), {s[0], 3, s[1]});
    case Op::Pad:
      return g.pad(a, {2, 0}, {0, 1}, Scalar::of(dtype_, 1.0));
    case Op::Shrink:
      return g.shrink(a, {0, 1}, {s[0], s[1]});
    default:
      return g.flip(a, {0, 1});
    }
  }

  void add(const std::string& detail, const std::function<NodeId(Graph&)>& build) {
    Graph g;
    NodeId output = build(g);
    g.outputs = {output};
    cases_.push_back(
        {fmt::format("{} {} {}{}", info_of(op_).name, name_of(dtype_), layout_.name, detail), op_,
         dtype_, std::move(g)});
  }

  Op op_;
  DType dtype_;
  const Layout& layout_;
  std::vector<OpCase> cases_;
};

} // namespace

bool takes(Op op, DType dtype) {
  switch (info_of(op).dtypes) {
  case DTypeRule::Float:
    return is_float(dtype);
  case DTypeRule::Integer:
  case DTypeRule::Order:
    return is_integer(dtype);
  case DTypeRule::IntegerBool:
    return !is_float(dtype);
  case DTypeRule::Number:
  case DTypeRule::Index:
    return dtype != DType::Bool;
  case DTypeRule::Attribute:
    return op != Op::Iota || dtype != DType::Bool;
  default:
    return op != Op::ScatterAdd || dtype != DType::Bool;
  }
}

std::vector<DType> all_dtypes() {
  std::vector<DType> result;
  for (int d = 0; d < kDTypes; ++d)
    result.push_back(static_cast<DType>(d));
  return result;
}

std::vector<OpCase> op_cases(const std::vector<DType>& dtypes) {
  std::vector<OpCase> result;
  const std::vector<Layout> all = layouts();
  for (int i = 0; i < kOps; ++i) {
    auto op = static_cast<Op>(i);
    if (op == Op::Input || op == Op::Constant)
      continue;
    for (DType dtype : dtypes)
      for (const Layout& layout : all)
        if (takes(op, dtype))
          for (OpCase& c : Cases(op, dtype, layout).make())
            result.push_back(std::move(c));
  }
  return result;
}

} // namespace egret::testing
