// Scatters of few updates to many columns by one index, by blocks that sort the updates once.
#include "kernel/gpu_radix.h"
#include "kernel/gpu_scatter.h"

#include <algorithm>
#include <bit>

namespace egret::kernel {

namespace {

/// Values of the next columns that a thread has in flight.
constexpr int kLoadsTogether = 8;
/// Of a block's shared memory, what its values may take.
constexpr std::int64_t kValueBytes = 48 << 10;

RadixShape sort_of(const ScatterForm& form, int threads) {
  const int needed = std::max(1, int(std::bit_width(std::uint64_t(form.bins.upper()))));
  const int most = int(std::bit_width(unsigned(threads))) - 1;
  const int passes = (needed + most - 1) / most;
  const auto updates = form.update_count.value();
  return {threads, int((updates + threads - 1) / threads), (needed + passes - 1) / passes};
}

/// A block sorts the updates' numbers by their element. Then it brings the updates of some columns
/// to shared memory, in their order in memory, and each of its threads combines those to one
/// element of one column, in the updates' order: of all elements, or where updates are fewer, of
/// those that the first update of a run goes to.
class ListScatter : GpuScatter {
public:
  ListScatter(const Region& region, const ScatterForm& form, const ListShape& shape)
      : GpuScatter(region, form, shape.threads), s_(shape), updates_(form.update_count.value()),
        runs_(!whole_ && updates_ < form.bins.value()),
        sort_(b_, sort_of(form, shape.threads), DType::U32, DType::I32) {}

  KernelProgram run() {
    if (empty() || f_.bins.value() == 0)
      return finish();
    if (runs_)
      ends_ = b_.shared("ends", DType::I32, updates_);
    else
      begins_ = b_.shared("begins", DType::I32, f_.bins.value() + 1);
    values_ = b_.shared("values", f_.state, s_.together * updates_);
    const Expr each = max(ceildiv(f_.column_count, Expr(s_.groups)), Expr(1));
    blocks_ = Expr(s_.groups);
    b_.grid_loop(blocks_, [&](const Expr& group) {
      sort();
      const Expr first = group * each, end = min(first + each, f_.column_count);
      b_.loop(first, end, Expr(s_.together), f_.column_count, Bind::Serial,
              [&](const Expr& column) {
                bring(column, end);
                b_.barrier();
                combine(column, end);
                b_.barrier();
              });
    });
    return finish();
  }

private:
  void sort() {
    const int bits = int(std::bit_width(std::uint64_t(f_.bins.upper())));
    const ValueId nowhere = b_.constant(Scalar::of(DType::U32, f_.bins.value()));
    sort_.sort(Expr(updates_), bits, [&](const Expr& at, const std::vector<Guard>& mask) {
      Point p = point_of_update(r_, f_, at, Expr(0));
      p.mask = mask;
      const Expr bin = bin_of(e_, f_, p);
      const ValueId word = b_.apply(Op::Select, DType::U32,
                                    {b_.test({{bin, Expr(0), f_.bins}}, 1),
                                     b_.cast(b_.index(bin, DType::I64, 1), DType::U32), nowhere});
      return TileSort::Element{word, b_.index(at, DType::I32, 1)};
    });
    const Expr count = runs_ ? Expr(updates_) : f_.bins + Expr(1);
    b_.loop(Expr(0), count, Expr(s_.threads), count + Expr(s_.threads), Bind::Serial,
            [&](const Expr& base) {
              const Expr at = base + thread_;
              const std::vector<Guard> inside{{at, Expr(0), count}};
              if (runs_)
                b_.store(ends_, at, begin_of(bin_at(at, inside) + Expr(1)), inside);
              else
                b_.store(begins_, at, begin_of(at), inside);
            });
    b_.barrier();
  }

  /// The element of a sorted update; behind all, of one that has none.
  Expr bin_at(const Expr& place, const std::vector<Guard>& inside) {
    return value_symbol(b_.cast(b_.load(sort_.words(), place, 1, inside), DType::I32));
  }

