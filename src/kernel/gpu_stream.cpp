// The generator of streams on a GPU: a block has some rows and goes along the places, tile by tile.
// Scores are made by matrix instructions and stay in the registers in which these leave them: their
// fragments are what the next product takes as its left side. What is summed over the places (row
// values, or rows of a result) is carried from tile to tile; a pass that needs the row values of
// another one goes along the places again and makes the scores anew.
#include "kernel/accumulate.h"
#include "kernel/analysis.h"
#include "kernel/contraction_pack.h"
#include "kernel/families.h"
#include "kernel/gpu_nest.h"
#include "kernel/gpu_stream_memory.h"
#include "kernel/knobs.h"
#include "kernel/stream_rows.h"
#include "support/fail.h"

#include <algorithm>

namespace egret::kernel {

namespace {

constexpr int kRows = kStreamRows, kSteps = kStreamSteps;
/// Places of a fragment.
constexpr int kPlaces = 8;

int round_up(std::int64_t n, int to) {
  return int((n + to - 1) / to * to);
}

class GpuStream {
public:
  GpuStream(const Region& region, const StreamForm& form, const StreamTiles& tiles,
            const Schedule& schedule, const Target& target)
      : r_(region), f_(form), t_(tiles), s_(schedule), arithmetic_(arithmetic_of(target)),
        b_(region.name), e_(b_, region), memory_(e_, form, tiles),
        thread_(thread_variable(32 * tiles.warps)), warp_(floordiv(thread_, 32)),
        lane_(floormod(thread_, 32)) {
    for (const ContractionForm& s : f_.sums) {
      carried_.emplace_back();
      for (int i = 0; i < t_.tall * columns_of(s) / kPlaces; ++i)
        carried_.back().push_back(b_.variable({DType::F32, 4}));
    }
    for (std::size_t p = 0; p < f_.products.size(); ++p) {
      scores_.emplace_back();
      for (int i = 0; i < t_.tall * t_.places / kPlaces; ++i)
        scores_.back().push_back(b_.variable({DType::F32, 4}));
    }
  }

  KernelProgram run() {
    Launch launch;
    launch.threads = 32 * t_.warps;
    launch.blocks_per_core = s_.blocks_per_core;
    launch.least_shared = s_.least_shared;
    launch.workers = Expr(1);
    std::vector<int> parallel = f_.batch.axes;
    parallel.insert(parallel.end(), f_.rows.axes.begin(), f_.rows.axes.end());
    if (is_empty(r_, parallel))
      return b_.finish(launch);
    const Expr down = ceildiv(f_.rows.extent, t_.rows());
    launch.workers = f_.batch.extent * down;
    b_.grid_loop(launch.workers, [&](const Expr& number) {
      const Expr one = max(down, Expr(1));
      batch_.at.assign(r_.axes.size(), Expr());
      put_index(batch_, r_, f_.batch, floordiv(number, one));
      // The last rows first: with a causal mask they have the most to do.
      first_row_ = (down - Expr(1) - floormod(number, one)) * Expr(t_.rows());
      tile();
    });
    return b_.finish(launch);
  }

private:
  void provide_vectors(const Expr& first, int fragment) {
    memory_.provide_vectors(point(0, first, fragment), place_of(Expr(0), fragment), ring_);
  }

  static int columns_of(const ContractionForm& s) {
    return round_up(s.depth.extent.value(), 2 * kPlaces);
  }

  // --- One tile of rows

  void tile() {
    b_.barrier(); // the last tile's left sides have been read
    memory_.copy_rows(batch_, first_row_);
    b_.commit_copies();
    b_.wait_copies(0);
    b_.barrier();
    held_.clear();
    for (std::size_t p = 0; t_.held && p < f_.products.size(); ++p)
      held_.push_back(left_fragments(p));
    const ValueId zero = b_.constant(Scalar::of(DType::F32, 0.0), 4);
    for (const auto& variables : carried_)
      for (VarId v : variables)
        b_.set(v, zero);
    range_ = tiles_that_count(r_, f_, batch_, first_row_, t_.rows(), t_.places);
    for (int pass = 0; pass < f_.passes; ++pass)
      run_pass(pass);
    store_rows();
    for (std::size_t s = 0; s < f_.sums.size(); ++s)
      store_sum(s);
  }

