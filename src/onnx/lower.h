// One function for each kind of operation: it emits the operators and defines the node that was
// begun last.
#pragma once

#include "onnx/emitter.h"

#include <optional>

namespace egret::onnx {

/// Cast and Bitcast.
void lower_conversion(Emitter& emitter, ir::NodeId id);
/// Unary, binary and ternary operations, Constant, Iota and StopGradient.
void lower_elementwise(Emitter& emitter, ir::NodeId id);
/// Integer quotients, remainders and shifts.
void lower_integer(Emitter& emitter, ir::NodeId id);
void lower_reduction(Emitter& emitter, ir::NodeId id); ///< reductions and scans
void lower_movement(Emitter& emitter, ir::NodeId id);
void lower_indexed(Emitter& emitter, ir::NodeId id); ///< Gather and scatters
void lower_sort(Emitter& emitter, ir::NodeId id);
/// A sum of products as MatMul, Einsum or Conv; false where it is none of these.
bool lower_contraction(Emitter& emitter, ir::NodeId id);

/// Operands as NumPy broadcasts them to the node's shape, without the Expand nodes and reshaped
/// constants that only serve that. `types`: the dtype of each.
Names broadcast_operands(Emitter& emitter, ir::NodeId id, const std::vector<DType>& types);

/// Numbers with the order of the value: floats, or integers for which operators compare right.
struct Ordered {
  std::string name;
  DType type;
  bool flipped = false; ///< u64: the top bit is
};
Ordered ordered(Emitter& emitter, const std::string& value, DType carrier, DType type);
/// Back to the carrier of the dtype.
std::string from_ordered(Emitter& emitter, const Ordered& value);

/// Names of conditions, as they are used everywhere.
std::string either(Emitter& emitter, const std::string& a, const std::string& b);
std::string both(Emitter& emitter, const std::string& a, const std::string& b);
std::string where(Emitter& emitter, const std::string& condition, const std::string& a,
                  const std::string& b);

} // namespace egret::onnx
