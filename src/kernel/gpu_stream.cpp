// The generator of streams on a GPU: a block has some rows and goes along the places, tile by tile.
// Scores are made by matrix instructions and stay in the registers in which these leave them: their
// fragments are what the next product takes as its left side. What is summed over the places (row
// values, or rows of a result) is carried from tile to tile; a pass that needs the row values of
// another one goes along the places again and makes the scores anew. Factors of f32 are multiplied
// by threads (gpu_stream_threads.cpp).
#include "kernel/accumulate.h"
#include "kernel/analysis.h"
#include "kernel/contraction_pack.h"
#include "kernel/families.h"
#include "kernel/gpu_nest.h"
#include "kernel/gpu_stream_threads.h"
#include "kernel/gpu_stream_tiles.h"
#include "kernel/gpu_stream_wgmma.h"
#include "kernel/knobs.h"
#include "kernel/stream_blocks.h"
#include "support/checked.h"
#include "support/fail.h"

#include <algorithm>
#include <cmath>

namespace egret::kernel {

namespace {

/// Places of a fragment.
constexpr int kFragmentPlaces = GpuStreamRows::kPlaces;

/// A thread's rows of a warp's fragment number i: number lane / 4, and that eight below.
Expr row_of_warp(const StreamTiles& t, const Expr& warp, int i) {
  return warp * Expr(kStreamRows * t.tall) + Expr(std::int64_t(kStreamRows) * i);
}

std::vector<Expr> rows_of_fragments(const StreamTiles& t, const Expr& warp, const Expr& lane) {
  std::vector<Expr> rows;
  for (int half = 0; half < 2 * t.tall; ++half)
    rows.push_back(row_of_warp(t, warp, half / 2) + Expr(8 * (half % 2)) + floordiv(lane, 4));
  return rows;
}

class GpuStream : public TiledStream {
public:
  GpuStream(const Region& region, const StreamForm& form, const StreamTiles& tiles,
            const Schedule& schedule, const Target& target)
      : TiledStream(region, form, tiles, schedule, target, rows_of_fragments) {
    make_variables();
  }

private:
  ValueId summed(std::size_t s, int half, int j) override {
    const int across = stream_columns(f_.sums[s], t_) / kFragmentPlaces;
    const ValueId four = b_.read(carried_[s][std::size_t(half / 2 * across + j)]);
    return b_.shuffle(four, four, {2 * (half % 2), 2 * (half % 2) + 1});
  }

  void hold_rows(int ahead) override {
    b_.wait_copies(ahead);
    b_.barrier();
    held_.clear();
    for (std::size_t p = 0; t_.held && p < f_.products.size(); ++p)
      held_.push_back(left_fragments(p));
  }

  std::vector<ValueId> left_fragments(std::size_t product) {
    std::vector<ValueId> fragments;
    const SharedTile& t = memory_.left(product);
    for (int k = 0; k < t.tiles.bk; k += kStreamSteps)
      for (int i = 0; i < t_.tall; ++i)
        fragments.push_back(left_fragment(t, i, Expr(k)));
    return fragments;
  }

  /// Matrices of 8 x 8: upper and lower rows of the first eight steps, then of the others.
  ValueId left_fragment(const SharedTile& t, int i, const Expr& k) {
    const Expr in = floormod(lane_, 8), which = floordiv(lane_, 8);
    const Expr low = floormod(which, 2), high = floordiv(which, 2);
    const bool along = t.side->along_depth();
    const Expr row = row_of_warp(t_, warp_, i) + low * Expr(8) + (along ? in : Expr(0));
    const Expr step = k + high * Expr(8) + (along ? Expr(0) : in);
    return b_.load_matrix(t.side->buffer(), t.side->at(Expr(0), row, step), 4, !along);
  }

  /// Two right fragments of `kStreamSteps` x 8: steps along `k`, neighbours along `n`.
  /// `places_are_steps`: the tile's panel index is the step, not the neighbour.
  std::pair<ValueId, ValueId> right_fragments(const SharedTile& t, const Expr& stage, const Expr& n,
                                              const Expr& k, bool places_are_steps) {
    const Expr in = floormod(lane_, 8), which = floordiv(lane_, 8);
    const Expr low = floormod(which, 2), high = floordiv(which, 2);
    // Neighbours in memory are steps, unless the matrix is to be mirrored.
    const bool mirrored = t.side->along_depth() == places_are_steps;
    const Expr neighbour = n + high * Expr(8) + (mirrored ? Expr(0) : in);
    const Expr step = k + low * Expr(8) + (mirrored ? in : Expr(0));
    const Expr at =
        places_are_steps ? t.side->at(stage, step, neighbour) : t.side->at(stage, neighbour, step);
    const ValueId both = b_.load_matrix(t.side->buffer(), at, 4, mirrored);
    return {b_.shuffle(both, both, {0, 1}), b_.shuffle(both, both, {2, 3})};
  }