  // --- Fragments

  std::vector<ValueId> left_fragments(std::size_t product) {
    std::vector<ValueId> fragments;
    const SharedTile& t = memory_.left(product);
    for (int k = 0; k < t.tiles.bk; k += kSteps)
      for (int i = 0; i < t_.tall; ++i)
        fragments.push_back(left_fragment(t, i, Expr(k)));
    return fragments;
  }

  /// Matrices of 8 x 8: upper and lower rows of the first eight steps, then of the others.
  ValueId left_fragment(const SharedTile& t, int i, const Expr& k) {
    const Expr in = floormod(lane_, 8), which = floordiv(lane_, 8);
    const Expr low = floormod(which, 2), high = floordiv(which, 2);
    const bool along = t.side->along_depth();
    const Expr row = row_of_warp(i) + low * Expr(8) + (along ? in : Expr(0));
    const Expr step = k + high * Expr(8) + (along ? Expr(0) : in);
    return b_.load_matrix(t.side->buffer(), t.side->at(Expr(0), row, step), 4, !along);
  }

  Expr row_of_warp(int i) const {
    return warp_ * Expr(kRows * t_.tall) + Expr(std::int64_t(kRows) * i);
  }

  /// Two right fragments of `kSteps` x 8: steps along `k`, neighbours along `n`.
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

  // --- A pass along the places

  struct Pass : StreamPass {
    std::vector<const SharedTile*> ring;
  };

  Pass pass_of(int number) const {
    Pass pass{stream_pass(r_, f_, number), {}};
    const auto add_tile = [&](const SharedTile* t) {
      if (std::find(pass.ring.begin(), pass.ring.end(), t) == pass.ring.end())
        pass.ring.push_back(t);
    };
    for (std::size_t p : pass.products)
      add_tile(&memory_.right(p));
    for (std::size_t s : pass.sums)
      add_tile(&memory_.summed(s));
    return pass;
  }

  /// Running values of a row stage, by half fragment of a warp's rows.
  struct RowValue {
    int stage = -1;
    Accumulator accumulator;
    std::vector<StateVariables> halves;
  };

  int halves() const { return 2 * t_.tall; }

  RowValue start(int stage) {
    RowValue v{stage, Accumulator(e_, stage, 0, arithmetic_, f_.places.extent), {}};
    const int lanes = is_in_pair(stage) ? 1 : 2;
    for (int h = 0; h < halves(); ++h)
      v.halves.emplace_back(b_, v.accumulator.identity(lanes));
    return v;
  }

  /// Whether a row stage is the maximum that scales a sum of the same pass, or that sum.
  bool is_in_pair(int stage) const {
    return f_.scaled_by[std::size_t(stage)] >= 0 ||
           std::find(f_.scaled_by.begin(), f_.scaled_by.end(), stage) != f_.scaled_by.end();
  }

  void run_pass(int number) {
    const Pass pass = pass_of(number);
    std::vector<RowValue> values;
    values.reserve(pass.rows.size());
    for (int s : pass.rows)
      values.push_back(start(s));
    const int ahead = t_.stages - 1;
    const Expr most = max(ceildiv(f_.places.extent, t_.places), Expr(1));
    const auto copies = [&](const Expr& t) {
      memory_.copy_places(batch_, pass.ring, min(t, most - Expr(1)) * Expr(t_.places),
                          floormod(t, t_.stages));
    };
    for (int i = 0; i < ahead; ++i) {
      const Expr t = range_.begin + Expr(i);
      b_.when({{t, range_.begin, range_.end}}, [&] { copies(t); });
      b_.commit_copies();
    }
    b_.loop(range_.begin, range_.end, Expr(1), most, Bind::Serial, [&](const Expr& t) {
      b_.wait_copies(ahead - 1);
      b_.barrier();
      const Expr next = t + Expr(ahead);
      b_.when({{next, range_.begin, range_.end}}, [&] { copies(next); });
      b_.commit_copies();
      step(pass, values, t * Expr(t_.places), floormod(t, t_.stages));
    });
    b_.wait_copies(0);
    b_.barrier();
    finish_rows(values);
  }

