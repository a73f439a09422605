// Scatters whose columns have indices of their own, by a warp for each column.
#include "kernel/gpu_scatter.h"

namespace egret::kernel {

namespace {

constexpr std::int64_t kColumnLanes = 32;

/// Each lane has an update of as many neighbours. Lanes whose updates go to one element learn of
/// each other by shared memory; the first of them combines all of theirs in the updates' order and
/// then the element with that (where the last update stays: the last of them stores its own). No
/// two lanes so have the same element.
class WarpScatter : UnorderedScatter {
public:
  WarpScatter(const Region& region, const ScatterForm& form, int threads, int together)
      : UnorderedScatter(region, form, threads, together),
        bin_type_(form.bins.upper() < INT32_MAX ? DType::I32 : DType::I64),
        lane_(floormod(thread_, Expr(kColumnLanes))), warp_(thread_ - lane_) {}

  KernelProgram run() {
    if (empty())
      return finish();
    bins_ = b_.shared("bins", bin_type_, threads_);
    values_ = b_.shared("values", f_.state, threads_);
    points(
        f_.column_count,
        [&](const Expr& column) {
          const Expr step(kColumnLanes * together_);
          b_.loop(Expr(0), f_.update_count, step, f_.update_count + step, Bind::Serial,
                  [&](const Expr& first) { several(first, column); });
        },
        int(kColumnLanes));
    return finish();
  }

private:
  struct Fetched {
    Point point;
    ValueId bin, value;
  };

  /// Of `together_` times as many updates as a warp has lanes: all are fetched, then delivered.
  void several(const Expr& first, const Expr& column) {
    std::vector<Fetched> fetched;
    for (int i = 0; i < together_; ++i) {
      const Expr at = first + Expr(i * kColumnLanes) + lane_;
      Point p = point_of_update(r_, f_, at, column);
      p.mask = {{at, Expr(0), f_.update_count}};
      const Expr bin = bin_of(e_, f_, p);
      std::vector<Guard> inside = p.mask;
      inside.push_back({bin, Expr(0), f_.bins});
      const ValueId own =
          select(b_.test(inside, 1), b_.index(bin, bin_type_, 1), number(bin_type_, -1));
      fetched.push_back({p, own, update_of(e_, f_, p)});
    }
    for (const Fetched& f : fetched)
      deliver(f);
  }

  void deliver(const Fetched& own) {
    constexpr std::int64_t kAtATime = 4;
    b_.subgroup_barrier(); // the lanes have read those before
    b_.store(bins_, thread_, own.bin);
    b_.store(values_, thread_, own.value);
    b_.subgroup_barrier();
    const VarId state = b_.variable({f_.state, 1}), delivers = b_.variable({DType::I32, 1});
    b_.set(state, f_.monoid ? identity() : own.value);
    b_.set(delivers, number(DType::I32, 1));
    const ValueId lane = b_.index(lane_, DType::I32, 1);
    b_.loop(Expr(0), Expr(kColumnLanes), Expr(kAtATime), Expr(kColumnLanes), Bind::Serial,
            [&](const Expr& base) {
              std::vector<ValueId> bins, values;
              for (std::int64_t i = 0; i < kAtATime; ++i) {
                bins.push_back(b_.load(bins_, warp_ + base + Expr(i), 1));
                if (f_.monoid)
                  values.push_back(b_.load(values_, warp_ + base + Expr(i), 1));
              }
              for (std::int64_t i = 0; i < kAtATime; ++i) {
                const ValueId same = equal(bins[std::size_t(i)], own.bin),
                              other = b_.index(base + Expr(i), DType::I32, 1);
                if (f_.monoid)
                  b_.set(state,
                         select(same,
                                combine_updates(b_, f_, b_.read(state), values[std::size_t(i)]),
                                b_.read(state)));
                const ValueId goes_first = f_.monoid ? less(other, lane) : less(lane, other);
                b_.set(delivers,
                       select(both(same, goes_first), number(DType::I32, 0), b_.read(delivers)));
              }
            });
    const Expr bin = value_symbol(own.bin);
    update_output(e_, f_, element_of(r_, f_, own.point, bin), b_.read(state),
                  {{bin, Expr(0), f_.bins}, {value_symbol(b_.read(delivers)), Expr(1), Expr(2)}});
  }

  DType bin_type_;
  Expr lane_, warp_;            ///< of the thread; the first thread of its warp
  int bins_ = -1, values_ = -1; ///< in shared memory, by thread
};

} // namespace

std::string refused_warps(const ScatterForm& form, const Region& region) {
  return form.monoid == Monoid::Sum && region.outputs[0].dtype != form.state &&
                 form.update_count.upper() > kColumnLanes
             ? "sums that are rounded once"
             : "";
}

KernelProgram scatter_by_warps(const Region& region, const ScatterForm& form, int threads,
                               int together) {
  return WarpScatter(region, form, threads, together).run();
}

} // namespace egret::kernel
