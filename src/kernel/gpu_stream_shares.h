// Streams whose places are shared out, by the warps of a block and by blocks, as few rows leave
// most of a GPU without work otherwise (flash-decoding: Dao, Haziza, Massa and Sizov 2023): each
// has the row values and sums of its own places, and these are combined in a fixed order.
#pragma once

#include "kernel/gpu_stream_memory.h"
#include "kernel/gpu_stream_rows.h"

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace egret::kernel {

/// Why the places of a stream cannot be shared out; empty where they can.
std::string shares_refused(const Region& region, const StreamForm& form);

/// Whether few rows are better off with shared places.
bool shares_pay(const Region& region, const StreamForm& form);

/// Numbers in f32 that a warp or a block has of its rows.
std::int64_t share_elements(const StreamForm& form, const StreamTiles& tiles);

class StreamShares {
public:
  /// `count`: of all tiles of rows. Keeps references to all but that.
  StreamShares(Emitter& emitter, const StreamForm& form, GpuStreamRows& rows,
               const StreamTiles& tiles, const Arithmetic& arithmetic, const Expr& count);

  /// The tiles of the range that a block has, of share number `share`.
  TileRange part_of(const TileRange& range, const Expr& share) const;
  /// What a thread has in one half of its rows, its warp being number `group` along the places:
  /// `sums` gives two neighbours of the columns.
  void put(const Expr& group, int half, const Expr& lane,
           const std::function<ValueId(std::size_t sum, int fragment)>& sums);
  /// Behind put() of all threads: results of tile `number` of the rows, of which this block has
  /// share `share` of the places. All threads of the block come here; a barrier must follow before
  /// the next put().
  void finish(const Expr& number, const Expr& share);

private:
  /// Combined row values, by stage; of a maximum by share also what scales its sums.
  struct Combined {
    std::map<int, ValueId> values;
    std::map<int, std::vector<ValueId>> scales;
  };
  /// Where the shares to be combined lie.
  struct Shares {
    int buffer = -1;
    Expr first; ///< of the first share
    int count = 1;
  };

  std::int64_t row_values() const { return std::int64_t(pass_.rows.size()) * rows_; }
  std::int64_t elements() const { return share_elements(f_, t_); }
  Expr row_value(std::size_t value, const Expr& row) const {
    return Expr(std::int64_t(value) * rows_) + row;
  }
  Expr column(std::size_t sum, const Expr& row, const Expr& column) const;
  void each_item(std::int64_t items, const std::function<void(const Expr& item)>& body);
  Combined combine_rows(const Shares& from, const Expr& row);
  ValueId combine_sum(const Shares& from, const Combined& rows, std::size_t sum,
                      const Expr& element);
  void pass_on(const Shares& from, const Expr& to);
  void store_results(const Shares& from);
  void provide_rows(const Combined& rows, const Point& row);

  Emitter& e_;
  ProgramBuilder& b_;
  const Region& r_;
  const StreamForm& f_;
  GpuStreamRows& of_rows_;
  const StreamTiles& t_;
  Arithmetic arithmetic_;
  StreamPass pass_;
  Expr thread_;
  std::int64_t rows_; ///< of a tile, that there are
  int warps_ = -1, blocks_ = -1, arrived_ = -1;
};

} // namespace egret::kernel
