// Scatters whose columns have indices of their own, in tables of a block's shared memory.
#include "kernel/gpu_scatter.h"

#include <algorithm>

namespace egret::kernel {

bool goes_along(const Region& region, const Stage& stage, int axis) {
  int along = 0, loads = 0;
  for (const Load& load : stage.loads) {
    if (load.source != Source::Operand)
      continue;
    ++loads;
    along += stride_of(region, stage, load, axis) == 1;
  }
  return loads > 0 && 2 * along >= loads;
}

namespace {

constexpr std::int64_t kLineLanes = 32;
/// Counters of a warp by which lanes find out who goes to one element: of its number modulo these.
constexpr std::int64_t kMeetings = 512;

/// A block has a table of all elements of some columns. It brings updates of them to shared memory
/// as they lie, and a warp a column combines as many at a time as it has lanes; those that meet in
/// an element, in their order. At the end the tables are combined with the output as it lies.
class LineScatter : GpuScatter {
public:
  LineScatter(const Region& region, const ScatterForm& form, const LineShape& shape)
      : GpuScatter(region, form, shape.threads), s_(shape), bins_(form.bins.value()),
        pitch_(bins_ | 1), chunk_(kLineLanes * shape.together),
        lane_(floormod(thread_, kLineLanes)), warp_(floordiv(thread_, kLineLanes)) {
    const Stage& stage = region.stages[std::size_t(form.stage)];
    across_ = goes_along(region, stage, form.columns.back()) &&
              !goes_along(region, stage, form.updates.back());
  }

  KernelProgram run() {
    if (empty() || bins_ == 0)
      return finish();
    states_ = b_.shared("states", f_.state, s_.lines * pitch_);
    places_ = b_.shared("places", DType::I32, s_.lines * (chunk_ + 1));
    values_ = b_.shared("values", f_.state, s_.lines * (chunk_ + 1));
    counters_ = b_.shared("counters", DType::I32, threads_ / kLineLanes * kMeetings);
    marks_ = b_.shared("marks", DType::U32, threads_ / kLineLanes * kMeetings);
    blocks_ = max(blocks_, ceildiv(f_.column_count, Expr(s_.lines)));
    b_.grid_loop(blocks_, [&](const Expr& group) {
      const Expr first = group * Expr(s_.lines);
      clear(states_, s_.lines * pitch_, identity());
      clear(counters_, threads_ / kLineLanes * kMeetings, number(DType::I32, 0));
      clear(marks_, threads_ / kLineLanes * kMeetings, number(DType::U32, 0));
      const Expr step(chunk_);
      b_.loop(Expr(0), f_.update_count, step, f_.update_count + step, Bind::Serial,
              [&](const Expr& base) {
                bring(first, base);
                b_.barrier();
                const std::int64_t warps = threads_ / kLineLanes;
                for (std::int64_t line = 0; line < s_.lines; line += warps)
                  for (int i = 0; i < s_.together; ++i)
                    deliver(warp_ + Expr(line), i);
                b_.barrier();
              });
      hand_on(first);
      b_.barrier();
    });
    return finish();
  }

private:
  ValueId number(DType dtype, std::int64_t value) { return b_.constant(Scalar::of(dtype, value)); }

  void clear(int buffer, std::int64_t count, ValueId value) {
    b_.loop(Expr(0), Expr(count), Expr(threads_), Expr(count + threads_), Bind::Serial,
            [&](const Expr& base) {
              b_.store(buffer, base + thread_, value, {{base + thread_, Expr(0), Expr(count)}});
            });
  }

  /// Of a number below lines * count: line and place, neighbours of which are beside each other.
  static std::pair<Expr, Expr> line_and_place(const Expr& number, std::int64_t lines,
                                              std::int64_t count, bool across) {
    return across ? std::pair{floormod(number, Expr(lines)), floordiv(number, Expr(lines))}
                  : std::pair{floordiv(number, Expr(count)), floormod(number, Expr(count))};
  }
  Expr slot(const Expr& line, const Expr& update) const { return line * Expr(chunk_ + 1) + update; }

