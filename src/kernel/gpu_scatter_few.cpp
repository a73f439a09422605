// Scatters of few updates, by comparing all of them.
#include "kernel/gpu_scatter.h"

namespace egret::kernel {

namespace {

constexpr std::int64_t kLanes = 32;

/// A warp has an update. Its lanes look for others to the same element, and if there is none before
/// it (behind it, where the last one stays), the warp makes the element. Its lanes are columns
/// then; or, where these are few, updates, whose sums are combined at the end. All of that follows
/// from sizes and indices alone.
class FewUpdates : UnorderedScatter {
public:
  FewUpdates(const Region& region, const ScatterForm& form, int threads)
      : UnorderedScatter(region, form, threads, 1),
        bin_type_(form.bins.upper() < INT32_MAX ? DType::I32 : DType::I64),
        lane_(floormod(thread_, Expr(kLanes))),
        along_updates_(form.monoid && is_number(form.state) && form.column_count.is_constant() &&
                       form.column_count.value() < kLanes / 2) {}

  KernelProgram run() {
    if (empty())
      return finish();
    bins_ = b_.shared("bins", bin_type_, f_.update_count.upper());
    fetch();
    const Expr tiles = along_updates_ ? columns() : ceildiv(columns(), Expr(kLanes));
    points(
        f_.update_count * tiles,
        [&](const Expr& item) {
          const Expr tile = floormod(item, tiles);
          deliver(floordiv(item, tiles), along_updates_ ? tile : tile * Expr(kLanes) + lane_);
        },
        int(kLanes));
    return finish();
  }

private:
  static bool is_number(DType dtype) {
    return dtype == DType::F32 || dtype == DType::F64 || dtype == DType::I32 ||
           dtype == DType::I64 || dtype == DType::U32 || dtype == DType::U64;
  }

  /// The bins of all updates, -1 for none.
  void fetch() {
    const Expr& count = f_.update_count;
    b_.barrier(); // in a batch, threads may still read those of the block's piece before
    b_.loop(Expr(0), count, Expr(threads_), count + Expr(threads_), Bind::Serial,
            [&](const Expr& base) {
              const Expr at = base + thread_;
              Point p = point_of_update(r_, f_, at, Expr(0));
              p.mask = {{at, Expr(0), count}};
              const Expr bin = bin_of(e_, f_, p);
              b_.store(bins_, at,
                       select(b_.test({{bin, Expr(0), f_.bins}}, 1), b_.index(bin, bin_type_, 1),
                              number(bin_type_, -1)),
                       p.mask);
            });
    b_.barrier();
  }

  struct Other {
    Expr number;
    std::vector<Guard> mask; ///< where it exists and goes to the same element
  };

  /// Updates from `begin` to `end`, some at a time; `lanes` of them beside each other, one a lane.
  void others(ValueId own, const Expr& begin, const Expr& end, std::int64_t lanes,
              const std::function<void(const std::vector<Other>&)>& body) {
    constexpr std::int64_t kTogether = 4;
    const Expr step(lanes * kTogether), bin = value_symbol(own);
    b_.loop(begin, end, step, f_.update_count + step, Bind::Serial, [&](const Expr& base) {
      std::vector<Other> found;
      for (std::int64_t i = 0; i < kTogether; ++i) {
        const Expr at = base + Expr(i * lanes) + (lanes > 1 ? lane_ : Expr(0));
        const Guard there{at, Expr(0), end};
        const Expr its = value_symbol(b_.load(bins_, at, 1, {there}));
        found.push_back({at, {there, {its, bin, bin + Expr(1)}}});
      }
      body(found);
    });
  }

