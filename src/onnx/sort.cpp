// Sorting: TopK with all elements is stable. Floats are sorted by integers of the same order, which
// are made of their bits (src/tensor/order.cpp); ONNX cannot read bits, but can sort floats.
#include "onnx/lower.h"

#include "ir/structure.h"

#include <limits>

namespace egret::onnx {

namespace {

/// Reads expressions out of a graph: each function gives nothing where the node is another one.
class Reader {
public:
  explicit Reader(const ir::Graph& graph) : graph_(graph) {}

  const ir::Node* is(Op op, ir::NodeId id) const {
    return graph_[id].op == op ? &graph_[id] : nullptr;
  }
  bool is_constant(ir::NodeId id, std::uint64_t bits) const {
    const std::optional<Scalar> known = ir::known_value(graph_, id);
    return known && known->bits == bits;
  }
  /// The other operand of `op` with a constant.
  std::optional<ir::NodeId> with_constant(Op op, ir::NodeId id, std::uint64_t bits) const {
    if (const ir::Node* node = is(op, id))
      for (const int side : {0, 1})
        if (is_constant(node->inputs[static_cast<std::size_t>(side)], bits))
          return node->inputs[static_cast<std::size_t>(1 - side)];
    return std::nullopt;
  }

private:
  const ir::Graph& graph_;
};

struct Keys {
  ir::NodeId values; ///< the floats
  bool descending = false;
};

// select(x != x, ones, select((raw & top) == 0, raw | top, ~raw)), raw = the bits of
// select(x == 0, 0, x); descending: its complement.
std::optional<Keys> float_keys(const ir::Graph& graph, ir::NodeId id) {
  const Reader read(graph);
  const auto bits = 8 * size_of(graph[id].dtype);
  const std::uint64_t top = std::uint64_t{1} << (bits - 1), ones = top | (top - 1);
  Keys keys{ir::kNoNode};
  if (const auto inner = read.with_constant(Op::Xor, id, ones);
      inner && read.is(Op::Select, *inner)) {
    keys.descending = true;
    id = *inner;
  }
  const ir::Node* outer = read.is(Op::Select, id);
  if (!outer || !read.is_constant(outer->inputs[1], ones))
    return std::nullopt;
  const ir::Node* inner = read.is(Op::Select, outer->inputs[2]);
  if (!inner)
    return std::nullopt;
  const auto raw = read.with_constant(Op::Or, inner->inputs[1], top);
  const auto turned = read.with_constant(Op::Xor, inner->inputs[2], ones);
  const auto masked = read.with_constant(Op::Eq, inner->inputs[0], 0);
  if (!raw || turned != raw || !masked || read.with_constant(Op::And, *masked, top) != raw)
    return std::nullopt;
  const ir::Node* bitcast = read.is(Op::Bitcast, *raw);
  const ir::Node* without_sign = bitcast ? read.is(Op::Select, bitcast->inputs[0]) : nullptr;
  if (!without_sign || !is_float(without_sign->dtype) ||
      !read.is_constant(without_sign->inputs[1], 0))
    return std::nullopt;
  keys.values = without_sign->inputs[2];
  const auto zero = read.with_constant(Op::Eq, without_sign->inputs[0], 0);
  if (zero != keys.values)
    return std::nullopt;
  // isnan(x): not x == x, as an exclusive or with true or as a comparison with false.
  for (const auto& equal : {read.with_constant(Op::Xor, outer->inputs[0], 1),
                            read.with_constant(Op::Eq, outer->inputs[0], 0)})
    if (equal)
      if (const ir::Node* same = read.is(Op::Eq, *equal))
        if (same->inputs[0] == keys.values && same->inputs[1] == keys.values)
          return keys;
  return std::nullopt;
}

// As f64, where there is room for a NaN beyond the infinities.
std::string with_largest_nan(Emitter& e, ir::NodeId values) {
  const std::string x = e.value(values, DType::F64);
  const auto number = [&](double value) { return e.constant(DType::F64, value); };
  const double infinity = std::numeric_limits<double>::infinity();
  const std::string finite = where(e, e.emit("Equal", {x, number(infinity)}), number(1e300), x);
  return where(e, e.emit("IsNaN", {x}), number(infinity), finite);
}

} // namespace

void lower_sort(Emitter& e, ir::NodeId id) {
  const ir::Graph& graph = e.graph();
  const ir::Node& node = graph[id];
  const ir::NodeId operand = node.inputs[0];
  const std::int64_t axis = node.attrs.axes[0];
  const std::string count = e.size(node.shape[static_cast<std::size_t>(axis)]);
  const auto sort = [&](const std::string& keys, bool descending) {
    e.define(e.emit_last("TopK", {keys, count}, 2,
                         {{"axis", axis}, {"largest", std::int64_t{descending}}}),
             DType::I64);
  };
  if (const std::optional<Keys> keys = float_keys(graph, operand)) {
    if (graph[keys->values].dtype == DType::F64)
      return e.define_refused("TopK of ONNX gives NaN no place among floats of 64 bits; sort f32");
    return sort(with_largest_nan(e, keys->values), keys->descending);
  }
  const DType type = graph[operand].dtype, carrier = carrier_of(type);
  sort(ordered(e, e.value(operand, carrier), carrier, type).name, false);
}

} // namespace egret::onnx