  void step(const Pass& pass, std::vector<RowValue>& values, const Expr& first, const Expr& stage) {
    for (std::size_t p : pass.products)
      make_scores(p, stage);
    ring_ = stage;
    // Scores of the tile, as results of their stages from here on.
    for (int i = 0; i < t_.tall; ++i)
      for (int j = 0; j < t_.places / kPlaces; ++j)
        for (std::size_t p : pass.products) {
          const ValueId four = b_.read(scores_[p][std::size_t(i * (t_.places / kPlaces) + j)]);
          for (int half = 0; half < 2; ++half)
            provide_score(p, point(2 * i + half, first, j),
                          b_.shuffle(four, four, {2 * half, 2 * half + 1}));
        }
    for (RowValue& v : values)
      if (f_.scaled_by[std::size_t(v.stage)] < 0)
        add_to_row(v, values, first);
    // A few fragments at a time through all sums, so that their registers are free again soon.
    for (int k = 0; k < t_.places; k += kSteps)
      for (std::size_t s : pass.sums)
        add_products(s, first, k);
  }

  void provide_score(std::size_t product, const Point& at, ValueId sums) {
    const int stage = f_.products[product].stage;
    e_.provide(stage, at,
               {e_.convert({sums, DType::F32}, r_.stages[std::size_t(stage)].yield_dtypes[0])});
  }

  void make_scores(std::size_t p, const Expr& stage) {
    const int across = t_.places / kPlaces;
    const ValueId zero = b_.constant(Scalar::of(DType::F32, 0.0), 4);
    for (VarId v : scores_[p])
      b_.set(v, zero);
    const int depth = memory_.left(p).tiles.bk;
    for (int k = 0; k < depth; k += kSteps) {
      std::vector<ValueId> left;
      left.reserve(std::size_t(t_.tall));
      for (int i = 0; i < t_.tall; ++i)
        left.push_back(t_.held ? held_[p][std::size_t(k / kSteps * t_.tall + i)]
                               : left_fragment(memory_.left(p), i, Expr(k)));
      for (int j = 0; j < across; j += 2) {
        const auto [first, second] = right_fragments(
            memory_.right(p), stage, Expr(std::int64_t(kPlaces) * j), Expr(k), false);
        for (int i = 0; i < t_.tall; ++i) {
          multiply(scores_[p][std::size_t(i * across + j)], left[std::size_t(i)], first);
          multiply(scores_[p][std::size_t(i * across + j + 1)], left[std::size_t(i)], second);
        }
      }
    }
  }

  void multiply(VarId sum, ValueId left, ValueId right) {
    b_.set(sum, b_.mma(f_.element, left, right, b_.read(sum)));
  }

  /// This thread's row of half fragment `half`: eight rows lie between the halves of a fragment.
  Expr row_of(int half) const {
    return row_of_warp(half / 2) + Expr(8 * (half % 2)) + floordiv(lane_, 4);
  }

  Point row_point(int half) const {
    Point p = batch_;
    const Expr row = first_row_ + row_of(half);
    put_index(p, r_, f_.rows, row);
    const Guard inside{row, Expr(0), f_.rows.extent};
    if (!proves_less(inside.value, inside.hi))
      p.mask.push_back(inside);
    return p;
  }

