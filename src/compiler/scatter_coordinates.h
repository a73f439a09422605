// Coordinates of a scatter of which part is known: the index of an update is often made of a line's
// first element, which the loop nest knows, and of an index that is data and stays within the line.
#pragma once

#include "kernel/region.h"

#include <optional>

namespace egret::compiler {

/// base + coefficient * component, where body value `component` lies between 0 and `count` wherever
/// the update has an element.
struct ScatterCoordinate {
  Expr base;        ///< over the stage's variables
  Expr coefficient; ///< over sizes, at least 1
  int component = -1;
  Expr count;
};

/// What body value `index` of the stage, a scatter's coordinate below `extent`, is made of, when it
/// has the form select(0 <= x and x < n, base + c * x, negative constant) and no element of the
/// line lies beyond the extent; nothing otherwise. A choice by a place along an axis between values
/// of that form that differ in x alone is one too: the choice between their x, which is added to
/// the stage's body.
std::optional<ScatterCoordinate> scatter_coordinate(kernel::Stage& stage, int index,
                                                    const Expr& extent);

} // namespace egret::compiler
