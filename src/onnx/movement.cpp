// Movement operations.
#include "onnx/lower.h"

#include <limits>

namespace egret::onnx {

namespace {

/// Kernels that only move elements take most dtypes as they are.
DType moved_as(DType type, Op op) {
  switch (type) {
  case DType::BF16:
  case DType::F8E4M3:
  case DType::F8E5M2:
    return DType::F32;
  case DType::I16:
  case DType::U16:
    return op == Op::Pad ? DType::I32 : type;
  default:
    return type;
  }
}

std::string pad(Emitter& e, const ir::Node& node, const std::string& x, DType type) {
  std::vector<Expr> amounts = node.attrs.before;
  amounts.insert(amounts.end(), node.attrs.after.begin(), node.attrs.after.end());
  const Scalar fill = node.attrs.value;
  return e.emit("Pad", {x, e.sizes(amounts),
                        e.constant(is_float(type) ? Scalar::of(type, fill.as_double())
                                                  : Scalar::of(type, fill.as_int()))});
}

std::string shrink(Emitter& e, const ir::Node& node, const std::string& x) {
  const Shape& from = e.graph()[node.inputs[0]].shape;
  std::vector<Expr> begins, ends;
  std::vector<std::int64_t> axes;
  for (std::size_t axis = 0; axis < from.size(); ++axis)
    if (!(node.shape[axis] == from[axis])) {
      begins.push_back(node.attrs.before[axis]);
      ends.push_back(node.attrs.shape[axis]);
      axes.push_back(static_cast<std::int64_t>(axis));
    }
  if (axes.empty())
    return x;
  return e.emit("Slice", {x, e.sizes(begins), e.sizes(ends), e.list(axes)});
}

std::string flip(Emitter& e, const ir::Node& node, const std::string& x) {
  const std::vector<std::int64_t>& axes = node.attrs.axes;
  const auto all = [&](std::int64_t value) {
    return e.list(std::vector<std::int64_t>(axes.size(), value));
  };
  return e.emit("Slice",
                {x, all(-1), all(std::numeric_limits<std::int64_t>::min()), e.list(axes), all(-1)});
}

} // namespace

void lower_movement(Emitter& e, ir::NodeId id) {
  const ir::Node& node = e.graph()[id];
  const DType type = moved_as(node.dtype, node.op);
  const std::string x = e.value(node.inputs[0], type);
  std::string moved;
  switch (node.op) {
  case Op::Reshape:
    moved = e.emit("Reshape", {x, e.sizes(node.shape)}, {{"allowzero", std::int64_t{1}}});
    break;
  case Op::Permute:
    moved = e.emit("Transpose", {x}, {{"perm", node.attrs.axes}});
    break;
  case Op::Expand:
    moved = e.emit("Expand", {x, e.sizes(node.shape)});
    break;
  case Op::Pad:
    moved = pad(e, node, x, type);
    break;
  case Op::Shrink:
    moved = shrink(e, node, x);
    break;
  default:
    moved = flip(e, node, x);
  }
  e.define(moved, type, true);
}

} // namespace egret::onnx
