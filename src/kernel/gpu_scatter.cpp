// Scatters by one index on a GPU, in an order that the sizes alone decide, or in any where that is
// of no consequence (gpu_scatter.h). Where the elements that updates go to are few, each thread
// combines a share of the updates in counters of its own in shared memory; blocks combine theirs,
// and the grid those of the blocks. The other ways have files of their own; here is the choice.
#include "kernel/gpu_scatter.h"

#include "kernel/families.h"
#include "kernel/gpu_radix.h"
#include "kernel/gpu_scatter_fixed.h"
#include "kernel/gpu_scatter_time.h"
#include "kernel/knobs.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace egret::kernel {

void GpuScatter::barrier() {
  if (counter_ < 0)
    counter_ = b_.counter("blocks", 2);
  b_.grid_barrier(counter_, Expr(0));
}

void GpuScatter::points(const Expr& count, const std::function<void(const Expr&)>& body,
                        int group) {
  blocks_ = max(blocks_, ceildiv(count, Expr(threads_ / group)));
  found_points(count, body, group);
}

void GpuScatter::found_points(const Expr& count, const std::function<void(const Expr&)>& body,
                              int group) {
  const Expr each(threads_ / group);
  b_.grid_loop(ceildiv(count, each), [&](const Expr& block) {
    const Expr flat = block * each + floordiv(thread_, Expr(group));
    b_.when({{flat, Expr(0), count}}, [&] { body(flat); });
  });
}

void GpuScatter::each_of_block(
    std::int64_t count, const std::function<void(const Expr&, const std::vector<Guard>&)>& body) {
  b_.loop(Expr(0), Expr(count), Expr(threads_), Expr(count + threads_), Bind::Serial,
          [&](const Expr& base) {
            const Expr at = base + thread_;
            std::vector<Guard> mask;
            if (count % threads_ != 0)
              mask.push_back({at, Expr(0), Expr(count)});
            body(at, mask);
          });
}

KernelProgram GpuScatter::finish() {
  Launch launch;
  launch.threads = threads_;
  launch.resident = counter_ >= 0;
  launch.workers = max(Expr(1), blocks_);
  return b_.finish(launch);
}

void GpuScatter::combine_with_output(const Expr& element, const std::vector<Guard>& updated,
                                     const std::vector<Guard>& mask,
                                     const std::function<ValueId()>& state) {
  const int output = e_.output_buffer(0);
  b_.when(mask, [&] {
    if (!whole_)
      return b_.when(updated, [&] { update_output(e_, f_, element, state(), {}); });
    const VarId sum = b_.variable({f_.state, 1});
    b_.set(sum, b_.cast(b_.load(e_.operand_buffer(r_.outputs[0].alias), element, 1), f_.state));
    b_.when(updated, [&] { b_.set(sum, combine_updates(b_, f_, b_.read(sum), state())); });
    b_.store(output, element, b_.cast(b_.read(sum), b_.buffer_dtype(output)));
  });
}

namespace {

constexpr int kWarp = 32;

// --- Few elements: counters of each thread

struct PrivateShape {
  int threads = 128;
  int across = 1;                                 ///< threads along the columns, a power of two
  std::int64_t groups = 1;                        ///< of blocks, which share out the updates
  int together = 16;                              ///< updates of a thread that are fetched together
  int slices() const { return threads / across; } ///< of a block
};

class PrivateCounters : GpuScatter {
public:
  PrivateCounters(const Region& region, const ScatterForm& form, const PrivateShape& shape)
      : GpuScatter(region, form, shape.threads), s_(shape), bins_(form.bins.value()),
        tiles_(ceildiv(form.column_count, Expr(shape.across))),
        column_(floormod(thread_, Expr(shape.across))),
        slice_(floordiv(thread_, Expr(shape.across))) {}

