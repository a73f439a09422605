// Elementwise operations move before reshapes, as XLA's reshape mover moves them, for norms over
// parts of an axis.
#pragma once

#include "egret/ir.h"

namespace egret::compiler {

/// Moves elementwise operations from behind a reshape that joins axes to before it, into the domain
/// over whose rows a reduction ran. A group norm splits the channels for its mean; its scale, shift
/// and activation then run over the same rows, and one kernel computes all of it. No bit of a value
/// changes.
ir::Graph sink_reshapes(const ir::Graph& graph);

} // namespace egret::compiler
