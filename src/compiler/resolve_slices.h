// Slices of joined values, such as a step's part of a stack of all steps, are taken of what was
// joined.
#pragma once

#include "egret/ir.h"

namespace egret::compiler {

/// The graph in which a slice with constant bounds of a concatenation, of padding, or of what is
/// computed element by element of such, is computed of the piece that lies there, where few
/// operations do that. The step of a loop whose results are stacked then reads its own result, also
/// in the gradient, and not the stack of all.
ir::Graph resolve_slices(const ir::Graph& graph);

} // namespace egret::compiler
