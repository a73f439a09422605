// A warp has some rows and goes along the places, tile by tile. Eight lanes are beside each other
// along the rows and four along the places; a thread has `tall` rows and a quarter of a tile's
// places, whose scores it keeps in registers. What a sum takes of the scores goes through shared
// memory of the warp, as each of its threads sums a quarter of the columns over all places.
#include "kernel/gpu_stream_threads.h"

#include "kernel/analysis.h"
#include "kernel/contraction_pack.h"
#include "kernel/gpu_fma_time.h"
#include "kernel/gpu_nest.h"
#include "kernel/gpu_stream_rows.h"
#include "kernel/gpu_stream_shares.h"
#include "support/checked.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace egret::kernel {

namespace {

constexpr int kPairPlaces = GpuStreamRows::kPlaces;
/// Lanes of a warp beside each other along the rows, and along the places.
constexpr int kRowLanes = 8, kPlaceLanes = 4, kStreamLanes = kRowLanes * kPlaceLanes;
/// Elements of the depth, or places, that a thread reads at once.
constexpr int kStepsAtOnce = 4;
/// Columns and depths whose tiles fit.
constexpr std::int64_t kMostSingles = 128;

class ThreadStream {
public:
  ThreadStream(const Region& region, const StreamForm& form, const StreamTiles& tiles,
               const Schedule& schedule, const Target& target)
      : r_(region), f_(form), t_(tiles), s_(schedule), b_(region.name), e_(b_, region),
        memory_(e_, form, tiles), thread_(thread_variable(tiles.threads())),
        warp_(floormod(floordiv(thread_, kStreamLanes), tiles.warps)),
        lane_(floormod(thread_, kStreamLanes)),
        group_(floordiv(thread_, kStreamLanes * tiles.warps)), pitch_(tiles.places + kStepsAtOnce),
        arithmetic_(arithmetic_of(target)), rows_(e_, form, arithmetic_, layout()) {
    if (!f_.sums.empty())
      lefts_ = b_.shared("lefts", DType::F32, std::int64_t(t_.across) * t_.rows() * pitch_);
    for (const ContractionForm& s : f_.sums)
      carried_.push_back(pairs(stream_columns(s, t_) / kPairPlaces));
    for (std::size_t p = 0; p < f_.products.size(); ++p)
      scores_.push_back(pairs(t_.places / kPairPlaces));
  }

  KernelProgram run() {
    Launch launch;
    launch.threads = t_.threads();
    launch.blocks_per_core = s_.blocks_per_core;
    launch.least_shared = s_.least_shared;
    launch.workers = Expr(1);
    std::vector<int> parallel = f_.batch.axes;
    parallel.insert(parallel.end(), f_.rows.axes.begin(), f_.rows.axes.end());
    if (is_empty(r_, parallel))
      return b_.finish(launch);
    const Expr down = ceildiv(f_.rows.extent, t_.rows());
    launch.workers = f_.batch.extent * down * Expr(t_.split);
    if (t_.shares_places())
      shares_.emplace(e_, f_, rows_, t_, arithmetic_, f_.batch.extent * down);
    b_.grid_loop(launch.workers, [&](const Expr& worker) {
      const Expr one = max(down, Expr(1)), number = floordiv(worker, t_.split);
      batch_.at.assign(r_.axes.size(), Expr());
      // The last rows first, of all batches: with a causal mask they have the most to do.
      const Expr batches = max(f_.batch.extent, Expr(1));
      put_index(batch_, r_, f_.batch, floormod(number, batches));
      first_row_ = (one - Expr(1) - floordiv(number, batches)) * Expr(t_.rows());
      tile(number, floormod(worker, t_.split));
    });
    return b_.finish(launch);
  }

private:
  std::vector<VarId> pairs(int across) {
    std::vector<VarId> variables;
    for (int i = 0; i < t_.tall * across; ++i)
      variables.push_back(b_.variable({DType::F32, 2}));
    return variables;
  }

  GpuStreamRows::Layout layout() {
    GpuStreamRows::Layout l;
    l.places = t_.places;
    l.tile = t_.all_places();
    for (int i = 0; i < t_.tall; ++i)
      l.row.push_back(row(i));
    l.lane = lane_;
    l.prepare = [this](const Expr& first, int pair) {
      memory_.provide_vectors(rows_.point(0, first, pair), rows_.place_of(mine(0), pair), ring_);
    };
    return l;
  }