  KernelProgram run() {
    if (empty() || bins_ == 0)
      return finish();
    const Expr groups(s_.groups);
    counters_ = b_.shared("counters", f_.state, bins_ * s_.threads);
    sums_ = b_.workspace("sums", f_.state, groups * Expr(bins_) * f_.column_count);
    blocks_ = groups * tiles_;
    b_.grid_loop(groups * tiles_, [&](const Expr& flat) {
      const Expr tiles = tiles_.lower() >= 1 ? tiles_ : max(tiles_, Expr(1));
      const Expr group = floordiv(flat, tiles), first = floormod(flat, tiles) * Expr(s_.across);
      clear();
      add(group, first + column_);
      b_.barrier();
      combine(group, first);
      b_.barrier();
    });
    barrier();
    deliver();
    return finish();
  }

private:
  Expr counter(const Expr& bin) const { return bin * Expr(s_.threads) + thread_; }

  void clear() {
    b_.loop(Expr(0), Expr(bins_), Expr(1), Expr(bins_), Bind::Serial,
            [&](const Expr& bin) { b_.store(counters_, counter(bin), identity()); });
  }

  /// The updates of a group's slice: those of its slices alternate, so that threads beside each
  /// other read neighbours.
  void add(const Expr& group, const Expr& column) {
    const std::int64_t slices = s_.slices(), step = slices * s_.together;
    const Expr size = ceildiv(f_.update_count, Expr(s_.groups * step)) * Expr(step);
    const Expr begin = min(f_.update_count, group * size);
    const Expr end = min(f_.update_count, begin + size);
    const auto several = [&](const Expr& base, bool masked) {
      struct Update {
        Expr bin;
        ValueId value;
        std::vector<Guard> mask;
      };
      std::vector<Update> updates;
      for (int i = 0; i < s_.together; ++i) {
        const Expr update = base + Expr(i * slices) + slice_;
        Point p = point_of_update(r_, f_, update, column);
        if (masked)
          p.mask.push_back({update, Expr(0), end});
        p.mask.push_back({column, Expr(0), f_.column_count});
        const Expr bin = bin_of(e_, f_, p);
        updates.push_back({bin, update_of(e_, f_, p), p.mask});
        updates.back().mask.push_back({bin, Expr(0), f_.bins});
      }
      for (const Update& u : updates) {
        const ValueId old = b_.load(counters_, counter(u.bin), 1, u.mask);
        b_.store(counters_, counter(u.bin), combine_updates(b_, f_, old, u.value), u.mask);
      }
    };
    const Expr whole = begin + floordiv(end - begin, Expr(step)) * Expr(step);
    b_.loop(begin, whole, Expr(step), f_.update_count, Bind::Serial,
            [&](const Expr& base) { several(base, false); });
    b_.when({{whole, Expr(0), end}}, [&] { several(whole, true); });
  }

  /// What the slices of a block have. They are read from another one on for each element, so that
  /// threads beside each other meet in no bank.
  void combine(const Expr& group, const Expr& first) {
    const Expr across(s_.across), slices(s_.slices());
    const Expr count = Expr(bins_) * across;
    b_.loop(Expr(0), count, Expr(threads_), count + Expr(threads_), Bind::Serial,
            [&](const Expr& base) {
              const Expr flat = base + thread_;
              const Expr bin = floordiv(flat, across), column = floormod(flat, across);
              const std::vector<Guard> mask{{flat, Expr(0), count}};
              const VarId state = b_.variable({f_.state, 1});
              b_.set(state, identity());
              b_.loop(Expr(0), slices, Expr(1), slices, Bind::Serial, [&](const Expr& i) {
                const Expr from =
                    bin * Expr(threads_) + floormod(i + bin, slices) * across + column;
                b_.set(state,
                       combine_updates(b_, f_, b_.read(state), b_.load(counters_, from, 1, mask)));
              });
              std::vector<Guard> inside = mask;
              inside.push_back({first + column, Expr(0), f_.column_count});
              b_.store(sums_, (group * Expr(bins_) + bin) * f_.column_count + first + column,
                       b_.read(state), inside);
            });
  }

