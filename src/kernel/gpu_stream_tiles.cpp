#include "kernel/gpu_stream_tiles.h"

#include "kernel/analysis.h"
#include "kernel/contraction_pack.h"
#include "kernel/gpu_nest.h"

#include <algorithm>

namespace egret::kernel {

TiledStream::TiledStream(const Region& region, const StreamForm& form, const StreamTiles& tiles,
                         const Schedule& schedule, const Target& target, RowsOfThread rows)
    : r_(region), f_(form), t_(tiles), s_(schedule), b_(region.name), e_(b_, region),
      memory_(e_, form, tiles), thread_(thread_variable(tiles.threads())),
      warp_(floormod(floordiv(thread_, 32), tiles.warps)), lane_(floormod(thread_, 32)),
      group_(floordiv(thread_, 32 * tiles.warps)), arithmetic_(arithmetic_of(target)),
      rows_(e_, form, arithmetic_, layout(rows)) {}

GpuStreamRows::Layout TiledStream::layout(RowsOfThread rows) {
  GpuStreamRows::Layout l;
  l.places = t_.places;
  l.tile = t_.all_places();
  l.row = rows(t_, warp_, lane_);
  l.lane = lane_;
  l.prepare = [this](const Expr& first, int fragment) {
    memory_.provide_vectors(rows_.point(0, first, fragment), rows_.place_of(mine(0), fragment),
                            ring_);
  };
  return l;
}

std::vector<VarId> TiledStream::fragments(int across) {
  std::vector<VarId> variables;
  for (int i = 0; i < t_.tall * across; ++i)
    variables.push_back(b_.variable({DType::F32, t_.elements()}));
  return variables;
}

void TiledStream::zero(const std::vector<VarId>& variables) {
  const ValueId nothing = b_.constant(Scalar::of(DType::F32, 0.0), t_.elements());
  for (VarId v : variables)
    b_.set(v, nothing);
}

void TiledStream::make_variables() {
  for (const ContractionForm& s : f_.sums)
    carried_.push_back(fragments(stream_columns(s, t_) / GpuStreamRows::kPlaces));
  for (std::size_t p = 0; p < f_.products.size(); ++p)
    scores_.push_back(fragments(t_.places / GpuStreamRows::kPlaces));
}

KernelProgram TiledStream::run() {
  Launch launch;
  launch.threads = t_.threads();
  launch.blocks_per_core = s_.blocks_per_core;
  launch.least_shared = s_.least_shared;
  launch.workers = Expr(1);
  std::vector<int> parallel = f_.batch.axes;
  parallel.insert(parallel.end(), f_.rows.axes.begin(), f_.rows.axes.end());
  if (is_empty(r_, parallel))
    return b_.finish(launch);
  const Expr down = ceildiv(f_.rows.extent, t_.rows()), one = max(down, Expr(1)),
             batches = max(f_.batch.extent, Expr(1));
  launch.workers = f_.batch.extent * down * Expr(t_.split);
  if (t_.shares_places())
    shares_.emplace(e_, f_, rows_, t_, arithmetic_, f_.batch.extent * down);
  b_.grid_loop(launch.workers, [&](const Expr& worker) {
    const Expr number = floordiv(worker, t_.split);
    batch_.at.assign(r_.axes.size(), Expr());
    // The last rows first: with a causal mask they have the most to do. Threads, which take longer,
    // begin with those of all batches.
    if (t_.singles) {
      put_index(batch_, r_, f_.batch, floormod(number, batches));
      first_row_ = (one - Expr(1) - floordiv(number, batches)) * Expr(t_.rows());
    } else {
      put_index(batch_, r_, f_.batch, floordiv(number, one));
      first_row_ = (down - Expr(1) - floormod(number, one)) * Expr(t_.rows());
    }
    tile(number, floormod(worker, t_.split));
  });
  return b_.finish(launch);
}

/// One tile of rows.
void TiledStream::tile(const Expr& number, const Expr& share) {
  b_.barrier(); // the last tile's left sides have been read
  memory_.copy_rows(batch_, first_row_);
  b_.commit_copies();
  for (const auto& variables : carried_)
    zero(variables);
  range_ = tiles_that_count(r_, f_, batch_, first_row_, t_.rows(), t_.all_places());
  rows_.begin_rows(batch_, first_row_, range_);
  if (shares_) {
    range_ = shares_->part_of(range_, share);
    run_pass(0);
    for (int half = 0; half < rows_.halves(); ++half)
      shares_->put(group_, half, lane_, [&](std::size_t s, int j) { return summed(s, half, j); });
    shares_->finish(number, share);
    return;
  }
  for (int pass = 0; pass < f_.passes; ++pass) {
    run_pass(pass);
    rows_.finish();
  }
  rows_.store_rows();
  for (std::size_t s = 0; s < f_.sums.size(); ++s)
    rows_.store_sum(s, stream_columns(f_.sums[s], t_),
                    [&](int half, int j) { return summed(s, half, j); });
}

/// A pass along the places.
void TiledStream::run_pass(int number) {
  const StreamPass pass = stream_pass(r_, f_, number);
  std::vector<const SharedTile*> ring;
  const auto add_tile = [&](const SharedTile* t) {
    if (std::find(ring.begin(), ring.end(), t) == ring.end())
      ring.push_back(t);
  };
  for (std::size_t p : pass.products)
    add_tile(&memory_.right(p));
  for (std::size_t s : pass.sums)
    add_tile(&memory_.summed(s));
  rows_.start(pass);
  const int ahead = t_.stages - 1;
  const Expr most = max(ceildiv(f_.places.extent, t_.all_places()), Expr(1));
  const auto copies = [&](const Expr& t) {
    memory_.copy_places(batch_, ring, min(t, most - Expr(1)) * Expr(t_.all_places()),
                        floormod(t, t_.stages));
  };
  for (int i = 0; i < ahead; ++i) {
    const Expr t = range_.begin + Expr(i);
    b_.when({{t, range_.begin, range_.end}}, [&] { copies(t); });
    b_.commit_copies();
  }
  // Few blocks of few threads: those of the next launch find room on each multiprocessor. What
  // they read is behind what has been asked for here.
  if (shares_)
    b_.launch_dependents();
  if (number == 0)
    hold_rows(ahead);
  b_.loop(range_.begin, range_.end, Expr(1), most, Bind::Serial, [&](const Expr& t) {
    b_.wait_copies(ahead - 1);
    b_.barrier();
    const Expr next = t + Expr(ahead);
    b_.when({{next, range_.begin, range_.end}}, [&] { copies(next); });
    b_.commit_copies();
    step(pass, t * Expr(t_.all_places()) + mine(0), floormod(t, t_.stages));
  });
  b_.wait_copies(0);
  b_.barrier();
}

void TiledStream::step(const StreamPass& pass, const Expr& first, const Expr& stage) {
  for (std::size_t p : pass.products)
    make_scores(p, stage);
  ring_ = stage;
  e_.forget_maps();
  // Scores of the tile, as results of their stages from here on.
  const int across = t_.places / GpuStreamRows::kPlaces;
  for (int i = 0; i < t_.tall; ++i)
    for (int j = 0; j < across; ++j)
      for (std::size_t p : pass.products) {
        const ValueId scores = b_.read(scores_[p][std::size_t(i * across + j)]);
        if (t_.singles)
          rows_.provide_pair(p, i, first, j, scores);
        else
          rows_.provide_scores(p, i, first, j, scores);
      }
  rows_.add(first);
  add_sums(pass.sums, first);
}

} // namespace egret::kernel