  Expr place_of(const Expr& first, int fragment) const {
    return first + Expr(std::int64_t(kPlaces) * fragment) + floormod(lane_, 4) * Expr(2);
  }

  /// This thread's two neighbours of a fragment.
  Point point(int half, const Expr& first, int fragment) const {
    Point p = row_point(half);
    const Expr place = place_of(first, fragment);
    p.lanes = 2;
    put_lanes(p, r_, f_.places, place, 2);
    const auto inside = lanes_inside(f_.places, place, 2);
    p.mask.insert(p.mask.end(), inside.begin(), inside.end());
    return p;
  }

  /// Points of a pair of places, one of which may not exist: identities there.
  ValueId tile_value(const RowValue& v, int half, const Expr& first) {
    Accumulator a = v.accumulator;
    State state = a.identity(2);
    for (int j = 0; j < t_.places / kPlaces; ++j) {
      provide_vectors(first, j);
      state = add(a, state, point(half, first, j));
    }
    return a.across_lanes(state)[0];
  }

  State add(Accumulator& a, const State& state, const Point& p) {
    const State next = a.add(state, p, Expr(0), false);
    return a.keep(unproved(p.mask), next, state);
  }

  void add_to_row(RowValue& v, std::vector<RowValue>& all, const Expr& first) {
    RowValue* scaled = nullptr;
    for (RowValue& other : all)
      if (f_.scaled_by[std::size_t(other.stage)] == v.stage)
        scaled = &other;
    for (int h = 0; h < halves(); ++h) {
      if (!is_in_pair(v.stage)) {
        State state = v.halves[std::size_t(h)].read();
        for (int j = 0; j < t_.places / kPlaces; ++j) {
          provide_vectors(first, j);
          state = add(v.accumulator, state, point(h, first, j));
        }
        v.halves[std::size_t(h)].write(state);
        continue;
      }
      ensure(scaled != nullptr, "region {}: a maximum without its sum", r_.name);
      const ValueId before = v.halves[std::size_t(h)].read()[0];
      const ValueId largest = b_.apply(Op::Max, DType::F32, {before, tile_value(v, h, first)});
      e_.provide(v.stage, row_point(h), {{or_zero(b_, largest), DType::F32}});
      const ValueId more = tile_value(*scaled, h, first);
      const ValueId sum = scaled->halves[std::size_t(h)].read()[0];
      scaled->halves[std::size_t(h)].write({b_.fma(sum, rescale(b_, before, largest), more)});
      v.halves[std::size_t(h)].write({largest});
    }
  }

  /// Row values of all lanes that share a row, as results of their stages.
  void finish_rows(std::vector<RowValue>& values) {
    for (RowValue& v : values) {
      if (f_.scaled_by[std::size_t(v.stage)] >= 0)
        continue;
      for (int h = 0; h < halves(); ++h) {
        const State mine = v.accumulator.across_lanes(v.halves[std::size_t(h)].read());
        const State all = v.accumulator.across_threads(mine, 4);
        e_.provide(v.stage, row_point(h), {v.accumulator.finish(all)});
        for (RowValue& other : values)
          if (f_.scaled_by[std::size_t(other.stage)] == v.stage) {
            const ValueId sum = other.halves[std::size_t(h)].read()[0];
            const ValueId part = b_.apply(Op::Mul, DType::F32, {sum, rescale(b_, mine[0], all[0])});
            const ValueId total = other.accumulator.across_threads({part}, 4)[0];
            e_.provide(other.stage, row_point(h),
                       {other.accumulator.finish({unless_lowest(b_, all[0], total)})});
          }
      }
    }
  }

  // --- Sums over columns