  /// What the groups of blocks have: a warp for each element where these are few.
  void deliver() {
    const Expr groups(s_.groups), count = Expr(bins_) * f_.column_count;
    const bool numbers = f_.state == DType::F32 || f_.state == DType::F64 ||
                         f_.state == DType::I32 || f_.state == DType::I64 ||
                         f_.state == DType::U32 || f_.state == DType::U64;
    const bool warps =
        numbers && s_.groups > kFewScatterGroups && about(count) <= kMostScatteredByWarps;
    const Expr lane = warps ? floormod(thread_, Expr(kWarp)) : Expr(0), step(warps ? kWarp : 1);
    const auto deliver = [&](const Expr& element) {
      const VarId state = b_.variable({f_.state, 1});
      b_.set(state, identity());
      b_.loop(Expr(0), groups, step, groups + step, Bind::Serial, [&](const Expr& base) {
        const std::vector<Guard> mask{{base + lane, Expr(0), groups}};
        const ValueId there = b_.load(sums_, (base + lane) * count + element, 1, mask);
        const ValueId next = combine_updates(b_, f_, b_.read(state), there);
        b_.set(state, warps
                          ? b_.apply(Op::Select, f_.state, {b_.test(mask, 1), next, b_.read(state)})
                          : next);
      });
      ValueId all = b_.read(state);
      if (warps)
        all = b_.reduce_threads(*f_.monoid, all, kWarp);
      const Point p = point_of_update(r_, f_, Expr(0), floormod(element, columns()));
      const Expr bin = floordiv(element, columns());
      combine_with_output(element_of(r_, f_, p, bin), {}, {{lane, Expr(0), Expr(1)}},
                          [&] { return all; });
    };
    points(count, deliver, warps ? kWarp : 1);
  }

  PrivateShape s_;
  std::int64_t bins_;
  Expr tiles_;          ///< of columns
  Expr column_, slice_; ///< of this thread in its block
  int counters_ = -1, sums_ = -1;
};

// --- The choice

/// The values of the knob `way`.
enum Way : std::uint8_t {
  kCounters,
  kSorted,
  kTables,
  kAtomics,
  kLast,
  kFew,
  kIntegers,
  kColumns,
  kWarps,
  kLists,
  kLines,
  kFixedLines,
  kRows,
  kPartitions
};

constexpr Knob kGpuScatterKnobs[] = {{"way", kCounters, kPartitions},
                                     {"threads", 32, 1024, 32},
                                     {"groups", 1, 1 << 14},
                                     {"together", 1, 64},
                                     {"bits", 2, 8},
                                     {"each", 1, 32},
                                     {"chunk", 1, 1 << 12},
                                     {"copies", 1, 32},
                                     {"owners", 1, 1 << 14},
                                     {"columns", 1, 64},
                                     {"lanes", 1, 32},
                                     {"range", 1, 1 << 15}};

int columns_across(const ScatterForm& form, int threads) {
  int across = 1;
  while (across < threads && across < about(form.column_count))
    across *= 2;
  return std::min(across, threads);
}

/// Of the counters of a block, for a known number of elements.
std::int64_t private_bytes(const ScatterForm& form, int threads) {
  return form.bins.value() * threads * std::int64_t(std::max<std::size_t>(4, size_of(form.state)));
}

/// Why updates cannot be combined in counters of each thread; empty when they can.
std::string refused_private(const ScatterForm& form, int threads, const Target& target) {
  if (!form.monoid)
    return "the last update stays";
  if (!form.bins.is_constant())
    return "it is not known how many elements there are";
  if (!std::has_single_bit(unsigned(threads)))
    return "threads that are no power of two";
  return private_bytes(form, threads) > target.block_shared_bytes - 8192
             ? "more counters than a block can have"
             : "";
}

/// Schedules in the order of the time that they are estimated to take; of equal ones as offered.
class ByTime {
public:
  void add(double seconds, std::vector<Schedule> schedules) {
    if (!schedules.empty())
      found_.emplace_back(seconds, std::move(schedules));
  }
  void move_to(std::vector<Schedule>& out) {
    std::ranges::stable_sort(found_, {}, [](const auto& f) { return f.first; });
    for (auto& [seconds, schedules] : found_)
      std::ranges::move(schedules, std::back_inserter(out));
  }

private:
  std::vector<std::pair<double, std::vector<Schedule>>> found_;
};

class GpuScatterGenerator : public Generator {
public:
  std::string name() const override { return "gpu_scatter"; }

