// Products of a few rows with a large matrix, on a GPU: the matrix is read once, in wide pieces,
// and everything else has to keep out of the way. The depth is shared out among lanes and warps,
// whose sums are added in a fixed order, and where there are few columns among blocks, of which the
// last one adds up what all have. Small products of more rows, whose slices are combined, have a
// block for each group of rows.
#include "kernel/analysis.h"
#include "kernel/contraction_pack.h"
#include "kernel/families.h"
#include "kernel/gpu_few_rows.h"
#include "kernel/gpu_nest.h"
#include "kernel/gpu_sums.h"
#include "kernel/gpu_wgmma.h"
#include "kernel/knobs.h"
#include "support/checked.h"
#include "support/fail.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace egret::kernel {

namespace {

constexpr int kMostThreadSums = 128;
constexpr int kMostShares = 64; ///< of a depth

/// How a block shares out its work.
struct SkinnyTiles {
  int lanes = 1;   ///< neighbours of the matrix that a thread reads at once
  int deep = 32;   ///< threads of a warp that share the depth
  int outputs = 1; ///< columns of a thread, or vectors of columns
  int warps_k = 1; ///< warps that share the depth
  int unroll = 1;  ///< steps whose reads are under way together
  int rows = 1;    ///< of a block
  int split = 1;   ///< blocks that share the depth
  bool along_depth = true;
  int threads() const { return 32 * warps_k; }
  int columns_of_output() const { return 32 / deep * (along_depth ? 1 : lanes); }
  int columns() const { return columns_of_output() * outputs; }
  int step() const { return warps_k * deep * (along_depth ? lanes : 1); } ///< along the depth
  int piece() const { return step() * unroll; }
};

SkinnyTiles tiles_of(const Schedule& s, const Region& r, const ContractionForm& f) {
  SkinnyTiles t;
  const auto knob = [&](const char* name, int otherwise, int most) {
    return power_of_two_upto(std::min<std::int64_t>(s.knob(name, otherwise), most));
  };
  t.along_depth = f.right.order != Side::Order::Panel;
  const auto bytes = s.vector_bytes > 0 ? s.vector_bytes : kWidestAccess;
  t.lanes = power_of_two_upto(
      std::min<std::int64_t>(bytes / std::int64_t(size_of(matrix_type(r, f))), 16));
  t.deep = knob("deep", t.along_depth ? 32 : 8, 32);
  const auto slices = int(f.columns.slices); // of which each thread has as many columns
  t.outputs = slices * power_of_two_upto(std::min<std::int64_t>(s.knob("outputs", 2) / slices, 16));
  t.warps_k = knob("wk", 4, 16);
  t.unroll = knob("unroll", 2, 32);
  t.split = int(std::max<std::int64_t>(s.split_reduce, 1));
  const std::int64_t rows = f.rows.extent.value();
  t.rows = int(std::clamp<std::int64_t>(s.knob("rows", 0), 0, rows));
  if (t.rows == 0)
    t.rows = int(rows);
  return t;
}

class GpuSkinny {
public:
  GpuSkinny(const Region& region, const ContractionForm& form, const SkinnyTiles& tiles,
            const Schedule& schedule)
      : r_(region), f_(form), t_(tiles), s_(schedule), b_(region.name), e_(b_, region),
        product_(e_, {&f_, 1}, tiles.along_depth), rows_(tiles.rows),
        thread_(thread_variable(tiles.threads())) {
    const Expr lane = floormod(thread_, 32);
    warp_k_ = floordiv(thread_, 32);
    lane_n_ = floordiv(lane, t_.deep);
    lane_k_ = floormod(lane, t_.deep);
    e_.load_policy = CachePolicy::Default;
  }

