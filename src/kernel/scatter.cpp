// Scatters on a CPU whose updates are many beside the elements they go to: each worker combines
// slices of the updates in memory of their own, and all workers combine the slices in order. How
// the updates are divided follows from the sizes alone. Where columns have indices of their own, a
// worker applies the updates of some columns in turn. What takes arithmetic to find where an update
// goes, or what it brings, is computed in vectors of updates, whose lanes are then applied in
// order.
#include "kernel/analysis.h"
#include "kernel/families.h"
#include "kernel/knobs.h"
#include "kernel/nest.h"
#include "kernel/scatter_blocks.h"
#include "kernel/scatter_form.h"

#include <algorithm>

namespace egret::kernel {

namespace {

/// Updates that a slice has at the least, per element that it may go to and altogether.
constexpr std::int64_t kPerBin = 8, kLeastUpdates = 1 << 14;
class PrivateScatter {
public:
  /// `ahead`: updates in a row whose indices and values are computed as one vector.
  PrivateScatter(const Region& region, const ScatterForm& form, std::int64_t slices,
                 std::int64_t together, int lanes, int ahead)
      : r_(region), f_(form), b_(region.name), e_(b_, region), slices_(slices), together_(together),
        any_lanes_(lanes), ahead_(ahead) {
    // Lanes lie along the innermost column where memory does.
    outer_ = form.columns;
    if (lanes > 1 && form.index_by_update && !outer_.empty() &&
        stride_of(region, region.outputs[0], outer_.back()) == 1) {
      vector_ = outer_.back();
      outer_.pop_back();
      lanes_ = lanes;
    }
  }

  KernelProgram run() {
    if (is_empty(r_, result_axes(r_.stages[std::size_t(f_.stage)])))
      return b_.finish(Expr(1));
    const int buffer = b_.workspace("slices", f_.state, Expr(slices_) * f_.bins * f_.column_count);
    add(buffer);
    b_.barrier();
    combine(buffer);
    const Expr work = f_.update_count * f_.column_count * Expr(4);
    return b_.finish(useful_workers(Expr(slices_ / together_), work));
  }

private:
  /// The columns, as the numbers of their vectors' first ones and the coordinates of a point.
  void columns(const Expr& update,
               const std::function<void(const Point&, const Expr& column)>& body) {
    std::vector<Expr> extents;
    for (const int a : outer_)
      extents.push_back(r_.axes[std::size_t(a)].extent);
    serial_loops(b_, extents, [&](std::span<const Expr> at) {
      Expr number(0);
      Point p = point_of_update(r_, f_, update, Expr(0));
      for (std::size_t i = 0; i < outer_.size(); ++i) {
        number = number * extents[i] + at[i];
        p.at[std::size_t(outer_[i])] = at[i];
      }
      if (vector_ < 0)
        return body(p, number);
      const Expr& extent = r_.axes[std::size_t(vector_)].extent;
      vector_loop(b_, Expr(0), extent, extent, lanes_, 1, [&](std::span<const Position> along) {
        Point q = p;
        q.lanes = lanes_;
        q.at[std::size_t(vector_)] = along[0].at;
        q.mask = along[0].mask;
        body(q, number * extent + along[0].at);
      });
    });
  }

