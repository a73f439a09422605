// Gathers of a few elements of computed values, and what their gradients scatter.
#pragma once

#include "egret/ir.h"

namespace egret::compiler {

/// Moves gathers before elementwise operations, and writes the gradients of gathers of one element
/// a row as choices:
///
///     gather(f(x, row), i) = f(gather(x, i), gather(row, i)), and 0 where i is no place
///     scatter_add(0, i, u)[r, j] = i[r] = j ? u[r] : 0
///
/// The logarithm of a class's probability, gather(log_softmax(x), class), then needs the sums of a
/// row and one element of it; nothing of the size of all classes is stored, neither forward nor
/// backward. The first is done where at most a quarter of the value is gathered and what it is made
/// of is inputs, numbers and values of far fewer elements, such as statistics of rows; the second
/// for the indices that egret::gather and nll_loss make. Values keep their bits.
ir::Graph with_row_gathers(const ir::Graph& graph);

} // namespace egret::compiler
