#include "kernel/gpu_stream_wgmma.h"

#include "kernel/analysis.h"
#include "kernel/contraction_pack.h"
#include "kernel/gpu_nest.h"
#include "kernel/gpu_stream_memory.h"
#include "kernel/gpu_stream_rows.h"
#include "kernel/gpu_tensor_view.h"
#include "kernel/gpu_wgmma.h"
#include "support/checked.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

namespace egret::kernel {

namespace {

constexpr int kDepthSteps = 16, kPlaces = GpuStreamRows::kPlaces;

int columns_of(const ContractionForm& f) {
  return int(round_up<std::int64_t>(f.depth.extent.value(), kDepthSteps));
}

TensorView view_of(const Region& r, const ContractionForm& f, const Side& side,
                   const AxisGroup& group, int panel) {
  return tensor_view(r, f, side, group, panel, columns_of(f), false);
}

/// A tile in the swizzled order, or a ring of them: boxes of 64 neighbours, each with all of the
/// other index.
class SwizzledTile {
public:
  SwizzledTile(Emitter& emitter, const ContractionForm& form, const Side& side,
               const AxisGroup& group, const std::string& name, int panel, int stages)
      : r_(emitter.region()), b_(emitter.builder()), form_(form), group_(group),
        view_(view_of(r_, form, side, group, panel)) {
    const int depth = columns_of(form);
    boxes_ = view_.transposed ? panel / kSwizzledRow : (depth + kSwizzledRow - 1) / kSwizzledRow;
    box_ = (view_.transposed ? depth : panel) * kSwizzledRow;
    buffer_ = b_.shared(name, r_.operands[std::size_t(view_.operand)].dtype,
                        std::int64_t(stages) * piece(), 1024);
    TensorMap map = view_.map;
    map.buffer = emitter.operand_buffer(view_.operand);
    map_ = b_.tensor_map(std::move(map));
  }

  int buffer() const { return buffer_; }
  int box() const { return box_; } ///< elements
  int bytes() const { return piece() * 2; }
  bool along_depth() const { return !view_.transposed; }
  /// Where element (p, k) lies; p and k are multiples of 16, and of 64 where boxes end.
  Expr at(const Expr& stage, const Expr& p, int k) const {
    const Expr first = stage * Expr(piece());
    if (view_.transposed)
      return first + floordiv(p, kSwizzledRow) * Expr(box_) + Expr(k * kSwizzledRow) +
             floormod(p, kSwizzledRow);
    return first + Expr(k / kSwizzledRow * box_ + k % kSwizzledRow) + p * Expr(kSwizzledRow);
  }

  void copy(const Point& batch, const Expr& first, const Expr& stage, int signals) {
    for (int i = 0; i < boxes_; ++i) {
      Point p = batch;
      put_index(p, r_, group_, view_.transposed ? first + Expr(i * kSwizzledRow) : first);
      put_index(p, r_, form_.depth, Expr(view_.transposed ? 0 : i * kSwizzledRow));
      std::vector<Expr> place{view_.depth.at(p), view_.panel.at(p)};
      if (view_.transposed)
        std::swap(place[0], place[1]);
      for (const TensorView::Coordinate& c : view_.others)
        place.push_back(c.at(p));
      b_.bulk_tensor_copy(map_, std::move(place), buffer_, stage * Expr(piece()) + Expr(i * box_),
                          signals, stage);
    }
  }

private:
  int piece() const { return boxes_ * box_; }