  KernelProgram run() {
    Launch launch;
    launch.threads = t_.threads();
    launch.blocks_per_core = s_.blocks_per_core;
    launch.least_shared = s_.least_shared;
    launch.workers = Expr(1);
    if (is_empty(r_, result_axes(r_.stages[f_.stage])))
      return b_.finish(launch);
    const Expr across = max(ceildiv(f_.columns.extent, t_.columns()), Expr(1));
    const Expr down = ceildiv(f_.rows.extent, rows_);
    const Expr tiles = f_.batch.extent * down * across;
    launch.workers = tiles * Expr(t_.split);
    if (t_.split > 1) {
      shares_ = b_.workspace("shares", f_.accumulator, launch.workers * Expr(results()));
      arrived_ = b_.counter("arrived", tiles.value());
    }
    part_ = b_.shared("part", f_.accumulator, std::int64_t(t_.warps_k) * rows_ * t_.columns());
    // Of a thread: by row the sums of its columns, in vectors when these are neighbours.
    for (int i = 0; i < rows_ * t_.outputs; ++i)
      sums_.push_back(b_.variable({f_.accumulator, t_.along_depth ? 1 : t_.lanes}));
    b_.grid_loop(launch.workers, [&](const Expr& worker) {
      const Expr number = floordiv(worker, t_.split), share = floormod(worker, t_.split);
      GpuTile tile;
      tile.batch.at.resize(r_.axes.size());
      put_index(tile.batch, r_, f_.batch, floordiv(number, down * across));
      tile.first_row = floormod(floordiv(number, across), down) * Expr(rows_);
      tile.first_column = floormod(number, across) * Expr(t_.columns());
      add_up(tile, share);
      collect();
      b_.barrier();
      if (t_.split == 1)
        each_result(tile, [&](int, const Expr& place) { return sum_of_warps(place); });
      else
        finish_together(tile, number, share);
      b_.barrier(); // the parts have been read
    });
    return b_.finish(launch);
  }

private:
  /// First of the columns of output `i` of this thread, in the block's.
  Expr column(int i) const {
    const Expr output = Expr(i * (32 / t_.deep)) + lane_n_;
    return t_.along_depth ? output : output * Expr(t_.lanes);
  }

  void add_up(const GpuTile& tile, const Expr& share) {
    const ValueId zero =
        b_.constant(Scalar::of(f_.accumulator, 0.0), t_.along_depth ? 1 : t_.lanes);
    for (const VarId v : sums_)
      b_.set(v, zero);
    const std::int64_t piece = t_.piece();
    const Expr pieces = ceildiv(f_.depth.extent, piece), each = ceildiv(pieces, t_.split);
    const Expr begin = t_.split > 1 ? share * each : Expr(0),
               end = t_.split > 1 ? min(begin + each, pieces) : pieces;
    const Expr here = (warp_k_ * Expr(t_.deep) + lane_k_) * Expr(t_.along_depth ? t_.lanes : 1);
    b_.loop(begin, end, Expr(1), pieces, Bind::Serial, [&](const Expr& i) {
      b_.loop(Expr(0), Expr(t_.unroll), Expr(1), Expr(t_.unroll), Bind::Unroll,
              [&](const Expr& u) { step(tile, i * Expr(piece) + u * Expr(t_.step()) + here); });
    });
  }

  void step(const GpuTile& tile, const Expr& k) {
    std::vector<ValueId> matrix, rows;
    for (int i = 0; i < t_.outputs; ++i) {
      const Expr at = column(i);
      matrix.push_back(b_.splat(
          product_.factor(f_, f_.right, product_.of_column(tile, at, t_.lanes), k, t_.lanes),
          t_.lanes));
    }
    for (int r = 0; r < rows_; ++r)
      rows.push_back(b_.splat(product_.factor(f_, f_.left, product_.of_row(tile, Expr(r)), k,
                                              t_.along_depth ? t_.lanes : 1),
                              t_.lanes));
    for (int r = 0; r < rows_; ++r)
      for (int i = 0; i < t_.outputs; ++i) {
        const VarId sum = sums_[std::size_t(r * t_.outputs + i)];
        const ValueId x = rows[std::size_t(r)], w = matrix[std::size_t(i)];
        b_.set(sum, t_.along_depth ? product_.dot(x, w, t_.lanes, b_.read(sum))
                                   : product_.fma(x, w, b_.read(sum)));
      }
  }

  Expr place(const Expr& share, int row, const Expr& at) const {
    return (share * Expr(rows_) + Expr(row)) * Expr(t_.columns()) + at;
  }

