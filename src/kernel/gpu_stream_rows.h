// The rows of a tile that a thread of a GPU's stream has a part of: their running values, what the
// scores of a tile add to them, and results. Scores lie as matrix instructions leave them: in
// fragments of 16 rows by 8 places, of which a lane has two neighbours in row lane / 4 and two in
// the row eight below, the halves of the fragment.
#pragma once

#include "kernel/accumulate.h"
#include "kernel/stream_form.h"
#include "kernel/stream_rows.h"

#include <functional>
#include <vector>

namespace egret::kernel {

class GpuStreamRows {
public:
  /// Places of a fragment.
  static constexpr int kPlaces = 8;

  /// What is the same for all tiles. `row`: by half fragment, this thread's row in a tile.
  struct Layout {
    int places = 64; ///< of a tile; of this thread's warp, where several share them out
    int tile = 0;    ///< then those of a tile; 0: the same
    std::vector<Expr> row;
    Expr lane; ///< this thread's number in its warp
    /// Called before the points of a fragment of the tile at `first` are looked at.
    std::function<void(const Expr& first, int fragment)> prepare;
  };

  /// Keeps references to both.
  GpuStreamRows(Emitter& emitter, const StreamForm& form, const Arithmetic& arithmetic,
                Layout layout);

  /// Tiles of rows and places from here on. `range`: those that are gone along.
  void begin_rows(const Point& batch, const Expr& first_row, const TileRange& range);
  /// All rows and places of the next tile exist.
  bool whole = false;

  int halves() const { return int(l_.row.size()); }
  Expr place_of(const Expr& first, int fragment) const;
  const Expr& row_in_tile(int half) const { return l_.row[std::size_t(half)]; }
  Point row_point(int half) const { return row_at(l_.row[std::size_t(half)]); }
  Point row_at(const Expr& row) const; ///< of a tile
  /// This thread's two neighbours of a fragment.
  Point point(int half, const Expr& first, int fragment) const;

  /// Says what the scores of a product are in a fragment: f32 x 4; f32 x 2 in one half of it.
  void provide_scores(std::size_t product, int fragments_down, const Expr& first, int fragment,
                      ValueId four);
  void provide_pair(std::size_t product, int half, const Expr& first, int fragment, ValueId two);
  /// A pass along the places.
  void start(const StreamPass& pass);
  void add(const Expr& first);
  void finish();
  /// In place of finish(), where other threads have more places of the same rows: by row value of
  /// the pass, what all lanes of a row have of this half. Each is one number.
  std::vector<ValueId> unfinished(int half);
  /// The value of a stage at a row, but no number where the row's masked points would have made it
  /// one and tiles of them were left out. For sums that a maximum scales the maximum itself tells.
  ValueId unless_spoiled(int stage, const Point& row, ValueId value);

  /// By how much what was summed before the last add() is to be scaled in this half; nothing for a
  /// sum that no maximum scales.
  std::optional<ValueId> scale_of(std::size_t sum, int half) const;
  /// What a sum takes of two neighbouring fragments of scores, as the left side of a matrix
  /// instruction: u32 x 4.
  /// The registers of fragments that products still read must not be written before these end: what
  /// comes before the rounding is made by prepare_left().
  void prepare_left(const ContractionForm& sum, int down, const Expr& first, int fragment);
  ValueId left_fragment(const ContractionForm& sum, int down, const Expr& first, int fragment);
  /// What a sum takes of two neighbours, f32; 0 for places that do not exist.
  ValueId left_pair(const ContractionForm& sum, int half, const Expr& first, int fragment);

  void store_rows();
  /// `sums`: the two neighbours of the columns' fragment that this thread has in a half.
  void store_sum(std::size_t sum, int columns,
                 const std::function<ValueId(int half, int fragment)>& sums);

private:
  struct RowValue {
    int stage = -1;
    Accumulator accumulator;
    std::vector<StateVariables> halves;
  };

  bool is_scaled(int stage) const { return f_.scaled_by[std::size_t(stage)] >= 0; }
  bool scales(int stage) const;
  bool scales_columns(int stage) const;
  RowValue running(int stage);
  std::vector<Guard> places_inside(const Expr& first, int fragment) const;
  State add(Accumulator& a, const State& state, int half, const Expr& first, int fragment);
  ValueId tile_value(const RowValue& v, int half, const Expr& first);
  void add_maximum(RowValue& v, int half, const Expr& first);
  void finish_maximum(RowValue& v, int half);
  ValueId pair_of(const ContractionForm& sum, int half, const Expr& first, int fragment);
  /// Lanes that share a fragment's row.
  static constexpr int kJoined = 4;
  Expr quarter() const;
  Point column_point(const ContractionForm& sum, int half, const Expr& column, int lanes) const;
  void provide_sum(std::size_t sum, int half, const Point& p, ValueId two);
  bool joins_fragments(const ContractionForm& sum, int output) const;
  Value joined(const std::vector<Value>& quarters);
  ValueId pair_as_word(ValueId pair);
  ValueId word_of(ValueId bits);
  ValueId word_as_pair(ValueId word, DType dtype);
  ValueId no_number();

  const Region& r_;
  Emitter& e_;
  ProgramBuilder& b_;
  const StreamForm& f_;
  Arithmetic arithmetic_;
  Layout l_;
  const std::vector<int> sum_of_output_ = sums_of_outputs(r_, f_);
  Point batch_;
  Expr first_row_;
  TileRange range_;
  std::vector<RowValue> values_;                   ///< of the pass
  std::map<std::pair<int, int>, ValueId> scale_;   ///< by maximum and half
  std::map<std::pair<int, int>, ValueId> maximum_; ///< finished, by stage and half
};

} // namespace egret::kernel