  /// The products of `kSteps` places from place k of the tile on.
  void add_products(std::size_t s, const Expr& first, int k) {
    const ContractionForm& sum = f_.sums[s];
    const int across = columns_of(sum) / kPlaces;
    std::vector<ValueId> left;
    left.reserve(std::size_t(t_.tall));
    for (int i = 0; i < t_.tall; ++i)
      left.push_back(score_fragment(sum, i, first, k / kPlaces));
    for (int j = 0; j < across; j += 2) {
      const auto [one, two] =
          right_fragments(memory_.summed(s), ring_, Expr(std::int64_t(kPlaces) * j), Expr(k), true);
      for (int i = 0; i < t_.tall; ++i) {
        multiply(carried_[s][std::size_t(i * across + j)], left[std::size_t(i)], one);
        multiply(carried_[s][std::size_t(i * across + j + 1)], left[std::size_t(i)], two);
      }
    }
  }

  /// What is made of two neighbouring fragments of scores, as a left side.
  ValueId score_fragment(const ContractionForm& sum, int i, const Expr& first, int fragment) {
    std::vector<ValueId> quarters;
    for (int j = 0; j < 2; ++j)
      provide_vectors(first, fragment + j);
    for (int j = 0; j < 2; ++j)
      for (int half = 0; half < 2; ++half)
        quarters.push_back(pair_of(sum, point(2 * i + half, first, fragment + j)));
    const ValueId upper = b_.shuffle(quarters[0], quarters[1], {0, 1});
    const ValueId lower = b_.shuffle(quarters[2], quarters[3], {0, 1});
    return b_.shuffle(upper, lower, {0, 1, 2, 3});
  }

  /// Two neighbours as one word, the first in its low half; 0 for places that do not exist.
  ValueId pair_of(const ContractionForm& sum, const Point& p) {
    const ValueId raw =
        b_.splat(e_.narrow(e_.value(sum.stage, factor_of(r_, sum, sum.left).value, p)), 2);
    ValueId bits = b_.cast(b_.apply(Op::Bitcast, DType::U16, {raw}), DType::U32);
    const std::vector<Guard> mask = unproved(p.mask);
    if (!mask.empty()) {
      const ValueId zero = b_.constant(Scalar::of(DType::U32, std::int64_t(0)), 2);
      bits = b_.apply(Op::Select, DType::U32, {b_.splat(b_.test(mask, 2), 2), bits, zero});
    }
    const ValueId sixteen = b_.constant(Scalar::of(DType::U32, std::int64_t(16)));
    const ValueId high = b_.apply(Op::Shl, DType::U32, {b_.extract(bits, 1), sixteen});
    return b_.apply(Op::Or, DType::U32, {b_.extract(bits, 0), high});
  }

  // --- Results

  void store_rows() {
    std::vector<int> outputs;
    for (std::size_t o = 0; o < r_.outputs.size(); ++o)
      if (sum_of_output_[o] < 0)
        outputs.push_back(int(o));
    if (outputs.empty())
      return;
    for (int h = 0; h < halves(); ++h)
      store_once(e_, outputs, row_point(h), floormod(lane_, 4));
  }

  void store_sum(std::size_t s) {
    const ContractionForm& sum = f_.sums[s];
    const int stage = sum.stage, across = columns_of(sum) / kPlaces;
    for (int h = 0; h < halves(); ++h)
      for (int j = 0; j < across; ++j) {
        const Expr column = Expr(std::int64_t(kPlaces) * j) + floormod(lane_, 4) * Expr(2);
        Point p = row_point(h);
        p.lanes = 2;
        put_lanes(p, r_, sum.depth, column, 2);
        const auto inside = lanes_inside(sum.depth, column, 2);
        p.mask.insert(p.mask.end(), inside.begin(), inside.end());
        const ValueId four = b_.read(carried_[s][std::size_t(h / 2 * across + j)]);
        const int half = h % 2;
        e_.provide(stage, p,
                   {e_.convert({b_.shuffle(four, four, {2 * half, 2 * half + 1}), DType::F32},
                               r_.stages[std::size_t(stage)].yield_dtypes[0])});
        for (std::size_t o = 0; o < r_.outputs.size(); ++o)
          if (sum_of_output_[o] == int(s))
            e_.store(int(o), p, e_.result(r_.outputs[o].stage, r_.outputs[o].component, p));
      }
  }