  /// The first place whose update goes to an element or to one behind it: by halving.
  ValueId begin_of(const Expr& bin) {
    const VarId low = b_.variable({DType::I32, 1}), high = b_.variable({DType::I32, 1});
    b_.set(low, b_.constant(Scalar::of(DType::I32, std::int64_t(0))));
    b_.set(high, b_.constant(Scalar::of(DType::I32, updates_)));
    const ValueId wanted = b_.cast(b_.index(bin, DType::I32, 1), DType::U32);
    const Expr steps = int(std::bit_width(std::uint64_t(updates_)));
    b_.loop(Expr(0), steps, Expr(1), steps, Bind::Serial, [&](const Expr&) {
      const ValueId a = b_.read(low), z = b_.read(high);
      const Expr middle = floordiv(value_symbol(a) + value_symbol(z), Expr(2));
      const std::vector<Guard> open{{value_symbol(a), Expr(0), value_symbol(z)}};
      const ValueId there = b_.load(sort_.words(), middle, 1, open);
      const ValueId before = b_.apply(
          Op::And, DType::Bool, {b_.apply(Op::Lt, DType::Bool, {there, wanted}), b_.test(open, 1)});
      b_.set(low, b_.apply(Op::Select, DType::I32,
                           {before, b_.index(middle + Expr(1), DType::I32, 1), a}));
      b_.set(high, b_.apply(Op::Select, DType::I32,
                            {before, z, b_.index(min(middle, value_symbol(z)), DType::I32, 1)}));
    });
    return b_.read(low);
  }

  /// The updates of columns from `first` on, by threads beside each other along the updates.
  void bring(const Expr& first, const Expr& end) {
    const std::int64_t count = s_.together * updates_, round = kLoadsTogether * s_.threads;
    b_.loop(Expr(0), Expr(count), Expr(round), Expr(count + round), Bind::Serial,
            [&](const Expr& base) {
              std::vector<Expr> at;
              std::vector<ValueId> values;
              std::vector<std::vector<Guard>> masks;
              for (int i = 0; i < kLoadsTogether && i * s_.threads < count; ++i) {
                at.push_back(base + Expr(i * s_.threads) + thread_);
                const Expr column = first + floordiv(at.back(), Expr(updates_));
                Point p = point_of_update(r_, f_, floormod(at.back(), Expr(updates_)), column);
                p.mask = {{at.back(), Expr(0), Expr(count)}, {column, Expr(0), end}};
                masks.push_back({p.mask[0]});
                values.push_back(update_of(e_, f_, p));
              }
              for (std::size_t i = 0; i < at.size(); ++i)
                b_.store(values_, at[i], values[i], masks[i]);
            });
  }

  void combine(const Expr& first, const Expr& end) {
    const Expr each = runs_ ? Expr(updates_) : f_.bins, count = Expr(s_.together) * each;
    b_.loop(Expr(0), count, Expr(s_.threads), count + Expr(s_.threads), Bind::Serial,
            [&](const Expr& base) {
              const Expr flat = base + thread_, number = floordiv(flat, each),
                         at = floormod(flat, each), column = first + number;
              const std::vector<Guard> inside{{flat, Expr(0), count}, {column, Expr(0), end}};
              if (!runs_) {
                const Expr from = value_symbol(b_.load(begins_, at, 1, inside)),
                           to = value_symbol(b_.load(begins_, at + Expr(1), 1, inside));
                return combine_run(number, column, at, from, to, inside);
              }
              const Expr bin = bin_at(at, inside);
              std::vector<Guard> before = inside; // an update of the same element
              before.push_back({at, Expr(1), Expr(updates_)});
              const ValueId other = b_.load(sort_.words(), at - Expr(1), 1, before);
              const ValueId follows = b_.apply(
                  Op::And, DType::Bool,
                  {b_.apply(Op::Eq, DType::Bool, {other, b_.load(sort_.words(), at, 1, inside)}),
                   b_.test({{at, Expr(1), Expr(updates_)}}, 1)});
              std::vector<Guard> begins = inside;
              begins.push_back({bin, Expr(0), f_.bins});
              begins.push_back(holds(follows, false));
              const Expr to = value_symbol(b_.load(ends_, at, 1, inside));
              b_.when(begins, [&] { combine_run(number, column, bin, at, to, {}); });
            });
  }