  const Region& r_;
  ProgramBuilder& b_;
  const ContractionForm& form_;
  const AxisGroup& group_;
  TensorView view_;
  int boxes_ = 1, box_ = 0, buffer_ = -1, map_ = -1;
};

/// Values of the places in a ring, copied by boxes of a tensor of their own.
class VectorRing {
public:
  /// `ok` is false when the copy engine cannot bring them.
  VectorRing(Emitter& emitter, const StreamForm& form, PlaceVector vector, int number, int places,
             int stages)
      : r_(emitter.region()), e_(emitter), b_(emitter.builder()), vector_(std::move(vector)),
        places_(places) {
    const Operand& operand = r_.operands[std::size_t(vector_.operand)];
    TensorMap map;
    map.extents = {form.places.extent};
    map.strides = {Expr(1)};
    map.box = {places};
    map.swizzle = 0;
    Expr rest = vector_.element - axis(form.places.axes[0]);
    for (int a : form.batch.axes)
      if (const auto stride = coefficient_of(rest, axis(a)); stride && !(*stride == Expr(0))) {
        rest = rest - *stride * axis(a);
        others_.push_back(a);
        map.extents.push_back(r_.axes[std::size_t(a)].extent);
        map.strides.push_back(*stride);
        map.box.push_back(1);
      }
    ok = operand.alignment % 16 == 0 && rest.divisor() % 4 == 0 && map.box.size() <= 5;
    for (const Expr& v : variables_of(rest))
      ok = ok && !v.is_axis();
    for (std::size_t d = 1; d < map.strides.size(); ++d)
      ok = ok && map.strides[d].divisor() % 4 == 0;
    if (!ok)
      return;
    map.offset = rest;
    map.buffer = emitter.operand_buffer(vector_.operand);
    buffer_ = b_.shared(fmt::format("vector{}", number), operand.dtype,
                        std::int64_t(stages) * pitch(), 128);
    map_ = b_.tensor_map(std::move(map));
  }

  bool ok = false;
  int bytes() const { return places_ * 4; }

  void copy(const Point& batch, const Expr& first, const Expr& stage, int signals) {
    std::vector<Expr> at{first};
    for (int a : others_)
      at.push_back(batch.at[std::size_t(a)]);
    b_.bulk_tensor_copy(map_, std::move(at), buffer_, stage * Expr(pitch()), signals, stage);
  }

  /// What loads give at a point with two neighbours, the first being number `in_tile`.
  void provide(const Point& point, const Expr& in_tile, const Expr& stage) {
    const Stage& reading = r_.stages[std::size_t(vector_.stage)];
    e_.provide_load(reading, reading.loads[std::size_t(vector_.load)], point,
                    b_.load(buffer_, stage * Expr(pitch()) + in_tile + lane_variable(2), 2));
  }
  void forget() { b_.forget_loads(buffer_); }

private:
  int pitch() const { return round_up(places_, 32); } ///< boxes begin at multiples of 128 bytes
  Expr axis(int a) const { return Expr::axis(a, r_.axes[std::size_t(a)].extent); }

  const Region& r_;
  Emitter& e_;
  ProgramBuilder& b_;
  PlaceVector vector_;
  int places_;
  std::vector<int> others_;
  int buffer_ = -1, map_ = -1;
};

/// Tiles along the places that come together, with the signals of their ring.
struct Ring {
  std::vector<SwizzledTile*> tiles;
  std::vector<VectorRing> vectors;
  int full = -1, empty = -1;
  bool used() const { return !tiles.empty() || !vectors.empty(); }
  int bytes() const {
    int sum = 0;
    for (const SwizzledTile* t : tiles)
      sum += t->bytes();
    for (const VectorRing& v : vectors)
      sum += v.bytes();
    return sum;
  }
};

class WgmmaStream {
public:
  WgmmaStream(const Region& region, const StreamForm& form, const WgmmaStreamTiles& tiles,
              const Schedule& schedule, const Target& target)
      : r_(region), f_(form), t_(tiles), s_(schedule), b_(region.name), e_(b_, region),
        thread_(thread_variable(tiles.threads())),
        group_(floormod(floordiv(thread_, 128), tiles.groups)), lane_(floormod(thread_, 32)),
        rows_(e_, form, arithmetic_of(target), layout()) {
    e_.quick_arithmetic = true;
    make_tiles();
    for (Ring* ring : {&scored_, &summed_}) {
      ring->full = b_.shared("full", DType::U64, t_.stages);
      ring->empty = b_.shared("empty", DType::U64, t_.stages);
    }
    rows_full_ = b_.shared("rows_full", DType::U64, 1);
    rows_empty_ = b_.shared("rows_empty", DType::U64, 1);
    if (takes_turns())
      turn_ = b_.shared("turn", DType::U64, t_.groups);
    if (t_.dynamic) {
      next_ = b_.counter("next", 2);
      relay_ = b_.relay("tiles");
    }
    const auto variables = [&](int count, Type type) {
      std::vector<VarId> list;
      for (int i = 0; i < count; ++i)
        list.push_back(b_.variable(type));
      return list;
    };
    for (std::size_t p = 0; p < f_.products.size(); ++p)
      scores_.push_back(variables(t_.places / kPlaces, {DType::F32, 4}));
    for (const ContractionForm& s : f_.sums) {
      carried_.push_back(variables(columns_of(s) / kPlaces, {DType::F32, 4}));
      lefts_.push_back(variables(t_.places / kDepthSteps, {DType::U32, 4}));
    }
    for (VarId* v : {&stage_, &parity_, &last_stage_, &last_parity_, &rows_parity_, &turn_parity_})
      *v = b_.variable({DType::I32, 1});
  }

