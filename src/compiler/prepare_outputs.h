// The last rewrite of a graph before it is partitioned: every output can have memory of its own,
// and no node is left that has no elements.
#pragma once

#include "egret/ir.h"

namespace egret::compiler {

/// The same graph in which each output is a value that one kernel can store where the caller wants
/// it: a node that is no input, no constant and no other output, or a reshape of one. Where that is
/// not so, an identity (stop_gradient) is put in between, which becomes a copying kernel or the end
/// of the one that makes the value. The data of scatters are made values of their own in the same
/// way. Values without elements, and reductions of none, become constants.
ir::Graph prepare_outputs(const ir::Graph& graph);

/// Follows reshapes down to the node whose memory, row-major, is the same: of a graph output, the
/// value that is stored for it.
ir::NodeId same_memory(const ir::Graph& graph, ir::NodeId id);

} // namespace egret::compiler
