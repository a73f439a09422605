// Columns on a GPU in several passes whose blocks share them: a thread does a vector of columns
// over every TY-th place of the reduced axes, the TY threads of a column are combined through
// shared memory, and the reduced axes are cut into pieces for several blocks, whose results are
// combined in order: of one pass, where sums go along with their maximum or mean, by the last
// block; of several by every block behind a barrier of the grid.
#include "kernel/accumulate.h"
#include "kernel/analysis.h"
#include "kernel/families.h"
#include "kernel/gpu_nest.h"
#include "kernel/knobs.h"
#include "kernel/map_axes.h"
#include "kernel/pass_states.h"
#include "kernel/passes.h"
#include "kernel/picks.h"

#include "support/fail.h"

#include <algorithm>
#include <map>
#include <utility>

namespace egret::kernel {

namespace {

struct ColumnFacts {
  Passes passes;
  int tile = -1; ///< parallel axis of the vectors

  explicit ColumnFacts(const Region& region, Online online = Online::No)
      : passes(plan_passes(region, false, online)) {
    if (passes.reason.empty())
      tile = column_axis(region, passes);
  }
};

/// States that a thread combines one after the other.
constexpr int kStatesInTurn = 8;

class GpuColumns {
public:
  GpuColumns(const Region& region, const ColumnFacts& facts, const Schedule& schedule,
             const Target& target)
      : r_(region), f_(facts), p_(facts.passes), schedule_(schedule), b_(region.name),
        e_(b_, region), across_(int(schedule.knob("across", 32))),
        down_(int(schedule.knob("down", 8))), t_(thread_variable(across_ * down_)) {
    std::int64_t bytes = schedule.vector_bytes ? schedule.vector_bytes : target.vector_bytes;
    lanes_ = gpu_lanes(region, f_.tile, bytes);
    arithmetic_ = arithmetic_of(target);
    e_.means = p_.means();
    e_.load_policy = schedule.load_policy;
    pieces_ = schedule.split_reduce;
    x_ = floormod(t_, Expr(across_));
    y_ = floordiv(t_, Expr(across_));
    for (int a : p_.parallel)
      if (a != f_.tile) {
        outer_.push_back(a);
        extents_.push_back(r_.axes[a].extent);
      }
    tiles_ = ceildiv(r_.axes[f_.tile].extent, Expr(std::int64_t(across_) * lanes_));
    extents_.push_back(tiles_);
    for (int a : p_.reduced)
      reduced_.push_back(r_.axes[a].extent);
    depth_ = points_of(r_, p_.reduced);
  }

  KernelProgram run() {
    Launch launch;
    launch.threads = across_ * down_;
    launch.blocks_per_core = schedule_.blocks_per_core;
    launch.workers = Expr(1);
    if (is_empty(r_, p_.parallel))
      return b_.finish(launch);
    Expr places(1);
    for (const Expr& e : extents_)
      places = places * e;
    launch.workers = max(Expr(1), places * Expr(pieces_));
    for (int pass = 0; pass < p_.count && down_ > 1; ++pass)
      for (int stage : p_.reductions[pass])
        make_scratch(stage);
    for (int pass = 0; pass < p_.count; ++pass)
      make_partials(pass, places);
    if (p_.waits()) {
      launch.resident = true;
      passes_in_pieces(places);
      return b_.finish(launch);
    }
    arrivals_ = b_.counter("arrivals", places.value());
    b_.grid_loop(places * Expr(pieces_), [&](const Expr& item) {
      const Expr place = floordiv(item, Expr(pieces_));
      only_pass(point_at(place), place, floormod(item, Expr(pieces_)));
    });
    return b_.finish(launch);
  }

private:
  Expr lane() const { return lanes_ > 1 ? lane_variable(lanes_) : Expr(0); }
  Expr column(const Expr& tile) const {
    return (tile * Expr(across_) + x_) * Expr(lanes_) + lane();
  }

  Point point_at(const Expr& place) const {
    std::vector<Expr> at = unflatten(place, extents_);
    Point p;
    p.at.resize(r_.axes.size());
    for (std::size_t i = 0; i < outer_.size(); ++i)
      p.at[outer_[i]] = at[i];
    p.at[f_.tile] = column(at.back());
    p.lanes = lanes_;
    p.mask.push_back({p.at[f_.tile], Expr(0), r_.axes[f_.tile].extent});
    return p;
  }

  Accumulator accumulator(int stage, int yield) {
    return Accumulator(e_, stage, yield, arithmetic_, depth_);
  }

