// The index map of a movement node.
#include "egret/ir.h"

#include "support/fail.h"

namespace egret::ir {

IndexMap view_of(const Graph& graph, NodeId movement) {
  const Node& node = graph[movement];
  ensure(is_movement(node.op), "view_of: %{} is {}, no movement", movement, info_of(node.op).name);
  const Shape& source = graph[node.inputs[0]].shape;
  const Attrs& a = node.attrs;
  switch (node.op) {
  case Op::Reshape:
    return IndexMap::reshape(source, node.shape);
  case Op::Permute:
    return IndexMap::permute(source, a.axes);
  case Op::Expand:
    return IndexMap::expand(source, node.shape);
  case Op::Pad:
    return IndexMap::pad(source, a.before, a.after, a.value);
  case Op::Shrink:
    return IndexMap::shrink(source, a.before, a.shape);
  default:
    return IndexMap::flip(source, a.axes);
  }
}

} // namespace egret::ir
