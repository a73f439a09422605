// Conversions between dtypes, with egret's meaning where ONNX leaves it open.
#include "onnx/lower.h"

#include <cmath>
#include <limits>

namespace egret::onnx {

namespace {

// Truncated, saturated, NaN gives 0: Cast alone says nothing of what is out of range.
std::string saturated(Emitter& emitter, const std::string& x, DType from, DType to) {
  const int bits = static_cast<int>(8 * size_of(to));
  const double above = std::ldexp(1.0, is_signed(to) ? bits - 1 : bits);
  const double lowest = is_signed(to) ? -above : 0;
  const DType carrier = carrier_of(to);
  const std::string too_large = emitter.emit("GreaterOrEqual", {x, emitter.constant(from, above)});
  const std::string too_small = emitter.emit("Less", {x, emitter.constant(from, lowest)});
  const std::string no_number = emitter.emit("IsNaN", {x});
  const std::string inside =
      where(emitter, either(emitter, either(emitter, too_large, too_small), no_number),
            emitter.constant(from, 0), x);
  const std::string whole = emitter.convert(emitter.convert(inside, from, to), to, carrier);
  const auto limit = [&](double value) {
    // As bits of the carrier: those of a u64 are read as an i64.
    return emitter.integer(carrier, Scalar::of(to, value).as_int());
  };
  return where(emitter, too_large, limit(std::numeric_limits<double>::infinity()),
               where(emitter, too_small, limit(-std::numeric_limits<double>::infinity()), whole));
}

} // namespace

void lower_conversion(Emitter& emitter, ir::NodeId id) {
  const ir::Node& node = emitter.graph()[id];
  const ir::NodeId operand = node.inputs[0];
  const DType from = emitter.graph()[operand].dtype, to = node.dtype;
  if (from == to) {
    emitter.define(emitter.value(operand), to);
    return;
  }
  if (node.op == Op::Bitcast && is_float(from) != is_float(to)) {
    emitter.define_refused("ONNX has no operator that reads the bits of a float as an integer's, "
                           "or the other way round, in opset 19");
    return;
  }
  if (node.op == Op::Bitcast && is_float(from)) {
    emitter.define_refused("ONNX has no operator that reads the bits of one float dtype as "
                           "another's");
    return;
  }
  const DType wide = carrier_of(from);
  if (!is_float(from) || is_float(to)) {
    // Integers wrap. A u64 as a float is the one value that its carrier does not have.
    emitter.define(emitter.convert(emitter.value(operand), from, to), to);
  } else if (to == DType::Bool) {
    emitter.define(emitter.convert(emitter.value(operand, wide), wide, to), to);
  } else {
    emitter.define(saturated(emitter, emitter.value(operand, wide), wide, to), carrier_of(to));
  }
}

} // namespace egret::onnx
