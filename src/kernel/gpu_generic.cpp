// The generator of a GPU that takes every region. Each stage that has to be stored gets a nest of
// its own: a thread does points of its result axes, and axes that must run in order are loops of
// the thread. Results that other stages read go through workspaces, with a barrier of the grid
// behind the nest that makes them.
#include "kernel/accumulate.h"
#include "kernel/analysis.h"
#include "kernel/families.h"
#include "kernel/gpu_nest.h"
#include "kernel/nest.h"
#include "kernel/scatter_axes.h"
#include "kernel/stored_stages.h"

#include "support/fail.h"

#include <algorithm>
#include <utility>

namespace egret::kernel {

namespace {

class GpuGeneric {
public:
  GpuGeneric(const Region& region, const Schedule& schedule, const Target& target)
      : r_(region), b_(region.name), e_(b_, region), stored_(stored_stages(region)),
        threads_(int(schedule.knob("threads", 128))), t_(thread_variable(threads_)),
        fma_(target.has_fma), owners_(schedule.knob("owners", 0)) {}

  KernelProgram run() {
    int last = -1;
    for (std::size_t s = 0; s < r_.stages.size(); ++s)
      if (stored_.stages[s] || is_output(r_, int(s)))
        last = int(s);
    for (int s = 0; s <= last; ++s)
      if (stored_.stages[s] || is_output(r_, s)) {
        nest(s);
        if (stored_.stages[s] && s != last)
          barrier();
      }
    if (!stored_.waiting.empty()) {
      barrier();
      copying_ = true;
      for (int o : stored_.waiting)
        if (!is_empty(r_, result_axes(r_.stages[r_.outputs[o].stage])))
          loops(r_.outputs[o].stage);
    }
    Launch launch;
    launch.threads = threads_;
    launch.resident = counter_ >= 0;
    launch.workers = max(Expr(1), blocks_);
    return b_.finish(launch);
  }

private:
  void barrier() {
    if (counter_ < 0)
      counter_ = b_.counter("blocks", 2);
    b_.grid_barrier(counter_, Expr(0));
  }

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
      barrier();
  }

  void close_updates(int s) {
    bool waits = false;
    for (std::size_t o = 0; o < r_.outputs.size(); ++o)
      if (r_.outputs[o].stage == s && updated_[o] >= 0 && updated_[o] != e_.output_buffer(int(o))) {
        if (!std::exchange(waits, true))
          barrier();
        convert(updated_[o], e_.output_buffer(int(o)), element_count(r_.outputs[o].shape));
      }
  }

  void convert(int from, int to, const Expr& elements) {
    std::vector<Expr> extents{elements};
    points(extents, [&](std::span<const Expr> at) {
      ValueId v = b_.load(from, at[0], 1);
      b_.store(to, at[0], b_.cast(v, b_.buffer_dtype(to)));
    });
  }

  void nest(int s) {
    const Stage& stage = r_.stages[s];
    if (stored_.stages[s])
      make_memory(s);
    if (is_empty(r_, result_axes(stage)))
      return;
    open_updates(s);
    loops(s);
    close_updates(s);
  }

