// Tables of gathers: in which order what is gathered lies in memory.
#pragma once

#include "egret/ir.h"

namespace egret::compiler {

/// Gathers whole slices from where they lie together. Where a table is a view in which neighbours
/// of a slice are not neighbours in memory (the rows of a transposed matrix, pixels of channels
/// that come first), and at least twice as many elements are gathered as there are, the table is
/// copied once, each element of which would else be a piece of memory of its own for each place
/// that gathers it. Gathers that share a table share its copy. Values keep their bits; the order of
/// scatters, whose data is updated in place, stays as it is.
ir::Graph with_gather_tables(const ir::Graph& graph);

} // namespace egret::compiler
