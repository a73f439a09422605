// What blocks of a GPU's stream do that go along the places tile by tile, whatever multiplies the
// factors: matrix instructions (gpu_stream.cpp) or threads (gpu_stream_threads.cpp).
#pragma once

#include "kernel/gpu_stream_memory.h"
#include "kernel/gpu_stream_rows.h"
#include "kernel/gpu_stream_shares.h"
#include "kernel/schedule.h"
#include "kernel/stream_rows.h"
#include "kernel/target.h"

#include <optional>
#include <vector>

namespace egret::kernel {

class TiledStream {
public:
  TiledStream(const TiledStream&) = delete;
  TiledStream& operator=(const TiledStream&) = delete;

  KernelProgram run();

protected:
  /// A thread's rows in a tile, by its warp's number among those along the rows and its lane's.
  using RowsOfThread = std::vector<Expr> (*)(const StreamTiles&, const Expr& warp,
                                             const Expr& lane);
  /// Keeps references to the first four.
  TiledStream(const Region& region, const StreamForm& form, const StreamTiles& tiles,
              const Schedule& schedule, const Target& target, RowsOfThread rows);
  virtual ~TiledStream() = default;

  /// Once the left sides have been copied, behind `ahead` younger copies.
  virtual void hold_rows(int ahead) { (void)ahead; }
  /// The scores of a tile whose right side is in piece `stage` of the ring.
  virtual void make_scores(std::size_t product, const Expr& stage) = 0;
  /// Adds what a tile from place `first` on gives to the sums.
  virtual void add_sums(const std::vector<std::size_t>& sums, const Expr& first) = 0;
  /// The sums of a half's two neighbouring columns in fragment j.
  virtual ValueId summed(std::size_t s, int half, int j) = 0;

  /// The elements that a thread has of `across` fragments beside each other.
  std::vector<VarId> fragments(int across);
  void zero(const std::vector<VarId>& variables);
  /// Makes the variables of all sums, then those of all products.
  void make_variables();
  /// Number i of the places that this thread's warp has of a tile.
  Expr mine(int i) const { return group_ * Expr(t_.places) + Expr(i); }

  const Region& r_;
  const StreamForm& f_;
  const StreamTiles& t_;
  const Schedule& s_;
  ProgramBuilder b_;
  Emitter e_;
  StreamMemory memory_;
  Expr thread_, warp_, lane_, group_; ///< group_: of warps that share out a tile's places
  Arithmetic arithmetic_;
  GpuStreamRows rows_;
  std::vector<std::vector<VarId>> scores_, carried_; ///< by product; by sum
  Expr ring_;                                        ///< the piece of the ring that is worked on

private:
  GpuStreamRows::Layout layout(RowsOfThread rows);
  void tile(const Expr& number, const Expr& share);
  void run_pass(int number);
  void step(const StreamPass& pass, const Expr& first, const Expr& stage);

  std::optional<StreamShares> shares_;
  Point batch_;
  Expr first_row_;  ///< of the tile
  TileRange range_; ///< along the places, of this block
};

} // namespace egret::kernel
