// Sums of f32 in fixed point, and scatters that have them in the shared memory of blocks.
#include "kernel/gpu_scatter_fixed.h"

#include "support/checked.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace egret::kernel {

FixedPointScatter::FixedPointScatter(const Region& region, const ScatterForm& form, int threads,
                                     int together)
    : UnorderedScatter(region, form, threads, together),
      bits_(62 - std::bit_width(static_cast<std::uint64_t>(form.update_count.upper()))) {}

ValueId FixedPointScatter::exponent(ValueId value) {
  const ValueId bits = b_.apply(Op::Bitcast, DType::I32, {value});
  const ValueId e =
      apply(Op::And, apply(Op::Shr, bits, number(DType::I32, 23)), number(DType::I32, kSpecial));
  return apply(Op::Max, e, number(DType::I32, 1));
}

/// 2 to the power of an i32.
ValueId FixedPointScatter::power(ValueId exponent) {
  const ValueId biased = b_.cast(apply(Op::Add, exponent, number(DType::I32, 1023)), DType::I64);
  return b_.apply(Op::Bitcast, DType::F64, {apply(Op::Shl, biased, number(DType::I64, 52))});
}

/// All are below 2^(peak - 126) in magnitude, which becomes 2^bits: sums do not overflow.
ValueId FixedPointScatter::shift_of(ValueId peak) {
  return apply(Op::Add, minus(peak), number(DType::I32, 126 + bits_));
}

ValueId FixedPointScatter::to_fixed(ValueId value, ValueId peak) {
  const ValueId wide = b_.cast(value, DType::F64);
  const ValueId scaled = b_.cast(apply(Op::Mul, wide, power(shift_of(peak))), DType::I64);
  const ValueId zero = number(DType::I64, 0);
  const ValueId special = equal(peak, number(DType::I32, kSpecial)),
                own = equal(exponent(value), number(DType::I32, kSpecial));
  const ValueId nan = b_.apply(Op::Eq, DType::Bool, {equal(value, value), number(DType::Bool, 0)});
  const ValueId zero_value = b_.constant(Scalar::of(DType::F32, 0.0));
  const ValueId up = b_.apply(Op::Or, DType::Bool, {nan, less(zero_value, value)}),
                down = b_.apply(Op::Or, DType::Bool, {nan, less(value, zero_value)});
  const ValueId counts =
      apply(Op::Add, select(up, number(DType::I64, 1), zero),
            select(down, number(DType::I64, std::int64_t(1) << kNegative), zero));
  return select(special, select(own, counts, zero), scaled);
}

ValueId FixedPointScatter::from_fixed(ValueId sum, ValueId peak) {
  const ValueId wide = apply(Op::Mul, b_.cast(sum, DType::F64), power(minus(shift_of(peak))));
  const ValueId zero = number(DType::I64, 0);
  const ValueId low = number(DType::I64, (std::int64_t(1) << kNegative) - 1);
  const ValueId no_up = equal(apply(Op::And, sum, low), zero),
                no_down = equal(apply(Op::Shr, sum, number(DType::I64, kNegative)), zero);
  const auto f32 = [&](double v) { return b_.constant(Scalar::of(DType::F32, v)); };
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const ValueId infinite =
      select(no_up, f32(-kInfinity),
             select(no_down, f32(kInfinity), f32(std::numeric_limits<double>::quiet_NaN())));
  return select(equal(peak, number(DType::I32, kSpecial)), infinite, b_.cast(wide, DType::F32));
}

void FixedPointScatter::make_tables(std::int64_t slots) {
  slots_ = slots;
  peaks_ = b_.shared("peaks", DType::I32, slots);
  sums_ = b_.shared("sums", DType::I64, slots);
}

void FixedPointScatter::fill_tables(const Updates& updates) {
  each_of_block(slots_, [&](const Expr& at, const std::vector<Guard>& mask) {
    b_.store(peaks_, at, number(DType::I32, 0), mask);
    b_.store(sums_, at, number(DType::I64, 0), mask);
  });
  b_.barrier();
  updates([&](const std::vector<Placed>& some) {
    for (const Placed& u : some)
      b_.atomic_combine(Monoid::Max, peaks_, u.slot, exponent(u.value), u.mask);
  });
  b_.barrier();
  updates([&](const std::vector<Placed>& some) {
    std::vector<ValueId> fixed;
    for (const Placed& u : some)
      fixed.push_back(to_fixed(u.value, b_.load(peaks_, u.slot, 1, u.mask)));
    for (std::size_t i = 0; i < some.size(); ++i)
      b_.atomic_combine(Monoid::Sum, sums_, some[i].slot, fixed[i], some[i].mask);
  });
  b_.barrier();
}

