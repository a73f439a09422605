// Products that are read in equal slices along one axis, as the gates of a recurrent cell and the
// halves of a gated unit are, get that axis split into the slice's number and the place in it, so
// that the kernel of a product can take its readers along (join.h).
#pragma once

#include "egret/ir.h"

namespace egret::compiler {

/// Slices of one product that a kernel combines at the most.
inline constexpr std::int64_t kMostSlices = 8;

/// The graph with such products, and the elementwise values between them and the slices, in the
/// split box. Products that are graph outputs, or that anything reads otherwise, stay as they are.
ir::Graph split_slices(const ir::Graph& graph);

} // namespace egret::compiler