  /// What a warp has summed goes to shared memory.
  void collect() {
    for (int r = 0; r < rows_; ++r)
      for (int i = 0; i < t_.outputs; ++i) {
        const ValueId sum = b_.read(sums_[std::size_t(r * t_.outputs + i)]);
        const ValueId all = t_.deep > 1 ? b_.reduce_threads(Monoid::Sum, sum, t_.deep) : sum;
        const Expr lane = t_.along_depth || t_.lanes == 1 ? Expr(0) : lane_variable(t_.lanes);
        b_.store(part_, place(warp_k_, r, column(i)) + lane, all, {{lane_k_, Expr(0), Expr(1)}});
      }
  }

  std::int64_t results() const { return std::int64_t(rows_) * t_.columns(); }

  /// What the warps have summed for one of a block's results, in order.
  ValueId sum_of_warps(const Expr& place) {
    ValueId sum = -1;
    for (int w = 0; w < t_.warps_k; ++w)
      sum = product_.sum_with(sum, b_.load(part_, place + Expr(std::int64_t(w) * results()), 1));
    return sum;
  }

  void each_result(const GpuTile& tile, const FewRows::SumAt& sum_at) {
    product_.each_result(tile, rows_, t_.columns(), thread_, t_.threads(), sum_at);
  }

  /// Shares of the depth meet in memory: the block that comes last adds them up, in order.
  void finish_together(const GpuTile& tile, const Expr& number, const Expr& share) {
    for (std::int64_t first = 0; first < results(); first += t_.threads()) {
      const Expr place = thread_ + Expr(first);
      b_.when({{place, Expr(0), Expr(results())}}, [&] {
        b_.store(shares_, (number * Expr(t_.split) + share) * Expr(results()) + place,
                 sum_of_warps(place));
      });
    }
    b_.last_arriver(arrived_, number, Expr(t_.split), [&] {
      each_result(tile, [&](int, const Expr& place) {
        ValueId sum = -1;
        for (int s = 0; s < t_.split; ++s)
          sum = product_.sum_with(
              sum,
              b_.load(shares_, (number * Expr(t_.split) + Expr(s)) * Expr(results()) + place, 1));
        return sum;
      });
    });
  }

  const Region& r_;
  const ContractionForm& f_;
  const SkinnyTiles& t_;
  const Schedule& s_;
  ProgramBuilder b_;
  Emitter e_;
  FewRows product_;
  int rows_;
  Expr thread_, warp_k_, lane_n_, lane_k_;
  int part_ = -1, shares_ = -1, arrived_ = -1;
  std::vector<VarId> sums_; ///< by row and output
};

/// A way to cut up a small product whose slices are combined, and its seconds by a count of
/// instructions: what a warp's scheduler issues, and the way to memory and back for each step. No
/// GPU has measured it.
struct SmallTiles {
  std::int64_t rows = 0, warps_k = 1;
  double seconds = std::numeric_limits<double>::infinity();
};
SmallTiles small_tiles(const Region& region, const ContractionForm& f, const Target& target) {
  constexpr double kClock = 1.7e9, kSchedulers = 4, kStepSeconds = 0.7e-6;
  // Of a multiprocessor in a cycle, from the second cache; and the share of what takes less time
  // than the longest, of loads and of multiplications, that is not hidden behind it.
  constexpr double kCacheBytes = 24, kNotHidden = 0.35;
  const bool deep = f.right.order != Side::Order::Panel;
  const double depth = double(usual_size(f.depth.extent)), slices = double(f.columns.slices);
  const auto lanes = double(kWidestAccess / size_of(matrix_type(region, f)));
  const double across = deep ? 32 : 8, step = deep ? 32 * lanes : 8,
               places = double(usual_size(f.columns.slice_extent())) / (deep ? 1 : 4 * lanes);
  const double matrix_bytes = depth * slices * double(usual_size(f.columns.slice_extent())) *
                              double(usual_size(f.batch.extent)) *
                              double(size_of(matrix_type(region, f)));
  SmallTiles best;
  for (const std::int64_t rows : {1, 2, 4, 8, 16})
    for (const std::int64_t warps_k : {1, 2, 4}) {
      const double sums = double(rows) * slices * (deep ? 1 : lanes);
      if (sums > kMostThreadSums / 2 || (warps_k > 1 && double(warps_k) * step > depth))
        continue;
      const double steps = std::ceil(depth / (step * double(warps_k))),
                   warps = double(ceil_quotient(usual_size(f.rows.extent), rows)) *
                           std::ceil(places) * double(usual_size(f.batch.extent)) * double(warps_k);
      const double of_step = double(rows) * slices * lanes + double(rows) + slices,
                   of_end = sums * 2 * std::log2(across) + f.epilogue_flops;
      const double waves = std::ceil(warps / (kSchedulers * target.workers));
      // Each group of rows reads the whole matrix.
      const double bytes = double(ceil_quotient(usual_size(f.rows.extent), rows)) * matrix_bytes;
      // Of the first cache, each access of 16 bytes by all lanes takes four cycles.
      const double multiplied = waves * (steps * of_step + of_end),
                   loaded = bytes / (kCacheBytes * target.workers),
                   accessed = std::ceil(warps / target.workers) * steps *
                              (double(rows) * (deep ? 4 : 1) + slices * 4),
                   longest = std::max({multiplied, loaded, accessed});
      const double seconds =
          kStepSeconds * (1 + (steps - 1) / 4) +
          (longest + kNotHidden * (multiplied + loaded + accessed - longest)) / kClock;
      if (seconds < 0.95 * best.seconds)
        best = {rows, warps_k, seconds};
    }
  return best;
}

constexpr Knob kGpuSkinnyKnobs[] = {
    {"deep", 1, 32}, {"outputs", 1, 32}, {"wk", 1, 32}, {"unroll", 1, 32}, {"rows", 0, 1 << 20}};

class GpuSkinnyGenerator : public Generator {
public:
  std::string name() const override { return "gpu_skinny"; }

