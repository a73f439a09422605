// Reductions and scans.
#include "onnx/lower.h"

#include <algorithm>
#include <limits>

namespace egret::onnx {

namespace {

// The reductions of ONNX say nothing of NaN.
std::string any_nan(Emitter& e, const std::string& x, const std::string& axes) {
  const std::string is_nan = e.convert(e.emit("IsNaN", {x}), DType::Bool, DType::I32);
  const std::string any = e.emit("ReduceMax", {is_nan, axes}, {{"keepdims", std::int64_t{0}}});
  return e.convert(any, DType::I32, DType::Bool);
}

void lower_largest(Emitter& e, ir::NodeId id) {
  const ir::Node& node = e.graph()[id];
  const std::string axes = e.list(node.attrs.axes);
  const std::vector<Attribute> attributes{{"keepdims", std::int64_t{0}}};
  const DType carrier = node.dtype == DType::Bool ? DType::I32 : carrier_of(node.dtype);
  const std::string x = e.value(node.inputs[0], carrier);
  Ordered values = ordered(e, x, carrier, node.dtype);
  values.name = e.emit("ReduceMax", {values.name, axes}, attributes);
  std::string largest = from_ordered(e, values);
  if (is_float(carrier))
    largest = where(e, any_nan(e, x, axes),
                    e.constant(carrier, std::numeric_limits<double>::quiet_NaN()), largest);
  e.define(largest, carrier, true);
}

void lower_argmax(Emitter& e, ir::NodeId id) {
  const ir::Node& node = e.graph()[id];
  const ir::Node& operand = e.graph()[node.inputs[0]];
  const std::int64_t axis = node.attrs.axes[0];
  if (operand.shape[static_cast<std::size_t>(axis)] == Expr(0)) // of nothing
    return e.define(e.emit("Expand", {e.integer(DType::I64, 0), e.sizes(node.shape)}), DType::I64);
  const std::vector<Attribute> attributes{{"axis", axis}, {"keepdims", std::int64_t{0}}};
  const DType carrier = carrier_of(operand.dtype);
  const std::string x = e.value(node.inputs[0], carrier);
  const std::string first =
      e.emit("ArgMax", {ordered(e, x, carrier, operand.dtype).name}, attributes);
  if (!is_float(carrier))
    return e.define(first, DType::I64);
  const std::string is_nan = e.convert(e.emit("IsNaN", {x}), DType::Bool, DType::I32);
  e.define(where(e, any_nan(e, x, e.list(node.attrs.axes)), e.emit("ArgMax", {is_nan}, attributes),
                 first),
           DType::I64);
}

// A Scan whose body combines what came before with the next slice.
void lower_scan(Emitter& e, ir::NodeId id) {
  const ir::Node& node = e.graph()[id];
  const std::int64_t axis = node.attrs.axes[0];
  const Monoid monoid = monoid_of(node.op);
  const DType carrier = node.dtype == DType::Bool ? DType::I32 : carrier_of(node.dtype);
  const bool linear = monoid == Monoid::Linear;
  const std::string x = e.value(node.inputs[0], carrier);
  const Ordered values =
      monoid == Monoid::Max ? ordered(e, x, carrier, node.dtype) : Ordered{x, carrier};
  Shape slice = node.shape;
  slice.erase(slice.begin() + axis);
  // Names of a body are apart from those around it.
  const std::string before = e.unique("before"), element = e.unique("element"),
                    state = e.unique("state"), result = e.unique("scanned");
  Body body;
  body.inputs = {{before, carrier, std::nullopt}, {element, carrier, std::nullopt}};
  body.outputs = {{state, carrier, std::nullopt}, {result, carrier, std::nullopt}};
  std::vector<std::string> scanned_values{values.name};
  if (linear) {
    const std::string factor = e.unique("factor"), product = e.unique("product");
    body.inputs.push_back({factor, carrier, std::nullopt});
    body.nodes = {{"Mul", {factor, before}, {product}, {}, {}},
                  {"Add", {product, element}, {state}, {}, {}}};
    scanned_values.push_back(e.value(node.inputs[1], carrier));
  } else {
    body.nodes = {{monoid == Monoid::Max ? "Max" : "Mul", {before, element}, {state}, {}, {}}};
  }
  body.nodes.push_back({"Identity", {state}, {result}, {}, {}});
  const std::string identity = e.constant(identity_of(monoid, carrier));
  const std::string start = e.emit("Expand", {identity, e.sizes(slice)});
  Ordered scanned = values;
  const auto inputs = static_cast<std::int64_t>(scanned_values.size());
  std::vector<std::string> operands{start};
  operands.insert(operands.end(), scanned_values.begin(), scanned_values.end());
  scanned.name =
      e.emit_last("Scan", operands, 2,
                  {{"body", std::make_shared<const Body>(std::move(body))},
                   {"num_scan_inputs", inputs},
                   {"scan_input_axes", std::vector<std::int64_t>(scanned_values.size(), axis)},
                   {"scan_output_axes", std::vector<std::int64_t>{axis}}});
  e.define(from_ordered(e, scanned), carrier, monoid == Monoid::Max || node.dtype == DType::U64);
}

} // namespace

void lower_reduction(Emitter& e, ir::NodeId id) {
  const ir::Node& node = e.graph()[id];
  const Shape& from = e.graph()[node.inputs[0]].shape;
  if (node.op != Op::ReduceArgMax && std::ranges::find(from, Expr(0)) != from.end()) {
    const Scalar identity = identity_of(monoid_of(node.op), node.dtype);
    const DType carrier = is_float(node.dtype) ? carrier_of(node.dtype) : node.dtype;
    const std::string nothing =
        is_float(carrier) ? e.constant(carrier, identity.as_double()) : e.constant(identity);
    return e.define(e.emit("Expand", {nothing, e.sizes(node.shape)}), carrier);
  }
  // ONNX Runtime's sums and products of i32 do not wrap.
  const DType own = carrier_of(node.dtype), carrier = own == DType::I32 ? DType::I64 : own;
  const bool exact = node.dtype == DType::U64;
  const auto reduce = [&](const char* op) {
    e.define(e.emit(op, {e.value(node.inputs[0], carrier), e.list(node.attrs.axes)},
                    {{"keepdims", std::int64_t{0}}}),
             carrier, exact);
  };
  switch (node.op) {
  case Op::ReduceSum:
    if (lower_contraction(e, id))
      return;
    return reduce("ReduceSum");
  case Op::ReduceProd:
    return reduce("ReduceProd");
  case Op::ReduceMax:
    return lower_largest(e, id);
  case Op::ReduceArgMax:
    return lower_argmax(e, id);
  case Op::ScanSum:
    return e.define(e.emit("CumSum", {e.value(node.inputs[0], carrier),
                                      e.integer(DType::I64, node.attrs.axes[0])}),
                    carrier, exact);
  default:
    return lower_scan(e, id);
  }
}

} // namespace egret::onnx
