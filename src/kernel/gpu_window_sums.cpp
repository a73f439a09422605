// Sums over many points of what a few neighbouring windows read (the gradient of the weights of a
// depthwise convolution, correlations at several distances), on a GPU. A thread has the sums of all
// windows in registers and goes over strips of points: what several windows and points of a strip
// read is loaded once (scalar replacement: Callahan, Carr and Kennedy 1990). Threads, and blocks
// where there are few results, share the points; what they have is combined in a fixed order.
#include "kernel/accumulate.h"
#include "kernel/analysis.h"
#include "kernel/contraction_form.h"
#include "kernel/families.h"
#include "kernel/gpu_nest.h"
#include "kernel/knobs.h"
#include "kernel/pass_states.h"
#include "kernel/passes.h"
#include "kernel/strips.h"
#include "support/checked.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>

namespace egret::kernel {

namespace {

constexpr int kWarpLanes = 32;
/// Windows whose sums a thread has, points of a strip, and products of both, at the most.
constexpr std::int64_t kMostWindows = 64, kMostPointsOfStrip = 8, kMostProducts = 400;
/// Points from which on it pays to share them.
constexpr std::int64_t kLeastPoints = 512;
/// Strips of a thread, if there are so many.
constexpr std::int64_t kStripsOfThread = 4;
constexpr std::int64_t kMostShares = 64;
/// Rows and columns of a product from which on tiles of it are better.
constexpr std::int64_t kSidesOfTiles = 4;

struct WindowFacts {
  Passes passes;
  std::string reason;
  std::vector<int> windows; ///< parallel axes whose results a thread has; the last overlaps most
  std::vector<int> outer;   ///< the other parallel axes
  std::vector<int> reduced; ///< in the order in which threads take points
  int strip = -1;           ///< the reduced axis of strips; -1: of single points
  std::int64_t points = 1;  ///< of a strip
  int lanes = -1;           ///< the axis that the lanes of a warp follow; -1: any
  std::int64_t count = 1;   ///< of windows

  explicit WindowFacts(const Region& region) : passes(plan_passes(region)) {
    reason = !passes.reason.empty() ? passes.reason
             : passes.waits()       ? "its results need several passes"
                                    : find(region);
  }

  bool lanes_are_outer() const { return contains(outer, lanes); }
  std::int64_t wide() const { return lanes_are_outer() ? kWarpLanes : 1; }

private:
  std::string find(const Region& region) {
    const auto extent = [&](int a) { return region.axes[std::size_t(a)].extent; };
    // The window and the points that overlap.
    int overlapping = -1;
    for (const int window : passes.parallel) {
      if (!extent(window).is_constant() || extent(window).value() < 2 ||
          extent(window).value() > kMostWindows)
        continue;
      for (const int along : passes.reduced)
        if (windows_overlap(region, window, along)) {
          overlapping = overlapping < 0 ? window : overlapping;
          if (strip < 0 && contiguous(region, along) == 0) {
            overlapping = window;
            strip = along;
          }
        }
    }
    if (overlapping < 0)
      return "no windows of its results overlap";
    count = extent(overlapping).value();
    for (const int a : passes.parallel)
      if (a != overlapping) {
        const bool few = extent(a).is_constant() && extent(a).value() * count <= kMostWindows;
        (few && is_shared(region, a) ? windows : outer).push_back(a);
        if (few && is_shared(region, a))
          count *= extent(a).value();
      }
    windows.push_back(overlapping);
    if (strip >= 0)
      choose_points(usual_size(extent(strip)), extent(overlapping).value());
    find_lanes(region);
    return "";
  }

  /// Whether something that varies along the points is the same for all windows along the axis.
  bool is_shared(const Region& region, int axis) const {
    for (const Stage& stage : region.stages)
      for (const Load& load : stage.loads) {
        if (load.source != Source::Operand)
          continue;
        const std::vector<bool> axes = axes_of_load(region, stage, load);
        if (!axes[std::size_t(axis)] && std::any_of(passes.reduced.begin(), passes.reduced.end(),
                                                    [&](int a) { return axes[std::size_t(a)]; }))
          return true;
      }
    return false;
  }

  /// Bytes a point that lie side by side along an axis.
  static std::int64_t contiguous(const Region& region, int axis) {
    std::int64_t bytes = 0;
    for (const Stage& stage : region.stages)
      for (const Load& load : stage.loads)
        if (load.source == Source::Operand && stride_of(region, stage, load, axis) == 1)
          bytes += std::int64_t(size_of(region.operands[std::size_t(load.number)].dtype));
    return bytes;
  }

