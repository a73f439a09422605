// The generator of a GPU that takes every region. Each stage that has to be stored gets a nest of
// its own: a thread does points of its result axes, and axes that must run in order are loops of
// the thread. Results that other stages read go through workspaces, with a barrier of the grid
// behind the nest that makes them.
#include "kernel/analysis.h"
#include "kernel/families.h"
#include "kernel/gpu_nest.h"
#include "kernel/gpu_row_facts.h"
#include "kernel/knobs.h"
#include "kernel/nest.h"
#include "kernel/scatter_axes.h"
#include "kernel/stage_nests.h"

#include <algorithm>
#include <optional>

namespace egret::kernel {

namespace {

class GpuGeneric : StageNests {
public:
  GpuGeneric(const Region& region, const Schedule& schedule, const Target& target)
      : StageNests(region, arithmetic_of(target)), threads_(int(schedule.knob("threads", 128))),
        t_(thread_variable(threads_)), owners_(schedule.knob("owners", 0)),
        together_(schedule.knob("together", 1)) {}

  KernelProgram run() {
    all();
    Launch launch;
    launch.threads = threads_;
    launch.resident = counter_ >= 0;
    launch.workers = max(Expr(1), blocks_);
    return b_.finish(launch);
  }

private:
  void barrier() override {
    if (counter_ < 0)
      counter_ = b_.counter("blocks", 2);
    b_.grid_barrier(counter_, Expr(0));
  }

  /// All points of a box, dealt to the threads of the grid.
  void points(std::span<const Expr> extents,
              const std::function<void(std::span<const Expr>)>& body) {
    Expr count(1);
    for (const Expr& e : extents)
      count = count * e;
    Expr blocks = ceildiv(count, Expr(threads_));
    blocks_ = max(blocks_, blocks);
    b_.grid_loop(blocks, [&](const Expr& block) {
      Expr flat = block * Expr(threads_) + t_;
      b_.when({{flat, Expr(0), count}}, [&] { body(unflatten(flat, extents)); });
    });
  }

  void convert(int from, int to, const Expr& elements) override {
    std::vector<Expr> extents{elements};
    points(extents, [&](std::span<const Expr> at) {
      ValueId v = b_.load(from, at[0], 1);
      b_.store(to, at[0], b_.cast(v, b_.buffer_dtype(to)));
    });
  }

  void loops(int s) override {
    std::vector<int> free = free_axes(s);
    std::vector<Expr> extents;
    for (int a : free)
      extents.push_back(r_.axes[a].extent);
    const bool shares = owners_ > 1 && !copying_ && owned(s) >= 0;
    wide_ = shares && together_ > 1 && !free.empty() && extents.back().divisor() % together_ == 0
                ? free.back()
                : -1;
    if (wide_ >= 0)
      extents.back() = floordiv(extents.back(), Expr(together_));
    if (shares)
      extents.insert(extents.begin(), Expr(owners_));
    points(extents, [&](std::span<const Expr> at) {
      Point p;
      p.at.resize(r_.axes.size());
      for (std::size_t i = 0; i < free.size(); ++i)
        p.at[free[i]] = at[i + shares];
      owner_ = shares ? std::optional<Expr>(at[0]) : std::nullopt;
      shares ? ordered_by_owner(s, p) : ordered(s, p);
      owner_.reset();
    });
  }

  /// The only output of the stage when it is a scatter by one index whose targets can be shared out
  /// among owners: each owner applies, in order, the updates of the indices that are his.
  int owned(int s) const {
    int found = -1;
    for (std::size_t o = 0; o < r_.outputs.size(); ++o)
      if (r_.outputs[o].stage == s) {
        if (found >= 0 || r_.outputs[o].combine == Combine::Store ||
            r_.outputs[o].indirect.size() != 1)
          return -1;
        found = int(o);
      }
    return found >= 0 && !stored_.stages[s] && r_.stages[s].kind == StageKind::Map ? found : -1;
  }

