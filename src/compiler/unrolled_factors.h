// Factors of the products that the steps of an unrolled loop make: values of one form that can be
// put together along an axis of the steps.
#pragma once

#include "egret/ir.h"

#include <cstdint>
#include <string>
#include <vector>

namespace egret::compiler {

/// A factor, looked at through the movements that repeat it or put its axes in order.
struct UnrolledFactor {
  ir::NodeId root = ir::kNoNode;
  std::vector<ir::NodeId> moves; ///< of the root, to the factor
  /// The root is one index of `whole` along an axis.
  bool is_slice = false;
  ir::NodeId whole = ir::kNoNode;
  std::int64_t axis = 0, index = 0;
};

UnrolledFactor unrolled_factor(const ir::Graph& graph, ir::NodeId id);

/// Equal for factors that differ in the value of their root alone.
std::string form_of(const ir::Graph& graph, const UnrolledFactor& factor);

/// Roots of one shape, along a new axis in front.
ir::NodeId stack_of(ir::Graph& out, const std::vector<ir::NodeId>& roots);

/// `count` slices of one value, from the first one on, along a new axis in front. `whole` is that
/// value in `out`.
ir::NodeId slices_in_front(ir::Graph& out, const ir::Graph& graph, const UnrolledFactor& first,
                           ir::NodeId whole, std::int64_t count);

/// A factor's movements, of what has an axis in front of the root's.
ir::NodeId moved_behind_front(ir::Graph& out, const ir::Graph& graph, const UnrolledFactor& factor,
                              ir::NodeId roots);

/// Values along the axis in front, each of one element along `axis` of its own: along that axis.
ir::NodeId front_as_axis(ir::Graph& out, ir::NodeId stack, std::size_t axis);

/// Element `index` of the axis in front, without that axis.
ir::NodeId element_of(ir::Graph& out, ir::NodeId stack, std::int64_t index, const Shape& shape);

Shape with_front(const Expr& extent, const Shape& shape);

} // namespace egret::compiler