  void add_sums(const std::vector<std::size_t>& sums, const Expr& first) override {
    for (std::size_t s : sums)
      scale_sums(s);
    // A few fragments at a time through all sums, so that their registers are free again soon.
    for (int k = 0; k < t_.places; k += kStreamSteps)
      for (std::size_t s : sums)
        add_products(s, first, k);
  }

  /// What was summed while the maximum was smaller.
  void scale_sums(std::size_t s) {
    const int across = stream_columns(f_.sums[s], t_) / kFragmentPlaces;
    for (int i = 0; i < t_.tall; ++i) {
      const auto upper = rows_.scale_of(s, 2 * i), lower = rows_.scale_of(s, 2 * i + 1);
      if (!upper)
        return;
      const ValueId scales = b_.shuffle(*upper, *lower, {0, 0, 1, 1});
      for (int j = 0; j < across; ++j) {
        const VarId v = carried_[s][std::size_t(i * across + j)];
        b_.set(v, b_.apply(Op::Mul, DType::F32, {b_.read(v), scales}));
      }
    }
  }

  void make_scores(std::size_t p, const Expr& stage) override {
    const int across = t_.places / kFragmentPlaces;
    zero(scores_[p]);
    const int depth = memory_.left(p).tiles.bk;
    for (int k = 0; k < depth; k += kStreamSteps) {
      std::vector<ValueId> left;
      left.reserve(std::size_t(t_.tall));
      for (int i = 0; i < t_.tall; ++i)
        left.push_back(t_.held ? held_[p][std::size_t(k / kStreamSteps * t_.tall + i)]
                               : left_fragment(memory_.left(p), i, Expr(k)));
      for (int j = 0; j < across; j += 2) {
        const auto [first, second] =
            right_fragments(memory_.right(p), stage, mine(kFragmentPlaces * j), Expr(k), false);
        for (int i = 0; i < t_.tall; ++i) {
          multiply(scores_[p][std::size_t(i * across + j)], left[std::size_t(i)], first);
          multiply(scores_[p][std::size_t(i * across + j + 1)], left[std::size_t(i)], second);
        }
      }
    }
  }

  void multiply(VarId sum, ValueId left, ValueId right) {
    b_.set(sum, b_.matrix_multiply(f_.element, left, right, b_.read(sum)));
  }

  // --- Sums over columns

  /// The products of `kStreamSteps` places from place k of the tile on.
  void add_products(std::size_t s, const Expr& first, int k) {
    const ContractionForm& sum = f_.sums[s];
    const int across = stream_columns(sum, t_) / kFragmentPlaces;
    std::vector<ValueId> left;
    left.reserve(std::size_t(t_.tall));
    for (int i = 0; i < t_.tall; ++i)
      left.push_back(rows_.left_fragment(sum, i, first, k / kFragmentPlaces));
    for (int j = 0; j < across; j += 2) {
      const auto [one, two] = right_fragments(
          memory_.summed(s), ring_, Expr(std::int64_t(kFragmentPlaces) * j), mine(k), true);
      for (int i = 0; i < t_.tall; ++i) {
        multiply(carried_[s][std::size_t(i * across + j)], left[std::size_t(i)], one);
        multiply(carried_[s][std::size_t(i * across + j + 1)], left[std::size_t(i)], two);
      }
    }
  }