  /// Number i of the places that this thread's warp has of a tile.
  Expr mine(int i) const { return group_ * Expr(t_.places) + Expr(i); }

  /// This thread's row number i in a tile.
  Expr row(int i) const {
    return warp_ * Expr(t_.rows_of_warp()) + Expr(kRowLanes * i) + floordiv(lane_, kPlaceLanes);
  }

  void zero(const std::vector<VarId>& variables) {
    const ValueId nothing = b_.constant(Scalar::of(DType::F32, 0.0), 2);
    for (VarId v : variables)
      b_.set(v, nothing);
  }

  void tile(const Expr& number, const Expr& share) {
    b_.barrier(); // the last tile's left sides have been read
    memory_.copy_rows(batch_, first_row_);
    b_.commit_copies();
    for (const auto& variables : carried_)
      zero(variables);
    range_ = tiles_that_count(r_, f_, batch_, first_row_, t_.rows(), t_.all_places());
    rows_.begin_rows(batch_, first_row_, range_);
    if (shares_) {
      range_ = shares_->part_of(range_, share);
      along_places(0);
      for (int i = 0; i < t_.tall; ++i)
        shares_->put(group_, i, lane_, [&](std::size_t s, int j) { return summed(s, i, j); });
      shares_->finish(number, share);
      return;
    }
    for (int pass = 0; pass < f_.passes; ++pass) {
      along_places(pass);
      rows_.finish();
    }
    rows_.store_rows();
    for (std::size_t s = 0; s < f_.sums.size(); ++s)
      rows_.store_sum(s, stream_columns(f_.sums[s], t_),
                      [&](int i, int j) { return summed(s, i, j); });
  }

  /// The sums of row i's two neighbouring columns number j.
  ValueId summed(std::size_t s, int i, int j) {
    return b_.read(carried_[s][std::size_t(i * stream_columns(f_.sums[s], t_) / kPairPlaces + j)]);
  }