  KernelProgram run() {
    Launch launch;
    launch.threads = t_.threads();
    launch.resident = t_.stays;
    launch.blocks_per_core = t_.blocks;
    launch.least_shared = s_.least_shared;
    down_ = ceildiv(f_.rows.extent, t_.rows());
    launch.workers = max(f_.batch.extent * down_, Expr(1));
    b_.when({{thread_, Expr(0), Expr(1)}}, [&] { init_signals(); });
    b_.barrier();
    b_.either(
        {{floordiv(thread_, 128), Expr(0), Expr(t_.groups)}}, [&] { consume(); },
        [&] { produce(); });
    return b_.finish(launch);
  }

private:
  GpuStreamRows::Layout layout() {
    GpuStreamRows::Layout l;
    l.places = t_.places;
    const Expr first = group_ * Expr(64) + floormod(floordiv(thread_, 32), 4) * Expr(16);
    for (int half = 0; half < 2; ++half)
      l.row.push_back(first + Expr(8 * half) + floordiv(lane_, 4));
    l.lane = lane_;
    l.prepare = [this](const Expr& first, int fragment) {
      for (VectorRing& v : summed_.vectors)
        v.provide(rows_.point(0, first, fragment), rows_.place_of(Expr(0), fragment), piece_);
    };
    return l;
  }

  // --- Shared memory and signals

  /// The tile of a side; equal ones along the places once.
  SwizzledTile* make_tile(const ContractionForm& form, const Side& side, bool is_left) {
    int operand = -1;
    const Expr element = element_of_tile(r_, form, factor_of(r_, form, side), &operand);
    for (const Made& m : made_)
      if (!is_left && !m.is_left && m.operand == operand && m.element == element &&
          m.depth == form.depth.extent)
        return m.tile.get();
    made_.push_back({std::make_unique<SwizzledTile>(
                         e_, form, side, is_left ? f_.rows : f_.places,
                         fmt::format("{}{}", is_left ? "rows" : "places", made_.size()),
                         is_left ? t_.rows() : t_.places, is_left ? 1 : t_.stages),
                     is_left, operand, element, form.depth.extent});
    return made_.back().tile.get();
  }

  void make_tiles() {
    const auto add = [](std::vector<SwizzledTile*>& list, SwizzledTile* tile) {
      if (std::find(list.begin(), list.end(), tile) == list.end())
        list.push_back(tile);
    };
    for (const ContractionForm& s : f_.sums) {
      sum_tiles_.push_back(make_tile(s, s.right, false));
      add(summed_.tiles, sum_tiles_.back());
    }
    for (const ContractionForm& p : f_.products) {
      left_tiles_.push_back(make_tile(p, p.left, true));
      right_tiles_.push_back(make_tile(p, p.right, false));
      const auto& s = summed_.tiles;
      if (std::find(s.begin(), s.end(), right_tiles_.back()) == s.end())
        add(scored_.tiles, right_tiles_.back());
      else
        scores_from_summed_ = true;
    }
    for (PlaceVector& v : place_vectors(r_, f_)) {
      VectorRing ring(e_, f_, std::move(v), int(summed_.vectors.size()), t_.places, t_.stages);
      if (!ring.ok)
        continue;
      summed_.vectors.push_back(std::move(ring));
      scores_from_summed_ = true; // they come with what is summed
    }
  }

  bool takes_turns() const { return t_.turns && t_.groups > 1; }

