// Reductions over concatenations, such as a softmax over attention's scores beside a column of
// sinks, are taken of each operand alone, so that an operand made of products need not be stored
// (streaming.h).
#pragma once

#include "egret/ir.h"

namespace egret::compiler {

/// The graph in which a sum or a maximum over a concatenation along the reduced axis, or over what
/// is computed element by element of one, is that of the operands' own sums or maxima: where an
/// operand is computed of products that have more elements than their factors, and operands are
/// few. All sizes have to be known. They are slices of the concatenation: resolve_slices() takes
/// them of its operands.
ir::Graph split_reductions(const ir::Graph& graph);

} // namespace egret::compiler