  std::vector<Schedule> space(const Region& region, const Target& target) const override {
    const FoundContraction found = find_few_rows(region);
    if (!found.ok)
      return {};
    const ContractionForm& f = found.form;
    const bool deep = f.right.order != Side::Order::Panel;
    if (f.rows.extent.value() > kMostFewRows)
      return rows_in_groups(region, f, target);
    const std::int64_t columns = usual_size(f.columns.extent) * usual_size(f.batch.extent),
                       depth = usual_size(f.depth.extent), rows = f.rows.extent.value();
    const std::int64_t cores = target.workers;
    // Of several rows the arithmetic takes longer than the reading, unless matrix units do it.
    if (target.unit(FragmentLayout::SwizzledSharedRows) != nullptr && rows > (deep ? 4 : 1) &&
        f.accumulator == DType::F32 && tensor_map_reason(region, f, f.left, f.rows, 16).empty() &&
        tensor_map_reason(region, f, f.right, f.columns, 64).empty())
      return {};
    const auto widest = std::int64_t(kWidestAccess / size_of(matrix_type(region, f)));
    const std::int64_t lanes = deep ? lanes_of(f, widest) : widest;
    std::vector<Schedule> space;
    const std::int64_t slices = f.columns.slices;
    const auto add = [&](std::int64_t outputs, std::int64_t wk, std::int64_t unroll,
                         std::int64_t lanes_deep) {
      if (slices > 1) {
        outputs = std::max(outputs / slices, std::int64_t{1}) * slices;
        unroll = std::max<std::int64_t>(unroll / slices, 1);
      }
      Schedule s;
      s.generator = "gpu_skinny";
      s.knobs = {{"outputs", std::max<std::int64_t>(outputs, 1)},
                 {"wk", std::max<std::int64_t>(wk, 1)},
                 {"unroll", std::max<std::int64_t>(unroll, 1)}};
      if (lanes < widest)
        s.vector_bytes = int(lanes * std::int64_t(size_of(matrix_type(region, f))));
      if (!deep || lanes_deep < 32)
        s.knobs["deep"] = lanes_deep;
      if (std::find(space.begin(), space.end(), s) == space.end())
        space.push_back(std::move(s));
    };
    if (deep) {
      // As many threads as a short depth has vectors for. A few steps for each warp, and blocks
      // enough that none waits long for the last.
      std::int64_t across = 32;
      while (across > 1 && across / 2 * lanes >= depth)
        across /= 2;
      const std::int64_t steps = std::max<std::int64_t>(depth / (32 * lanes), 1);
      const std::int64_t outputs = power_of_two_upto(std::min<std::int64_t>(
          std::max<std::int64_t>(columns * across / (32 * 4 * cores), 1),
          scattered(f) ? std::min<std::int64_t>(8, kMostThreadSums / 2 / rows)
          : rows > 4   ? 2
                       : 4));
      // Each warp combines its sums over its threads in the end.
      const std::int64_t wk = power_of_two_upto(
          std::min<std::int64_t>(std::max<std::int64_t>(steps / (scattered(f) ? 8 : 2), 1), 8));
      const auto turns = [&](std::int64_t unroll) { // no more than there are
        if (across * lanes >= depth)
          return std::int64_t{1};
        if (lanes == widest)
          return unroll;
        const std::int64_t most = std::max<std::int64_t>(depth / (across * lanes * wk), 1);
        return std::min<std::int64_t>(2 * unroll, power_of_two_upto(most));
      };
      add(outputs, wk, turns(2), across);
      add(outputs, wk, 1, across);
      add(outputs, wk, turns(4), across);
      add(outputs, wk / 2, turns(4), across);
      add(outputs * 2, wk, 1, across);
      add(outputs / 2, wk, turns(4), across);
      add(outputs, std::min<std::int64_t>(2 * wk, 16), 1, across);
    } else {
      // Threads along the columns read whole lines; with few columns the depth has to be shared.
      if (columns < 64 * cores)
        add(1, 16, 4, 8);
      const std::vector<std::int64_t> order = columns >= 256 * cores
                                                  ? std::vector<std::int64_t>{4, 8, 16}
                                                  : std::vector<std::int64_t>{8, 16, 4};
      for (const std::int64_t lanes_deep : order)
        for (const std::int64_t unroll : {8, 4}) {
          const std::int64_t wk = power_of_two_upto(
              std::min<std::int64_t>(std::max<std::int64_t>(depth / (lanes_deep * unroll), 1), 8));
          add(1, wk, rows > 4 ? unroll / 2 : unroll, lanes_deep);
        }
      add(1, 16, 4, 8);
      add(2, 8, 4, 8);
    }
    for (Schedule& s : space)
      s.split_reduce = shares_of(tiles_of(s, region, f), region, f, target);
    // Fewer shares have less to add up at the end.
    if (Schedule fewer = space.front(); fewer.split_reduce > 3) {
      fewer.split_reduce /= 2;
      space.push_back(std::move(fewer));
    }
    return is_long_for_few(tiles_of(space.front(), region, f), region, f, target)
               ? std::vector<Schedule>{}
               : space;
  }

