// The generator that takes every region. Each stage that has to be stored gets a nest of its own
// over its result axes, shared out among the workers and vectorized where that is plain; cheap maps
// are computed where they are read. Results that other stages read go through workspaces, with a
// barrier behind the nest that makes them.
#include "kernel/analysis.h"
#include "kernel/families.h"
#include "kernel/knobs.h"
#include "kernel/nest.h"
#include "kernel/stage_nests.h"

#include <algorithm>

namespace egret::kernel {

namespace {

/// Vectors that one worker does in a row along the vector axis.
constexpr std::int64_t kVectorsInTurn = 128;
/// The same where the worker goes through axes in order for each of them, as scatters do.
constexpr std::int64_t kOrderedChunk = 4;

class Generic : StageNests {
public:
  Generic(const Region& region, const Schedule& schedule, const Target& target)
      : StageNests(region, arithmetic_of(target)),
        vector_bytes_(schedule.vector_bytes ? schedule.vector_bytes : target.vector_bytes) {
    if (schedule.knob("vector", 1) == 0)
      vector_bytes_ = 0;
  }

  KernelProgram run() {
    all();
    return b_.finish(workers_);
  }

private:
  void barrier() override { b_.barrier(); }

  /// The axis whose points become lanes, -1 for none: a free one along which memory is contiguous
  /// for most of what the stage touches.
  int vector_axis(int s, const std::vector<int>& free) const {
    if (vector_bytes_ == 0)
      return -1;
    std::vector<int> stages{s};
    for (int t = s; t-- > 0;)
      if (!stored_.stages[t] && !is_output(r_, t))
        stages.push_back(t);
    int best = -1;
    std::int64_t best_score = 0;
    for (int a : free) {
      if (!updates_allow(s, a) || !stores_apart(s, a))
        continue;
      std::int64_t score = vector_score(r_, stages, a);
      if (score > best_score || (score == best_score && best >= 0)) {
        best = a;
        best_score = score;
      }
    }
    return best;
  }

  /// The lanes of a scatter must share their indices and write elements of their own.
  bool updates_allow(int s, int axis) const {
    for (const Output& out : r_.outputs) {
      if (out.stage != s || out.combine == Combine::Store)
        continue;
      for (int c : out.indirect)
        if (depends(s, r_.stages[s].yields[c], axis))
          return false;
    }
    return true;
  }

  /// Whether a value depends on an axis, through the results of other stages too.
  bool depends(int s, int value, int axis) const {
    if (axes_of_value(r_, r_.stages[s], value)[axis])
      return true;
    return std::any_of(r_.stages[s].loads.begin(), r_.stages[s].loads.end(), [&](const Load& l) {
      return l.source == Source::Stage && contains(result_axes(r_.stages[l.number]), axis);
    });
  }

  /// Lanes need elements of their own in every output.
  bool stores_apart(int s, int axis) const {
    return std::all_of(r_.outputs.begin(), r_.outputs.end(), [&](const Output& out) {
      return out.stage != s || stride_of(r_, out, axis) != 0;
    });
  }

  void convert(int from, int to, const Expr& elements) override {
    int lanes = int(std::max<std::int64_t>(1, vector_bytes_ / 4));
    Expr chunk(kVectorsInTurn * lanes);
    std::vector<Expr> pieces{ceildiv(elements, chunk)};
    core_loop(b_, pieces, [&](std::span<const Expr> at) {
      Expr begin = at[0] * chunk;
      vector_loop(b_, begin, min(elements, begin + chunk), elements, lanes, 1,
                  [&](std::span<const Position> p) {
                    ValueId v = b_.load(from, p[0].at, lanes, p[0].mask);
                    b_.store(to, p[0].at, b_.cast(v, b_.buffer_dtype(to)), p[0].mask);
                  });
    });
  }

  void loops(int s) override {
    const Stage& stage = r_.stages[s];
    std::vector<int> free = free_axes(s);
    int vector = vector_axis(s, free);
    std::vector<int> stages{s};
    int lanes = vector < 0 ? 1 : lanes_for(r_, stages, vector_bytes_);

    std::vector<int> outer = free;
    std::vector<Expr> extents;
    if (vector >= 0)
      std::erase(outer, vector);
    for (int a : outer)
      extents.push_back(r_.axes[a].extent);
    std::int64_t chunk = (ordered_axes(s).empty() ? kVectorsInTurn : kOrderedChunk) * lanes;
    if (vector >= 0)
      extents.push_back(ceildiv(r_.axes[vector].extent, Expr(chunk)));

    Expr iterations(1);
    for (const Expr& e : extents)
      iterations = iterations * e;
    Expr work = points_of(r_, stage.axes) * Expr(std::int64_t(flops_of(stage)) + 1);
    workers_ = max(workers_, useful_workers(iterations, work));

    core_loop(b_, extents, [&](std::span<const Expr> at) {
      Point p;
      p.at.resize(r_.axes.size());
      for (std::size_t i = 0; i < outer.size(); ++i)
        p.at[outer[i]] = at[i];
      if (vector < 0) {
        ordered(s, p);
        return;
      }
      const Expr& extent = r_.axes[vector].extent;
      Expr begin = at.back() * Expr(chunk);
      Expr end = min(extent, begin + Expr(chunk));
      if (proves_less_equal(extent, Expr(chunk))) {
        begin = Expr(0);
        end = extent;
      }
      vector_loop(b_, begin, end, extent, lanes, 1, [&](std::span<const Position> positions) {
        Point q = p;
        q.lanes = lanes;
        q.at[vector] = positions[0].at;
        q.mask = positions[0].mask;
        ordered(s, q);
      });
    });
  }

  std::int64_t vector_bytes_ = 0;
  Expr workers_ = Expr(1);
};

constexpr Knob kGenericKnobs[] = {{"vector", 0, 1}};

class GenericGenerator : public Generator {
public:
  std::string name() const override { return "generic"; }

  std::vector<Schedule> space(const Region& region, const Target& target) const override {
    if (sorts(region))
      return {};
    Schedule vectors, scalars, narrow;
    vectors.generator = scalars.generator = narrow.generator = name();
    scalars.knobs["vector"] = 0;
    narrow.vector_bytes = target.vector_bytes / 2;
    return target.vector_bytes > 16 ? std::vector{vectors, scalars, narrow}
                                    : std::vector{vectors, scalars};
  }

  Lowered lower(const Region& region, const Schedule& schedule,
                const Target& target) const override {
    if (auto why = refused_settings(schedule, target, kGenericKnobs); !why.empty())
      return {false, {}, why};
    if (sorts(region))
      return {false, {}, "it sorts"};
    return {true, Generic(region, schedule, target).run(), ""};
  }
};

} // namespace

const Generator& generic_generator() {
  static const GenericGenerator generator;
  return generator;
}

} // namespace egret::kernel