  void init_signals() {
    for (const Ring* ring : {&scored_, &summed_})
      for (int i = 0; i < t_.stages; ++i) {
        b_.mbarrier_init(ring->full, Expr(i), 1);
        b_.mbarrier_init(ring->empty, Expr(i), 4 * t_.groups);
      }
    b_.mbarrier_init(rows_full_, Expr(0), 1);
    b_.mbarrier_init(rows_empty_, Expr(0), 4 * t_.groups);
    for (int i = 0; takes_turns() && i < t_.groups; ++i)
      b_.mbarrier_init(turn_, Expr(i), 4);
    if (t_.dynamic)
      b_.prepare_relay(relay_, 4 * t_.groups);
  }

  /// One arrival of each warp.
  void arrive(int buffer, const Expr& place) {
    b_.when({{lane_, Expr(0), Expr(1)}}, [&] { b_.mbarrier_arrive(buffer, place); });
  }
  ValueId i32(std::int64_t value) { return b_.constant(Scalar::of(DType::I32, double(value))); }
  void flip(VarId parity) {
    b_.set(parity, b_.apply(Op::Xor, DType::I32, {b_.read(parity), i32(1)}));
  }
  /// The next piece of the rings; after the last one begins their next phase.
  void advance() {
    b_.set(last_stage_, b_.read(stage_));
    b_.set(last_parity_, b_.read(parity_));
    advance_ring(b_, stage_, parity_, t_.stages);
  }
  Expr stage() { return value_symbol(b_.read(stage_)); }
  Expr last_stage() { return value_symbol(b_.read(last_stage_)); }

  // --- Tiles of rows, and of places for each

  /// Whether rows further on have more to do: with a causal mask they do.
  bool late_rows_first() const {
    for (const Expr& bound : f_.bounds)
      if (const auto slope = slope_of(bound, f_.rows.axes.back()); slope && *slope < 0)
        return false;
    return true;
  }
  /// From the last tile of places to the first: masks then come at the beginning.
  bool places_down() const {
    for (const Expr& bound : f_.bounds)
      if (const auto slope = slope_of(bound, f_.places.axes.back()); slope && *slope > 0)
        return false;
    return true;
  }
  std::optional<std::int64_t> slope_of(const Expr& e, int axis) const {
    const auto slope = coefficient_of(e, Expr::axis(axis, r_.axes[std::size_t(axis)].extent));
    return slope ? slope->constant() : std::nullopt;
  }

  /// `body` for every tile of rows of this block. Some points of the batch take turns, so that what
  /// they read along the places stays in the second cache.
  void each_tile(bool leads, const std::function<void()>& body) {
    const auto at = [&](const Expr& number) {
      const Expr one = max(down_, Expr(1));
      std::int64_t together = 1;
      if (const auto batch = f_.batch.extent.constant())
        for (std::int64_t n = 2; n <= std::min(t_.together, *batch); ++n)
          together = *batch % n == 0 ? n : together;
      const Expr of_some = one * Expr(together), within = floormod(number, of_some);
      const Expr batch = floordiv(number, of_some) * Expr(together) + floormod(within, together);
      const Expr tile = floordiv(within, together);
      batch_.at.assign(r_.axes.size(), Expr());
      put_index(batch_, r_, f_.batch, batch);
      first_row_ = (late_rows_first() ? down_ - Expr(1) - tile : tile) * Expr(t_.rows());
      range_ = tiles_that_count(r_, f_, batch_, first_row_, t_.rows(), t_.places);
      count_ = range_.end - range_.begin;
      body();
    };
    const Expr tiles = f_.batch.extent * down_;
    if (t_.dynamic)
      b_.relayed_loop(tiles, next_, relay_, leads, at);
    else
      b_.grid_loop(tiles, at);
  }

  Expr most_tiles() const { return max(ceildiv(f_.places.extent, t_.places), Expr(1)); }
  /// The first place of tile number `u` of the range.
  Expr place_of(const Expr& u) const {
    return (places_down() ? range_.end - Expr(1) - u : range_.begin + u) * Expr(t_.places);
  }

  // --- Copying