  /// A worker takes an update of each of `together_` slices in turn: those of one slice that go to
  /// one element wait for each other, those of different slices do not.
  void add(int buffer) {
    const std::vector<Expr> extents{Expr(slices_ / together_)};
    const Expr size = ceildiv(f_.update_count, Expr(slices_)), all = f_.bins * f_.column_count;
    core_loop(b_, extents, [&](std::span<const Expr> at) {
      const Expr first = at[0] * Expr(together_);
      const ValueId none = b_.constant(identity_of(*f_.monoid, f_.state), any_lanes_);
      const Expr cleared = all * Expr(together_);
      vector_loop(b_, Expr(0), cleared, cleared, any_lanes_, 1, [&](std::span<const Position> p) {
        b_.store(buffer, first * all + p[0].at, none, p[0].mask);
      });
      const auto length = [&](std::int64_t slice) {
        return min(size, max(f_.update_count - (first + Expr(slice)) * size, Expr(0)));
      };
      const Expr common = length(together_ - 1); // the last one is the shortest
      if (f_.columns.empty())
        UpdateBlocks(e_, f_, ahead_)
            .write(
                together_, common,
                [&](std::int64_t s, const Expr& i) {
                  return point_of_update(r_, f_, (first + Expr(s)) * size + i, Expr(0));
                },
                [&](std::int64_t s, const Expr& bin, ValueId state) {
                  apply(buffer, first + Expr(s), bin, Expr(0), state, {});
                });
      else
        b_.loop(Expr(0), common, Expr(1), f_.update_count, Bind::Serial, [&](const Expr& i) {
          for (std::int64_t s = 0; s < together_; ++s)
            add_update(buffer, first + Expr(s), (first + Expr(s)) * size + i);
        });
      for (std::int64_t s = 0; s + 1 < together_; ++s)
        b_.loop(common, length(s), Expr(1), f_.update_count, Bind::Serial, [&](const Expr& i) {
          add_update(buffer, first + Expr(s), (first + Expr(s)) * size + i);
        });
    });
  }

  void add_update(int buffer, const Expr& slice, const Expr& update) {
    columns(update, [&](const Point& p, const Expr& column) {
      Point scalar = p;
      scalar.lanes = 1;
      scalar.mask.clear();
      if (p.lanes > 1)
        scalar.at[std::size_t(vector_)] = Expr(0);
      const Expr bin = bin_of(e_, f_, scalar);
      apply(buffer, slice, bin, column, update_of(e_, f_, p), p.mask);
    });
  }

  /// Combines a state into a slice's element of a bin, if there is that bin.
  void apply(int buffer, const Expr& slice, const Expr& bin, const Expr& column, ValueId state,
             const std::vector<Guard>& lanes) {
    b_.when({{bin, Expr(0), f_.bins}}, [&] {
      const Expr to = (slice * f_.bins + bin) * f_.column_count + column;
      const ValueId old = b_.load(buffer, to, b_.type_of(state).lanes, lanes);
      b_.store(buffer, to, combine_updates(b_, f_, old, state), lanes);
    });
  }

  /// The states of an element in all slices, in their order; into the output.
  void combine_slices(int buffer, const Point& p, const Expr& bin, const Expr& column) {
    const VarId state = b_.variable({f_.state, p.lanes});
    b_.set(state, b_.constant(identity_of(*f_.monoid, f_.state), p.lanes));
    b_.loop(Expr(0), Expr(slices_), Expr(1), Expr(slices_), Bind::Serial, [&](const Expr& slice) {
      const Expr from = (slice * f_.bins + bin) * f_.column_count + column;
      b_.set(state,
             combine_updates(b_, f_, b_.read(state), b_.load(buffer, from, p.lanes, p.mask)));
    });
    update_output(e_, f_, element_of(r_, f_, p, bin), b_.read(state), p.mask);
  }

  void combine(int buffer) {
    if (f_.columns.empty()) // lanes along the bins
      return combine_bins(buffer);
    const std::vector<Expr> extents{f_.bins};
    core_loop(b_, extents, [&](std::span<const Expr> at) {
      columns(Expr(0), [&](const Point& p, const Expr& column) {
        combine_slices(buffer, p, at[0], column);
      });
    });
  }

  void combine_bins(int buffer) {
    const std::vector<Expr> extents{ceildiv(f_.bins, Expr(any_lanes_))};
    core_loop(b_, extents, [&](std::span<const Expr> at) {
      Point p = point_of_update(r_, f_, Expr(0), Expr(0));
      p.lanes = any_lanes_;
      const Expr bin =
          at[0] * Expr(any_lanes_) + (any_lanes_ > 1 ? lane_variable(any_lanes_) : Expr(0));
      p.mask.push_back({bin, Expr(0), f_.bins});
      combine_slices(buffer, p, bin, Expr(0));
    });
  }