  /// The reduced places y, y + down ... of [begin, end).
  Running run_pass(int pass, const Point& p, const Expr& begin, const Expr& end) {
    const int copies = int(schedule_.knob("copies", 4));
    const RunningVariables running(b_, states_of(pass).start());
    auto at_place = [&](const Expr& k, bool whole) {
      Point q = p;
      std::vector<Expr> at = unflatten(k, reduced_);
      for (std::size_t i = 0; i < p_.reduced.size(); ++i)
        q.at[p_.reduced[i]] = at[i];
      if (!whole)
        q.mask.push_back({k, Expr(0), end});
      return q;
    };
    auto body = [&](std::span<const Expr> places, bool whole) {
      Running states = running.read();
      std::vector<Value> values;
      std::vector<Point> points;
      for (const Expr& k : places)
        points.push_back(at_place(k, whole));
      PassStates sums = states_of(pass);
      std::vector<std::vector<Guard>> own(points.size());
      std::vector<PassStates::Spot> spots;
      for (std::size_t i = 0; i < points.size(); ++i) {
        if (!whole)
          own[i].push_back({places[i], Expr(0), end});
        spots.push_back({&points[i], places[i], own[i]});
      }
      if (sums.has_pairs())
        sums.add(states, spots, false);
      for (std::size_t i = 0; i < points.size(); ++i) {
        if (!sums.has_pairs())
          sums.add(states, std::span(&spots[i], 1), false);
        for (int o : p_.outputs[pass])
          values.push_back(e_.result(r_.outputs[o].stage, r_.outputs[o].component, points[i]));
      }
      auto value = values.begin();
      for (const Point& q : points)
        for (int o : p_.outputs[pass])
          e_.store(o, q, *value++, schedule_.store_policy);
      running.write(states);
    };
    // Whole turns without tests, then one with them.
    const std::int64_t span = std::int64_t(down_) * copies;
    auto places_of = [&](const Expr& first) {
      std::vector<Expr> places;
      for (int c = 0; c < copies; ++c)
        places.push_back(first + Expr(std::int64_t(c) * down_) + y_);
      return places;
    };
    Expr turns = floordiv(end - begin, Expr(span));
    b_.loop(Expr(0), turns, Expr(1), max(floordiv(depth_, Expr(span)), Expr(1)), Bind::Serial,
            [&](const Expr& turn) { body(places_of(begin + turn * Expr(span)), true); });
    Expr rest = begin + turns * Expr(span);
    b_.when({{rest, Expr(0), end}}, [&] { body(places_of(rest), false); });
    return running.read();
  }

  PassStates states_of(int pass) { return {e_, p_, pass, arithmetic_, depth_, lanes_, lanes_}; }

  // --- The threads of a column

  void make_scratch(int stage) {
    for (std::size_t y = 0; y < r_.stages[stage].yields.size(); ++y)
      for (const Type& t : accumulator(stage, int(y)).types(1))
        scratch_[{stage, int(y)}].push_back(
            b_.shared(fmt::format("down{}_{}_{}", stage, y, scratch_[{stage, int(y)}].size()),
                      t.dtype, std::int64_t(across_) * down_ * lanes_));
  }

  /// In every thread, what all threads of its column have, combined from the first to the last.
  /// Of many, each thread combines some neighbours first.
  Running combined(int pass, const Running& states) {
    if (down_ == 1)
      return states;
    save(pass, states, {});
    int parts = down_;
    if (down_ > kStatesInTurn) {
      int each = 2;
      while (each * each < down_)
        each *= 2;
      b_.barrier();
      const Running mine = neighbours(pass, y_ * Expr(each), each);
      parts = (down_ + each - 1) / each;
      b_.barrier();
      save(pass, mine, {{y_, Expr(0), Expr(parts)}});
    }
    b_.barrier();
    Running all = neighbours(pass, Expr(0), parts);
    b_.barrier();
    return all;
  }

  Expr scratch_place(const Expr& down) const {
    return (down * Expr(across_) + x_) * Expr(lanes_) + lane();
  }

  void save(int pass, const Running& states, const std::vector<Guard>& mask) {
    for (std::size_t r = 0; r < states.size(); ++r)
      for (std::size_t y = 0; y < states[r].size(); ++y)
        store_state(b_, scratch_.at({p_.reductions[pass][r], int(y)}), scratch_place(y_),
                    states[r][y], mask);
  }

  /// The states of threads first, first + 1 ... of this thread's column, as far as there are such.
  Running neighbours(int pass, const Expr& first, int count) {
    PassStates sums = states_of(pass);
    Running all;
    for (int d = 0; d < count; ++d) {
      const Expr down = first + Expr(d);
      const std::vector<Guard> mask = unproved({{down, Expr(0), Expr(down_)}});
      Running part;
      for (int stage : p_.reductions[pass]) {
        part.emplace_back();
        for (std::size_t y = 0; y < r_.stages[stage].yields.size(); ++y)
          part.back().push_back(
              load_state(b_, scratch_.at({stage, int(y)}), scratch_place(down), lanes_, mask));
      }
      all = d == 0 ? part : sums.keep(mask, sums.merge(all, part), all);
    }
    return all;
  }

