// Slices that are padded and added up, as the gradient of what a loop's steps read in slices, are
// the value again that they are slices of.
#pragma once

#include "egret/ir.h"

namespace egret::compiler {

/// The graph in which, of values that are added up, those that are neighbouring slices of one value
/// with zeros around each, one behind the other, are that value with its axes in order and zeros
/// around it: nothing is added for them. A zero's sign may change.
ir::Graph rejoin_slices(const ir::Graph& graph);

} // namespace egret::compiler
