// A change to the graph before it is partitioned, for norms over parts of an axis.
#pragma once

#include "egret/ir.h"

namespace egret::compiler {

/// Elementwise operations behind a reshape that joins axes are done before it, in the box in which
/// a reduction went over its rows: of a group norm, which splits the channels, the scale, the shift
/// and the activation then go row by row as well, and one kernel makes them all. Values stay in
/// every bit.
ir::Graph sink_reshapes(const ir::Graph& graph);

} // namespace egret::compiler