  /// Combines updates [from, to) of a column with its element.
  void combine_run(const Expr& number, const Expr& column, const Expr& bin, const Expr& from,
                   const Expr& to, const std::vector<Guard>& inside) {
    const VarId state = b_.variable({f_.state, 1});
    b_.set(state, identity());
    b_.loop(from, to, Expr(1), Expr(updates_), Bind::Serial, [&](const Expr& place) {
      const Expr update = value_symbol(b_.load(sort_.positions(), place, 1));
      b_.set(state, combine_updates(b_, f_, b_.read(state),
                                    b_.load(values_, number * Expr(updates_) + update, 1)));
    });
    combine_with_output(element_of(r_, f_, point_of_update(r_, f_, Expr(0), column), bin),
                        {{from, Expr(0), to}}, inside, [&] { return b_.read(state); });
  }

  ListShape s_;
  std::int64_t updates_;
  bool runs_; ///< threads have updates, in place of elements
  TileSort sort_;
  int begins_ = -1, values_ = -1; ///< by element; by column and update
  int ends_ = -1;                 ///< by sorted update: of its run
};

} // namespace

std::string refused_lists(const ScatterForm& form, const ListShape& shape) {
  if (!form.monoid)
    return "the last update stays";
  if (!form.index_by_update || form.whole)
    return "columns have indices of their own";
  if (!form.update_count.is_constant() || !form.bins.is_constant())
    return "it is not known how many updates or elements there are";
  if (shape.threads < 64 || !std::has_single_bit(unsigned(shape.threads)))
    return "threads that are no power of two, or few";
  if (form.update_count.value() > std::int64_t(shape.threads) * 16 ||
      form.bins.value() > kMostListBins)
    return "more updates or elements than a block has memory for";
  if (form.update_count.value() * shape.together * std::int64_t(size_of(form.state)) > kValueBytes)
    return "more values than a block has memory for";
  return "";
}

std::optional<ListShape> list_shape(const ScatterForm& form, const Region& region, int threads,
                                    const Target& target) {
  if (!form.update_count.is_constant() || form.update_count.value() < 1 || form.columns.empty())
    return std::nullopt;
  const Stage& stage = region.stages[std::size_t(form.stage)];
  // Neighbours of memory are neighbours among the updates of a column, or elements of a line that
  // these find by an index, and not among columns.
  const auto goes_along = [&](const Load& load, int axis) {
    if (load.source != Source::Operand)
      return false;
    const auto by = [&](const Expr& variable) {
      return coefficient_of(offset_of(region, load), variable) == std::optional(Expr(1));
    };
    for (std::size_t j = 0; j < load.indirect.size(); ++j)
      if (axes_of_value(region, stage, load.indirect[j])[std::size_t(axis)])
        return by(indirect_symbol(int(j)));
    for (std::size_t i = 0; i < stage.axes.size(); ++i)
      if (stage.axes[i] == axis)
        return by(Expr::axis(int(i), region.axes[std::size_t(axis)].extent));
    return false;
  };
  const auto any = [&](int axis) {
    return std::any_of(stage.loads.begin(), stage.loads.end(), [&](const Load& load) {
      return goes_along(load, axis) && load.map.coords.size() == 1 &&
             variables_of(offset_of(region, load)).size() > 1;
    });
  };
  if (!any(form.updates.back()) || any(form.columns.back()))
    return std::nullopt;
  const std::int64_t values =
      std::min<std::int64_t>(8192, kValueBytes / std::int64_t(size_of(form.state)));
  ListShape shape;
  shape.threads = threads;
  const std::int64_t columns = about(form.column_count);
  shape.groups = std::clamp<std::int64_t>(columns, 1, 2 * target.workers);
  // As many columns as give all threads something to combine.
  const std::int64_t elements =
      std::min(std::max<std::int64_t>(about(form.bins), 1), form.update_count.value());
  shape.together = int(std::clamp<std::int64_t>(
      values / form.update_count.value(), 1,
      std::clamp<std::int64_t>((columns + shape.groups - 1) / shape.groups, 1,
                               std::max<std::int64_t>(16, 4 * threads / elements))));
  return shape;
}

KernelProgram scatter_by_lists(const Region& region, const ScatterForm& form,
                               const ListShape& shape) {
  return ListScatter(region, form, shape).run();
}

} // namespace egret::kernel
