// Contractions whose right side reads windows: convolutions. The side's operand is copied once, its
// holes filled and the elements of each phase of a stride side by side, and its vectors are read
// from that copy where they lie, instead of a panel that holds each element once for every window.
#pragma once

#include "kernel/contraction_form.h"
#include "kernel/loops/windows.h"
#include "kernel/target.h"

#include <optional>

namespace egret::kernel {

struct WindowedContraction {
  /// With the axes for each of which a copy is made in the batch, and columns whose innermost axis
  /// counts whole vectors.
  ContractionForm form;
  int operand = -1;
  loops::StagedWindow window;
  bool gathers = false; ///< the copy reads elements that lie apart
  /// Elements of a copy, with a vector that may be read behind its end.
  std::int64_t elements(int lanes) const { return window.elements() + lanes; }
};

/// The form with its right side read from a copy by vectors of so many lanes; nothing where the
/// side is no load of windows, of constant sizes.
std::optional<WindowedContraction> with_window(const Region& region, const ContractionForm& form,
                                               const Target& target, int lanes);

} // namespace egret::kernel