  /// Whether neighbours along the depth lie apart in the few rows.
  static bool scattered(const ContractionForm& f) {
    return f.rows.extent.value() > 1 && f.left.order != Side::Order::Depth;
  }
  /// Neighbours along the depth that a thread reads at once: no more than lie in one aligned vector
  /// of the matrix, and one where they lie apart in the few rows. Else each of its accesses would
  /// be to as many lines of memory as a warp has lanes, for each of which the first cache takes a
  /// cycle.
  static std::int64_t lanes_of(const ContractionForm& f, std::int64_t widest) {
    if (scattered(f))
      return 1;
    std::int64_t lanes = widest;
    while (f.right.panel_stride % lanes != 0)
      lanes /= 2;
    return lanes;
  }

  /// Of the matrix, what a block of these tiles reads.
  static std::int64_t bytes_of_block(const SkinnyTiles& t, const Region& region,
                                     const ContractionForm& f) {
    return std::min<std::int64_t>(t.columns(), usual_size(f.columns.extent)) *
           usual_size(f.depth.extent) * std::int64_t(size_of(matrix_type(region, f)));
  }
  static std::int64_t blocks_of(const SkinnyTiles& t, const ContractionForm& f) {
    return usual_size(f.batch.extent) * ceil_quotient(usual_size(f.columns.extent), t.columns());
  }
  static std::string split_refused(const SkinnyTiles& t, const ContractionForm& f) {
    for (const AxisGroup* g : {&f.batch, &f.rows, &f.columns})
      if (!g->extent.is_constant())
        return "a split depth needs a known number of tiles";
    if (t.split > kMostShares)
      return "more shares of the depth than a block adds up";
    return "";
  }
  /// Blocks that share the depth, where few columns leave multiprocessors without work for longer
  /// than it takes to add up what the blocks have.
  static std::int64_t shares_of(const SkinnyTiles& t, const Region& region,
                                const ContractionForm& f, const Target& target) {
    constexpr std::int64_t kLeastBytes = 32 << 10; // of a share
    if (!split_refused(t, f).empty())
      return 1;
    // Where accesses are narrow, more of them must be under way at once.
    const std::int64_t widest = kWidestAccess / std::int64_t(size_of(matrix_type(region, f))),
                       narrow = std::max<std::int64_t>(widest / t.lanes, 1);
    const std::int64_t pieces = ceil_quotient(usual_size(f.depth.extent), t.piece()),
                       workers = std::max<std::int64_t>(1, target.workers) *
                                 std::min<std::int64_t>(narrow, 4);
    const std::int64_t most =
        std::min({workers / blocks_of(t, f), narrow * bytes_of_block(t, region, f) / kLeastBytes,
                  pieces, std::int64_t(kMostShares)});
    // As many as there are of equal length.
    return most < 2 ? 1 : ceil_quotient(pieces, ceil_quotient(pieces, most));
  }