  /// What combines in any order, where that may be; else by estimates of what the ways take.
  std::vector<Schedule> space(const Region& region, const Target& target) const override {
    auto form = scatter_form(region);
    if (!form || form->updates.empty())
      return {};
    std::vector<Schedule> out;
    if (!form->index_by_update) {
      by_lines(*form, region, target, out);
      by_column(*form, region, target, out);
      form = whole_form(region, *form);
    }
    by_lists(*form, region, target, out);
    const UpdateTimes times(*form, region, target);
    exact(*form, region, target, times, out);
    ByTime ways;
    counters(*form, target, times, ways);
    const std::int64_t updates = about(form->update_count);
    const std::int64_t columns = about(form->column_count);
    const std::int64_t points = updates * columns;
    const std::int64_t elements = about(form->bins) * about(form->column_count);
    // A table of all elements is worth while where their number is not much above the updates'.
    const std::int64_t most = std::max<std::int64_t>(8 * points, 1 << 16);
    const bool cached = elements <= target.l2_bytes / 24;
    const bool integers = refused_integers(*form, target).empty() && (elements <= most || cached);
    // Comparisons of updates by a warp, 32 at a time.
    const std::int64_t comparisons = updates * updates * ((columns + 31) / 32);
    const double few = kFewLeast + double(comparisons) * kComparison;
    const bool compares = refused_few(*form).empty() && comparisons <= kMostComparisons;
    if (compares)
      ways.add(few, offers(kFew, {}, "threads", {256, 128, 512}));
    if (refused_last(*form, target).empty() &&
        (form->index_by_update ? about(form->bins) : elements) <= most)
      ways.add(compares ? few : 0, offers(kLast, {{"threads", 256}}, "together", {4, 8, 2}));
    if (const RowShape shape = row_shape(region, *form); refused_rows(*form, shape, target).empty())
      ways.add(times.rows(), offers(kRows,
                                    {{"lanes", shape.lanes},
                                     {"columns", shape.columns},
                                     {"chunk", shape.bucket},
                                     {"together", shape.together}},
                                    "threads", {512, 1024, 256}));
    if (integers) {
      // With the integers that stand for them, elements are in a cache, or all ways miss it.
      const double own = times.integers(form->index_by_update, *form->monoid);
      ways.add(cached ? own : std::max(own, times.sorted()),
               offers(kIntegers, {{"threads", 256}}, "together", {4, 8, 2}));
    }
    partitions(*form, target, times, ways);
    // A tile for each multiprocessor, where there are enough updates.
    const int each = int(std::clamp<std::int64_t>(
        power_of_two_upto(std::max<std::int64_t>(updates / (256 * target.workers), 1)), 4, 16));
    if (updates >= kWorthSorting)
      for (const int bits : {8, 6})
        if (refused_sorted(*form, {256, each, bits}).empty())
          ways.add(times.sorted(),
                   offers(kSorted, {{"threads", 256}, {"each", each}, {"bits", bits}}, "chunk",
                          {64, 32, 128}));
    ways.move_to(out);
    by_owners(*form, target, out);
    return out;
  }

