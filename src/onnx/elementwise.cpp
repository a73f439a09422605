// Elementwise operations.
#include "onnx/lower.h"

#include "ir/structure.h"

#include <cmath>
#include <limits>
#include <numbers>

namespace egret::onnx {

std::string either(Emitter& emitter, const std::string& a, const std::string& b) {
  return emitter.emit("Or", {a, b});
}
std::string both(Emitter& emitter, const std::string& a, const std::string& b) {
  return emitter.emit("And", {a, b});
}
std::string where(Emitter& emitter, const std::string& condition, const std::string& a,
                  const std::string& b) {
  return emitter.emit("Where", {condition, a, b});
}

namespace {

constexpr std::int64_t kLowest = std::numeric_limits<std::int64_t>::min();

/// An operand before its broadcast.
struct Narrow {
  ir::NodeId id;
  std::optional<Scalar> known; ///< the value of all elements
  Shape shape;
};

Narrow narrow(const ir::Graph& graph, ir::NodeId id) {
  if (const std::optional<Scalar> known = ir::known_value(graph, id))
    return {id, known, {}};
  while (graph[id].op == Op::Expand)
    id = graph[id].inputs[0];
  return {id, std::nullopt, graph[id].shape};
}

bool covers(const std::vector<Narrow>& operands, const Shape& shape) {
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    bool covered = false;
    for (const Narrow& operand : operands)
      covered = covered || (!operand.shape.empty() && operand.shape[axis] == shape[axis]);
    if (!covered)
      return false;
  }
  return true;
}

std::string as_carried(Emitter& emitter, Scalar value, DType type) {
  return emitter.constant(is_float(type) ? Scalar::of(type, value.as_double())
                                         : Scalar::of(type, value.as_int()));
}

// log(1 + x) and exp(x) - 1 without the loss of digits near 0, by the rounding error of the
// intermediate value (Kahan; Higham, Accuracy and Stability of Numerical Algorithms, 1.14.1).
std::string log1p(Emitter& e, const std::string& x, DType type) {
  const std::string one = e.constant(type, 1);
  const std::string u = e.emit("Add", {x, one});
  const std::string log = e.emit("Log", {u});
  const std::string scaled = e.emit("Mul", {log, e.emit("Div", {x, e.emit("Sub", {u, one})})});
  return where(e, e.emit("Equal", {u, one}), x, where(e, e.emit("Equal", {u, x}), log, scaled));
}

std::string expm1(Emitter& e, const std::string& x, DType type) {
  const std::string one = e.constant(type, 1);
  const std::string u = e.emit("Exp", {x});
  const std::string less = e.emit("Sub", {u, one});
  const std::string scaled = e.emit("Mul", {less, e.emit("Div", {x, e.emit("Log", {u})})});
  const std::string minus_one = e.constant(type, -1);
  return where(e, e.emit("Equal", {u, one}), x,
               where(e, e.emit("Equal", {u, less}), u,
                     where(e, e.emit("Equal", {less, minus_one}), minus_one, scaled)));
}

// Mod with fmod=1 has the sign of the dividend.
std::string floor_mod(Emitter& e, const std::string& a, const std::string& b, DType type) {
  const std::string zero = e.constant(type, 0);
  const std::string rest = e.emit("Mod", {a, b}, {{"fmod", std::int64_t{1}}});
  const std::string below = e.emit("Less", {b, zero});
  const std::string other_sign = e.emit("Xor", {e.emit("Less", {rest, zero}), below});
  return where(e, e.emit("Equal", {rest, zero}), where(e, below, e.constant(type, -0.0), zero),
               where(e, other_sign, e.emit("Add", {rest, b}), rest));
}

std::string unary(Emitter& e, Op op, const std::string& x, DType type) {
  switch (op) {
  case Op::Exp2:
    return e.emit("Pow", {e.constant(type, 2), x});
  case Op::Log2:
    return e.emit("Div", {e.emit("Log", {x}), e.constant(type, std::numbers::ln2)});
  case Op::Trunc:
    return where(e, e.emit("Less", {x, e.constant(type, 0)}), e.emit("Ceil", {x}),
                 e.emit("Floor", {x}));
  case Op::Log1p:
    return log1p(e, x, type);
  case Op::Expm1:
    return expm1(e, x, type);
  case Op::Sin:
    return e.emit("Sin", {x});
  case Op::Sqrt:
    return e.emit("Sqrt", {x});
  case Op::Recip:
    return e.emit("Reciprocal", {x});
  case Op::Floor:
    return e.emit("Floor", {x});
  case Op::Exp:
    return e.emit("Exp", {x});
  case Op::Log:
    return e.emit("Log", {x});
  case Op::Cos:
    return e.emit("Cos", {x});
  case Op::Tanh:
    return e.emit("Tanh", {x});
  case Op::Erf:
    return e.emit("Erf", {x});
  case Op::Sigmoid:
    return e.emit("Sigmoid", {x});
  default:
    return {};
  }
}

const char* arithmetic_operator(Op op) {
  switch (op) {
  case Op::Add:
    return "Add";
  case Op::Mul:
    return "Mul";
  case Op::Div:
    return "Div";
  case Op::Pow:
    return "Pow";
  case Op::Max:
    return "Max";
  default:
    return nullptr;
  }
}

void lower_maximum(Emitter& e, ir::NodeId id) {
  const DType type = e.graph()[id].dtype, carrier = carrier_of(type);
  const Names in = broadcast_operands(e, id, {carrier, carrier});
  if (type == DType::Bool)
    return e.define(either(e, in[0], in[1]), type);
  const Ordered a = ordered(e, in[0], carrier, type), b = ordered(e, in[1], carrier, type);
  Ordered larger = a;
  larger.name = e.emit("Max", {a.name, b.name});
  e.define(from_ordered(e, larger), carrier, type == DType::U64);
}

void lower_comparison(Emitter& e, ir::NodeId id) {
  const ir::Node& node = e.graph()[id];
  const DType type = e.graph()[node.inputs[0]].dtype, carrier = carrier_of(type);
  const Names in = broadcast_operands(e, id, {carrier, carrier});
  if (node.op == Op::Eq)
    return e.define(e.emit("Equal", {in[0], in[1]}), DType::Bool);
  if (type == DType::Bool)
    return e.define(both(e, e.emit("Not", {in[0]}), in[1]), DType::Bool);
  const Ordered a = ordered(e, in[0], carrier, type), b = ordered(e, in[1], carrier, type);
  e.define(e.emit("Less", {a.name, b.name}), DType::Bool);
}

void lower_bitwise(Emitter& e, ir::NodeId id) {
  const ir::Node& node = e.graph()[id];
  const bool logical = node.dtype == DType::Bool;
  const char* op = node.op == Op::And  ? (logical ? "And" : "BitwiseAnd")
                   : node.op == Op::Or ? (logical ? "Or" : "BitwiseOr")
                                       : (logical ? "Xor" : "BitwiseXor");
  e.define(e.emit(op, broadcast_operands(e, id, {node.dtype, node.dtype})), node.dtype);
}

void lower_select(Emitter& e, ir::NodeId id) {
  const DType type = e.graph()[id].dtype;
  // Where has no kernel for bool.
  const DType carrier = type == DType::Bool ? DType::U8 : carrier_of(type);
  e.define(e.emit("Where", broadcast_operands(e, id, {DType::Bool, carrier, carrier})), carrier,
           true);
}

} // namespace

