// What a stream keeps in the shared memory of a block: tiles of the rows' own factors, and a ring
// of tiles and values along the places.
#pragma once

#include "kernel/gpu_contraction_side.h"
#include "kernel/stream_form.h"

#include <memory>
#include <string>
#include <vector>

namespace egret::kernel {

/// Rows of a warp's fragments, and steps of the depth that one matrix instruction does.
inline constexpr int kStreamRows = 16, kStreamSteps = 16;

struct StreamTiles {
  int warps = 4; ///< of a block
  int tall = 1;  ///< fragments of each warp, one below the other
  int places = 64;
  int stages = 2;       ///< of the ring along the places
  bool held = true;     ///< left sides stay in registers
  bool singles = false; ///< elements are f32, which threads multiply: fragments have half the rows
  int across = 1;       ///< warps of a block that share out the places of a tile: `places` each
  int split = 1;        ///< blocks that share out the tiles along the places
  bool shares_places() const { return across > 1 || split > 1; }
  int all_places() const { return places * across; } ///< of a tile
  int threads() const { return 32 * warps * across; }
  int rows_of_warp() const { return tall * (singles ? kStreamRows / 2 : kStreamRows); }
  int rows() const { return warps * rows_of_warp(); }
  int elements() const { return singles ? 2 : 4; } ///< that a thread has of a fragment
};

/// Columns of a sum, in whole fragments.
int stream_columns(const ContractionForm& sum, const StreamTiles& tiles);

/// A tile in shared memory, and who it is read for: elements (panel index, other index).
struct SharedTile {
  GpuTiles tiles;
  ContractionForm form;
  std::unique_ptr<SharedSide> side;
  int operand = -1; ///< of a plain load
  Expr element;     ///< the load's element, over stand-ins for the axes
};

/// Values of the places, the same for all rows, in a ring in shared memory: fetched ahead like the
/// tiles are.
struct PlaceVector {
  int stage = -1, load = -1;
  int operand = -1;
  Expr element; ///< over stand-ins for the axes
  int buffer = -1;
  int together = 1; ///< elements that are copied at once
};

/// The element that a factor loads, with the axes of the panel and of the depth replaced by
/// symbols: equal for equal tiles of different products.
Expr element_of_tile(const Region& region, const ContractionForm& form, const Factor& factor,
                     int* operand);

/// Loads of 32 bits that depend on the place and not on the row, each once; without buffers.
std::vector<PlaceVector> place_vectors(const Region& region, const StreamForm& form);

class StreamMemory {
public:
  /// Keeps references to all three.
  StreamMemory(Emitter& emitter, const StreamForm& form, const StreamTiles& tiles);

  const SharedTile& left(std::size_t product) const { return *left_[product]; }
  const SharedTile& right(std::size_t product) const { return *right_[product]; }
  const SharedTile& summed(std::size_t sum) const { return *summed_[sum]; }

  /// Copies the left sides of the rows from `first` on. `batch`: a point with the batch axes set.
  void copy_rows(const Point& batch, const Expr& first);
  /// Copies `ring`, tiles of the places from `first` on, and all vectors to a piece of the ring.
  void copy_places(const Point& batch, const std::vector<const SharedTile*>& ring,
                   const Expr& first, const Expr& piece);
  /// What loads of the vectors give at the point, whose first place is number `in_tile` of the
  /// piece.
  void provide_vectors(const Point& point, const Expr& in_tile, const Expr& piece);

private:
  std::shared_ptr<SharedTile> make_tile(const ContractionForm& form, const Side& side,
                                        const std::string& name);
  void copy_vector(const PlaceVector& v, const Point& batch, const Expr& first, const Expr& piece);

  const Region& r_;
  Emitter& e_;
  ProgramBuilder& b_;
  const StreamForm& f_;
  const StreamTiles& t_;
  Expr thread_;
  std::vector<std::shared_ptr<SharedTile>> tiles_, left_, right_, summed_;
  std::vector<PlaceVector> vectors_;
};

} // namespace egret::kernel
