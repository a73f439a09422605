// Neighbouring results along one axis that a thread makes together because their windows overlap:
// what several of them read is loaded once (scalar replacement: Callahan, Carr and Kennedy 1990).
#pragma once

#include "kernel/passes.h"

namespace egret::kernel {

/// Whether results along the axis read what their neighbours read at other terms along `along`.
bool windows_overlap(const Region& region, int axis, int along);

struct Strip {
  int axis = -1;  ///< of the results
  int along = -1; ///< reduced: the terms along it of one result are those of its neighbours, too
  int results = 1;
};

/// The axis of the results and how many along it, up to `most`, that take the fewest loads a
/// result; no axis where that is not at most two thirds of the loads that single results take.
/// `tile`: the axis that neighbouring threads follow, which is none.
Strip overlapping_strip(const Region& region, const Passes& passes, int tile, int most);

} // namespace egret::kernel
