// A warp has some rows and goes along the places, tile by tile. Eight lanes are beside each other
// along the rows and four along the places; a thread has `tall` rows and a quarter of a tile's
// places, whose scores it keeps in registers. What a sum takes of the scores goes through shared
// memory of the warp, as each of its threads sums a quarter of the columns over all places.
#include "kernel/gpu_stream_threads.h"

#include "kernel/analysis.h"
#include "kernel/contraction_pack.h"
#include "kernel/gpu_fma_time.h"
#include "kernel/gpu_stream_tiles.h"
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

/// A thread's row number i of a tile.
Expr row_of_thread(const StreamTiles& t, const Expr& warp, const Expr& lane, int i) {
  return warp * Expr(t.rows_of_warp()) + Expr(kRowLanes * i) + floordiv(lane, kPlaceLanes);
}

std::vector<Expr> rows_of_pairs(const StreamTiles& t, const Expr& warp, const Expr& lane) {
  std::vector<Expr> rows;
  for (int i = 0; i < t.tall; ++i)
    rows.push_back(row_of_thread(t, warp, lane, i));
  return rows;
}

class ThreadStream : public TiledStream {
public:
  ThreadStream(const Region& region, const StreamForm& form, const StreamTiles& tiles,
               const Schedule& schedule, const Target& target)
      : TiledStream(region, form, tiles, schedule, target, rows_of_pairs),
        pitch_(tiles.places + kStepsAtOnce) {
    if (!f_.sums.empty())
      lefts_ = b_.shared("lefts", DType::F32, std::int64_t(t_.across) * t_.rows() * pitch_);
    make_variables();
  }

private:
  Expr row(int i) const { return row_of_thread(t_, warp_, lane_, i); }

  ValueId summed(std::size_t s, int i, int j) override {
    return b_.read(carried_[s][std::size_t(i * stream_columns(f_.sums[s], t_) / kPairPlaces + j)]);
  }

  void add_sums(const std::vector<std::size_t>& sums, const Expr& first) override {
    for (std::size_t s : sums) {
      scale_sum(s);
      add_products(s, first);
    }
  }

  void make_scores(std::size_t p, const Expr& stage) override {
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

  int pitch_;      ///< of the rows in `lefts_`
  int lefts_ = -1; ///< what a sum takes of a tile's scores
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