namespace {

/// A block's columns are neighbours, and its threads go through their updates as these lie in
/// memory. A share of a column's elements looks at all of its updates.
class FixedLines : FixedPointScatter {
public:
  FixedLines(const Region& region, const ScatterForm& form, const FixedLineShape& shape)
      : FixedPointScatter(region, form, shape.threads, shape.together), s_(shape),
        bins_(ceil_quotient(form.bins.value(), shape.shares)), pitch_(bins_ | 1) {
    for (const int a : form.updates)
      if (a != form.choice) {
        along_.push_back(a);
        count_ *= region.axes[std::size_t(a)].extent.value();
      }
    const Stage& stage = region.stages[std::size_t(form.stage)];
    across_ = s_.lines > 1 && goes_along(region, stage, form.columns.back()) &&
              (along_.empty() || !goes_along(region, stage, along_.back()));
  }

  KernelProgram run() {
    if (empty() || bins_ == 0)
      return finish();
    make_tables(s_.lines * pitch_);
    const Expr groups = ceildiv(f_.column_count, Expr(s_.lines));
    blocks_ = max(blocks_, groups * Expr(s_.shares));
    b_.grid_loop(groups * Expr(s_.shares), [&](const Expr& number) {
      const Expr first = floordiv(number, Expr(s_.shares)) * Expr(s_.lines),
                 low = floormod(number, Expr(s_.shares)) * Expr(bins_);
      fill_tables([&](const auto& add) { for_updates(first, low, add); });
      hand_on(first, low);
      b_.barrier();
    });
    return finish();
  }

private:
  /// Line and place of a number below lines * count, neighbours of which are neighbours in memory.
  static std::pair<Expr, Expr> line_and_place(const Expr& number, std::int64_t lines,
                                              std::int64_t count, bool across) {
    return across ? std::pair{floormod(number, Expr(lines)), floordiv(number, Expr(lines))}
                  : std::pair{floordiv(number, Expr(count)), floormod(number, Expr(count))};
  }

  /// The updates of the block's columns to its elements, some at a time.
  void for_updates(const Expr& first, const Expr& low,
                   const std::function<void(const std::vector<Placed>&)>& body) {
    const std::int64_t all = s_.lines * count_, step = std::int64_t(threads_) * together_;
    b_.loop(Expr(0), Expr(all), Expr(step), Expr(all + step), Bind::Serial, [&](const Expr& base) {
      std::vector<Placed> updates;
      for (int i = 0; i < together_; ++i) {
        const Expr at = base + Expr(std::int64_t(i) * threads_) + thread_;
        const auto [line, update] = line_and_place(at, s_.lines, count_, across_);
        std::vector<Guard> mask{{first + line, Expr(0), f_.column_count}};
        if (all % step != 0)
          mask.push_back({at, Expr(0), Expr(all)});
        append(updates, point(update, first + line, mask), line, low);
      }
      body(updates);
    });
  }

  /// The point of a column, and of an update without its place along the axis of a choice.
  Point point(const Expr& update, const Expr& column, const std::vector<Guard>& mask) const {
    Point p = point_of_update(r_, f_, Expr(0), column);
    std::vector<Expr> extents;
    for (const int a : along_)
      extents.push_back(r_.axes[std::size_t(a)].extent);
    const std::vector<Expr> at = unflatten(update, extents);
    for (std::size_t i = 0; i < along_.size(); ++i)
      p.at[std::size_t(along_[i])] = at[i];
    p.mask = mask;
    return p;
  }

  void append(std::vector<Placed>& updates, Point p, const Expr& line, const Expr& low) {
    for (std::int64_t place = 0; place < places(); ++place) {
      if (f_.choice >= 0)
        p.at[std::size_t(f_.choice)] = Expr(place);
      const Expr bin = bin_of(e_, f_, p);
      std::vector<Guard> mask = p.mask;
      mask.push_back({bin, Expr(0), f_.bins});
      if (s_.shares > 1)
        mask.push_back({bin, low, low + Expr(bins_)});
      updates.push_back({line * Expr(pitch_) + bin - low, update_of(e_, f_, p), mask});
    }
  }