  Lowered lower(const Region& region, const Schedule& schedule,
                const Target& target) const override {
    if (auto why = refused_settings(schedule, target, kGpuScatterKnobs); !why.empty())
      return {false, {}, why};
    const auto found = scatter_form(region);
    if (!found || found->updates.empty())
      return {false, {}, "it is no scatter by one index whose updates meet"};
    const std::int64_t way = schedule.knob("way", kCounters);
    const ScatterForm form = way == kColumns || way == kWarps || way == kLines ||
                                     way == kFixedLines || found->index_by_update
                                 ? *found
                                 : whole_form(region, *found);
    const auto threads = int(schedule.knob("threads", 128));
    const auto together = [&](int most) { return int(schedule.knob("together", most)); };
    const auto made = [&](const std::string& refused, auto make) {
      return refused.empty() ? within_block(make(), target) : Lowered{false, {}, refused};
    };
    switch (way) {
    case kCounters: {
      const PrivateShape shape{threads, columns_across(form, threads), schedule.knob("groups", 1),
                               together(16)};
      return made(refused_private(form, threads, target),
                  [&] { return PrivateCounters(region, form, shape).run(); });
    }
    case kSorted: {
      const RadixShape sort{threads, int(schedule.knob("each", 16)), int(schedule.knob("bits", 8))};
      const SortedShape shape{sort, int(schedule.knob("chunk", 64)), together(8)};
      return made(refused_sorted(form, sort),
                  [&] { return scatter_by_sorting(region, form, shape); });
    }
    case kTables: {
      const TableShape shape{threads, schedule.knob("groups", 1), int(schedule.knob("copies", 1)),
                             together(8)};
      return made(refused_tables(form, region, shape, target),
                  [&] { return scatter_by_tables(region, form, shape); });
    }
    case kAtomics:
      return made(refused_atomics(form, region, target),
                  [&] { return scatter_by_atomics(region, form, threads, together(4)); });
    case kLast:
      return made(refused_last(form, target),
                  [&] { return scatter_last(region, form, threads, together(4)); });
    case kColumns: {
      const ColumnShape shape{threads, together(4), int(schedule.knob("owners", 1)),
                              int(schedule.knob("columns", 1))};
      return made(refused_columns(form, shape),
                  [&] { return scatter_by_columns(region, form, shape); });
    }
    case kWarps:
      return made(refused_warps(form, region),
                  [&] { return scatter_by_warps(region, form, threads, together(4)); });
    case kLists: {
      const ListShape shape{threads, schedule.knob("groups", 1), int(schedule.knob("range", 1))};
      return made(refused_lists(form, shape),
                  [&] { return scatter_by_lists(region, form, shape); });
    }
    case kLines: {
      const LineShape shape{threads, schedule.knob("columns", threads / kWarp), together(4)};
      return made(refused_lines(form, shape, target),
                  [&] { return scatter_by_lines(region, form, shape); });
    }
    case kFixedLines: {
      const FixedLineShape shape{threads, schedule.knob("columns", 1), schedule.knob("owners", 1),
                                 together(4)};
      return made(refused_fixed_lines(form, shape, target),
                  [&] { return scatter_by_fixed_lines(region, form, shape); });
    }
    case kRows: {
      const RowShape shape{threads, int(schedule.knob("lanes", 32)),
                           int(schedule.knob("columns", 1)), together(4),
                           schedule.knob("chunk", RowShape().bucket)};
      return made(refused_rows(form, shape, target),
                  [&] { return scatter_by_rows(region, form, shape); });
    }
    case kPartitions: {
      const PartitionShape shape{threads, schedule.knob("range", PartitionShape().range),
                                 together(4), int(schedule.knob("each", 4))};
      return made(refused_partitions(form, shape, target),
                  [&] { return scatter_by_partitions(region, form, shape); });
    }
    case kFew:
      return made(refused_few(form), [&] { return scatter_few(region, form, threads); });
    default:
      return made(refused_integers(form, target),
                  [&] { return scatter_by_integers(region, form, threads, together(4)); });
    }
  }

private:
  /// Updates from which on looking at all of them costs more than sorting them.
  static constexpr std::int64_t kWorthSorting = 1 << 11;
  /// Pairs of updates that are compared sooner than updates are sorted.
  static constexpr std::int64_t kMostComparisons = 1 << 24;
  // Seconds of an H200: at the least, and for a comparison more.
  static constexpr double kFewLeast = 3e-6, kComparison = 1.5e-12;