  /// Registers of a thread, when they are shared out evenly.
  int even_registers() const { return launch_registers(t_.blocks, t_.threads()); }
  bool moves_registers() const { return even_registers() < 232; }
  static constexpr int kProducerRegisters = 24;

  void produce() {
    if (moves_registers())
      b_.reallocate_registers(kProducerRegisters, false);
    b_.when({{floormod(thread_, 128), Expr(0), Expr(1)}}, [&] {
      b_.set(parity_, i32(1)); // all is empty at the start
      b_.set(rows_parity_, i32(1));
      each_tile(true, [&] {
        b_.mbarrier_wait(rows_empty_, Expr(0), b_.read(rows_parity_));
        int bytes = 0;
        for (const SwizzledTile* t : left_tiles_)
          bytes += t->bytes();
        b_.mbarrier_arrive(rows_full_, Expr(0), bytes);
        for (SwizzledTile* t : left_tiles_)
          t->copy(batch_, first_row_, Expr(0), rows_full_);
        flip(rows_parity_);
        for (int pass = 0; pass < f_.passes; ++pass)
          b_.loop(Expr(0), count_, Expr(1), most_tiles(), Bind::Serial,
                  [&](const Expr& u) { bring(u); });
      });
    });
  }

  void bring(const Expr& u) {
    const Expr at = stage();
    const ValueId parity = b_.read(parity_);
    for (Ring* ring : {&scored_, &summed_}) {
      if (!ring->used())
        continue;
      b_.mbarrier_wait(ring->empty, at, parity);
      b_.mbarrier_arrive(ring->full, at, ring->bytes());
      for (SwizzledTile* t : ring->tiles)
        t->copy(batch_, place_of(u), at, ring->full);
      for (VectorRing& v : ring->vectors)
        v.copy(batch_, place_of(u), at, ring->full);
    }
    advance();
  }

  // --- Multiplying

  void consume() {
    if (moves_registers())
      b_.reallocate_registers(
          std::min(240,
                   (even_registers() * (t_.groups + 1) - kProducerRegisters) / t_.groups / 8 * 8),
          true);
    if (takes_turns())
      b_.set(turn_parity_, b_.cast(b_.test({{group_, Expr(0), Expr(1)}}, 1), DType::I32));
    each_tile(false, [&] {
      b_.mbarrier_wait(rows_full_, Expr(0), b_.read(rows_parity_));
      flip(rows_parity_);
      rows_.begin_rows(batch_, first_row_, range_);
      load_rows();
      const ValueId zero = b_.constant(Scalar::of(DType::F32, 0.0), 4);
      for (const auto& variables : carried_)
        for (VarId v : variables)
          b_.set(v, zero);
      for (int number = 0; number < f_.passes; ++number) {
        pass_ = stream_pass(r_, f_, number);
        last_pass_ = number == f_.passes - 1;
        rows_.start(pass_);
        b_.when({{count_, Expr(1), Expr(INT64_MAX)}}, [&] { go_along(); });
        if (last_pass_ && !proves_less(Expr(0), count_))
          b_.when({{lane_, Expr(0), Expr(1)}, {count_, Expr(0), Expr(1)}},
                  [&] { b_.mbarrier_arrive(rows_empty_, Expr(0)); });
        rows_.whole = false;
        rows_.finish();
      }
      rows_.store_rows();
      for (std::size_t s = 0; s < f_.sums.size(); ++s)
        rows_.store_sum(s, columns_of(f_.sums[s]), [&](int half, int j) {
          const ValueId four = b_.read(carried_[s][std::size_t(j)]);
          return b_.shuffle(four, four, {2 * half, 2 * half + 1});
        });
    });
  }

