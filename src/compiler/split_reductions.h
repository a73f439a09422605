// Reductions over concatenations, such as a softmax over attention's scores beside a column of
// sinks, are taken of each operand alone, so that an operand made of products need not be stored
// (streaming.h).
#pragma once

#include "egret/ir.h"

namespace egret::compiler {

class GraphFacts;

/// The graph in which a sum or a maximum over a concatenation along the reduced axis, or over what
/// is computed element by element of one, is that of the operands' own sums or maxima: where an
/// operand is computed of products that have more elements than their factors, and operands are
/// few. They are slices of the concatenation: resolve_slices() takes them of its operands.
ir::Graph split_reductions(const ir::Graph& graph);

/// Whether a value is computed, element by element and through movement, of products that have more
/// elements than each of their factors, as attention's scores have.
bool is_made_of_large_products(const GraphFacts& facts, ir::NodeId id);

} // namespace egret::compiler
