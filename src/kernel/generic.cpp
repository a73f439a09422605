// The generator that takes every region. Each stage that has to be stored gets a nest of its own
// over its result axes, shared out among the workers and vectorized where that is plain; cheap maps
// are computed where they are read. Results that other stages read go through workspaces, with a
// barrier behind the nest that makes them.
#include "kernel/accumulate.h"
#include "kernel/analysis.h"
#include "kernel/families.h"
#include "kernel/nest.h"
#include "kernel/scatter_axes.h"
#include "kernel/stored_stages.h"

#include "support/fail.h"

#include <algorithm>
#include <utility>

namespace egret::kernel {

namespace {

/// Vectors that one worker does in a row along the vector axis.
constexpr std::int64_t kChunk = 128;

class Generic {
public:
  Generic(const Region& region, const Schedule& schedule, const Target& target)
      : r_(region), b_(region.name), e_(b_, region), fma_(target.has_fma) {
    vector_bytes_ = schedule.vector_bytes ? schedule.vector_bytes : target.vector_bytes;
    if (schedule.knob("vector", 1) == 0)
      vector_bytes_ = 0;
    StoredStages stored = stored_stages(region);
    stored_ = std::move(stored.stages);
    waiting_ = std::move(stored.waiting);
  }

  KernelProgram run() {
    int last = -1;
    for (std::size_t s = 0; s < r_.stages.size(); ++s)
      if (stored_[s] || is_output(r_, int(s)))
        last = int(s);
    for (int s = 0; s <= last; ++s)
      if (stored_[s] || is_output(r_, s)) {
        nest(s);
        if (stored_[s] && s != last)
          b_.barrier();
      }
    if (!waiting_.empty()) {
      b_.barrier();
      copying_ = true;
      for (int o : waiting_)
        if (!is_empty(r_, result_axes(r_.stages[r_.outputs[o].stage])))
          loops(r_.outputs[o].stage);
    }
    return b_.finish(workers_);
  }

private:
  /// Declares the workspaces of a stage, row-major over its result axes.
  void make_memory(int s) {
    const Stage& stage = r_.stages[s];
    std::vector<int> axes = result_axes(stage), buffers;
    for (std::size_t c = 0; c < stage.yields.size(); ++c)
      buffers.push_back(b_.workspace(fmt::format("stage{}_{}", s, c),
                                     compute_dtype(stage.yield_dtypes[c]), points_of(r_, axes)));
    e_.provide_memory(s, buffers, [this, axes](const Point& p) {
      Expr offset(0);
      for (int a : axes)
        offset = offset * r_.axes[a].extent + p.at[a];
      return offset;
    });
  }

  /// Result axes along which iterations are independent of each other.
  std::vector<int> free_axes(int s) const {
    const Stage& stage = r_.stages[s];
    std::vector<int> axes = result_axes(stage);
    if (stage.kind == StageKind::Scan)
      std::erase(axes, stage.over[0]);
    for (const Output& out : r_.outputs) {
      if (out.stage != s || out.combine == Combine::Store)
        continue;
      auto independent = independent_axes(r_, out);
      std::erase_if(axes, [&](int a) { return !contains(independent, a); });
    }
    return axes;
  }