  const Region& r_;
  const StreamForm& f_;
  const StreamTiles& t_;
  const Schedule& s_;
  Arithmetic arithmetic_;
  ProgramBuilder b_;
  Emitter e_;
  StreamMemory memory_;
  Expr thread_, warp_, lane_;
  std::vector<std::vector<VarId>> scores_, carried_; ///< by product; by sum
  const std::vector<int> sum_of_output_ = sums_of_outputs(r_, f_);
  std::vector<std::vector<ValueId>> held_; ///< left fragments, by product
  Point batch_;
  Expr first_row_;  ///< of the tile
  TileRange range_; ///< along the places
  Expr ring_;       ///< the piece of the ring that is worked on
};

constexpr Knob kKnobs[] = {
    {"warps", 1, 16}, {"tall", 1, 2}, {"places", 16, 256, 16}, {"stages", 2, 4}, {"held", 0, 1}};

/// Columns and depths whose fragments fit into registers.
constexpr std::int64_t kMostColumns = 256;

std::string refused(const StreamForm& form) {
  for (const ContractionForm& p : form.products)
    if (!p.depth.extent.is_constant() || p.depth.extent.value() > kMostColumns ||
        p.depth.extent.value() < 1)
      return "a product's depth is not known or too large";
  for (const ContractionForm& s : form.sums)
    if (!s.depth.extent.is_constant() || s.depth.extent.value() > kMostColumns ||
        s.depth.extent.value() < 1)
      return "a sum's columns are not known or too many";
  return "";
}

/// 32-bit registers of a thread for what stays in them over a tile.
std::int64_t registers_of(const StreamForm& form, const StreamTiles& t) {
  std::int64_t n = 0;
  for (const ContractionForm& s : form.sums)
    n += t.tall * round_up(s.depth.extent.value(), 16) / 2;
  for (const ContractionForm& p : form.products)
    n += t.tall * (t.places / 2 + (t.held ? round_up(p.depth.extent.value(), 16) / 4 : 0));
  return n;
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
  return s;
}

class GpuStreamGenerator : public Generator {
public:
  std::string name() const override { return "gpu_stream"; }

  std::vector<Schedule> space(const Region& region, const Target& target) const override {
    const FoundStream found = find_stream(region);
    if (!found.ok || !refused(found.form).empty() || target.capability < 80)
      return {};
    std::vector<Schedule> space;
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

  Lowered lower(const Region& region, const Schedule& schedule,
                const Target& target) const override {
    const FoundStream found = find_stream(region);
    if (!found.ok)
      return {false, {}, found.reason};
    if (auto why = refused(found.form); !why.empty())
      return {false, {}, why};
    if (auto why = refused_settings(schedule, target, kKnobs, Takes::Matrix); !why.empty())
      return {false, {}, why};
    if (target.capability < 80 || schedule.mma != "m16n8k16")
      return {false, {}, "no matrix instruction " + schedule.mma};
    StreamTiles t;
    t.warps = int(schedule.knob("warps", 4));
    t.tall = int(schedule.knob("tall", 1));
    t.places = int(schedule.knob("places", 64));
    t.stages = int(schedule.knob("stages", 2));
    t.held = schedule.knob("held", 1) != 0;
    if (registers_of(found.form, t) > kMostRegisters)
      return {false, {}, "more sums than a thread has registers"};
    return within_block(GpuStream(region, found.form, t, schedule, target).run(), target);
  }

private:
  static constexpr std::int64_t kFewRegisters = 80, kHeldRegisters = 208, kMostRegisters = 512;
};

} // namespace

const Generator& gpu_stream_generator() {
  static const GpuStreamGenerator generator;
  return generator;
}

} // namespace egret::kernel
