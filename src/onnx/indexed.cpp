// Gather and scatters: indices out of range read 0 and are dropped, while ONNX counts negative ones
// from the end and leaves the others open.
#include "onnx/lower.h"

#include "ir/structure.h"

#include <limits>

namespace egret::onnx {

namespace {

/// Whether all elements are known to lie from 0 to below `size`.
bool lies_within(const ir::Graph& graph, ir::NodeId index, const Expr& size) {
  if (const std::optional<Scalar> known = ir::known_value(graph, index))
    return known->as_int() >= 0 && proves_less(Expr(known->as_int()), size);
  const ir::Node& node = graph[index];
  const auto counts_to = [&](const Expr& count) { return proves_less_equal(count, size); };
  switch (node.op) {
  case Op::Iota:
    return counts_to(node.shape[0]);
  case Op::ArgSort:
  case Op::ReduceArgMax:
    return counts_to(graph[node.inputs[0]].shape[static_cast<std::size_t>(node.attrs.axes[0])]);
  case Op::Reshape:
  case Op::Permute:
  case Op::Expand:
  case Op::Shrink:
  case Op::Flip:
    return lies_within(graph, node.inputs[0], size);
  default:
    return false;
  }
}

// Sizes of dims from `axis` on as ones, so that what precedes broadcasts.
Shape with_ones_around(const Shape& middle, std::size_t before, std::size_t after) {
  Shape shape(before, Expr(1));
  shape.insert(shape.end(), middle.begin(), middle.end());
  shape.insert(shape.end(), after, Expr(1));
  return shape;
}

std::string reshaped(Emitter& e, const std::string& x, const Shape& shape) {
  return e.emit("Reshape", {x, e.sizes(shape)}, {{"allowzero", std::int64_t{1}}});
}

struct Checked {
  std::string index;  ///< within range
  std::string inside; ///< the condition
};
Checked checked(Emitter& e, const std::string& index, const Expr& size) {
  const std::string zero = e.integer(DType::I64, 0);
  const std::string inside = both(e, e.emit("GreaterOrEqual", {index, zero}),
                                  e.emit("Less", {index, e.scalar_size(size)}));
  return {where(e, inside, index, zero), inside};
}

void lower_gather(Emitter& e, ir::NodeId id) {
  const ir::Graph& graph = e.graph();
  const ir::Node& node = graph[id];
  const auto axis = static_cast<std::size_t>(node.attrs.axes[0]);
  const Shape& data = graph[node.inputs[0]].shape;
  const Shape& index_shape = graph[node.inputs[1]].shape;
  // Where has no kernel for bool.
  const DType carrier = node.dtype == DType::Bool ? DType::U8 : carrier_of(node.dtype);
  const Scalar zero = Scalar::of(carrier, std::int64_t{0});
  if (data[axis] == Expr(0)) // all are out of range
    return e.define(e.emit("Expand", {e.constant(zero), e.sizes(node.shape)}), carrier, true);
  const std::string values = e.value(node.inputs[0], carrier);
  const std::string index = e.value(node.inputs[1], DType::I64);
  const std::vector<Attribute> attributes{{"axis", node.attrs.axes[0]}};
  if (lies_within(graph, node.inputs[1], data[axis]))
    return e.define(e.emit("Gather", {values, index}, attributes), carrier, true);
  const Checked safe = checked(e, index, data[axis]);
  const std::size_t behind = data.size() - axis - 1;
  const std::string inside =
      behind == 0 ? safe.inside
                  : reshaped(e, safe.inside, with_ones_around(index_shape, 0, behind));
  e.define(where(e, inside, e.emit("Gather", {values, safe.index}, attributes), e.constant(zero)),
           carrier, true);
}

/// A scatter along one axis: indices [m], updates with m in place of the axis.
struct Scatter {
  std::size_t axis;
  Shape data;          ///< its shape
  Expr rows;           ///< of the axis
  Expr count;          ///< m
  std::string index;   ///< i64 [m]; `rows` for what is dropped
  std::string updates; ///< in the carrier
  DType carrier;
};

// One row more, which takes what is dropped.
std::string scatter_elements(Emitter& e, const Scatter& s, const std::string& data,
                             const std::string& reduction) {
  Shape pads(2 * s.data.size(), Expr(0)), updates = s.data;
  pads[s.data.size() + s.axis] = 1;
  updates[s.axis] = s.count;
  const std::string padded =
      e.emit("Pad", {data, e.sizes(pads), e.constant(Scalar::of(s.carrier, std::int64_t{0}))});
  const std::string index =
      e.emit("Expand",
             {reshaped(e, s.index, with_ones_around({s.count}, s.axis, s.data.size() - s.axis - 1)),
              e.sizes(updates)});
  const auto axis = static_cast<std::int64_t>(s.axis);
  const std::string scattered = e.emit("ScatterElements", {padded, index, s.updates},
                                       {{"axis", axis}, {"reduction", reduction}});
  return e.emit("Slice", {scattered, e.list({0}), e.size(s.rows), e.list({axis})});
}

// ONNX wants each index at most once: the last update of each row is found by the largest of their
// numbers, and read.
std::string last_update(Emitter& e, const Scatter& s, const std::string& data) {
  const std::string none = e.integer(DType::I64, -1), zero = e.integer(DType::I64, 0);
  const std::string numbers =
      e.emit("Range", {zero, e.scalar_size(s.count), e.integer(DType::I64, 1)});
  const std::string start = e.emit("Expand", {none, e.size(s.rows)});
  const Scatter winners{0, {s.rows}, s.rows, s.count, s.index, numbers, DType::I64};
  const std::string winner = scatter_elements(e, winners, start, "max");
  const std::string written = e.emit("GreaterOrEqual", {winner, zero});
  const std::string read = e.emit("Gather", {s.updates, where(e, written, winner, zero)},
                                  {{"axis", static_cast<std::int64_t>(s.axis)}});
  const std::string here =
      reshaped(e, written, with_ones_around({s.rows}, s.axis, s.data.size() - s.axis - 1));
  return where(e, here, read, data);
}

void lower_scatter(Emitter& e, ir::NodeId id) {
  const ir::Graph& graph = e.graph();
  const ir::Node& node = graph[id];
  const bool flag = node.dtype == DType::Bool; // no kernel of Where or of a maximum
  Scatter s;
  s.axis = static_cast<std::size_t>(node.attrs.axes[0]);
  s.data = node.shape;
  s.rows = node.shape[s.axis];
  s.count = element_count(graph[node.inputs[1]].shape);
  s.carrier = flag ? DType::I32 : carrier_of(node.dtype);
  const std::string data = e.value(node.inputs[0], s.carrier);
  if (s.count == Expr(0) || s.rows == Expr(0))
    return e.define(e.emit("Identity", {data}), s.carrier, true);
  Shape updates = s.data;
  updates[s.axis] = s.count;
  s.index = reshaped(e, e.value(node.inputs[1], DType::I64), {s.count});
  const Checked safe = checked(e, s.index, s.rows);
  s.index = where(e, safe.inside, s.index, e.scalar_size(s.rows));
  s.updates = reshaped(e, e.value(node.inputs[2], s.carrier), updates);
  switch (node.op) {
  case Op::ScatterSet:
    return e.define(last_update(e, s, data), s.carrier, true);
  case Op::ScatterAdd:
    return e.define(scatter_elements(e, s, data, "add"), s.carrier, node.dtype == DType::U64);
  default: {
    const std::string updates_given = s.updates;
    const Ordered to = ordered(e, data, s.carrier, node.dtype);
    s.updates = ordered(e, s.updates, s.carrier, node.dtype).name;
    Ordered result = to;
    result.name = scatter_elements(e, s, to.name, "max");
    std::string largest = from_ordered(e, result);
    if (is_float(s.carrier)) { // ONNX does not say what the larger one of a number and NaN is
      const DType carrier = s.carrier;
      const auto is_nan = [&](const std::string& x) {
        return e.convert(e.emit("IsNaN", {x}), DType::Bool, DType::I32);
      };
      s.carrier = DType::I32;
      s.updates = is_nan(updates_given);
      const std::string any = scatter_elements(e, s, is_nan(data), "max");
      s.carrier = carrier;
      largest = where(e, e.convert(any, DType::I32, DType::Bool),
                      e.constant(carrier, std::numeric_limits<double>::quiet_NaN()), largest);
    }
    return e.define(largest, s.carrier, true);
  }
  }
}

} // namespace

void lower_indexed(Emitter& e, ir::NodeId id) {
  if (e.graph()[id].op == Op::Gather)
    lower_gather(e, id);
  else
    lower_scatter(e, id);
}

} // namespace egret::onnx