  std::vector<std::vector<ValueId>> held_; ///< left fragments, by product
};

constexpr Knob kGpuStreamKnobs[] = {{"warps", 1, 16}, {"tall", 1, 2}, {"places", 16, 256, 16},
                                    {"stages", 2, 4}, {"held", 0, 1}, {"across", 1, 16}};

/// Columns and depths whose fragments fit into registers.
constexpr std::int64_t kMostFragmentColumns = 256;

std::string refused(const StreamForm& form) {
  for (const ContractionForm& p : form.products)
    if (!p.depth.extent.is_constant() || p.depth.extent.value() > kMostFragmentColumns ||
        p.depth.extent.value() < 1)
      return "a product's depth is not known or too large";
  for (const ContractionForm& s : form.sums)
    if (!s.depth.extent.is_constant() || s.depth.extent.value() > kMostFragmentColumns ||
        s.depth.extent.value() < 1)
      return "a sum's columns are not known or too many";
  return "";
}

/// 32-bit registers of a thread for what stays in them over a tile.
std::int64_t registers_of(const StreamForm& form, const StreamTiles& t) {
  std::int64_t n = 0;
  for (const ContractionForm& s : form.sums)
    n += t.tall * int(round_up<std::int64_t>(s.depth.extent.value(), 16)) / 2;
  for (const ContractionForm& p : form.products)
    n += t.tall * (t.places / 2 +
                   (t.held ? int(round_up<std::int64_t>(p.depth.extent.value(), 16)) / 4 : 0));
  return n;
}

void share_places(Schedule& s, const StreamTiles& t) {
  if (t.across > 1)
    s.knobs["across"] = t.across;
  if (t.split > 1)
    s.split_reduce = t.split;
}

Schedule schedule_of(const StreamTiles& t) {
  Schedule s;
  s.generator = "gpu_stream";
  s.mma = "m16n8k16";
  s.knobs = {{"warps", t.warps},
             {"tall", t.tall},
             {"places", t.places},
             {"stages", t.stages},
             {"held", t.held}};
  share_places(s, t);
  return s;
}

/// Blocks that share out the places of some rows, at the most: one combines what all have.
constexpr int kMostSplit = 32;

constexpr Knob kThreadStreamKnobs[] = {
    {"warps", 1, 8}, {"tall", 1, 8}, {"places", 8, 128, 8}, {"stages", 2, 4}, {"across", 1, 16}};

Schedule thread_schedule_of(const StreamTiles& t) {
  Schedule s;
  s.generator = "gpu_stream";
  s.knobs = {{"warps", t.warps}, {"tall", t.tall}, {"places", t.places}, {"stages", t.stages}};
  share_places(s, t);
  return s;
}

constexpr Knob kWgmmaKnobs[] = {{"groups", 1, 3}, {"places", 16, 256, 16}, {"stages", 2, 4},
                                {"ahead", 0, 1},  {"turns", 0, 1},         {"stays", 0, 1}};

/// The same for a thread of the groups that multiply.
std::int64_t registers_of(const StreamForm& form, const WgmmaStreamTiles& t) {
  std::int64_t n = 0;
  for (const ContractionForm& s : form.sums)
    n += int(round_up<std::int64_t>(s.depth.extent.value(), 16)) / 2 + t.places / 4;
  return n + std::int64_t(form.products.size()) * t.places / 2;
}

Schedule schedule_of(const WgmmaStreamTiles& t) {
  Schedule s;
  s.generator = "gpu_stream";
  s.mma = "wgmma";
  s.knobs = {{"groups", t.groups}, {"places", t.places}, {"stages", t.stages},
             {"ahead", t.ahead},   {"turns", t.turns},   {"stays", t.stays}};
  s.blocks_per_core = t.blocks;
  s.order = t.dynamic ? WorkOrder::Drawn : WorkOrder::Fixed;
  s.order_group = t.together;
  return s;
}

WgmmaStreamTiles wgmma_tiles_of(const Schedule& s) {
  WgmmaStreamTiles t;
  t.groups = int(s.knob("groups", t.groups));
  t.places = int(s.knob("places", t.places));
  t.stages = int(s.knob("stages", t.stages));
  t.ahead = s.knob("ahead", 1) != 0;
  t.turns = s.knob("turns", 1) != 0;
  t.stays = s.knob("stays", 1) != 0;
  t.blocks = std::max(s.blocks_per_core, 1);
  t.dynamic = s.order == WorkOrder::Drawn;
  t.together = s.order_group;
  return t;
}

/// How the places are shared out; or why they cannot be.
std::string take_shares(const Schedule& schedule, const Region& region, const StreamForm& form,
                        StreamTiles& t) {
  t.across = int(schedule.knob("across", 1));
  t.split = int(std::clamp<std::int64_t>(schedule.split_reduce, 1, kMostSplit + 1));
  if (t.split > kMostSplit || t.threads() > 1024)
    return "too many threads or blocks share the places";
  return t.shares_places() ? shares_refused(region, form) : "";
}

/// Whether there are places for each warp of a block.
bool all_have_places(const StreamForm& form, const StreamTiles& t) {
  return usual_size(form.places.extent) > std::int64_t(t.places) * (t.across - 1);
}

/// Blocks that share out the places of tiles of some rows: as many as two for each multiprocessor.
int split_of(const StreamForm& form, const StreamTiles& t, const Target& target) {
  const std::int64_t along = ceil_quotient(usual_size(form.places.extent), t.all_places()),
                     wanted = 2 * std::int64_t(target.workers) / usual_size(form.batch.extent);
  return int(std::clamp<std::int64_t>(wanted, 1, std::clamp<std::int64_t>(along, 1, kMostSplit)));
}

class GpuStreamGenerator : public Generator {
public:
  std::string name() const override { return "gpu_stream"; }