  /// Loads that do not depend on the place, before all tiles: one for each row, and one for all
  /// rows of what is the same for all.
  void load_rows() {
    for (const Stage& stage : r_.stages)
      for (const Load& load : stage.loads) {
        if (load.source != Source::Operand || !load.map.is_total() || !load.indirect.empty() ||
            r_.operands[std::size_t(load.number)].role != Role::Tensor)
          continue;
        const auto axes = axes_of_load(r_, stage, load);
        bool has_rows = false, has_others = false;
        for (std::size_t a = 0; a < axes.size(); ++a) {
          const bool of_rows = contains(f_.rows.axes, int(a));
          has_rows = has_rows || (axes[a] && of_rows);
          has_others = has_others || (axes[a] && !of_rows && !contains(f_.batch.axes, int(a)));
        }
        const int count = has_others ? 0 : has_rows ? rows_.halves() : 1;
        for (int h = 0; h < count; ++h) {
          const Point p = has_rows ? rows_.row_point(h) : batch_;
          const Expr element = element_at(r_, stage, load, p).value();
          e_.provide_load(stage, load, p,
                          b_.load(e_.operand_buffer(load.number), element, 1, p.mask));
        }
      }
  }

  /// Tiles at the two ends of the range may have points that do not count.
  void go_along() {
    const TileRange whole = tiles_that_are_whole(r_, f_, batch_, first_row_, t_.rows(), t_.places);
    const Expr begin = min(max(whole.begin, range_.begin), range_.end),
               end = max(min(whole.end, range_.end), begin);
    const Expr from = places_down() ? range_.end - end : begin - range_.begin,
               to = places_down() ? range_.end - begin : end - range_.begin;
    const bool all = proves_less_equal(from, Expr(0)) && proves_less_equal(count_, to);
    step(Expr(0), all, true);
    const auto some = [&](const Expr& first, const Expr& last, bool is_whole) {
      b_.loop(max(first, Expr(1)), last, Expr(1), most_tiles(), Bind::Serial,
              [&](const Expr& u) { step(u, is_whole, false); });
    };
    some(Expr(1), from, false);
    some(from, to, true);
    if (!all)
      some(to, count_, false);
    if (t_.ahead && !pass_.sums.empty())
      add_sums(last_stage(), b_.read(last_parity_));
  }

  void step(const Expr& u, bool whole, bool first) {
    const Expr at = stage();
    const ValueId parity = b_.read(parity_);
    if (!scored_.tiles.empty())
      b_.mbarrier_wait(scored_.full, at, parity);
    if (scores_from_summed_)
      b_.mbarrier_wait(summed_.full, at, parity);
    if (takes_turns()) {
      b_.mbarrier_wait(turn_, group_, b_.read(turn_parity_));
      flip(turn_parity_);
    }
    b_.matrix_fence(all_variables());
    for (std::size_t p : pass_.products)
      multiply_scores(p, at);
    b_.matrix_commit();
    const bool sums = !pass_.sums.empty(), both = t_.ahead && !first && sums;
    const Expr before = last_stage();
    if (both) {
      b_.mbarrier_wait(summed_.full, before, b_.read(last_parity_));
      // Said again behind the wait, which is a loop: else ptxas may let no product overlap another.
      b_.matrix_fence(all_variables());
      for (std::size_t s : pass_.sums)
        multiply_sum(s, before);
      b_.matrix_commit();
    }
    if (takes_turns())
      arrive(turn_, floormod(group_ + Expr(1), t_.groups));
    b_.matrix_wait(both ? 1 : 0, joined(scores_));
    if (!scored_.tiles.empty())
      arrive(scored_.empty, at);
    if (last_pass_) // nothing reads the rows after the last tile's scores
      b_.when({{lane_, Expr(0), Expr(1)}, {count_ - u, Expr(1), Expr(2)}},
              [&] { b_.mbarrier_arrive(rows_empty_, Expr(0)); });
    piece_ = at;
    for (VectorRing& v : summed_.vectors)
      v.forget();
    const Expr place = place_of(u);
    combine(place, whole);
    if (both) {
      b_.matrix_wait(0, joined(carried_));
      arrive(summed_.empty, before);
    }
    for (std::size_t s : pass_.sums) {
      if (!first)
        scale_sum(s);
      for (int k = 0; k < t_.places; k += kDepthSteps)
        b_.set(lefts_[s][std::size_t(k / kDepthSteps)],
               rows_.left_fragment(f_.sums[s], 0, place, k / kPlaces));
    }
    e_.forget_known();
    if (!sums) {
      if (summed_.used() && !scores_from_summed_)
        b_.mbarrier_wait(summed_.full, at, parity);
      if (summed_.used())
        arrive(summed_.empty, at);
    } else if (!t_.ahead) {
      add_sums(at, parity);
    }
    advance();
  }

