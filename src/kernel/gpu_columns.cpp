// Reductions on a GPU whose contiguous axis is a parallel one (bias gradients, sums over a batch):
// a thread does a vector of columns over every TY-th place of the reduced axes, the TY threads of
// a column are combined through shared memory, and for few columns the reduced axes are cut into
// pieces for several blocks, the last of which combines them in order.
#include "kernel/accumulate.h"
#include "kernel/analysis.h"
#include "kernel/families.h"
#include "kernel/gpu_nest.h"
#include "kernel/knobs.h"
#include "kernel/map_axes.h"
#include "kernel/passes.h"

#include "support/fail.h"

#include <algorithm>
#include <map>
#include <utility>

namespace egret::kernel {

namespace {

struct ColumnFacts {
  Passes passes;
  int tile = -1; ///< parallel axis of the vectors
  std::int64_t score = 0;
  bool argmax = false;

  explicit ColumnFacts(const Region& region) : passes(plan_passes(region)) {
    if (!passes.reason.empty())
      return;
    std::vector<int> stages = all_stages(region);
    for (const Stage& s : region.stages)
      argmax = argmax || (s.kind == StageKind::Reduce && s.monoid == Monoid::ArgMax);
    for (int a : passes.parallel) {
      const bool apart = std::all_of(region.outputs.begin(), region.outputs.end(),
                                     [&](const Output& o) { return stride_of(region, o, a) != 0; });
      if (auto s = vector_score(region, stages, a); apart && (tile < 0 || s >= score)) {
        tile = a;
        score = s;
      }
    }
  }
};

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
    if (pieces_ > 1) {
      make_partials(places);
      arrivals_ = b_.counter("arrivals", places.value());
    }
    launch.workers = max(Expr(1), places * Expr(pieces_));
    for (int pass = 0; pass < p_.count && down_ > 1; ++pass)
      for (int stage : p_.reductions[pass])
        make_scratch(stage);
    b_.grid_loop(places * Expr(pieces_), [&](const Expr& item) {
      Expr place = pieces_ > 1 ? floordiv(item, Expr(pieces_)) : item;
      Point p = point_at(place);
      if (pieces_ > 1)
        piece(p, place, floormod(item, Expr(pieces_)));
      else
        whole(p);
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

  void whole(const Point& p) {
    for (int pass = 0; pass < p_.count; ++pass)
      finish(pass, p, combined(pass, run_pass(pass, p, Expr(0), depth_)));
    point_outputs(p);
  }

  /// The reduced places y, y + down ... of [begin, end).
  Running run_pass(int pass, const Point& p, const Expr& begin, const Expr& end) {
    const int copies = int(schedule_.knob("copies", 4));
    const RunningVariables running(b_, start(pass));
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
      for (std::size_t i = 0; i < points.size(); ++i) {
        for (std::size_t r = 0; r < states.size(); ++r)
          for (std::size_t y = 0; y < states[r].size(); ++y) {
            Accumulator acc = accumulator(p_.reductions[pass][r], int(y));
            State next = acc.add(states[r][y], points[i], places[i], false);
            std::vector<Guard> own;
            if (!whole)
              own.push_back({places[i], Expr(0), end});
            states[r][y] = acc.keep(own, next, states[r][y]);
          }
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

  Running start(int pass) {
    return identities(e_, p_.reductions[pass], arithmetic_, depth_, lanes_);
  }

  // --- The threads of a column

  void make_scratch(int stage) {
    for (std::size_t y = 0; y < r_.stages[stage].yields.size(); ++y)
      for (const Type& t : accumulator(stage, int(y)).types(1))
        scratch_[{stage, int(y)}].push_back(
            b_.shared(fmt::format("down{}_{}_{}", stage, y, scratch_[{stage, int(y)}].size()),
                      t.dtype, std::int64_t(across_) * down_ * lanes_));
  }

  /// In every thread, what all threads of its column have, combined from the first to the last.
  Running combined(int pass, const Running& states) {
    if (down_ == 1)
      return states;
    const Expr row = Expr(std::int64_t(across_) * lanes_);
    const Expr mine = x_ * Expr(lanes_) + lane();
    for (std::size_t r = 0; r < states.size(); ++r)
      for (std::size_t y = 0; y < states[r].size(); ++y)
        store_state(b_, scratch_.at({p_.reductions[pass][r], int(y)}), y_ * row + mine,
                    states[r][y]);
    b_.barrier();
    Running out(states.size());
    for (std::size_t r = 0; r < states.size(); ++r)
      for (std::size_t y = 0; y < states[r].size(); ++y) {
        Accumulator acc = accumulator(p_.reductions[pass][r], int(y));
        State all;
        for (int d = 0; d < down_; ++d) {
          State part = load_state(b_, scratch_.at({p_.reductions[pass][r], int(y)}),
                                  Expr(d) * row + mine, lanes_);
          all = d == 0 ? part : acc.merge(all, part);
        }
        out[r].push_back(std::move(all));
      }
    b_.barrier();
    return out;
  }

  void finish(int pass, const Point& p, const Running& states) {
    for (std::size_t r = 0; r < states.size(); ++r) {
      const int stage = p_.reductions[pass][r];
      std::vector<Value> values;
      for (std::size_t y = 0; y < states[r].size(); ++y)
        values.push_back(accumulator(stage, int(y)).finish(states[r][y]));
      e_.provide(stage, p, std::move(values));
    }
  }

  void point_outputs(const Point& p) { store_once(e_, p_.point_outputs, p, y_); }

  // --- Pieces

  void make_partials(const Expr& places) {
    Expr elements = places * Expr(pieces_) * Expr(std::int64_t(across_) * lanes_);
    for (int stage : p_.reductions[0]) {
      partials_.emplace_back();
      for (std::size_t y = 0; y < r_.stages[stage].yields.size(); ++y)
        partials_.back().push_back(accumulator(stage, int(y)).workspaces(elements));
    }
  }

  void piece(const Point& p, const Expr& place, const Expr& number) {
    Expr each = ceildiv(depth_, Expr(pieces_));
    Expr begin = number * each;
    Running states = combined(0, run_pass(0, p, begin, min(begin + each, depth_)));
    const Expr width(std::int64_t(across_) * lanes_);
    auto offset = [&](const Expr& n) {
      return (place * Expr(pieces_) + n) * width + x_ * Expr(lanes_) + lane();
    };
    for (std::size_t r = 0; r < states.size(); ++r)
      for (std::size_t y = 0; y < states[r].size(); ++y)
        store_state(b_, partials_[r][y], offset(number), states[r][y], {{y_, Expr(0), Expr(1)}});
    b_.last_arriver(arrivals_, place, Expr(pieces_), [&] {
      Running all(partials_.size());
      for (std::size_t r = 0; r < partials_.size(); ++r)
        for (std::size_t y = 0; y < partials_[r].size(); ++y) {
          Accumulator acc = accumulator(p_.reductions[0][r], int(y));
          State state = acc.identity(lanes_);
          for (std::int64_t from = 0; from < pieces_; from += down_) {
            Expr n = Expr(from) + y_;
            std::vector<Guard> mask;
            if (from + down_ > pieces_)
              mask.push_back({n, Expr(0), Expr(pieces_)});
            State part = load_state(b_, partials_[r][y], offset(n), lanes_, mask);
            state = acc.keep(mask, acc.merge(state, part), state);
          }
          all[r].push_back(std::move(state));
        }
      finish(0, p, combined(0, all));
      point_outputs(p);
    });
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
  std::vector<std::vector<std::vector<int>>> partials_;
  int arrivals_ = -1;
};

constexpr Knob kGpuColumnsKnobs[] = {{"across", 1, 1024}, {"down", 1, 1024}, {"copies", 1, 16}};

class GpuColumnsGenerator : public Generator {
public:
  std::string name() const override { return "gpu_columns"; }

  std::vector<Schedule> space(const Region& region, const Target& target) const override {
    ColumnFacts f(region);
    if (!f.passes.reason.empty() || f.tile < 0)
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
    std::vector<Schedule> out;
    for (int across : {32, 16, 8}) {
      if (across > 8 && std::int64_t(across / 2) * lanes >= width)
        continue;
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
        const bool splits = f.passes.count == 1 && f.passes.outputs[0].empty() && known &&
                            !f.argmax && region_depth_known(region, f.passes);
        const std::int64_t pieces = splits ? std::min({(4 * target.workers + tiles - 1) / tiles,
                                                       depth / (down * 8), std::int64_t(512)})
                                           : 1;
        s.split_reduce = pieces > 1 ? pieces : 1;
        out.push_back(s);
        if (pieces > 3) {
          s.split_reduce = pieces / 2;
          out.push_back(s);
        }
      }
    }
    return out;
  }

  static bool region_depth_known(const Region& region, const Passes& passes) {
    return points_of(region, passes.reduced).is_constant();
  }

  Lowered lower(const Region& region, const Schedule& schedule,
                const Target& target) const override {
    ColumnFacts f(region);
    if (!f.passes.reason.empty())
      return {false, {}, f.passes.reason};
    if (f.tile < 0)
      return {false, {}, "has no parallel axis for lanes"};
    if (auto why = refused_settings(schedule, target, kGpuColumnsKnobs); !why.empty())
      return {false, {}, why};
    const std::int64_t threads = schedule.knob("across", 32) * schedule.knob("down", 8);
    if (auto why = gpu_threads_refused(threads); !why.empty())
      return {false, {}, why};
    if (schedule.split_reduce > 1) {
      if (f.passes.count != 1 || !f.passes.outputs[0].empty() || f.argmax)
        return {false, {}, "only one pass without results of its own is cut into pieces"};
      const Expr depth = points_of(region, f.passes.reduced);
      if (!points_of(region, f.passes.parallel).is_constant() || !depth.is_constant())
        return {false, {}, "columns of unknown number or depth are not cut into pieces"};
      const std::int64_t each = (depth.value() + schedule.split_reduce - 1) / schedule.split_reduce;
      if (each * (schedule.split_reduce - 1) >= depth.value())
        return {false, {}, "too short for so many pieces"};
    }
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
