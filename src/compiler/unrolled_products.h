// Products that the steps of an unrolled loop make of slices of one value, all by the same factor,
// as a recurrent network makes them of its input, become one product of the whole value.
#pragma once

#include "egret/ir.h"

namespace egret::compiler {

/// The graph with such products joined, where they are small and what reads one of them depends on
/// another one, so that the steps run one after the other. Each product is then a slice of the
/// joined one, with the same terms.
ir::Graph join_unrolled_products(const ir::Graph& graph);

} // namespace egret::compiler
