// Contractions whose right side reads windows: convolutions. The side's operand is copied once, its
// holes filled and the elements of each phase of a stride side by side. Its vectors are read from
// that copy where they lie, instead of a panel that holds each element once for every window; or
// panels are packed from it, without conditions, just before they are read.
#pragma once

#include "kernel/contraction_form.h"
#include "kernel/emit.h"
#include "kernel/loops/windows.h"
#include "kernel/target.h"

#include <optional>

namespace egret::kernel {

struct WindowedContraction {
  /// With the axes for each of which a copy is made in the batch. Where its vectors are read in
  /// place, the columns' innermost axis counts whole vectors.
  ContractionForm form;
  int operand = -1;
  loops::StagedWindow window;
  bool gathers = false; ///< the copy reads elements that lie apart
  /// Elements of a copy, with a vector before it and one behind it that may be read.
  std::int64_t elements(int lanes) const { return window.elements() + 2 * lanes; }
};

/// The form with its right side read from a copy, by vectors of so many lanes where they lie, or
/// (`packed`) into panels; nothing where the side is no load of windows, of constant sizes.
std::optional<WindowedContraction> with_window(const Region& region, const ContractionForm& form,
                                               const Target& target, int lanes, bool packed);

/// Lanes of the vectors in which panels are packed from a copy: no more than fit into a row and the
/// beginning of the next one.
int lanes_of_packing(const Region& region, const ContractionForm& form, int lanes);

/// Writes the code that makes copies and reads them. What a step along the depth adds to a place in
/// a copy comes from a table that each worker fills once.
class WindowReader {
public:
  WindowReader(Emitter& emitter, const WindowedContraction& windowed, int lanes);

  /// Makes room for copies: one that all workers share, or one of each.
  void declare(bool shared);
  void fill_table();
  /// Copies for a point of the batch.
  void copy(const Point& batch);
  /// Step `step` of the depth, of all lanes of a point whose columns are set.
  ValueId vector_at(const Point& point, const Expr& step) const;
  /// A step of two bf16, as words. `half`: the second one is zero.
  ValueId pairs_at(const Point& point, const Expr& step, bool half) const;

private:
  /// The place of a point whose depth axes are 0, counted from the place of the first of all.
  Expr place_of(const Point& point) const;
  Point at_depth(const Expr& step) const;

  Emitter& e_;
  const WindowedContraction& w_;
  int lanes_;
  bool shared_ = false;
  int copy_ = -1, table_ = -1;
  std::int64_t least_ = 0, most_ = 0; ///< in the table
};

} // namespace egret::kernel