  void point_outputs(const Point& p) { store_once(e_, p_.point_outputs, p, y_); }

  // --- Pieces

  void make_partials(int pass, const Expr& places) {
    Expr elements = places * Expr(pieces_) * Expr(std::int64_t(across_) * lanes_);
    partials_.emplace_back();
    for (int stage : p_.reductions[pass]) {
      partials_.back().emplace_back();
      for (std::size_t y = 0; y < r_.stages[stage].yields.size(); ++y)
        partials_.back().back().push_back(accumulator(stage, int(y)).workspaces(elements));
    }
  }

  /// Of the states of a piece of this thread's columns.
  Expr partial_place(const Expr& place, const Expr& number) const {
    return (place * Expr(pieces_) + number) * Expr(std::int64_t(across_) * lanes_) +
           x_ * Expr(lanes_) + lane();
  }

  void only_pass(const Point& p, const Expr& place, const Expr& number) {
    piece(0, p, place, number);
    b_.last_arriver(arrivals_, place, Expr(pieces_), [&] {
      recall(0, p, place);
      point_outputs(p);
    });
  }

  /// All blocks do a pass before any begins the next.
  void passes_in_pieces(const Expr& places) {
    passes_by_slices(b_, p_.count, places, pieces_, !p_.point_outputs.empty(),
                     [&](int pass, const Expr& place, const Expr& number) {
                       const Point p = point_at(place);
                       for (int earlier = 0; earlier < pass; ++earlier)
                         recall(earlier, p, place);
                       pass == p_.count ? point_outputs(p) : piece(pass, p, place, number);
                     });
  }

  /// A pass over a piece of the columns; its states go to memory.
  void piece(int pass, const Point& p, const Expr& place, const Expr& number) {
    Expr each = ceildiv(depth_, Expr(pieces_));
    Expr begin = number * each;
    Running states = run_pass(pass, p, begin, min(begin + each, depth_));
    if (states.empty())
      return;
    states = combined(pass, states);
    for (std::size_t r = 0; r < states.size(); ++r)
      for (std::size_t y = 0; y < states[r].size(); ++y)
        store_state(b_, partials_[pass][r][y], partial_place(place, number), states[r][y],
                    {{y_, Expr(0), Expr(1)}});
  }

  /// The results of a pass, of the states of all pieces.
  void recall(int pass, const Point& p, const Expr& place) {
    if (p_.reductions[pass].empty())
      return;
    PassStates sums = states_of(pass);
    const std::int64_t turns = (pieces_ + down_ - 1) / down_;
    const std::int64_t batch =
        std::min<std::int64_t>(turns, kStatesInTurn); // loads that are under way
    const RunningVariables running(b_, sums.start());
    const Expr rounds((turns + batch - 1) / batch);
    b_.loop(Expr(0), rounds, Expr(1), rounds, Bind::Serial, [&](const Expr& round) {
      Running total = running.read();
      for (std::int64_t i = 0; i < batch; ++i) {
        const Expr number = (round * Expr(batch) + Expr(i)) * Expr(down_) + y_;
        const std::vector<Guard> mask = unproved({{number, Expr(0), Expr(pieces_)}});
        Running part;
        for (const auto& yields : partials_[pass]) {
          part.emplace_back();
          for (const std::vector<int>& buffers : yields)
            part.back().push_back(
                load_state(b_, buffers, partial_place(place, number), lanes_, mask));
        }
        total = sums.keep(mask, sums.merge(total, part), total);
      }
      running.write(total);
    });
    sums.provide(p, combined(pass, running.read()));
  }

  const Region& r_;
  const ColumnFacts& f_;
  const Passes& p_;
  const Schedule& schedule_;
  ProgramBuilder b_;
  Emitter e_;
  int across_, down_; ///< threads
  Expr t_, x_, y_;
  int lanes_ = 1;
  Arithmetic arithmetic_;
  std::int64_t pieces_ = 1;
  std::vector<int> outer_;    ///< parallel axes but that of the vectors
  std::vector<Expr> extents_; ///< of them, and the tiles of columns
  std::vector<Expr> reduced_;
  Expr tiles_, depth_;
  std::map<std::pair<int, int>, std::vector<int>> scratch_; ///< by stage and yield
  /// [pass][reduction][yield][part of the state]
  std::vector<std::vector<std::vector<std::vector<int>>>> partials_;
  int arrivals_ = -1;
};

constexpr Knob kGpuColumnsKnobs[] = {
    {"across", 1, 1024}, {"down", 1, 1024}, {"copies", 1, 16}, {"online", 0, 2}};

/// Elements of a thread's part of a piece at the least; and how many times fewer tiles than
/// multiprocessors make a barrier of the grid between the passes worth while.
constexpr std::int64_t kLeastOfPiece = 8, kMeetingColumns = 4;
/// The largest number of pieces, and of widths of a block that are offered.
constexpr std::int64_t kMostColumnPieces = 512;
constexpr int kWidthsOffered = 3;

class GpuColumnsGenerator : public Generator {
public:
  std::string name() const override { return "gpu_columns"; }