  std::vector<Schedule> space(const Region& given, const Target& target) const override {
    const Region region = prepared_for_stream(given, StreamTakes::MatrixUnits);
    const FoundStream found = find_stream(region);
    if (!found.ok)
      return thread_space(given, target);
    if (!refused(found.form).empty() || target.unit(FragmentLayout::SubgroupFragments) == nullptr ||
        (!shares_pay(region, found.form) && leaves_cores_idle(found.form, target)))
      return {};
    std::vector<Schedule> space = shared_space(region, found.form, target);
    for (Schedule& s : wgmma_space(region, found.form, target))
      space.push_back(std::move(s));
    // As many places as leave room for three or four blocks beside each other come first.
    for (const bool many : {true, false})
      for (const StreamTiles& t :
           {StreamTiles{4, 1, 64, 2, true}, StreamTiles{4, 1, 64, 2, false},
            StreamTiles{4, 1, 32, 2, false}, StreamTiles{4, 1, 16, 2, false},
            StreamTiles{4, 2, 32, 2, false}, StreamTiles{4, 1, 32, 3, true},
            StreamTiles{8, 1, 64, 2, false}, StreamTiles{8, 1, 32, 2, false},
            StreamTiles{4, 1, 128, 2, true}, StreamTiles{1, 1, 16, 2, false}})
        if (const auto n = registers_of(found.form, t);
            many ? n <= kFewRegisters : n > kFewRegisters && n <= kHeldRegisters)
          space.push_back(schedule_of(t));
    return space;
  }

  Lowered lower(const Region& given, const Schedule& schedule,
                const Target& target) const override {
    if (schedule.mma.empty())
      return lower_for_threads(given, schedule, target);
    const Region region = prepared_for_stream(given, StreamTakes::MatrixUnits);
    const FoundStream found = find_stream(region);
    if (!found.ok)
      return {false, {}, found.reason};
    if (auto why = refused(found.form); !why.empty())
      return {false, {}, why};
    const bool wgmma = schedule.mma == "wgmma";
    if (auto why = refused_settings(schedule, target,
                                    wgmma ? std::span<const Knob>(kWgmmaKnobs) : kGpuStreamKnobs,
                                    Takes::Matrix);
        !why.empty())
      return {false, {}, why};
    if (target.unit(FragmentLayout::SubgroupFragments) == nullptr ||
        (schedule.mma != "m16n8k16" && !wgmma))
      return {false, {}, "no matrix instruction " + schedule.mma};
    if (wgmma) {
      const WgmmaStreamTiles t = wgmma_tiles_of(schedule);
      if (auto why = wgmma_stream_refused(region, found.form, t, target); !why.empty())
        return {false, {}, why};
      if (registers_of(found.form, t) > kMostRegisters)
        return {false, {}, "more sums than a thread has registers"};
      return within_block(make_wgmma_stream(region, found.form, t, schedule, target), target);
    }
    StreamTiles t;
    t.warps = int(schedule.knob("warps", 4));
    t.tall = int(schedule.knob("tall", 1));
    t.places = int(schedule.knob("places", 64));
    t.stages = int(schedule.knob("stages", 2));
    t.held = schedule.knob("held", 1) != 0;
    if (auto why = take_shares(schedule, region, found.form, t); !why.empty())
      return {false, {}, why};
    if (registers_of(found.form, t) > kMostRegisters)
      return {false, {}, "more sums than a thread has registers"};
    return within_block(GpuStream(region, found.form, t, schedule, target).run(), target);
  }

private:
  static constexpr std::int64_t kFewRegisters = 80, kHeldRegisters = 208, kMostRegisters = 512;

