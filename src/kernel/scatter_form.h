// Scatters by one index: their form, and one update of them.
#pragma once

#include "kernel/emit.h"
#include "kernel/region.h"

#include <optional>
#include <vector>

namespace egret::kernel {

/// A region whose only output is a scatter by one index. Its loop nest is `updates` by `columns`:
/// updates of different columns never meet, whatever the index is, and an update goes to one of
/// `bins` elements of each column.
struct ScatterForm {
  int stage = 0;
  std::vector<int> columns, updates; ///< axes, outermost first
  Expr column_count, update_count;
  Expr bins;
  std::optional<Monoid> monoid; ///< Sum or Max; nothing: the last update stays
  DType state = DType::F32;     ///< in which updates are combined; what an element gets is rounded
                                ///< to its own dtype once
  bool index_by_update = false; ///< the index is the same for all columns
  bool whole = false;           ///< see whole_form()
  int choice =
      -1; ///< one of the updates' axes, by whose few places the stage chooses among values,
          ///< as that of joined scatters: code for each place needs its own value alone
};

/// Nothing for other regions.
std::optional<ScatterForm> scatter_form(const Region& region);

/// The same updates, in the same order, as those of one column whose elements are all of the
/// output: for ways that want one index for all columns.
ScatterForm whole_form(const Region& region, const ScatterForm& form);

/// Whether a program that goes through all elements of all columns anyway should read the data from
/// their operand and write the output whole: these are all of the output's elements, and updates
/// are not few beside them: one for `sparse` elements at the least.
bool writes_whole_output(const Region& region, const ScatterForm& form, std::int64_t sparse = 4);

/// The point of an update and of a column, by their numbers.
Point point_of_update(const Region& region, const ScatterForm& form, const Expr& update,
                      const Expr& column);

/// Where an update goes, as an integer that an index expression takes; it counts when it lies
/// between 0 and the bins.
Expr bin_of(Emitter& emitter, const ScatterForm& form, const Point& point);
/// The indices of a point's lanes, as integers.
ValueId bins_of_updates(Emitter& emitter, const ScatterForm& form, const Point& point);
/// What it brings, in the state's dtype.
ValueId update_of(Emitter& emitter, const ScatterForm& form, const Point& point);

/// Element `bin` of the point's column in the output.
Expr element_of(const Region& region, const ScatterForm& form, const Point& point, const Expr& bin);
/// Two states combined; the second one where the last update stays.
ValueId combine_updates(ProgramBuilder& b, const ScatterForm& form, ValueId first, ValueId second);
/// Combines `state`, which came after all that is there, into an element of the output, or of the
/// buffer that stands for it.
void update_output(Emitter& emitter, const ScatterForm& form, const Expr& element, ValueId state,
                   const std::vector<Guard>& mask, int buffer = -1);

} // namespace egret::kernel