  /// The next updates of all columns of the block.
  void bring(const Expr& first, const Expr& base) {
    struct Fetched {
      Expr at;
      ValueId bin, value;
      std::vector<Guard> exists;
    };
    std::vector<Fetched> fetched;
    const std::int64_t count = s_.lines * chunk_;
    for (std::int64_t i = 0; i < count; i += threads_) {
      const Expr flat = thread_ + Expr(i);
      const auto [line, update] = line_and_place(flat, s_.lines, chunk_, across_);
      Point p = point_of_update(r_, f_, base + update, first + line);
      p.mask = {{base + update, Expr(0), f_.update_count},
                {first + line, Expr(0), f_.column_count}};
      std::vector<Guard> exists;
      if (i + threads_ > count)
        exists.push_back({flat, Expr(0), Expr(count)});
      p.mask.insert(p.mask.end(), exists.begin(), exists.end());
      const Expr bin = bin_of(e_, f_, p);
      std::vector<Guard> inside = p.mask;
      inside.push_back({bin, Expr(0), f_.bins});
      const ValueId own =
          b_.apply(Op::Select, DType::I32,
                   {b_.test(inside, 1), b_.index(bin, DType::I32, 1), number(DType::I32, -1)});
      fetched.push_back({slot(line, update), own, update_of(e_, f_, p), exists});
    }
    for (const Fetched& f : fetched) {
      b_.store(places_, f.at, f.bin, f.exists);
      b_.store(values_, f.at, f.value, f.exists);
    }
  }

  /// As many updates of a line as a warp has lanes.
  void deliver(const Expr& line, int number_of_them) {
    const Expr at = slot(line, Expr(number_of_them * kLineLanes) + lane_);
    const ValueId value = b_.load(values_, at, 1);
    const Expr bin = value_symbol(b_.load(places_, at, 1));
    const std::vector<Guard> goes{{bin, Expr(0), Expr(bins_)}};
    const Expr meeting = warp_ * Expr(kMeetings) + floormod(max(bin, Expr(0)), Expr(kMeetings));
    const ValueId before = b_.count_in_order(counters_, marks_, meeting, goes);
    const ValueId turn =
        b_.apply(Op::Select, DType::I32, {b_.test(goes, 1), before, number(DType::I32, 0)});
    const ValueId last = b_.reduce_threads(Monoid::Max, turn, int(kLineLanes));
    const Expr element = line * Expr(pitch_) + bin;
    b_.loop(Expr(0), value_symbol(last) + Expr(1), Expr(1), Expr(kLineLanes), Bind::Serial,
            [&](const Expr& now) {
              std::vector<Guard> mask = goes;
              mask.push_back({value_symbol(turn), now, now + Expr(1)});
              const ValueId old = b_.load(states_, element, 1, mask);
              b_.store(states_, element, combine_updates(b_, f_, old, value), mask);
              b_.subgroup_barrier();
            });
    std::vector<Guard> leads = goes;
    leads.push_back({value_symbol(turn), Expr(0), Expr(1)});
    b_.store(counters_, meeting, number(DType::I32, 0), leads);
    b_.subgroup_barrier();
  }

  void hand_on(const Expr& first) {
    const bool across = stride_of(r_, r_.outputs[0], f_.columns.back()) == 1;
    const Expr count(s_.lines * bins_);
    b_.loop(Expr(0), count, Expr(threads_), count + Expr(threads_), Bind::Serial,
            [&](const Expr& base) {
              const Expr flat = base + thread_;
              const auto [line, bin] = line_and_place(flat, s_.lines, bins_, across);
              const std::vector<Guard> mask{{flat, Expr(0), count},
                                            {first + line, Expr(0), f_.column_count}};
              const Point p = point_of_update(r_, f_, Expr(0), first + line);
              combine_with_output(element_of(r_, f_, p, bin), {}, mask,
                                  [&] { return b_.load(states_, line * Expr(pitch_) + bin, 1); });
            });
  }

  LineShape s_;
  std::int64_t bins_, pitch_, chunk_;
  Expr lane_, warp_;
  bool across_ = false; ///< neighbours in memory are those of different columns
  int states_ = -1, places_ = -1, values_ = -1, counters_ = -1, marks_ = -1;
};

} // namespace

std::string refused_lines(const ScatterForm& form, const LineShape& shape, const Target& target) {
  if (!form.monoid)
    return "the last update stays";
  if (form.whole || form.columns.empty())
    return "it has no columns";
  if (!form.bins.is_constant())
    return "it is not known how many elements there are";
  if (shape.lines % (shape.threads / kLineLanes) != 0)
    return "not as many columns for each warp";
  const auto size = std::int64_t(std::max<std::size_t>(size_of(form.state), 4));
  const std::int64_t bytes = shape.lines * ((form.bins.value() | 1) * size +
                                            (kLineLanes * shape.together + 1) * (size + 4)) +
                             shape.threads / kLineLanes * kMeetings * 8;
  return bytes + 1024 > target.block_shared_bytes ? "more elements than a block can have" : "";
}

KernelProgram scatter_by_lines(const Region& region, const ScatterForm& form,
                               const LineShape& shape) {
  return LineScatter(region, form, shape).run();
}

} // namespace egret::kernel