  /// Of a strip of n points, what `overlapping` windows read of a line is n + overlapping - 1
  /// elements, for n · overlapping products.
  void choose_points(std::int64_t extent, std::int64_t overlapping) {
    double best = 0;
    for (std::int64_t n = 2; n <= kMostPointsOfStrip && n * count <= kMostProducts; ++n) {
      const double made = std::ceil(double(extent) / double(n)) * double(n);
      const double worth = double(extent) / made * double(n) / double(n + overlapping - 1);
      if (worth > best) {
        best = worth;
        points = n;
      }
    }
  }

  void find_lanes(const Region& region) {
    std::int64_t best = 0;
    const auto consider = [&](int a) {
      if (const std::int64_t bytes = contiguous(region, a); a != strip && bytes > best) {
        best = bytes;
        lanes = a;
      }
    };
    for (const int a : outer)
      if (about(region.axes[std::size_t(a)].extent) >= kWarpLanes / 2)
        consider(a);
    std::ranges::for_each(passes.reduced, consider);
    reduced = passes.reduced;
    if (std::erase(reduced, lanes) > 0)
      reduced.push_back(lanes);
  }
};

class GpuWindowSums {
public:
  GpuWindowSums(const Region& region, const WindowFacts& facts, const Schedule& schedule,
                const Target& target)
      : r_(region), f_(facts), p_(facts.passes), schedule_(schedule), b_(region.name),
        e_(b_, region), threads_(int(schedule.knob("threads", 128))),
        split_(std::max<std::int64_t>(schedule.split_reduce, 1)),
        thread_(thread_variable(threads_)), arithmetic_(arithmetic_of(target)) {
    e_.load_policy = schedule.load_policy;
  }

  KernelProgram run() {
    Launch launch;
    launch.threads = threads_;
    launch.blocks_per_core = schedule_.blocks_per_core;
    launch.workers = Expr(1);
    if (is_empty(r_, p_.parallel))
      return b_.finish(launch);
    Expr blocks = Expr(1);
    for (const int a : f_.outer) {
      outer_extents_.push_back(a == f_.lanes ? ceildiv(extent(a), Expr(kWarpLanes)) : extent(a));
      blocks = blocks * outer_extents_.back();
    }
    for (const int a : f_.reduced) {
      strip_extents_.push_back(a == f_.strip ? ceildiv(extent(a), Expr(f_.points)) : extent(a));
      strips_ = strips_ * strip_extents_.back();
    }
    launch.workers = max(Expr(1), blocks * Expr(split_));
    const Running start = sums().start();
    for (std::int64_t w = 0; w < f_.count; ++w)
      running_.emplace_back(b_, start);
    const std::vector<ValueId> components = flat(start);
    const std::int64_t warps = threads_ / kWarpLanes;
    for (std::size_t c = 0; c < components.size(); ++c) {
      const DType dtype = b_.type_of(components[c]).dtype;
      parts_.push_back(b_.shared(fmt::format("parts{}", c), dtype, warps * results()));
      if (split_ > 1)
        shares_.push_back(
            b_.workspace(fmt::format("shares{}", c), dtype, launch.workers * Expr(results())));
    }
    if (split_ > 1)
      arrived_ = b_.counter("arrived", blocks.value());
    b_.grid_loop(blocks * Expr(split_), [&](const Expr& worker) {
      const Expr number = floordiv(worker, Expr(split_)), share = floormod(worker, Expr(split_));
      outer_ = unflatten(number, outer_extents_);
      add_up(share);
      finish(number, share);
      b_.barrier(); // the parts have been read
    });
    return b_.finish(launch);
  }

private:
  const Expr& extent(int axis) const { return r_.axes[std::size_t(axis)].extent; }
  PassStates sums() { return {e_, p_, 0, arithmetic_, points_of(r_, p_.reduced), 1, 1}; }
  /// Of a block: windows, for each of the lanes that have results of their own.
  std::int64_t results() const { return f_.count * f_.wide(); }

  static std::vector<ValueId> flat(const Running& states) {
    std::vector<ValueId> values;
    for (const auto& reduction : states)
      for (const State& state : reduction)
        values.insert(values.end(), state.begin(), state.end());
    return values;
  }
  /// States as sums().start() makes them, of these values.
  Running states_of(const std::vector<ValueId>& values) {
    Running states = sums().start();
    auto value = values.begin();
    for (auto& reduction : states)
      for (State& state : reduction)
        for (ValueId& v : state)
          v = *value++;
    return states;
  }

  /// A point with the outer axes set; `lane`: that of the axis of lanes, where it is one of them.
  Point outer_point(const Expr& lane) const {
    Point p;
    p.at.resize(r_.axes.size());
    for (std::size_t i = 0; i < outer_.size(); ++i)
      p.at[std::size_t(f_.outer[i])] = outer_[i];
    if (f_.lanes_are_outer()) {
      Expr& along = p.at[std::size_t(f_.lanes)];
      along = along * Expr(kWarpLanes) + lane;
      p.mask.push_back({along, Expr(0), extent(f_.lanes)});
    }
    return p;
  }