  /// Whether a few blocks would read far more than one reads in the time of a launch. Reductions
  /// share out such a depth among blocks.
  static bool is_long_for_few(const SkinnyTiles& t, const Region& region, const ContractionForm& f,
                              const Target& target) {
    constexpr std::int64_t kMostBytes = 1 << 20;
    // Reductions have results of one row, and of a block with too few columns only some threads
    // read.
    const bool shared = f.rows.extent.value() > 1 && t.columns() <= usual_size(f.columns.extent);
    const std::int64_t blocks = shared ? t.split : 1;
    return 4 * blocks_of(t, f) * blocks <= target.workers &&
           bytes_of_block(t, region, f) / blocks > kMostBytes;
  }

  /// Small products of more rows whose slices are combined, which would be too few tiles.
  static std::vector<Schedule> rows_in_groups(const Region& region, const ContractionForm& f,
                                              const Target& target) {
    if (f.columns.slices == 1 || f.rows.axes.empty())
      return {};
    const SmallTiles tiles = small_tiles(region, f, target);
    if (tiles.rows == 0 || tiles.seconds >= gpu_contraction_seconds(region, f, target))
      return {};
    std::vector<Schedule> space;
    for (const std::int64_t rows : {tiles.rows, 2 * tiles.rows, tiles.rows / 2}) {
      if (rows < 1)
        continue;
      Schedule s;
      s.generator = "gpu_skinny";
      s.knobs = {
          {"outputs", f.columns.slices}, {"rows", rows}, {"unroll", 1}, {"wk", tiles.warps_k}};
      space.push_back(std::move(s));
    }
    return space;
  }

  Lowered lower(const Region& region, const Schedule& schedule,
                const Target& target) const override {
    const FoundContraction found = find_few_rows(region);
    if (!found.ok)
      return {false, {}, found.reason};
    if (auto why = refused_settings(schedule, target, kGpuSkinnyKnobs); !why.empty())
      return {false, {}, why};
    const SkinnyTiles tiles = tiles_of(schedule, region, found.form);
    if (tiles.threads() > 1024)
      return {false, {}, "more than 1024 threads"};
    if (auto why = tiles.split > 1 ? split_refused(tiles, found.form) : ""; !why.empty())
      return {false, {}, why};
    const std::int64_t sums = std::int64_t(tiles.rows) * tiles.outputs;
    if (sums * (tiles.along_depth ? 1 : tiles.lanes) > kMostThreadSums)
      return {false, {}, "more columns than a thread has registers for"};
    ContractionForm form = found.form;
    form.columns.run = tiles.columns_of_output();
    return {true, GpuSkinny(region, form, tiles, schedule).run(), ""};
  }
};

} // namespace

const Generator& gpu_skinny_generator() {
  static const GpuSkinnyGenerator generator;
  return generator;
}

} // namespace egret::kernel