  /// The axis whose points become lanes, -1 for none: a free one along which memory is contiguous
  /// for most of what the stage touches.
  int vector_axis(int s, const std::vector<int>& free) const {
    if (vector_bytes_ == 0)
      return -1;
    std::vector<int> stages{s};
    for (int t = s; t-- > 0;)
      if (!stored_[t] && !is_output(r_, t))
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

  /// Low-precision sums of scatters are made in f32: a workspace takes the place of the output
  /// while it is updated.
  void open_updates(int s) {
    updated_.resize(r_.outputs.size(), -1);
    bool copied = false;
    for (std::size_t o = 0; o < r_.outputs.size(); ++o) {
      const Output& out = r_.outputs[o];
      if (out.stage != s || out.combine == Combine::Store)
        continue;
      updated_[o] = e_.output_buffer(int(o));
      if (out.combine != Combine::Add || !is_low(out.dtype))
        continue;
      updated_[o] = b_.workspace(fmt::format("sums{}", o), DType::F32, element_count(out.shape));
      convert(e_.output_buffer(int(o)), updated_[o], element_count(out.shape));
      copied = true;
    }
    if (copied)
      b_.barrier();
  }

  void close_updates(int s) {
    bool barrier = false;
    for (std::size_t o = 0; o < r_.outputs.size(); ++o)
      if (r_.outputs[o].stage == s && updated_[o] >= 0 && updated_[o] != e_.output_buffer(int(o))) {
        if (!std::exchange(barrier, true))
          b_.barrier();
        convert(updated_[o], e_.output_buffer(int(o)), element_count(r_.outputs[o].shape));
      }
  }

  /// Copies all elements of one buffer to another, converted.
  void convert(int from, int to, const Expr& elements) {
    int lanes = int(std::max<std::int64_t>(1, vector_bytes_ / 4));
    Expr chunk(kChunk * lanes);
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

  void nest(int s) {
    const Stage& stage = r_.stages[s];
    if (stored_[s])
      make_memory(s);
    if (is_empty(r_, result_axes(stage)))
      return;
    open_updates(s);
    loops(s);
    close_updates(s);
  }

  void loops(int s) {
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
    std::int64_t chunk = kChunk * lanes;
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

  /// The axes that must run in order, serially, and the work of a point.
  void ordered(int s, const Point& point) {
    const Stage& stage = r_.stages[s];
    std::vector<int> free = free_axes(s), axes;
    std::vector<Expr> extents;
    for (int a : result_axes(stage))
      if (!contains(free, a) &&
          (copying_ || !(stage.kind == StageKind::Scan && a == stage.over[0]))) {
        axes.push_back(a);
        extents.push_back(r_.axes[a].extent);
      }
    serial_loops(b_, extents, [&](std::span<const Expr> at) {
      Point p = point;
      for (std::size_t i = 0; i < axes.size(); ++i)
        p.at[axes[i]] = at[i];
      if (copying_) {
        for (int o : waiting_)
          if (r_.outputs[o].stage == s)
            e_.store(o, p, e_.result(s, r_.outputs[o].component, p));
        return;
      }
      switch (stage.kind) {
      case StageKind::Map:
        deliver(s, p, e_.yields(s, p));
        break;
      case StageKind::Reduce:
        deliver(s, p, reduce(s, p));
        break;
      case StageKind::Scan:
        scan(s, p);
        break;
      }
    });
  }

  std::vector<Accumulator> accumulators(int s) {
    const Stage& stage = r_.stages[s];
    std::vector<Accumulator> out;
    for (std::size_t y = 0; y < stage.yields.size(); ++y)
      out.emplace_back(e_, s, int(y), fma_, points_of(r_, stage.over));
    return out;
  }

  /// Variables for the running states of a stage's yields, started from the identity.
  std::vector<std::vector<VarId>> start(std::vector<Accumulator>& accumulators, int lanes) {
    std::vector<std::vector<VarId>> variables;
    for (Accumulator& a : accumulators) {
      variables.emplace_back();
      State initial = a.identity(lanes);
      auto types = a.types(lanes);
      for (std::size_t i = 0; i < types.size(); ++i) {
        variables.back().push_back(b_.variable(types[i]));
        b_.set(variables.back()[i], initial[i]);
      }
    }
    return variables;
  }

  State read(const std::vector<VarId>& variables) {
    State state;
    for (VarId v : variables)
      state.push_back(b_.read(v));
    return state;
  }

  std::vector<Value> reduce(int s, const Point& point) {
    const Stage& stage = r_.stages[s];
    auto accs = accumulators(s);
    auto variables = start(accs, point.lanes);
    std::vector<Expr> extents;
    for (int a : stage.over)
      extents.push_back(r_.axes[a].extent);
    serial_loops(b_, extents, [&](std::span<const Expr> at) {
      Point p = point;
      Expr place(0);
      for (std::size_t i = 0; i < extents.size(); ++i) {
        p.at[stage.over[i]] = at[i];
        place = place * extents[i] + at[i];
      }
      step(accs, variables, p, place);
    });
    std::vector<Value> values;
    for (std::size_t y = 0; y < accs.size(); ++y)
      values.push_back(accs[y].finish(read(variables[y])));
    return values;
  }

  void step(std::vector<Accumulator>& accs, const std::vector<std::vector<VarId>>& variables,
            const Point& p, const Expr& place) {
    std::vector<State> next;
    for (std::size_t y = 0; y < accs.size(); ++y)
      next.push_back(
          accs[y].add(read(variables[y]), p, place, false)); // lanes are points of the result
    for (std::size_t y = 0; y < accs.size(); ++y)
      for (std::size_t i = 0; i < next[y].size(); ++i)
        b_.set(variables[y][i], next[y][i]);
  }

  void scan(int s, const Point& point) {
    const Stage& stage = r_.stages[s];
    auto accs = accumulators(s);
    auto variables = start(accs, point.lanes);
    const Expr& extent = r_.axes[stage.over[0]].extent;
    b_.loop(Expr(0), extent, Expr(1), extent, Bind::Serial, [&](const Expr& at) {
      Point p = point;
      p.at[stage.over[0]] = at;
      step(accs, variables, p, at);
      std::vector<Value> values;
      for (std::size_t y = 0; y < accs.size(); ++y)
        values.push_back(accs[y].finish(read(variables[y])));
      deliver(s, p, values);
    });
  }

  /// Stores a stage's result at a point wherever it is wanted.
  void deliver(int s, const Point& p, const std::vector<Value>& values) {
    for (std::size_t o = 0; o < r_.outputs.size(); ++o) {
      const Output& out = r_.outputs[o];
      if (out.stage != s || contains(waiting_, int(o)))
        continue;
      if (out.combine == Combine::Store)
        e_.store(int(o), p, values[out.component]);
      else
        e_.scatter(int(o), updated_[o], p, values);
    }
    if (stored_[s])
      e_.store_memory(s, p, values);
  }

  const Region& r_;
  ProgramBuilder b_;
  Emitter e_;
  bool fma_;
  std::int64_t vector_bytes_ = 0;
  std::vector<bool> stored_;
  std::vector<int> waiting_; ///< outputs that are stored last, from a workspace
  bool copying_ = false;     ///< now
  std::vector<int> updated_; ///< by output: the buffer that a scatter updates
  Expr workers_ = Expr(1);
};

class GenericGenerator : public Generator {
public:
  std::string name() const override { return "generic"; }

  std::vector<Schedule> space(const Region&, const Target&) const override {
    Schedule vectors, scalars;
    vectors.generator = scalars.generator = name();
    scalars.knobs["vector"] = 0;
    return {vectors, scalars};
  }

  Lowered lower(const Region& region, const Schedule& schedule,
                const Target& target) const override {
    return {true, Generic(region, schedule, target).run(), ""};
  }
};

} // namespace

const Generator& generic_generator() {
  static const GenericGenerator generator;
  return generator;
}

} // namespace egret::kernel