  void put_window(Point& p, const Expr& window) const {
    std::vector<Expr> extents;
    for (const int a : f_.windows)
      extents.push_back(extent(a));
    const std::vector<Expr> at = unflatten(window, extents);
    for (std::size_t i = 0; i < at.size(); ++i)
      p.at[std::size_t(f_.windows[i])] = at[i];
  }

  /// This block's share of the strips.
  void add_up(const Expr& share) {
    const Running nothing = sums().start();
    for (const RunningVariables& r : running_)
      r.write(nothing);
    const std::int64_t deep = threads_ / f_.wide();
    const Expr turns = ceildiv(strips_, Expr(deep)), each = ceildiv(turns, Expr(split_)),
               begin = split_ > 1 ? share * each : Expr(0),
               end = split_ > 1 ? min(begin + each, turns) : turns;
    const Expr lane = floormod(thread_, kWarpLanes),
               here = f_.wide() > 1 ? floordiv(thread_, kWarpLanes) : thread_;
    const Point outer = outer_point(lane);
    b_.loop(begin, end, Expr(1), turns, Bind::Serial, [&](const Expr& turn) {
      const Expr strip = turn * Expr(deep) + here;
      std::vector<Guard> inside = outer.mask;
      inside.push_back({strip, Expr(0), strips_});
      b_.when(inside, [&] { add_strip(outer, strip); });
    });
  }

  void add_strip(const Point& outer, const Expr& strip) {
    Point first = outer;
    first.mask.clear(); // tested by now
    const std::vector<Expr> at = unflatten(strip, strip_extents_);
    for (std::size_t i = 0; i < at.size(); ++i)
      first.at[std::size_t(f_.reduced[i])] =
          f_.reduced[i] == f_.strip ? at[i] * Expr(f_.points) : at[i];
    PassStates all = sums();
    for (std::int64_t w = 0; w < f_.count; ++w) {
      Running states = running_[std::size_t(w)].read();
      for (std::int64_t n = 0; n < f_.points; ++n) {
        Point q = first;
        put_window(q, Expr(w));
        std::vector<Guard> own;
        if (f_.strip >= 0) {
          Expr& along = q.at[std::size_t(f_.strip)];
          along = along + Expr(n);
          if (extent(f_.strip).divisor() % f_.points != 0) {
            own.push_back({along, Expr(0), extent(f_.strip)});
            q.mask = own;
          }
        }
        Expr number = Expr(0); // of the point
        for (const int a : p_.reduced)
          number = number * extent(a) + q.at[std::size_t(a)];
        const PassStates::Spot spot{&q, number, own};
        all.add(states, std::span(&spot, 1), false);
      }
      running_[std::size_t(w)].write(states);
    }
  }

  /// All that the threads of the block have, and the blocks that share the points.
  void finish(const Expr& number, const Expr& share) {
    const Expr warp = floordiv(thread_, kWarpLanes), lane = floormod(thread_, kWarpLanes);
    const bool wide = f_.wide() > 1;
    PassStates all = sums();
    for (std::int64_t w = 0; w < f_.count; ++w) {
      const Running own = running_[std::size_t(w)].read();
      const std::vector<ValueId> values = flat(wide ? own : all.across_threads(own, kWarpLanes));
      const Expr place = warp * Expr(results()) + Expr(w * f_.wide()) + (wide ? lane : Expr(0));
      for (std::size_t c = 0; c < values.size(); ++c)
        b_.store(parts_[c], place, values[c],
                 wide ? std::vector<Guard>{} : std::vector<Guard>{{lane, Expr(0), Expr(1)}});
    }
    b_.barrier();
    each_result([&](const Expr& result) {
      const Running sum = combined(parts_, result, Expr(results()), threads_ / kWarpLanes);
      if (split_ == 1) {
        store(result, sum);
        return;
      }
      const std::vector<ValueId> values = flat(sum);
      for (std::size_t c = 0; c < values.size(); ++c)
        b_.store(shares_[c], (number * Expr(split_) + share) * Expr(results()) + result, values[c]);
    });
    if (split_ > 1)
      b_.last_arriver(arrived_, number, Expr(split_), [&] {
        each_result([&](const Expr& result) {
          store(result, combined(shares_, number * Expr(split_ * results()) + result,
                                 Expr(results()), split_));
        });
      });
  }

  void each_result(const std::function<void(const Expr& result)>& body) {
    for (std::int64_t first = 0; first < results(); first += threads_) {
      const Expr result = thread_ + Expr(first);
      b_.when({{result, Expr(0), Expr(results())}}, [&] { body(result); });
    }
  }