  /// An owner looks at all updates. Some of their indices are fetched together, so that it does not
  /// wait for each.
  void ordered_by_owner(int s, const Point& point) {
    constexpr std::int64_t kTogether = 16;
    const std::vector<int> axes = ordered_axes(s);
    if (axes.empty() || r_.axes[axes.back()].extent.divisor() % kTogether != 0) {
      ordered(s, point);
      return;
    }
    const int index = r_.stages[s].yields[r_.outputs[owned(s)].indirect[0]];
    std::vector<Expr> extents;
    for (int a : axes)
      extents.push_back(r_.axes[a].extent);
    extents.back() = floordiv(extents.back(), Expr(kTogether));
    serial_loops(b_, extents, [&](std::span<const Expr> at) {
      std::vector<Point> points(kTogether, point);
      for (std::int64_t n = 0; n < kTogether; ++n) {
        for (std::size_t i = 0; i < axes.size(); ++i)
          points[std::size_t(n)].at[axes[i]] = at[i];
        points[std::size_t(n)].at[axes.back()] = at.back() * Expr(kTogether) + Expr(n);
        e_.value(s, index, points[std::size_t(n)]); // remembered
      }
      for (const Point& p : points)
        map(s, p);
    });
  }

  void map(int s, const Point& p) override {
    if (!owner_) {
      StageNests::map(s, p);
      return;
    }
    const Output& out = r_.outputs[owned(s)];
    const Stage& stage = r_.stages[s];
    Value index = e_.value(s, stage.yields[out.indirect[0]], p);
    ValueId id = index.id;
    if (index.dtype != DType::I32 && index.dtype != DType::I64)
      id = b_.cast(id, DType::I64);
    Expr target = value_symbol(id);
    b_.when({{floormod(target, Expr(owners_)), *owner_, *owner_ + Expr(1)}}, [&] {
      Point mine = p;
      for (std::int64_t i = 0; i < (wide_ < 0 ? 1 : together_); ++i) {
        if (wide_ >= 0)
          mine.at[std::size_t(wide_)] =
              p.at[std::size_t(wide_)] +
              Expr(i) * floordiv(r_.axes[std::size_t(wide_)].extent, Expr(together_));
        StageNests::map(s, mine);
      }
    });
  }

  int threads_;
  Expr t_;
  std::int64_t owners_; ///< of the targets of a scatter
  /// Points of an update that an owner makes, as far apart as they are many: finding out that an
  /// update is another's costs the same for all of them.
  std::int64_t together_;
  int wide_ = -1; ///< their axis
  std::optional<Expr> owner_;
  int counter_ = -1; ///< of the barrier of the grid
  Expr blocks_ = Expr(1);
};

/// Whether some output is a scatter whose updates cannot all be shared out freely.
bool scatters_in_order(const Region& region) {
  return std::any_of(region.outputs.begin(), region.outputs.end(), [&](const Output& o) {
    return o.combine != Combine::Store &&
           independent_axes(region, o).size() < result_axes(region.stages[o.stage]).size();
  });
}

constexpr Knob kGpuGenericKnobs[] = {
    {"threads", 32, 1024, 32}, {"owners", 0, 1 << 20}, {"together", 1, 64}};

class GpuGenericGenerator : public Generator {
public:
  std::string name() const override { return "gpu_generic"; }

  std::vector<Schedule> space(const Region& region, const Target& target) const override {
    std::vector<Schedule> out;
    if (is_left_to_trees(region, target) || sorts(region))
      return out;
    const bool owners = scatters_in_order(region);
    struct Offer {
      std::int64_t share, together;
    };
    for (int threads : {128, 256, 64})
      for (const Offer& offer : owners ? std::vector<Offer>{{2, 4}, {1, 4}, {2, 8}, {2, 1}, {8, 1}}
                                       : std::vector<Offer>{{0, 1}}) {
        Schedule s;
        s.generator = name();
        s.knobs["threads"] = threads;
        if (owners)
          // A power of two: whose an update is, is then one instruction.
          s.knobs["owners"] = offer.share * power_of_two_upto(target.workers);
        if (offer.together > 1)
          s.knobs["together"] = offer.together;
        out.push_back(std::move(s));
      }
    return out;
  }

  Lowered lower(const Region& region, const Schedule& schedule,
                const Target& target) const override {
    if (auto why = refused_settings(schedule, target, kGpuGenericKnobs); !why.empty())
      return {false, {}, why};
    if (sorts(region))
      return {false, {}, "it sorts"};
    return {true, GpuGeneric(region, schedule, target).run(), ""};
  }
};

} // namespace

const Generator& gpu_generic_generator() {
  static const GpuGenericGenerator generator;
  return generator;
}

} // namespace egret::kernel