  /// A schedule for each value of a knob.
  static std::vector<Schedule> offers(Way way, std::map<std::string, std::int64_t> knobs,
                                      const char* knob, std::initializer_list<int> values) {
    std::vector<Schedule> out;
    for (const int value : values) {
      knobs[knob] = value;
      offer(way, knobs, out);
    }
    return out;
  }
  static void offer(Way way, std::map<std::string, std::int64_t> knobs,
                    std::vector<Schedule>& out) {
    Schedule s;
    s.generator = "gpu_scatter";
    s.knobs = std::move(knobs);
    s.knobs["way"] = way;
    out.push_back(std::move(s));
  }

  /// Columns with indices of their own, in tables of blocks: where these are not much larger than
  /// there are updates, and most multiprocessors have a block.
  static void by_lines(const ScatterForm& form, const Region& region, const Target& target,
                       std::vector<Schedule>& out) {
    constexpr std::int64_t kSparse = 4, kRounds = 2;
    const std::int64_t updates = about(form.update_count), columns = about(form.column_count);
    if (updates < kRounds * kWarp || about(form.bins) > kSparse * updates)
      return;
    if (const auto shape = fixed_line_shape(form, region, target);
        shape && refused_fixed_lines(form, *shape, target).empty())
      for (const int together : {4, 2, 8})
        offer(kFixedLines,
              {{"threads", shape->threads},
               {"columns", shape->lines},
               {"owners", shape->shares},
               {"together", together}},
              out);
    for (const int threads : {256, 128, 512}) {
      const LineShape shape{threads, threads / kWarp, 4};
      if (refused_lines(form, shape, target).empty() &&
          4 * columns >= 3 * target.workers * shape.lines)
        offer(kLines,
              {{"threads", threads}, {"columns", shape.lines}, {"together", shape.together}}, out);
    }
  }

  /// Columns with indices of their own, by a thread or a warp for each.
  static void by_column(const ScatterForm& form, const Region& region, const Target& target,
                        std::vector<Schedule>& out) {
    const ColumnTimes times = column_times(form, target);
    const bool threads = !is_rounded(form, region) && times.threads < times.others,
               warps = refused_warps(form, region).empty() && times.warps < times.others;
    for (const bool second : {false, true})
      if (second == (times.warps < times.threads)) {
        if (threads)
          for (const int together : {4, 1, 8})
            offer(kColumns, {{"threads", 256}, {"together", together}}, out);
      } else if (warps) {
        for (const int together : {4, 1, 2})
          if (together == 1 || kWarp * together < 2 * about(form.update_count))
            offer(kWarps, {{"threads", 128}, {"together", together}}, out);
      }
  }

  /// Few updates of many columns: where a block has enough to do to sort the updates for itself.
  static void by_lists(const ScatterForm& form, const Region& region, const Target& target,
                       std::vector<Schedule>& out) {
    constexpr std::int64_t kWorthLists = 1 << 15; // updates of all columns
    for (const int threads : {256, 512, 128})
      if (const auto shape = list_shape(form, region, threads, target);
          shape && refused_lists(form, *shape).empty() &&
          about(form.update_count) * about(form.column_count) >= kWorthLists)
        offer(kLists, {{"threads", threads}, {"groups", shape->groups}, {"range", shape->together}},
              out);
  }

  /// What is right for all: each of several threads of a column makes the updates of its elements.
  static void by_owners(const ScatterForm& form, const Target& target, std::vector<Schedule>& out) {
    struct Offer {
      int share, columns;
    };
    for (const int threads : {128, 256, 64})
      for (const Offer& offered : {Offer{2, 4}, {1, 4}, {2, 8}, {2, 1}, {8, 1}}) {
        const int owners = offered.share * power_of_two_upto(target.workers);
        if (refused_columns(form, {.owners = owners, .columns = offered.columns}).empty())
          offer(kColumns, {{"threads", threads}, {"owners", owners}, {"columns", offered.columns}},
                out);
      }
  }