  const Region& r_;
  const ScatterForm& f_;
  ProgramBuilder b_;
  Emitter e_;
  std::int64_t slices_, together_;
  std::vector<int> outer_; ///< columns that are looped over one by one
  int vector_ = -1, lanes_ = 1;
  int any_lanes_, ahead_;
};

/// Updates of whole columns, straight to the output: those of `together` columns in turn. The order
/// of each column's updates is theirs.
KernelProgram scattered_columns(const Region& region, const ScatterForm& form,
                                std::int64_t together, int ahead) {
  ProgramBuilder b(region.name);
  Emitter e(b, region);
  if (is_empty(region, result_axes(region.stages[std::size_t(form.stage)])))
    return b.finish(Expr(1));
  const auto columns = [&](const Expr& first, std::int64_t count) {
    UpdateBlocks(e, form, ahead)
        .write(
            count, form.update_count,
            [&](std::int64_t c, const Expr& i) {
              return point_of_update(region, form, i, first + Expr(c));
            },
            [&](std::int64_t c, const Expr& bin, ValueId state) {
              b.when({{bin, Expr(0), form.bins}}, [&] {
                const Point p = point_of_update(region, form, Expr(0), first + Expr(c));
                update_output(e, form, element_of(region, form, p, bin), state, {});
              });
            });
  };
  const Expr groups = floordiv(form.column_count, Expr(together));
  const std::vector<Expr> whole{groups}, rest{form.column_count - groups * Expr(together)};
  core_loop(b, whole, [&](std::span<const Expr> at) { columns(at[0] * Expr(together), together); });
  core_loop(b, rest,
            [&](std::span<const Expr> at) { columns(groups * Expr(together) + at[0], 1); });
  const Expr work = form.update_count * form.column_count * Expr(4);
  return b.finish(useful_workers(max(groups, Expr(1)), work));
}

constexpr Knob kScatterKnobs[] = {{"slices", 1, 1024}, {"together", 1, 8}, {"ahead", 0, 1}};
/// Operations of an update that are worth vectors.
constexpr std::int64_t kWorthVectors = 4;
/// Slices whose updates hide how long one of an update takes; fewer where they would not fit into
/// the first-level cache, since stores that miss it wait for each other.
constexpr std::int64_t kTogether = 4;

/// How many of so many lines of `bytes` each go together, so that each worker has some and the
/// first-level cache holds them.
std::int64_t together_in_cache(const Target& target, std::int64_t lines, std::int64_t bytes) {
  std::int64_t together = kTogether;
  while (together > 1 && (lines / together < target.workers || together * bytes > target.l1_bytes))
    together /= 2;
  return together;
}

/// Operations of an update. Others of the body are those of a test that the output's map makes.
std::int64_t operations_of(const Stage& stage) {
  std::vector<bool> needed(stage.body.size(), false);
  for (const int yield : stage.yields)
    needed[std::size_t(yield)] = true;
  std::int64_t count = 0;
  for (std::size_t i = stage.body.size(); i-- > 0;) {
    if (!needed[i])
      continue;
    count += stage.body[i].kind == BodyValue::Kind::Apply;
    for (const int read : values_read(stage, int(i)))
      needed[std::size_t(read)] = true;
  }
  return count;
}

/// Whether updates should be computed as vectors: taking lanes out of one costs about what an
/// operation does.
bool computes(const Region& region, const ScatterForm& form) {
  return UpdateBlocks::fit(form) &&
         operations_of(region.stages[std::size_t(form.stage)]) >= kWorthVectors;
}

/// Whether an element holds what updates are combined in, so that each of them may go to memory.
bool holds_states(const Region& region, const ScatterForm& form) {
  return region.outputs[0].dtype == form.state;
}

/// Whether memory has an update of a column beside the next one, in all that it is computed from.
bool lie_along_updates(const Region& region, const ScatterForm& form) {
  const Stage& stage = region.stages[std::size_t(form.stage)];
  return std::ranges::all_of(stage.loads, [&](const Load& load) {
    const auto stride = stride_of(region, stage, load, form.updates[0]);
    return load.source == Source::Operand && stride && (*stride == 0 || *stride == 1);
  });
}

/// Of columns with indices of their own, where their updates are worth vectors.
std::vector<Schedule> of_columns(const Region& region, const ScatterForm& form,
                                 const Target& target) {
  if (!computes(region, form) || !holds_states(region, form) || !lie_along_updates(region, form))
    return {};
  Schedule s;
  s.generator = "scatter";
  s.knobs["slices"] = 1;
  s.knobs["together"] = together_in_cache(target, about(form.column_count),
                                          about(form.bins) * std::int64_t(size_of(form.state)));
  s.knobs["ahead"] = 1;
  return {s};
}

class ScatterGenerator : public Generator {
public:
  std::string name() const override { return "scatter"; }