  /// Few rows, whose places warps and blocks share out: as many blocks as two multiprocessors'
  /// worth of each, and warps enough in a block to ask for what it reads.
  static std::vector<Schedule> shared_space(const Region& region, const StreamForm& form,
                                            const Target& target) {
    if (!shares_pay(region, form))
      return {};
    std::vector<Schedule> space;
    for (const int places : {16, 32})
      for (const int warps : {8, 4, 2}) {
        StreamTiles t{int(ceil_quotient(form.rows.extent.value(), kStreamRows)), 1, places, 2,
                      true};
        t.across = std::max(1, warps / t.warps);
        t.split = split_of(form, t, target);
        if (Schedule s = schedule_of(t); t.shares_places() && all_have_places(form, t) &&
                                         registers_of(form, t) <= kHeldRegisters &&
                                         std::find(space.begin(), space.end(), s) == space.end())
          space.push_back(std::move(s));
      }
    return space;
  }

  /// Whether few rows leave most multiprocessors without work, for so long that kernels which share
  /// out all tiles are clearly faster: row sums alone by gpu_row_products, others with scores in
  /// memory.
  static bool leaves_cores_idle(const StreamForm& form, const Target& target) {
    // Of a multiprocessor that multiplies tiles, and of one with a single block of a stream.
    constexpr double kCoreFlops = 4e12, kLoneFlops = 2e12;
    constexpr double kBytesPerSecond = 3.5e12, kLaunchSeconds = 3e-6;
    const int accesses = form.sums.empty() ? 0 : 4; // of a score of 16 bits
    const double blocks = double(usual_size(form.batch.extent)) *
                          std::ceil(double(usual_size(form.rows.extent)) / 64);
    if (blocks >= target.workers)
      return false;
    double depth = 0;
    for (const auto* forms : {&form.products, &form.sums})
      for (const ContractionForm& f : *forms)
        depth += double(f.depth.extent.value());
    const double scores = double(usual_size(form.batch.extent)) *
                          double(usual_size(form.rows.extent)) *
                          double(usual_size(form.places.extent));
    const double streamed = 2 * scores * depth / (blocks * kLoneFlops);
    const double stored = 2 * scores * depth / (target.workers * kCoreFlops) +
                          2 * accesses * scores / kBytesPerSecond +
                          double(form.products.size() + form.sums.size() + 1) * kLaunchSeconds;
    return streamed > 2 * stored;
  }

  static std::vector<Schedule> thread_space(const Region& given, const Target& target) {
    const Region region = prepared_for_stream(given, StreamTakes::Vectors);
    const FoundStream found = find_stream(region, StreamTakes::Vectors);
    std::vector<Schedule> space;
    if (!found.ok)
      return space;
    if (shares_pay(region, found.form))
      for (StreamTiles t : shared_thread_tiles(region, found.form, target)) {
        t.split = split_of(found.form, t, target);
        if (t.shares_places() && all_have_places(found.form, t))
          space.push_back(thread_schedule_of(t));
      }
    for (const StreamTiles& t : thread_stream_space(region, found.form, target))
      space.push_back(thread_schedule_of(t));
    return space;
  }

  static Lowered lower_for_threads(const Region& given, const Schedule& schedule,
                                   const Target& target) {
    const Region region = prepared_for_stream(given, StreamTakes::Vectors);
    const FoundStream found = find_stream(region, StreamTakes::Vectors);
    if (!found.ok)
      return {false, {}, found.reason};
    if (auto why = thread_stream_refused(region, found.form); !why.empty())
      return {false, {}, why};
    if (auto why = refused_settings(schedule, target, kThreadStreamKnobs); !why.empty())
      return {false, {}, why};
    StreamTiles t;
    t.warps = int(schedule.knob("warps", 4));
    t.tall = int(schedule.knob("tall", 4));
    t.places = int(schedule.knob("places", 32));
    t.stages = int(schedule.knob("stages", 2));
    t.singles = true;
    if (auto why = take_shares(schedule, region, found.form, t); !why.empty())
      return {false, {}, why};
    if (thread_stream_registers(found.form, t) > kMostRegisters)
      return {false, {}, "more sums than a thread has registers"};
    return within_block(make_thread_stream(region, found.form, t, schedule, target), target);
  }