  Running combined(const std::vector<int>& buffers, const Expr& first, const Expr& apart,
                   std::int64_t count) {
    std::optional<Running> all;
    for (std::int64_t i = 0; i < count; ++i) {
      std::vector<ValueId> values;
      for (const int buffer : buffers)
        values.push_back(b_.load(buffer, first + apart * Expr(i), 1));
      const Running states = states_of(values);
      all = all ? sums().merge(*all, states) : states;
    }
    return *all;
  }

  void store(const Expr& result, const Running& states) {
    Point p = outer_point(floormod(result, Expr(f_.wide())));
    put_window(p, floordiv(result, Expr(f_.wide())));
    const std::vector<Guard> inside = std::exchange(p.mask, {});
    const auto body = [&] {
      sums().provide(p, states);
      std::vector<Value> values;
      for (const int o : p_.point_outputs)
        values.push_back(
            e_.result(r_.outputs[std::size_t(o)].stage, r_.outputs[std::size_t(o)].component, p));
      auto value = values.begin();
      for (const int o : p_.point_outputs)
        e_.store(o, p, *value++, schedule_.store_policy);
    };
    if (inside.empty())
      body();
    else
      b_.when(inside, body);
  }

  const Region& r_;
  const WindowFacts& f_;
  const Passes& p_;
  const Schedule& schedule_;
  ProgramBuilder b_;
  Emitter e_;
  int threads_;
  std::int64_t split_; ///< blocks that share the points
  Expr thread_;
  Arithmetic arithmetic_;
  std::vector<Expr> outer_extents_, strip_extents_, outer_;
  Expr strips_ = Expr(1);
  std::vector<RunningVariables> running_; ///< by window
  std::vector<int> parts_, shares_;       ///< by component of a state: of warps, of blocks
  int arrived_ = -1;
};

constexpr Knob kWindowSumsKnobs[] = {{"threads", 32, 512, 32}};

class GpuWindowSumsGenerator : public Generator {
public:
  std::string name() const override { return "gpu_window_sums"; }

  std::vector<Schedule> space(const Region& region, const Target& target) const override {
    const WindowFacts f(region);
    if (!f.reason.empty() || about(points_of(region, f.passes.reduced)) < kLeastPoints)
      return {};
    if (const FoundContraction product = find_contraction(region, true);
        product.ok && about(product.form.rows.extent) > kSidesOfTiles &&
        about(product.form.columns.extent) > kSidesOfTiles)
      return {};
    bool known = true;
    std::int64_t blocks = 1, strips = 1;
    for (const int a : f.outer) {
      const Expr& extent = region.axes[std::size_t(a)].extent;
      known = known && extent.is_constant();
      blocks *=
          a == f.lanes ? ceil_quotient(about(extent), std::int64_t(kWarpLanes)) : about(extent);
    }
    for (const int a : f.reduced)
      strips *= ceil_quotient(about(region.axes[std::size_t(a)].extent),
                              a == f.strip ? f.points : std::int64_t(1));
    std::vector<Schedule> space, larger; // larger blocks than there are strips for: for a batch
    for (const std::int64_t threads : {256, 128, 64, 32}) {
      const std::int64_t deep = threads / f.wide();
      Schedule s;
      s.generator = name();
      s.knobs = {{"threads", threads}};
      s.store_policy = gpu_store_policy(region, target);
      const std::int64_t wanted = 2 * target.workers * (256 / threads);
      if (known)
        s.split_reduce = std::clamp<std::int64_t>(
            std::min(wanted / std::max<std::int64_t>(blocks, 1), strips / (deep * kStripsOfThread)),
            1, kMostShares);
      const bool fits = threads == kWarpLanes || deep * kStripsOfThread <= strips;
      (fits ? space : larger).push_back(std::move(s));
    }
    space.insert(space.end(), larger.rbegin(), larger.rend());
    return space;
  }

  Lowered lower(const Region& region, const Schedule& schedule,
                const Target& target) const override {
    if (auto why = refused_settings(schedule, target, kWindowSumsKnobs); !why.empty())
      return {false, {}, why};
    const WindowFacts f(region);
    if (!f.reason.empty())
      return {false, {}, f.reason};
    if (is_empty(region, f.reduced))
      return {false, {}, "it has no points"};
    for (const int a : f.outer)
      if (schedule.split_reduce > 1 && !region.axes[std::size_t(a)].extent.is_constant())
        return {false, {}, "shared points need a known number of results"};
    if (schedule.split_reduce > kMostShares)
      return {false, {}, "more shares of the points than a block adds up"};
    return {true, GpuWindowSums(region, f, schedule, target).run(), ""};
  }
};

} // namespace

const Generator& gpu_window_sums_generator() {
  static const GpuWindowSumsGenerator generator;
  return generator;
}

} // namespace egret::kernel