  /// Sums of the tile in a piece of the ring, when nothing is to be done beside them.
  void add_sums(const Expr& at, ValueId parity) {
    b_.mbarrier_wait(summed_.full, at, parity);
    b_.matrix_fence(all_variables());
    for (std::size_t s : pass_.sums)
      multiply_sum(s, at);
    b_.matrix_commit();
    b_.matrix_wait(0, joined(carried_));
    arrive(summed_.empty, at);
  }

  static std::vector<VarId> joined(const std::vector<std::vector<VarId>>& lists) {
    std::vector<VarId> all;
    for (const auto& l : lists)
      all.insert(all.end(), l.begin(), l.end());
    return all;
  }
  std::vector<VarId> all_variables() const {
    std::vector<VarId> all = joined(carried_);
    const std::vector<VarId> lefts = joined(lefts_);
    all.insert(all.end(), lefts.begin(), lefts.end());
    return all;
  }

  ProgramBuilder::QueuedProduct product(const std::vector<VarId>& variables,
                                        const SwizzledTile& right, const Expr& place,
                                        bool transposed) const {
    ProgramBuilder::QueuedProduct p;
    p.sums = variables;
    p.element = f_.element;
    p.right = {{right.buffer(), place}, transposed, right.box()};
    return p;
  }

  void multiply_scores(std::size_t p, const Expr& at) {
    const SwizzledTile &left = *left_tiles_[p], &right = *right_tiles_[p];
    for (int k = 0; k < columns_of(f_.products[p]); k += kDepthSteps) {
      auto made = product(scores_[p], right, right.at(at, Expr(0), k), !right.along_depth());
      made.left = {
          {left.buffer(), left.at(Expr(0), group_ * Expr(64), k)}, !left.along_depth(), left.box()};
      if (k == 0)
        made.added = {{Expr(0), Expr(1), Expr(2)}}; // anew
      b_.matrix_multiply_async(made);
    }
  }

  void multiply_sum(std::size_t i, const Expr& at) {
    const SwizzledTile& right = *sum_tiles_[i];
    for (int k = 0; k < t_.places; k += kDepthSteps) {
      auto made = product(carried_[i], right, right.at(at, Expr(k), 0), right.along_depth());
      made.fragment = b_.read(lefts_[i][std::size_t(k / kDepthSteps)]);
      b_.matrix_multiply_async(made);
    }
  }

  /// What the scores of a tile come to: running values, and what the sums' left sides are made of.
  void combine(const Expr& first, bool whole) {
    e_.forget_maps();
    rows_.whole = whole;
    if (whole)
      for (const BoundTest& test : f_.tests)
        e_.know(test.stage, test.value, test.holds);
    for (int j = 0; j < t_.places / kPlaces; ++j)
      for (std::size_t p : pass_.products)
        rows_.provide_scores(p, 0, first, j, b_.read(scores_[p][std::size_t(j)]));
    rows_.add(first);
    for (std::size_t s : pass_.sums)
      for (int k = 0; k < t_.places; k += kDepthSteps)
        rows_.prepare_left(f_.sums[s], 0, first, k / kPlaces);
  }

  void scale_sum(std::size_t s) {
    const auto upper = rows_.scale_of(s, 0), lower = rows_.scale_of(s, 1);
    if (!upper)
      return;
    const ValueId scales = b_.shuffle(*upper, *lower, {0, 0, 1, 1});
    for (VarId v : carried_[s])
      b_.set(v, b_.apply(Op::Mul, DType::F32, {b_.read(v), scales}));
  }

  struct Made {
    std::unique_ptr<SwizzledTile> tile;
    bool is_left;
    int operand;
    Expr element, depth;
  };