  static std::vector<Schedule> wgmma_space(const Region& region, const StreamForm& form,
                                           const Target& target) {
    const bool softmax =
        form.products.size() == 1 && std::any_of(form.scaled_by.begin(), form.scaled_by.end(),
                                                 [](int maximum) { return maximum >= 0; });
    std::vector<WgmmaStreamTiles> choices{
        {3, 128, 2, true, true, true, 1},  {2, 128, 2, true, false, true, 1},
        {2, 64, 2, true, true, true, 1},   {2, 64, 2, false, true, true, 1},
        {2, 128, 2, true, true, false, 1}, {1, 64, 2, true, false, true, 3},
        {1, 128, 2, true, false, true, 2}, {1, 64, 2, false, false, false, 1}};
    // Several blocks take turns by themselves where their registers allow it; else groups do.
    // In gradients there is little between products that others could run beside.
    const WgmmaStreamTiles four{1, 64, 2, false, false, false, 4},
        many{2, 128, 2, true, true, true, 1}, three{1, 64, 2, false, false, false, 3},
        wide{2, 128, 2, false, false, false, 1}, two{1, 64, 2, false, false, false, 2};
    choices.insert(choices.begin(), softmax ? std::initializer_list{four, many, three, wide, two}
                                            : std::initializer_list{three, wide, two, four, many});
    // Few rows, such as heads that share keys, leave other groups without work.
    if (usual_size(form.rows.extent) <= WgmmaStreamTiles{1}.rows())
      std::stable_partition(choices.begin(), choices.end(),
                            [](const WgmmaStreamTiles& t) { return t.groups == 1; });
    std::vector<Schedule> space;
    for (WgmmaStreamTiles& t : choices) {
      const std::int64_t most = 65536 / t.blocks / (128 * t.groups) - kOtherRegisters;
      t.dynamic = t.stays;
      t.together = t.stays ? kDynamicTogether : most_together(form, target);
      const std::int64_t all = t.blocks > 3   ? kFewestRegisters
                               : t.blocks > 2 ? kFewRegistersOfThree
                               : t.ahead      ? kHeldRegisters
                                              : kMostHeld;
      if (registers_of(form, t) <= std::min(most, all) &&
          wgmma_stream_refused(region, form, t, target).empty())
        space.push_back(schedule_of(t));
    }
    return space;
  }

  /// Where blocks come as others end, as many as the second cache holds what is read of: the tiles
  /// that take longest are then the first of more. Gradients gain nothing by that.
  static std::int64_t most_together(const StreamForm& form, const Target& target) {
    std::int64_t of_one = 0;
    for (const ContractionForm& s : form.sums)
      of_one = std::max(of_one, 4 * usual_size(form.places.extent) * s.depth.extent.value());
    if (form.products.size() > 1)
      of_one *= 4;
    for (const std::int64_t n : {192, 96, 48, 24})
      if (n * of_one <= target.l2_bytes)
        return n;
    return 16;
  }
  /// Points of the batch whose tiles are scheduled together, the longest first.
  static constexpr std::int64_t kDynamicTogether = 16;
  /// Of a thread, for addresses and what is at work.
  static constexpr std::int64_t kOtherRegisters = 32;
  /// A thread can have 240. Unless the next scores are made meanwhile, those that are done with
  /// make room for what is at work.
  static constexpr std::int64_t kMostHeld = 224;
  /// Of a thread of four blocks, and of three.
  static constexpr std::int64_t kFewestRegisters = 96, kFewRegistersOfThree = 112;
};

} // namespace

bool is_whole_stream(const Region& region, const Target& target) {
  constexpr std::int64_t kRows = 64; // of a tile
  for (const StreamTakes takes : {StreamTakes::MatrixUnits, StreamTakes::Vectors}) {
    const Region prepared = prepared_for_stream(region, takes);
    const FoundStream found = find_stream(prepared, takes);
    if (!found.ok)
      continue;
    if (found.form.passes != 1 || found.form.products.size() != 1)
      return false;
    const std::int64_t down = ceil_quotient(usual_size(found.form.rows.extent), kRows);
    return down * usual_size(found.form.batch.extent) >= target.workers ||
           shares_pay(prepared, found.form);
  }
  return false;
}

bool stored_scores_take_less(const Region& given, const Target& target) {
  if (!target.is_gpu())
    return stored_pairs_take_less(given, target);
  if (find_stream(prepared_for_stream(given, StreamTakes::MatrixUnits)).ok) // by matrix units
    return false;
  const Region region = prepared_for_stream(given, StreamTakes::Vectors);
  const FoundStream found = find_stream(region, StreamTakes::Vectors);
  return found.ok && !shares_pay(region, found.form) &&
         stored_scores_take_less(region, found.form, target);
}

const Generator& gpu_stream_generator() {
  static const GpuStreamGenerator generator;
  return generator;
}

} // namespace egret::kernel
