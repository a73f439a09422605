// Views that read a tensor at affine places, made of movement operations: windows, of any steps.
#pragma once

#include "egret/ir.h"

#include <vector>

namespace egret::compiler {

/// The tensor read at affine coordinates: dimension i of `source` at `coords[i]`, over the
/// variables of the box `dims`. Where a coordinate leaves its dimension, the element is 0. No
/// variable may be in two coordinates, and all extents and coefficients are constants; axes of the
/// box that are in none repeat the elements.
ir::NodeId affine_view(ir::Graph& graph, ir::NodeId source, const std::vector<Expr>& coords,
                       const Shape& dims);

/// Whether there is such a view.
bool is_affine_view(const std::vector<Expr>& coords);

} // namespace egret::compiler