  void along_places(int number) {
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
    if (shares_) // blocks of the next launch find room beside these, and read behind them
      b_.launch_dependents();
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

  void step(const StreamPass& pass, const Expr& first, const Expr& stage) {
    for (std::size_t p : pass.products)
      make_scores(p, stage);
    ring_ = stage;
    e_.forget_maps();
    const int across = t_.places / kPairPlaces;
    for (int i = 0; i < t_.tall; ++i)
      for (int j = 0; j < across; ++j)
        for (std::size_t p : pass.products)
          rows_.provide_pair(p, i, first, j, b_.read(scores_[p][std::size_t(i * across + j)]));
    rows_.add(first);
    for (std::size_t s : pass.sums) {
      scale_sum(s);
      add_products(s, first);
    }
  }

  void make_scores(std::size_t p, const Expr& stage) {
    zero(scores_[p]);
    const SharedTile &left = memory_.left(p), &right = memory_.right(p);
    const int across = t_.places / kPairPlaces, depth = left.tiles.bk;
    b_.loop(Expr(0), Expr(depth), Expr(kStepsAtOnce), Expr(depth), Bind::Serial,
            [&](const Expr& k) {
              std::vector<ValueId> own;
              for (int i = 0; i < t_.tall; ++i)
                own.push_back(four(*left.side, Expr(0), row(i), k));
              for (int j = 0; j < across; ++j) {
                const Expr place = rows_.place_of(mine(0), j);
                const ValueId one = four(*right.side, stage, place, k),
                              two = four(*right.side, stage, place + Expr(1), k);
                std::vector<ValueId> steps;
                for (int c = 0; c < kStepsAtOnce; ++c)
                  steps.push_back(b_.shuffle(one, two, {c, kStepsAtOnce + c}));
                for (int i = 0; i < t_.tall; ++i)
                  multiply(scores_[p][std::size_t(i * across + j)], own[std::size_t(i)], steps);
              }
            });
  }

  ValueId four(const SharedSide& side, const Expr& stage, const Expr& p, const Expr& k) {
    return b_.load(side.buffer(), side.at(stage, p, k) + lane_variable(kStepsAtOnce), kStepsAtOnce);
  }

  /// Adds lane c of the left side times number c of the right sides, in turn.
  void multiply(VarId sum, ValueId left, const std::vector<ValueId>& right) {
    ValueId v = b_.read(sum);
    for (int c = 0; c < int(right.size()); ++c)
      v = b_.fma(b_.splat(b_.extract(left, c), 2), right[std::size_t(c)], v);
    b_.set(sum, v);
  }

  /// What was summed while the maximum was smaller.
  void scale_sum(std::size_t s) {
    const int across = stream_columns(f_.sums[s], t_) / kPairPlaces;
    for (int i = 0; i < t_.tall; ++i) {
      const auto scale = rows_.scale_of(s, i);
      if (!scale)
        return;
      for (int j = 0; j < across; ++j) {
        const VarId v = carried_[s][std::size_t(i * across + j)];
        b_.set(v, b_.apply(Op::Mul, DType::F32, {b_.read(v), b_.splat(*scale, 2)}));
      }
    }
  }

  Expr left_row(int i) const { return group_ * Expr(t_.rows()) + row(i); }

  void add_products(std::size_t s, const Expr& first) {
    const ContractionForm& sum = f_.sums[s];
    const SharedTile& right = memory_.summed(s);
    b_.subgroup_barrier(); // what was there has been read
    for (int i = 0; i < t_.tall; ++i)
      for (int j = 0; j < t_.places / kPairPlaces; ++j)
        b_.store(lefts_, left_row(i) * Expr(pitch_) + rows_.place_of(Expr(0), j) + lane_variable(2),
                 rows_.left_pair(sum, i, first, j));
    b_.subgroup_barrier();
    const int across = stream_columns(sum, t_) / kPairPlaces;
    const Expr stage = ring_;
    b_.loop(Expr(0), Expr(t_.places), Expr(kStepsAtOnce), Expr(t_.places), Bind::Serial,
            [&](const Expr& k) {
              std::vector<ValueId> own;
              for (int i = 0; i < t_.tall; ++i)
                own.push_back(b_.load(lefts_,
                                      left_row(i) * Expr(pitch_) + k + lane_variable(kStepsAtOnce),
                                      kStepsAtOnce));
              for (int j = 0; j < across; ++j) {
                std::vector<ValueId> steps;
                for (int c = 0; c < kStepsAtOnce; ++c)
                  steps.push_back(
                      b_.load(right.side->buffer(),
                              right.side->at(stage, mine(c) + k, rows_.place_of(Expr(0), j)) +
                                  lane_variable(2),
                              2));
                for (int i = 0; i < t_.tall; ++i)
                  multiply(carried_[s][std::size_t(i * across + j)], own[std::size_t(i)], steps);
              }
            });
  }

  const Region& r_;
  const StreamForm& f_;
  const StreamTiles& t_;
  const Schedule& s_;
  ProgramBuilder b_;
  Emitter e_;
  StreamMemory memory_;
  Expr thread_, warp_, lane_, group_; ///< group_: of warps that share out a tile's places
  int pitch_;                         ///< of the rows in `lefts_`
  int lefts_ = -1;                    ///< what a sum takes of a tile's scores
  Arithmetic arithmetic_;
  GpuStreamRows rows_;
  std::optional<StreamShares> shares_;
  std::vector<std::vector<VarId>> scores_, carried_; ///< by product; by sum
  Point batch_;
  Expr first_row_;
  TileRange range_;
  Expr ring_; ///< the piece of the ring that is worked on
};

/// What tiles of a stream's sides take of a block's shared memory, in f32 for each row and place.
struct SharedLines {
  std::int64_t rows = 0, places = 0;
  bool has_sums = false;
};
SharedLines shared_lines_of(const Region& region, const StreamForm& form) {
  SharedLines lines;
  lines.places = std::int64_t(place_vectors(region, form).size());
  lines.has_sums = !form.sums.empty();
  std::vector<std::tuple<int, Expr, Expr>> tiles; // those that products and sums share, once
  for (const auto* forms : {&form.products, &form.sums})
    for (const ContractionForm& f : *forms) {
      const std::int64_t pitch = round_up<std::int64_t>(f.depth.extent.value(), 8) + kStepsAtOnce;
      if (forms == &form.products)
        lines.rows += pitch;
      const Factor right = factor_of(region, f, f.right);
      int operand = -1;
      if (right.is_load) {
        const Expr element = element_of_tile(region, f, right, &operand);
        const std::tuple tile{operand, element, f.depth.extent};
        if (std::find(tiles.begin(), tiles.end(), tile) != tiles.end())
          continue;
        tiles.push_back(tile);
      }
      lines.places += pitch;
    }
  return lines;
}

std::int64_t shared_bytes_of(const SharedLines& lines, const StreamTiles& t) {
  const std::int64_t lefts =
      lines.has_sums ? std::int64_t(t.across) * t.rows() * (t.places + kStepsAtOnce) : 0;
  return 4 * (lefts + lines.rows * t.rows() + lines.places * t.stages * t.all_places());
}

/// Cycles of a multiprocessor, about, from what its four schedulers issue and what shared memory
/// delivers.
double cycles_of(const StreamForm& form, const SharedLines& lines, const StreamTiles& t,
                 const Target& target) {
  const double tall = t.tall, places = t.places;
  double products = 0, reads = 0; // of a warp, for a tile
  for (const ContractionForm& p : form.products) {
    const double steps = double(p.depth.extent.value()) / kStepsAtOnce;
    products += steps * tall * places;
    reads += steps * (2 * tall + places);
  }
  for (const ContractionForm& s : form.sums) {
    const double columns = stream_columns(s, t), steps = places / kStepsAtOnce;
    products += steps * tall * columns;
    reads += steps * (2 * tall + columns) + tall * places / 4;
  }
  const double rest = 16 * tall * places / 4; // of the scores themselves
  const std::int64_t registers = thread_stream_registers(form, t) + 40;
  const std::int64_t blocks =
      std::max<std::int64_t>(1, std::min({target.shared_bytes / (shared_bytes_of(lines, t) + 1024),
                                          target.registers / (kStreamLanes * t.warps * registers),
                                          std::int64_t(16 / t.warps)}));
  const double tiles = std::ceil(double(usual_size(form.rows.extent)) / t.rows()) *
                       double(usual_size(form.batch.extent));
  const double along = std::ceil(double(usual_size(form.places.extent)) / places);
  const double together = std::min(double(blocks), std::ceil(tiles / target.workers));
  const double warps = together * t.warps;
  // A scheduler's only warp waits for its own results.
  const double one = std::max((products + rest) / 4, reads) * (1 + 3 / warps) * t.warps;
  return std::ceil(tiles / (target.workers * together)) * together * one * along;
}

} // namespace

std::int64_t thread_stream_registers(const StreamForm& form, const StreamTiles& t) {
  std::int64_t n = 4 * t.tall + 8;
  for (const ContractionForm& s : form.sums)
    n += std::int64_t(t.tall) * stream_columns(s, t) / 4;
  for (std::size_t p = 0; p < form.products.size(); ++p)
    n += std::int64_t(t.tall) * t.places / 4;
  return n;
}

std::string thread_stream_refused(const Region& region, const StreamForm& form) {
  const auto is_half = [&](const ContractionForm& f, const Side& side) {
    return size_of(factor_of(region, f, side).dtype) == 2;
  };
  for (const auto* forms : {&form.products, &form.sums})
    for (const ContractionForm& f : *forms) {
      if (!f.depth.extent.is_constant() || f.depth.extent.value() < 1 ||
          f.depth.extent.value() > kMostSingles)
        return "a product's depth or a sum's columns are not known or too many";
      if (is_half(f, f.left) && is_half(f, f.right))
        return "two 16-bit factors, which matrix units take";
    }
  return "";
}

namespace {

/// By the estimate of their cycles.
std::vector<std::pair<double, StreamTiles>>
tiles_by_time(const Region& region, const StreamForm& form, const Target& target) {
  constexpr std::int64_t kMostHeld = 208, kOtherBytes = 8192;
  const SharedLines lines = shared_lines_of(region, form);
  std::vector<std::pair<double, StreamTiles>> found;
  for (const int warps : {2, 4, 8, 1}) // of equal ones, small blocks: masks make some longer
    for (const int tall : {4, 8, 2, 1})
      for (const int places : {32, 64, 16, 8}) {
        const StreamTiles t{warps, tall, places, 2, false, true};
        if (thread_stream_registers(form, t) <= kMostHeld &&
            shared_bytes_of(lines, t) <= target.block_shared_bytes - kOtherBytes)
          found.emplace_back(cycles_of(form, lines, t, target), t);
      }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  return found;
}

/// The share of points that add something to a sum, by some of them: indices tell it. Of all rows,
/// and of the row that has most.
struct LiveShare {
  double all = 1, longest = 1;
};
LiveShare live_share(const Region& region, const StreamForm& form) {
  constexpr std::int64_t kSamples = 13;
  if (form.bounds.empty())
    return {};
  LiveShare share{0, 0};
  for (std::int64_t r = 0; r < kSamples; ++r) {
    int live = 0;
    for (std::int64_t p = 0; p < kSamples; ++p)
      live += std::all_of(form.bounds.begin(), form.bounds.end(), [&](const Expr& bound) {
        const Expr at = substitute(bound, [&](const Expr& v) -> std::optional<Expr> {
          if (!v.is_axis())
            return std::nullopt;
          const int axis = v.axis_number();
          const std::int64_t n = usual_size(region.axes[static_cast<std::size_t>(axis)].extent);
          const bool is_place = std::count(form.places.axes.begin(), form.places.axes.end(), axis);
          return Expr((n - 1) * (is_place ? p : r) / (kSamples - 1));
        });
        return !at.is_constant() || at.value() >= 0;
      });
    share.all += live / double(kSamples * kSamples);
    share.longest = std::max(share.longest, live / double(kSamples));
  }
  return share;
}

} // namespace

std::vector<StreamTiles> shared_thread_tiles(const Region& region, const StreamForm& form,
                                             const Target& target) {
  constexpr std::int64_t kMostHeld = 208, kOtherBytes = 8192;
  std::vector<StreamTiles> space;
  if (!thread_stream_refused(region, form).empty())
    return space;
  const SharedLines lines = shared_lines_of(region, form);
  const std::int64_t rows = form.rows.extent.value();
  for (const auto& [across, places] : {std::pair{8, 8}, {4, 16}, {4, 8}, {8, 16}, {2, 8}}) {
    StreamTiles t{1, int(ceil_quotient(rows, std::int64_t(kRowLanes))), places, 2, false, true};
    t.across = across;
    if (thread_stream_registers(form, t) <= kMostHeld &&
        shared_bytes_of(lines, t) + 4 * t.across * share_elements(form, t) <=
            target.block_shared_bytes - kOtherBytes)
      space.push_back(t);
  }
  return space;
}

std::vector<StreamTiles> thread_stream_space(const Region& region, const StreamForm& form,
                                             const Target& target) {
  std::vector<StreamTiles> space;
  if (thread_stream_refused(region, form).empty())
    for (const auto& [cycles, t] : tiles_by_time(region, form, target))
      space.push_back(t);
  return space;
}

bool stored_scores_take_less(const Region& region, const StreamForm& form, const Target& target) {
  constexpr double kClock = 1.7e9, kLaunchSeconds = 2.2e-6, kCacheBytes = 4e12;
  const double most = std::max(128e6, double(target.memory_bytes) / 128);
  if (!thread_stream_refused(region, form).empty())
    return false;
  double bytes = 4; // of scores, at the largest sizes
  for (const AxisGroup* group : {&form.batch, &form.rows, &form.places})
    bytes *= double(group->extent.upper());
  const std::int64_t batch = usual_size(form.batch.extent), rows = usual_size(form.rows.extent),
                     places = usual_size(form.places.extent);
  const auto tiles = tiles_by_time(region, form, target);
  if (tiles.empty() || bytes > most)
    return false;
  const auto seconds = [&](std::int64_t columns, std::int64_t depth) {
    const auto choices = fma_choices({rows, columns, depth, batch}, target);
    return choices.empty() ? HUGE_VAL : choices[0].cycles / kClock + kLaunchSeconds;
  };
  double stored = form.row_stages.empty() ? 0 : kLaunchSeconds + 2 * bytes / kCacheBytes;
  for (const ContractionForm& p : form.products)
    stored += seconds(places, p.depth.extent.value()) + bytes / kCacheBytes;
  for (const ContractionForm& s : form.sums)
    stored += seconds(s.depth.extent.value(), places) + bytes / kCacheBytes;
  // Where all blocks run at once, the one with the longest rows says how long that takes. Tiles at
  // the border of what is masked are made in full. Exponentials of the scores, and what their
  // maximum scales, took 0.7 to 1.4 times as long again as all that the estimate counts.
  const StreamTiles& best = tiles[0].second;
  const std::int64_t blocks = batch * ceil_quotient(rows, best.rows());
  const LiveShare share = live_share(region, form);
  const double live = blocks <= target.workers * (16 / best.warps) ? share.longest
                                                                   : std::min(1.0, share.all + 0.1),
               scaled = form.row_stages.empty() ? 1 : 1.8;
  const double streamed =
      scaled * live * tiles[0].first * std::max(1, form.passes) / kClock + kLaunchSeconds;
  return stored < 0.9 * streamed;
}

KernelProgram make_thread_stream(const Region& region, const StreamForm& form,
                                 const StreamTiles& tiles, const Schedule& schedule,
                                 const Target& target) {
  return ThreadStream(region, form, tiles, schedule, target).run();
}

} // namespace egret::kernel
