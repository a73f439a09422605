// Copies one side of a contraction into panels, in the order in which tiles read it.
#pragma once

#include "kernel/contraction_form.h"
#include "kernel/contraction_tiles.h"
#include "kernel/emit.h"

#include <functional>
#include <span>
#include <vector>

namespace egret::kernel {

class WindowReader;

/// Sets the axes of a group at a point from the group's index.
void put_index(Point& point, const Region& region, const AxisGroup& group, const Expr& index);

/// The same; of indices behind the end, the axes of the last one (of the same slice, or run).
void put_index_within(Point& point, const Region& region, const AxisGroup& group,
                      const Expr& index);

/// The same for the lanes of the point's vector, the first of which has the index `first`: all in
/// one run of the innermost axis.
void put_run(Point& point, const Region& region, const AxisGroup& group, const Expr& first);
/// The same where only axes that are padded to whole vectors have such runs, those behind whose
/// ends are masked.
void put_vector(Point& point, const Region& region, const AxisGroup& group, const Expr& first);

/// Stores what the maps make of sums at a point: of one, or of those of all slices, which are at
/// the same place of each.
void store_results(Emitter& emitter, const ContractionForm& form, const Point& point,
                   std::span<const ValueId> sums);

/// Steps along the depth, and the type in which panels hold one: the accumulator's, or a word of
/// two bf16, the upper half later in the depth.
Expr steps_of(const ContractionForm& form, const Tiles& tiles);
DType word_of(const ContractionForm& form, const Tiles& tiles);

/// Step `step` of a side as it is multiplied, of all lanes of the point. `half`: of a pair only the
/// first is there, and the other is zero.
ValueId step_of_side(Emitter& emitter, const ContractionForm& form, const Side& side,
                     const Tiles& tiles, const Point& point, const Expr& step, bool half);

/// Steps of the depth that one worker packs in a row.
constexpr std::int64_t kStepsInTurn = 16;

/// A side in panels of `width` elements, zeros or repeats behind the last: panel p of depth block c
/// holds element (p * width + i, c * kc + k) at i + k * width. A panel has room for one vector more
/// than it holds, so that vectors may be stored over its end. `rows_of_chunks`, for the left side
/// of a matrix unit's products: at (k / kChunk * width + i) * kChunk + k % kChunk. A matrix unit's
/// panels are whole chunks, with zeros behind the end of the depth.
class PackedSide {
public:
  /// `window`: where the side is read from a copy of its windows, by vectors of `window_lanes`.
  PackedSide(Emitter& emitter, const ContractionForm& form, const Side& side,
             const AxisGroup& panels, int width, const Tiles& tiles, bool rows_of_chunks = false,
             const WindowReader* window = nullptr, int window_lanes = 0);

  /// Elements of a panel, and from one panel to the next.
  Expr panel_elements() const { return panel_elements_; }

  /// How the work of packing is cut up: by panels, or by steps of the depth when neighbours along
  /// the panels are neighbours in memory, so that memory is read row by row.
  bool by_depth() const;

  /// Writes the code that packs one panel of one part of the depth. `batch`: a point with the batch
  /// axes set; `offset`: the panel's place in `buffer`.
  void pack_panel(int buffer, const Expr& offset, const Point& batch, const Expr& panel,
                  const Expr& part);
  /// The same for the steps of the part from `from` to `until`, kStepsInTurn at most, and the
  /// panels from `first` to `end`; the place of panel p is offset + (p - first) * panel_elements().
  /// What depends on the panel is computed once for all of its steps, whose vectors are neighbours
  /// in the panel.
  void pack_steps(int buffer, const Expr& offset, const Point& batch, const Expr& first,
                  const Expr& end, const Expr& part, const Expr& from, const Expr& until);

private:
  void along_panel(int buffer, const Expr& offset, const Point& batch, const Expr& first,
                   const Expr& start, const Expr& count);
  void along_depth(int buffer, const Expr& offset, const Point& batch, const Expr& first,
                   const Expr& start, const Expr& count);
  void chunks(int buffer, const Expr& offset, const Point& batch, const Expr& first,
              const Expr& start, const Expr& count);
  void transposed(int buffer, const Expr& offset, const Point& batch, const Expr& first,
                  const Expr& start, const Expr& at, bool tail);
  /// All of the depth, of one part and of segments of a vector's length or more.
  void by_segments(int buffer, const Expr& offset, const Point& batch, const Expr& first);
  std::int64_t length_of(std::size_t segment) const;
  /// Goes through the steps of the part that begins at `start`, from `from` to `until` in it, one
  /// segment after the other: body(number in the part, step of the depth).
  void over_steps(const Expr& start, const Expr& from, const Expr& until,
                  const std::function<void(const Expr&, const Expr&)>& body);
  /// Steps of the part from `start` on that are whole: all but a last chunk, or pair, that is not.
  Expr whole_steps(const Expr& start, const Expr& count) const;
  /// Steps `step` of the depth, of all lanes of the point (they may go along either). `half`: a
  /// pair of which only the first is there; the other is zero.
  ValueId vector_at(Point point, const Expr& step, bool half = false);
  /// Steps from `first` on, one a lane; zeros behind the end of the depth where it may be inside
  /// (`tail`).
  ValueId along_steps(Point point, const Expr& first, bool tail);
  DType word() const { return word_of(form_, t_); }

  Emitter& e_;
  ProgramBuilder& b_;
  const ContractionForm& form_;
  const Side& side_;
  const AxisGroup& panels_;
  int width_;
  const Tiles& t_;
  bool rows_of_chunks_;
  const WindowReader* window_;
  int lanes_;                          ///< of vectors along a panel
  std::vector<std::int64_t> segments_; ///< their first steps (contraction_segments.h)
  bool whole_depth_; ///< no chunk of a matrix unit, and no pair, goes beyond the end of the depth
  Expr steps_;       ///< of the depth
  Expr panel_elements_;
};

} // namespace egret::kernel