  std::vector<Schedule> space(const Region& region, const Target& target) const override {
    const auto form = scatter_form(region);
    if (!form)
      return {};
    if (!form->columns.empty() && !form->index_by_update)
      return of_columns(region, *form, target);
    if (!form->monoid)
      return {};
    const std::int64_t each = std::max(kLeastUpdates, kPerBin * about(form->bins));
    const std::int64_t most = std::min<std::int64_t>(64, about(form->update_count) / each);
    std::vector<Schedule> out;
    for (std::int64_t slices = most; slices >= 2 && out.size() < 3; slices /= 2) {
      Schedule s;
      s.generator = name();
      // The sums follow from the slices, and these from the sizes alone.
      const std::int64_t own = slices > kTogether ? slices / kTogether * kTogether : slices;
      const std::int64_t size =
          about(form->bins) * about(form->column_count) * std::int64_t(size_of(form->state));
      std::int64_t together = together_in_cache(target, own, size);
      while (own % together != 0)
        together /= 2;
      s.knobs["slices"] = own;
      s.knobs["together"] = together;
      s.knobs["ahead"] = form->columns.empty() && computes(region, *form);
      out.push_back(std::move(s));
    }
    return out;
  }

  Lowered lower(const Region& region, const Schedule& schedule,
                const Target& target) const override {
    if (auto why = refused_settings(schedule, target, kScatterKnobs); !why.empty())
      return {false, {}, why};
    const auto form = scatter_form(region);
    const std::int64_t slices = schedule.knob("slices", 16),
                       together = schedule.knob("together", 1);
    const bool whole_columns = slices == 1;
    if (!form || (!form->monoid && !whole_columns))
      return {false, {}, "it is no scatter by one index with a monoid"};
    if (whole_columns && !holds_states(region, *form))
      return {false, {}, "sums of a wider type than the elements"};
    if (!whole_columns && slices % together != 0)
      return {false, {}, "slices that are no multiple of those that go together"};
    const std::int64_t bytes = schedule.vector_bytes ? schedule.vector_bytes : target.vector_bytes;
    const int stages[] = {form->stage};
    const int lanes = lanes_for(region, stages, bytes);
    const bool ahead = schedule.knob("ahead", 0) != 0;
    if (ahead && (!UpdateBlocks::fit(*form) || (!whole_columns && !form->columns.empty())))
      return {false, {}, "updates that are no vectors"};
    if (whole_columns)
      return {true, scattered_columns(region, *form, together, ahead ? lanes : 1), ""};
    return {true, PrivateScatter(region, *form, slices, together, lanes, ahead ? lanes : 1).run(),
            ""};
  }
};

} // namespace

const Generator& scatter_generator() {
  static const ScatterGenerator generator;
  return generator;
}

} // namespace egret::kernel