  std::vector<Schedule> space(const Region& region, const Target& target) const override {
    ColumnFacts f(region);
    if (!f.passes.reason.empty() || f.tile < 0 || f.passes.count == 1)
      return {};
    const int lanes = gpu_lanes(region, f.tile, target.vector_bytes);
    const std::int64_t width = about(region.axes[f.tile].extent);
    std::int64_t outer = 1;
    bool known = region.axes[f.tile].extent.is_constant();
    for (int a : f.passes.parallel)
      if (a != f.tile) {
        outer = std::min<std::int64_t>(outer * about(region.axes[a].extent), 1 << 30);
        known = known && region.axes[a].extent.is_constant();
      }
    const std::int64_t depth = about(points_of(region, f.passes.reduced));
    known = known && points_of(region, f.passes.reduced).is_constant();
    const Online online = fewest_passes(region, f.passes.count);
    const bool waits = online == Online::No
                           ? f.passes.waits()
                           : plan_passes(with_picks(region, PickBy::Load), false, online).waits();
    std::vector<Schedule> out;
    int widths = 0;
    for (int across : {32, 16, 8, 4, 2, 1}) {
      // Threads beyond a narrow box's columns would have nothing to do.
      if ((across > 1 && std::int64_t(across / 2) * lanes >= width) || widths == kWidthsOffered)
        continue;
      ++widths;
      const std::int64_t tiles = outer * ((width + across * lanes - 1) / (across * lanes));
      for (int threads : {256, 512, 128}) {
        std::int64_t down = threads / across;
        while (down > 1 && down / 2 * across >= 32 && down > depth)
          down /= 2;
        Schedule s;
        s.generator = name();
        s.knobs["across"] = across;
        s.knobs["down"] = down;
        s.store_policy = gpu_store_policy(region, target);
        const bool splits = known && (!waits || kMeetingColumns * tiles <= target.workers);
        const std::int64_t blocks = (waits ? 2 : 4) * target.workers;
        const std::int64_t pieces =
            splits ? std::min({(blocks + tiles - 1) / std::max<std::int64_t>(tiles, 1),
                               depth / (down * kLeastOfPiece), kMostColumnPieces})
                   : 1;
        if (pieces <= 1)
          continue;
        s.split_reduce = pieces;
        if (online != Online::No)
          s.knobs["online"] = std::int64_t(online);
        out.push_back(s);
        if (pieces > 3) {
          s.split_reduce = pieces / 2;
          out.push_back(s);
        }
      }
    }
    return out;
  }

  Lowered lower(const Region& given, const Schedule& schedule,
                const Target& target) const override {
    if (auto why = refused_settings(schedule, target, kGpuColumnsKnobs); !why.empty())
      return {false, {}, why};
    const auto online = Online(schedule.knob("online", 0));
    const Region region = online != Online::No ? with_picks(given, PickBy::Load) : given;
    ColumnFacts f(region, online);
    if (!f.passes.reason.empty())
      return {false, {}, f.passes.reason};
    if (f.tile < 0)
      return {false, {}, "has no parallel axis for lanes"};
    if (online != Online::No && f.passes.count >= ColumnFacts(given).passes.count)
      return {false, {}, "no sum goes along with its maximum or its mean"};
    const std::int64_t threads = schedule.knob("across", 32) * schedule.knob("down", 8);
    if (auto why = gpu_threads_refused(threads); !why.empty())
      return {false, {}, why};
    if (schedule.split_reduce <= 1 || !ColumnFacts(given).passes.waits())
      return {false, {}, "no blocks share columns in several passes"};
    const Expr depth = points_of(region, f.passes.reduced);
    if (!points_of(region, f.passes.parallel).is_constant() || !depth.is_constant())
      return {false, {}, "columns of unknown number or depth are not cut into pieces"};
    const std::int64_t each = (depth.value() + schedule.split_reduce - 1) / schedule.split_reduce;
    if (each * (schedule.split_reduce - 1) >= depth.value())
      return {false, {}, "too short for so many pieces"};
    KernelProgram program = GpuColumns(region, f, schedule, target).run();
    return within_block(std::move(program), target);
  }
};

} // namespace

const Generator& gpu_columns_generator() {
  static const GpuColumnsGenerator generator;
  return generator;
}

} // namespace egret::kernel