  void deliver(const Expr& at, const Expr& column) {
    const ValueId own = b_.load(bins_, at, 1), place = b_.index(at, DType::I32, 1),
                  none = number(DType::I32, -kMostFewUpdates);
    // The largest of: numbers of updates before it, and behind it; the latter's negatives.
    const VarId before = b_.variable({DType::I32, 1}), last = b_.variable({DType::I32, 1}),
                first = b_.variable({DType::I32, 1});
    const VarId deciding = f_.monoid ? before : last;
    for (const VarId v : {before, last, first})
      b_.set(v, none);
    // One that goes nowhere is as one that another takes the place of.
    b_.set(deciding, select(less(own, number(bin_type_, 0)), number(DType::I32, 0), none));
    others(own, Expr(0), f_.update_count, kLanes, [&](const std::vector<Other>& found) {
      for (const Other& o : found) {
        const ValueId number = b_.index(o.number, DType::I32, 1), same = b_.test(o.mask, 1);
        const auto note = [&](VarId v, ValueId where, ValueId value) {
          b_.set(v, select(both(same, where), apply(Op::Max, b_.read(v), value), b_.read(v)));
        };
        note(before, less(number, place), number);
        note(last, less(place, number), number);
        note(first, less(place, number), apply(Op::Mul, number, this->number(DType::I32, -1)));
      }
    });
    const auto largest = [&](VarId v) {
      return b_.reduce_threads(Monoid::Max, b_.read(v), int(kLanes));
    };
    const Expr another = value_symbol(largest(deciding)), begin = -value_symbol(largest(first)),
               end = value_symbol(largest(last)) + Expr(1);
    b_.when({{another, Expr(-kMostFewUpdates), Expr(0)}},
            [&] { along_updates_ ? by_lanes(own, column) : in_turn(own, at, column, begin, end); });
  }

  Point point(const Expr& update, const Expr& column, const std::vector<Guard>& mask) {
    Point p = point_of_update(r_, f_, update, column);
    p.mask = mask;
    return p;
  }

  /// All updates to the element, each lane some of them.
  void by_lanes(ValueId own, const Expr& column) {
    const VarId state = b_.variable({f_.state, 1});
    b_.set(state, identity());
    others(own, Expr(0), f_.update_count, kLanes, [&](const std::vector<Other>& found) {
      std::vector<ValueId> values;
      for (const Other& o : found)
        values.push_back(update_of(e_, f_, point(o.number, column, o.mask)));
      for (std::size_t i = 0; i < found.size(); ++i)
        take(state, found[i].mask, values[i]);
    });
    const ValueId all = b_.reduce_threads(*f_.monoid, b_.read(state), int(kLanes));
    const Point p = point_of_update(r_, f_, Expr(0), column);
    update_output(e_, f_, element_of(r_, f_, p, value_symbol(own)), all,
                  {{lane_, Expr(0), Expr(1)}});
  }

  /// The update and those to the same element from `begin` to `end`, one after the other, each lane
  /// for a column of its own.
  void in_turn(ValueId own, const Expr& at, const Expr& column, const Expr& begin,
               const Expr& end) {
    const std::vector<Guard> inside{{column, Expr(0), f_.column_count}};
    const Point p = point(at, column, inside);
    const VarId state = b_.variable({f_.state, 1});
    b_.set(state, update_of(e_, f_, p));
    if (f_.monoid)
      others(own, min(begin, end), end, 1, [&](const std::vector<Other>& found) {
        std::vector<ValueId> values;
        std::vector<std::vector<Guard>> masks;
        for (const Other& o : found) {
          masks.push_back(o.mask);
          masks.back().insert(masks.back().end(), inside.begin(), inside.end());
          values.push_back(update_of(e_, f_, point(o.number, column, masks.back())));
        }
        for (std::size_t i = 0; i < found.size(); ++i)
          take(state, masks[i], values[i]);
      });
    update_output(e_, f_, element_of(r_, f_, p, value_symbol(own)), b_.read(state), inside);
  }

  void take(VarId state, const std::vector<Guard>& mask, ValueId value) {
    b_.set(state, select(b_.test(mask, 1), combine_updates(b_, f_, b_.read(state), value),
                         b_.read(state)));
  }

  DType bin_type_;
  Expr lane_;
  bool along_updates_;
  int bins_ = -1; ///< in shared memory, by update
};

} // namespace

std::string refused_few(const ScatterForm& form) {
  if (!form.index_by_update)
    return "columns have indices of their own";
  return form.update_count.upper() > kMostFewUpdates ? "more updates than are compared" : "";
}

KernelProgram scatter_few(const Region& region, const ScatterForm& form, int threads) {
  return FewUpdates(region, form, threads).run();
}

} // namespace egret::kernel