  void loops(int s) {
    std::vector<int> free = free_axes(s);
    std::vector<Expr> extents;
    for (int a : free)
      extents.push_back(r_.axes[a].extent);
    const bool shares = owners_ > 1 && !copying_ && owned(s) >= 0;
    if (shares)
      extents.insert(extents.begin(), Expr(owners_));
    points(extents, [&](std::span<const Expr> at) {
      Point p;
      p.at.resize(r_.axes.size());
      for (std::size_t i = 0; i < free.size(); ++i)
        p.at[free[i]] = at[i + shares];
      owner_ = shares ? std::optional<Expr>(at[0]) : std::nullopt;
      ordered(s, p);
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
        for (int o : stored_.waiting)
          if (r_.outputs[o].stage == s)
            e_.store(o, p, e_.result(s, r_.outputs[o].component, p));
        return;
      }
      switch (stage.kind) {
      case StageKind::Map:
        owner_ ? deliver_owned(s, p) : deliver(s, p, e_.yields(s, p));
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

  void deliver_owned(int s, const Point& p) {
    const Output& out = r_.outputs[owned(s)];
    const Stage& stage = r_.stages[s];
    Value index = e_.value(s, stage.yields[out.indirect[0]], p);
    ValueId id = index.id;
    if (index.dtype != DType::I32 && index.dtype != DType::I64)
      id = b_.cast(id, DType::I64);
    Expr target = value_symbol(id);
    b_.when({{floormod(target, Expr(owners_)), *owner_, *owner_ + Expr(1)}},
            [&] { deliver(s, p, e_.yields(s, p)); });
  }

  std::vector<Accumulator> accumulators(int s) {
    const Stage& stage = r_.stages[s];
    std::vector<Accumulator> out;
    for (std::size_t y = 0; y < stage.yields.size(); ++y)
      out.emplace_back(e_, s, int(y), fma_, points_of(r_, stage.over));
    return out;
  }

  std::vector<std::vector<VarId>> start(std::vector<Accumulator>& accumulators) {
    std::vector<std::vector<VarId>> variables;
    for (Accumulator& a : accumulators) {
      variables.emplace_back();
      State initial = a.identity(1);
      auto types = a.types(1);
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

  void step(std::vector<Accumulator>& accs, const std::vector<std::vector<VarId>>& variables,
            const Point& p, const Expr& place) {
    std::vector<State> next;
    for (std::size_t y = 0; y < accs.size(); ++y)
      next.push_back(accs[y].add(read(variables[y]), p, place, false));
    for (std::size_t y = 0; y < accs.size(); ++y)
      for (std::size_t i = 0; i < next[y].size(); ++i)
        b_.set(variables[y][i], next[y][i]);
  }

  std::vector<Value> reduce(int s, const Point& point) {
    const Stage& stage = r_.stages[s];
    auto accs = accumulators(s);
    auto variables = start(accs);
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

  void scan(int s, const Point& point) {
    const Stage& stage = r_.stages[s];
    auto accs = accumulators(s);
    auto variables = start(accs);
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
      if (out.stage != s || contains(stored_.waiting, int(o)))
        continue;
      if (out.combine == Combine::Store)
        e_.store(int(o), p, values[out.component]);
      else
        e_.scatter(int(o), updated_[o], p, values);
    }
    if (stored_.stages[s])
      e_.store_memory(s, p, values);
  }

  const Region& r_;
  ProgramBuilder b_;
  Emitter e_;
  StoredStages stored_;
  int threads_;
  Expr t_;
  bool fma_;
  std::int64_t owners_; ///< of the targets of a scatter
  std::optional<Expr> owner_;
  bool copying_ = false;
  std::vector<int> updated_; ///< by output: the buffer that a scatter updates
  int counter_ = -1;         ///< of the barrier of the grid
  Expr blocks_ = Expr(1);
};

/// Whether some output is a scatter whose updates cannot all be shared out freely.
bool scatters_in_order(const Region& region) {
  return std::any_of(region.outputs.begin(), region.outputs.end(), [&](const Output& o) {
    return o.combine != Combine::Store &&
           independent_axes(region, o).size() < result_axes(region.stages[o.stage]).size();
  });
}

class GpuGenericGenerator : public Generator {
public:
  std::string name() const override { return "gpu_generic"; }

  std::vector<Schedule> space(const Region& region, const Target& target) const override {
    std::vector<Schedule> out;
    const bool owners = scatters_in_order(region);
    for (int threads : {128, 256, 64})
      for (std::int64_t share :
           owners ? std::vector<std::int64_t>{2, 1, 8} : std::vector<std::int64_t>{0}) {
        Schedule s;
        s.generator = name();
        s.knobs["threads"] = threads;
        if (owners)
          s.knobs["owners"] = share * target.workers;
        out.push_back(std::move(s));
      }
    return out;
  }

  Lowered lower(const Region& region, const Schedule& schedule,
                const Target& target) const override {
    return {true, GpuGeneric(region, schedule, target).run(), ""};
  }
};

} // namespace

const Generator& gpu_generic_generator() {
  static const GpuGenericGenerator generator;
  return generator;
}

} // namespace egret::kernel