  void hand_on(const Expr& first, const Expr& low) {
    const bool across = stride_of(r_, r_.outputs[0], f_.columns.back()) == 1;
    each_of_block(s_.lines * bins_, [&](const Expr& at, std::vector<Guard> mask) {
      const auto [line, bin] = line_and_place(at, s_.lines, bins_, across);
      mask.push_back({first + line, Expr(0), f_.column_count});
      mask.push_back({low + bin, Expr(0), f_.bins});
      b_.when(mask, [&] {
        const Expr slot = line * Expr(pitch_) + bin;
        const ValueId peak = b_.load(peaks_, slot, 1);
        const Point p = point_of_update(r_, f_, Expr(0), first + line);
        combine_with_output(element_of(r_, f_, p, low + bin), is_updated(peak), {},
                            [&] { return from_fixed(b_.load(sums_, slot, 1), peak); });
      });
    });
  }

  FixedLineShape s_;
  std::int64_t bins_, pitch_; ///< elements of a column that a block has
  std::vector<int> along_;    ///< axes of the updates but that of a choice
  std::int64_t count_ = 1;    ///< points along these
  bool across_ = false;       ///< neighbours in memory are those of different columns
};

std::int64_t table_bytes_of(const ScatterForm& form, std::int64_t lines, std::int64_t shares) {
  return lines * (ceil_quotient(form.bins.value(), shares) | 1) * kFixedBytes;
}

} // namespace

std::string refused_fixed_lines(const ScatterForm& form, const FixedLineShape& shape,
                                const Target& target) {
  if (auto why = refused_integers(form, target); !why.empty())
    return why;
  if (form.monoid != Monoid::Sum)
    return "it is no sum of f32";
  if (form.whole || form.columns.empty())
    return "it has no columns";
  if (!form.bins.is_constant() || !form.update_count.is_constant())
    return "it is not known how many updates or elements there are";
  return table_bytes_of(form, shape.lines, shape.shares) + 1024 > target.block_shared_bytes
             ? "more elements than a block can have"
             : "";
}

std::optional<FixedLineShape> fixed_line_shape(const ScatterForm& form, const Region& region,
                                               const Target& target) {
  constexpr std::int64_t kMostShares = 4, kMostLines = 16;
  if (form.columns.empty() || !form.bins.is_constant() || form.bins.value() < 1)
    return std::nullopt;
  const std::int64_t columns = about(form.column_count);
  const Stage& stage = region.stages[std::size_t(form.stage)];
  FixedLineShape shape;
  // Where memory has columns beside each other, as many as a sector of it has.
  const bool across = goes_along(region, stage, form.columns.back());
  const std::int64_t sector = across ? 8 : 1;
  const auto fits = [&](std::int64_t lines, std::int64_t shares) {
    return table_bytes_of(form, lines, shares) + 1024 <= target.block_shared_bytes;
  };
  const std::int64_t each = columns / target.workers;
  shape.lines = std::clamp<std::int64_t>(power_of_two_upto(std::max<std::int64_t>(each, 1)), sector,
                                         std::max(sector, kMostLines));
  while (shape.lines > 1 && !fits(shape.lines, 1))
    shape.lines /= 2;
  const auto blocks = [&] { return ceil_quotient(columns, shape.lines) * shape.shares; };
  while (shape.lines == 1 && shape.shares < kMostShares &&
         (!fits(1, shape.shares) || 2 * blocks() <= target.workers))
    shape.shares *= 2;
  if (!fits(shape.lines, shape.shares) || 4 * blocks() < target.workers || 2 * shape.lines < sector)
    return std::nullopt;
  const bool alone =
      blocks() <= target.workers ||
      2 * table_bytes_of(form, shape.lines, shape.shares) > target.block_shared_bytes;
  shape.threads = alone ? 1024 : 512;
  return shape;
}

KernelProgram scatter_by_fixed_lines(const Region& region, const ScatterForm& form,
                                     const FixedLineShape& shape) {
  return FixedLines(region, form, shape).run();
}

} // namespace egret::kernel