  /// Whether sums of many updates are rounded to fewer bits than they are made in.
  static bool is_rounded(const ScatterForm& form, const Region& region) {
    return form.monoid == Monoid::Sum && region.outputs[0].dtype != form.state;
  }

  /// Updates whose order is of no consequence: in tables of the blocks, where they fit and each
  /// block has more updates than elements, or in the output itself.
  static void exact(const ScatterForm& form, const Region& region, const Target& target,
                    const UpdateTimes& times, std::vector<Schedule>& out) {
    if (!refused_atomics(form, region, target).empty())
      return;
    constexpr std::int64_t kFullUse = 32 << 10; // bytes of a block that keep others away from none
    constexpr double kLeastUpdates = 2;         // of a thread
    const std::int64_t bytes = table_bytes(form, region);
    const std::int64_t points = about(form.update_count) * about(form.column_count);
    const std::int64_t elements = about(form.bins) * about(form.column_count);
    ByTime ways;
    for (const int threads : {bytes > kFullUse / 8 ? 1024 : 512, 256}) {
      const int copies =
          int(std::clamp(power_of_two_upto(kFullUse / std::max<std::int64_t>(bytes, 1)), 1, 32));
      const std::int64_t wanted =
          std::int64_t(target.workers) * std::max(1, std::min(target.threads, 2048) / threads);
      const auto groups = std::int64_t(
          std::min({double(wanted), double(points) / (kLeastUpdates * threads),
                    std::max(1.0, times.best_groups(std::max(1.0, double(elements))))}));
      if (groups < 1 || !refused_tables(form, region, {threads, groups, copies, 8}, target).empty())
        continue;
      ways.add(times.tables(double(groups), double(elements)),
               offers(kTables, {{"threads", threads}, {"groups", groups}, {"copies", copies}},
                      "together", {8, 4, 16}));
    }
    ways.add(times.atomics(), offers(kAtomics, {{"threads", 256}}, "together", {4, 8, 1}));
    ways.move_to(out);
  }

  /// Partitions of the updates by ranges of elements.
  static void partitions(const ScatterForm& form, const Target& target, const UpdateTimes& times,
                         ByTime& ways) {
    const std::optional<PartitionShape> shape = partition_shape(form, target);
    if (!shape || !refused_partitions(form, *shape, target).empty())
      return;
    std::vector<Schedule> found;
    for (const int threads : {1024, 512})
      offer(kPartitions,
            {{"threads", threads},
             {"range", shape->range},
             {"together", shape->together},
             {"each", shape->each}},
            found);
    ways.add(times.partitions(), std::move(found));
  }

  /// Counters of each thread, of as many groups as take least time.
  static void counters(const ScatterForm& form, const Target& target, const UpdateTimes& times,
                       ByTime& ways) {
    for (const int threads : {128, 256, 64, 32}) {
      if (!refused_private(form, threads, target).empty())
        continue;
      const int across = columns_across(form, threads), slices = threads / across;
      const std::int64_t tiles = (about(form.column_count) + across - 1) / across,
                         most = std::max<std::int64_t>(1, about(form.update_count) / slices);
      const std::int64_t bytes = private_bytes(form, threads);
      std::int64_t best = 1;
      const auto seconds = [&](std::int64_t groups) {
        return times.counters(threads, across, double(groups), bytes);
      };
      for (const int share : {32, 16, 8, 4, 2, 1}) // of two blocks a multiprocessor
        if (const std::int64_t groups = std::min(most, 2 * target.workers / (share * tiles));
            groups >= 1 && seconds(groups) < seconds(best))
          best = groups;
      ways.add(seconds(best),
               offers(kCounters, {{"threads", threads}, {"groups", best}}, "together", {16, 8}));
    }
  }
};

} // namespace

const Generator& gpu_scatter_generator() {
  static const GpuScatterGenerator generator;
  return generator;
}

} // namespace egret::kernel
