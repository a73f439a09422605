// Products that the steps of an unrolled loop make one after the other become one product of all
// steps: those of a recurrent network's inputs, and those of its gradients.
#pragma once

#include "egret/ir.h"

namespace egret::compiler {

/// The graph in which, of products that are small and of one form,
///
/// - those by one factor are one product, where the other factors are slices of one value, or are
///   made by steps that follow each other and that read none of the products. Each is then a slice
///   of the joined one, with the same terms:  a_t . w  =  (stack of a_t) . w at t
/// - those that are added up are one sum, over the steps too:  sum over t of a_t . b_t  =
///   (stack of a_t) . (stack of b_t). Sums of finite terms change by rounding only.
///
/// `by_one_factor`: the former too. They change no bits, and a joined product is whole in memory;
/// the latter are joined in any case, so that all plans of a graph round alike.
ir::Graph join_unrolled_products(const ir::Graph& graph, bool by_one_factor = true);

} // namespace egret::compiler