  const Region& r_;
  const StreamForm& f_;
  const WgmmaStreamTiles& t_;
  const Schedule& s_;
  ProgramBuilder b_;
  Emitter e_;
  Expr thread_, group_, lane_;
  GpuStreamRows rows_;
  std::vector<Made> made_;
  std::vector<SwizzledTile*> left_tiles_, right_tiles_; ///< by product
  std::vector<SwizzledTile*> sum_tiles_;                ///< by sum
  Ring scored_, summed_; ///< tiles that scores alone are made of, and those that are summed
  bool scores_from_summed_ = false;
  int rows_full_ = -1, rows_empty_ = -1, turn_ = -1;
  int next_ = -1, relay_ = -1;                      ///< of tiles that are scheduled dynamically
  std::vector<std::vector<VarId>> scores_;          ///< by product
  std::vector<std::vector<VarId>> carried_, lefts_; ///< by sum
  VarId stage_ = -1, parity_ = -1;                  ///< of the rings: the next piece
  VarId last_stage_ = -1, last_parity_ = -1;        ///< and the one before
  VarId rows_parity_ = -1, turn_parity_ = -1;
  Expr down_; ///< tiles of rows
  Point batch_;
  Expr first_row_;  ///< of the tile
  TileRange range_; ///< along the places
  Expr count_;
  StreamPass pass_;
  bool last_pass_ = false;
  Expr piece_; ///< of the rings that is worked on
};

} // namespace

namespace {

/// Bytes of a block's tiles, each counted once.
std::int64_t tile_bytes(const Region& r, const StreamForm& f, const WgmmaStreamTiles& t) {
  struct Tile {
    int operand;
    Expr element, depth;
  };
  std::vector<Tile> known;
  std::int64_t bytes = 0;
  const auto add = [&](const ContractionForm& form, const Side& side, bool is_left) {
    Tile tile{-1, {}, form.depth.extent};
    tile.element = element_of_tile(r, form, factor_of(r, form, side), &tile.operand);
    const bool again = std::any_of(known.begin(), known.end(), [&](const Tile& k) {
      return k.operand == tile.operand && k.element == tile.element && k.depth == tile.depth;
    });
    if (again && !is_left)
      return;
    if (!is_left)
      known.push_back(tile);
    const std::int64_t depth = round_up<std::int64_t>(form.depth.extent.value(), kSwizzledRow);
    bytes += depth * (is_left ? t.rows() : t.stages * round_up(t.places, kDepthSteps)) * 2;
  };
  for (const ContractionForm& s : f.sums)
    add(s, s.right, false);
  for (const ContractionForm& p : f.products) {
    add(p, p.left, true);
    add(p, p.right, false);
  }
  return bytes;
}

} // namespace

std::string wgmma_stream_refused(const Region& region, const StreamForm& form,
                                 const WgmmaStreamTiles& tiles, const Target& target) {
  if (target.unit(FragmentLayout::SwizzledSharedRows) == nullptr)
    return "wgmma is of compute capability 9.0 alone";
  if (tiles.threads() * tiles.blocks > 2048 || 65536 / tiles.blocks / tiles.threads() < 40)
    return "more threads than a multiprocessor has registers for";
  int columns = tiles.places;
  for (const ContractionForm& s : form.sums)
    columns = std::max(columns, columns_of(s));
  if (launch_registers(tiles.blocks, tiles.threads()) < launch_registers_for(columns))
    return "fewer registers at its launch than its products need";
  std::vector<int> parallel = form.batch.axes;
  parallel.insert(parallel.end(), form.rows.axes.begin(), form.rows.axes.end());
  if (is_empty(region, parallel) || form.places.extent.lower() < 1)
    return "it may be empty";
  for (const ContractionForm& p : form.products) {
    if (auto why = view_of(region, p, p.left, form.rows, tiles.rows()).reason; !why.empty())
      return why;
    if (auto why = view_of(region, p, p.right, form.places, tiles.places).reason; !why.empty())
      return why;
  }
  for (const ContractionForm& s : form.sums)
    if (auto why = view_of(region, s, s.right, form.places, tiles.places).reason; !why.empty())
      return why;
  if (tile_bytes(region, form, tiles) + 9216 > target.block_shared_bytes)
    return "more shared memory than a block can have";
  return "";
}

KernelProgram make_wgmma_stream(const Region& region, const StreamForm& form,
                                const WgmmaStreamTiles& tiles, const Schedule& schedule,
                                const Target& target) {
  return WgmmaStream(region, form, tiles, schedule, target).run();
}

} // namespace egret::kernel