Names broadcast_operands(Emitter& emitter, ir::NodeId id, const std::vector<DType>& types) {
  const ir::Graph& graph = emitter.graph();
  const ir::Node& node = graph[id];
  std::vector<Narrow> operands;
  for (const ir::NodeId input : node.inputs)
    operands.push_back(narrow(graph, input));
  if (!covers(operands, node.shape))
    operands[0] = {node.inputs[0], std::nullopt, node.shape};
  Names names;
  for (std::size_t i = 0; i < operands.size(); ++i)
    names.push_back(operands[i].known ? as_carried(emitter, *operands[i].known, types[i])
                                      : emitter.value(operands[i].id, types[i]));
  return names;
}

Ordered ordered(Emitter& emitter, const std::string& value, DType carrier, DType type) {
  if (type != DType::U64)
    return {value, carrier};
  return {emitter.emit("Add", {value, emitter.integer(DType::I64, kLowest)}), carrier, true};
}

std::string from_ordered(Emitter& emitter, const Ordered& value) {
  return value.flipped ? emitter.emit("Add", {value.name, emitter.integer(DType::I64, kLowest)})
                       : value.name;
}

void lower_elementwise(Emitter& e, ir::NodeId id) {
  const ir::Node& node = e.graph()[id];
  const DType type = node.dtype, carrier = carrier_of(type);
  switch (node.op) {
  case Op::Constant:
    return e.define(e.constant(node.attrs.value), type);
  case Op::Iota: {
    const std::string numbers =
        e.emit("Range",
               {e.integer(DType::I64, 0), e.scalar_size(node.shape[0]), e.integer(DType::I64, 1)});
    return e.define(numbers, DType::I64);
  }
  case Op::StopGradient:
    return e.define(e.value(node.inputs[0]), type);
  case Op::Max:
    return lower_maximum(e, id);
  case Op::Eq:
  case Op::Lt:
    return lower_comparison(e, id);
  case Op::And:
  case Op::Or:
  case Op::Xor:
    return lower_bitwise(e, id);
  case Op::Select:
    return lower_select(e, id);
  case Op::Mod:
    if (!is_float(type))
      return lower_integer(e, id);
    else {
      const Names in = broadcast_operands(e, id, {carrier, carrier});
      return e.define(floor_mod(e, in[0], in[1], carrier), carrier);
    }
  case Op::IDiv:
  case Op::Shl:
  case Op::Shr:
    return lower_integer(e, id);
  default:
    break;
  }
  if (const char* op = arithmetic_operator(node.op))
    return e.define(e.emit(op, broadcast_operands(e, id, {carrier, carrier})), carrier,
                    type == DType::U64);
  e.define(unary(e, node.op, e.value(node.inputs[0], carrier), carrier), carrier);
}

} // namespace egret::onnx
