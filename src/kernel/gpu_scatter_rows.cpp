// Scatters of rows: all columns of an update go to one element of each. The updates of an element
// are gathered in a bucket first, then lanes along the columns add them up: one pass over the
// updates in place of two atomic operations for each of their columns.
#include "kernel/gpu_scatter.h"
#include "kernel/gpu_scatter_fixed.h"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace egret::kernel {

namespace {

class RowScatter : FixedPointScatter {
public:
  RowScatter(const Region& region, const ScatterForm& form, const RowShape& shape)
      : FixedPointScatter(region, form, shape.threads, 1), s_(shape),
        tiles_(ceildiv(columns(), Expr(shape.lanes * shape.columns))),
        lane_(floormod(thread_, Expr(shape.lanes))),
        most_full_(floordiv(form.update_count, Expr(shape.bucket + 1)) + Expr(1)),
        sparse_(2 * about(form.update_count) <= about(form.bins)) {
    whole_ = whole_ && !sparse_;
  }

  KernelProgram run() {
    if (empty())
      return finish();
    const auto words = [&](const char* name, const Expr& count) {
      return b_.workspace(name, DType::I32, count);
    };
    counts_ = words("counts", f_.bins);
    updates_ = words("updates", f_.bins * Expr(s_.bucket) + f_.update_count);
    used_ = words("used", Expr(kUsed));
    left_ = words("left", f_.update_count);
    ranks_ = words("ranks", f_.update_count);
    slots_ = words("slots", f_.bins);
    full_ = words("full", most_full_);
    if (sparse_)
      firsts_ = words("firsts", f_.update_count);
    begins_ = words("begins", most_full_);
    parts_ = words("parts", most_full_ * Expr(2 * 2));
    peaks_ = words("peaks", most_full_ * columns());
    sums_ = b_.workspace("sums", DType::I64, most_full_ * columns());
    points(max(f_.bins, Expr(kUsed)), [&](const Expr& at) {
      b_.store(counts_, at, word(0), {{at, Expr(0), f_.bins}});
      b_.store(used_, at, word(0), {{at, Expr(0), Expr(kUsed)}});
    });
    barrier();
    fill_buckets();
    barrier();
    add_buckets();
    const Expr left = used(kLeft);
    b_.when({{left, Expr(1), f_.update_count + Expr(1)}}, [&] { add_full_buckets(left); });
    return finish();
  }

private:
  /// Numbers of updates outside of buckets, of full buckets, of updates in lists of such elements,
  /// and of parts of buckets and lists.
  enum Used : std::uint8_t { kLeft, kFull, kListed, kParts, kUsed };

  ValueId word(std::int64_t value) { return number(DType::I32, value); }

  /// A number that all threads have, as one that is the same for a block.
  Expr used(Used which) {
    return value_symbol(b_.reduce_threads(Monoid::Max, b_.load(used_, Expr(which), 1), threads_));
  }

  /// Updates in any order, as many as a bucket holds; the others are listed.
  void fill_buckets() {
    points(f_.update_count, [&](const Expr& update) {
      const Expr bin = bin_of_update(update);
      if (sparse_)
        b_.store(firsts_, update, word(0));
      b_.when({{bin, Expr(0), f_.bins}}, [&] {
        const ValueId rank = b_.atomic_fetch_add(counts_, bin, word(1)),
                      own = b_.index(update, DType::I32, 1);
        const Expr place = value_symbol(rank);
        if (sparse_)
          b_.store(firsts_, update, word(1), {{place, Expr(0), Expr(1)}});
        b_.either(
            {{place, Expr(0), Expr(s_.bucket)}},
            [&] { b_.store(updates_, bucket_of(bin) + place, own); },
            [&] {
              b_.when({{place, Expr(s_.bucket), Expr(s_.bucket + 1)}}, [&] {
                const ValueId slot = b_.atomic_fetch_add(used_, Expr(kFull), word(1));
                b_.store(full_, value_symbol(slot), b_.index(bin, DType::I32, 1));
                b_.store(slots_, bin, slot);
              });
              const ValueId at = b_.atomic_fetch_add(used_, Expr(kLeft), word(1));
              b_.store(left_, value_symbol(at), own);
              b_.store(ranks_, value_symbol(at), rank);
            });
      });
    });
  }

  /// Where an element's bucket begins. Lists are behind all buckets.
  Expr bucket_of(const Expr& bin) const { return bin * Expr(s_.bucket); }
  Expr lists() const { return bucket_of(f_.bins); }

  Expr bin_of_update(const Expr& update) {
    return bin_of(e_, f_, point_of_update(r_, f_, update, Expr(0)));
  }
  Expr column(const Expr& tile, int k) const {
    return tile * Expr(s_.lanes * s_.columns) + Expr(k * s_.lanes) + lane_;
  }
  Guard has_column(const Expr& tile, int k) const {
    return {column(tile, k), Expr(0), f_.column_count};
  }
  Expr element(const Expr& bin, const Expr& column) const {
    return element_of(r_, f_, point_of_update(r_, f_, Expr(0), column), bin);
  }

  /// What an update brings to a thread's columns; zeros where a guard fails.
  std::vector<ValueId> values_of(const Expr& update, const Expr& tile,
                                 const std::vector<Guard>& exists) {
    std::vector<ValueId> values;
    for (int k = 0; k < s_.columns; ++k) {
      Point p = point_of_update(r_, f_, update, column(tile, k));
      p.mask = exists;
      p.mask.push_back(has_column(tile, k));
      const ValueId value = update_of(e_, f_, p);
      const std::vector<Guard> open = unproved(p.mask);
      values.push_back(open.empty() ? value : select(b_.test(open, 1), value, zero()));
    }
    return values;
  }
  ValueId zero() { return b_.constant(Scalar::of(DType::F32, 0.0)); }

  /// The values of a bucket's updates, or of as many of a list, some at a time.
  void bucket(const Expr& first, const Expr& count, const Expr& tile,
              const std::function<void(int k, ValueId value)>& use) {
    b_.loop(Expr(0), count, Expr(s_.together), Expr(s_.bucket), Bind::Serial,
            [&](const Expr& base) {
              std::vector<std::vector<ValueId>> values;
              for (int i = 0; i < s_.together; ++i) {
                const Expr place = base + Expr(i);
                const std::vector<Guard> inside{{place, Expr(0), count}};
                const ValueId update = b_.load(updates_, first + place, 1, inside);
                values.push_back(values_of(value_symbol(update), tile, inside));
              }
              for (const auto& of_update : values)
                for (int k = 0; k < s_.columns; ++k)
                  use(k, of_update[std::size_t(k)]);
            });
  }

  VarId variable(ValueId first) {
    const VarId v = b_.variable(b_.type_of(first));
    b_.set(v, first);
    return v;
  }
  template <class Make>
  std::vector<VarId> each_column(Make make) {
    std::vector<VarId> all;
    for (int k = 0; k < s_.columns; ++k)
      all.push_back(variable(make()));
    return all;
  }
  void combine(VarId v, Op op, ValueId value) { b_.set(v, apply(op, b_.read(v), value)); }

  /// The sums of a bucket in f64, and the largest and the smallest magnitude (but zero) that was
  /// added, as the bits of floats; the latter subtracted from zero.
  struct WideSums {
    std::vector<VarId> sum, largest, smallest;
  };
  WideSums wide_sums(const Expr& first, const Expr& count, const Expr& tile) {
    const ValueId none = number(DType::U32, 0);
    WideSums w{each_column([&] { return b_.constant(Scalar::of(DType::F64, 0.0)); }),
               each_column([&] { return none; }), each_column([&] { return none; })};
    bucket(first, count, tile, [&](int k, ValueId value) {
      const ValueId bits = b_.apply(Op::Bitcast, DType::U32, {value});
      const ValueId magnitude = apply(Op::And, bits, number(DType::U32, 0x7fffffff));
      combine(w.sum[std::size_t(k)], Op::Add, b_.cast(value, DType::F64));
      combine(w.largest[std::size_t(k)], Op::Max, magnitude);
      combine(w.smallest[std::size_t(k)], Op::Max, wrapped_minus(magnitude));
    });
    return w;
  }

  /// exponent() of a magnitude.
  ValueId exponent_of(ValueId magnitude) {
    return exponent(b_.apply(Op::Bitcast, DType::F32, {magnitude}));
  }
  /// Subtracted from zero, as numbers without a sign are.
  ValueId wrapped_minus(ValueId magnitude) {
    return apply(Op::Mul, magnitude, number(DType::U32, UINT32_MAX));
  }

  /// 1 where a sum in f64 may have been rounded, so that it follows from the order: its terms reach
  /// over more than the 53 bits that f64 has. Sums of infinities and NaN are the same in any order.
  ValueId may_be_rounded(ValueId largest, ValueId smallest) {
    const int most = 53 - 24 - int(std::bit_width(std::uint64_t(s_.bucket)));
    const ValueId high = exponent_of(largest), low = exponent_of(wrapped_minus(smallest));
    const ValueId apart = less(word(most), apply(Op::Add, high, minus(low)));
    return b_.cast(both(apart, less(high, word(kSpecial))), DType::I32);
  }

  /// Buckets that hold all updates of their element.
  void add_buckets() {
    const auto add = [&](const Expr& at) {
      const Expr which = floordiv(at, tiles_), tile = floormod(at, tiles_);
      if (!sparse_)
        return add_element(which, tile);
      const Expr first = value_symbol(b_.load(firsts_, which, 1));
      b_.when({{first, Expr(1), Expr(2)}}, [&] { add_element(bin_of_update(which), tile); });
    };
    points((sparse_ ? f_.update_count : f_.bins) * tiles_, add, s_.lanes);
  }

  void add_element(const Expr& bin, const Expr& tile) {
    const Expr length = value_symbol(b_.load(counts_, bin, 1));
    b_.when({{length, Expr(0), Expr(s_.bucket + 1)}}, [&] {
      const std::vector<VarId> sums = each_column([&] { return zero(); });
      const Guard some{length, Expr(1), Expr(s_.bucket + 1)};
      b_.when({some}, [&] { add_bucket(bucket_of(bin), length, tile, sums); });
      for (int k = 0; k < s_.columns; ++k)
        combine_with_output(element(bin, column(tile, k)), {some}, {has_column(tile, k)},
                            [&] { return b_.read(sums[std::size_t(k)]); });
    });
  }

  void add_bucket(const Expr& first, const Expr& count, const Expr& tile,
                  const std::vector<VarId>& results) {
    const WideSums wide = wide_sums(first, count, tile);
    std::vector<ValueId> peaks;
    ValueId rounded = word(0);
    for (std::size_t k = 0; k < results.size(); ++k) {
      const ValueId largest = b_.read(wide.largest[k]);
      b_.set(results[k], b_.cast(b_.read(wide.sum[k]), DType::F32));
      peaks.push_back(exponent_of(largest));
      rounded = apply(Op::Max, rounded, may_be_rounded(largest, b_.read(wide.smallest[k])));
    }
    b_.when({{value_symbol(rounded), Expr(1), Expr(2)}}, [&] {
      const std::vector<VarId> sums = fixed_sums(first, count, tile, peaks);
      for (std::size_t k = 0; k < sums.size(); ++k)
        b_.set(results[k], from_fixed(b_.read(sums[k]), peaks[k]));
    });
  }

  std::vector<VarId> fixed_sums(const Expr& first, const Expr& count, const Expr& tile,
                                const std::vector<ValueId>& peaks) {
    const std::vector<VarId> sums = each_column([&] { return number(DType::I64, 0); });
    bucket(first, count, tile, [&](int k, ValueId value) {
      combine(sums[std::size_t(k)], Op::Add, to_fixed(value, peaks[std::size_t(k)]));
    });
    return sums;
  }

  /// Elements with more updates than a bucket holds: the others are listed as well, and parts of
  /// these lists are added up in memory, in fixed point.
  void add_full_buckets(const Expr& left) {
    const Expr full = used(kFull);
    found_points(full * columns(), [&](const Expr& at) {
      b_.store(peaks_, at, word(0));
      b_.store(sums_, at, number(DType::I64, 0));
    });
    found_points(full, [&](const Expr& slot) { share_out(slot); });
    barrier();
    found_points(left, [&](const Expr& at) {
      const ValueId update = b_.load(left_, at, 1);
      const Expr slot = value_symbol(b_.load(slots_, bin_of_update(value_symbol(update)), 1));
      const Expr place = lists() + value_symbol(b_.load(begins_, slot, 1)) +
                         value_symbol(b_.load(ranks_, at, 1)) - Expr(s_.bucket);
      b_.store(updates_, place, update);
    });
    barrier();
    const Expr parts = used(kParts);
    each_part(parts, [&](const Part& part) {
      const std::vector<VarId> peaks = each_column([&] { return word(0); });
      bucket(part.first, part.count, part.tile, [&](int k, ValueId value) {
        combine(peaks[std::size_t(k)], Op::Max, exponent(value));
      });
      for (int k = 0; k < s_.columns; ++k)
        b_.atomic_combine(Monoid::Max, peaks_, part.slot * columns() + column(part.tile, k),
                          b_.read(peaks[std::size_t(k)]), {has_column(part.tile, k)});
    });
    barrier();
    each_part(parts, [&](const Part& part) {
      std::vector<ValueId> peaks;
      for (int k = 0; k < s_.columns; ++k)
        peaks.push_back(b_.load(peaks_, part.slot * columns() + column(part.tile, k), 1,
                                {has_column(part.tile, k)}));
      const std::vector<VarId> sums = fixed_sums(part.first, part.count, part.tile, peaks);
      for (int k = 0; k < s_.columns; ++k)
        b_.atomic_combine(Monoid::Sum, sums_, part.slot * columns() + column(part.tile, k),
                          b_.read(sums[std::size_t(k)]), {has_column(part.tile, k)});
    });
    barrier();
    found_points(full * columns(), [&](const Expr& at) {
      const Expr bin = value_symbol(b_.load(full_, floordiv(at, columns()), 1));
      const ValueId peak = b_.load(peaks_, at, 1);
      combine_with_output(element(bin, floormod(at, columns())), is_updated(peak), {},
                          [&] { return from_fixed(b_.load(sums_, at, 1), peak); });
    });
  }

  /// Gives an element its list, and parts to its bucket and to this.
  void share_out(const Expr& slot) {
    const Expr bin = value_symbol(b_.load(full_, slot, 1)),
               count = value_symbol(b_.load(counts_, bin, 1)),
               parts = ceildiv(count, Expr(s_.bucket));
    const auto i32 = [&](const Expr& e) { return b_.index(e, DType::I32, 1); };
    b_.store(begins_, slot,
             b_.atomic_fetch_add(used_, Expr(kListed), i32(count - Expr(s_.bucket))));
    const Expr first = value_symbol(b_.atomic_fetch_add(used_, Expr(kParts), i32(parts)));
    b_.loop(Expr(0), parts, Expr(1), most_full_ * Expr(2), Bind::Serial, [&](const Expr& part) {
      b_.store(parts_, (first + part) * Expr(2), i32(slot));
      b_.store(parts_, (first + part) * Expr(2) + Expr(1), i32(part));
    });
  }

  struct Part {
    Expr slot, first, count, tile; ///< of the element; a stretch of updates_; of the columns
  };
  void each_part(const Expr& parts, const std::function<void(const Part&)>& body) {
    const auto part = [&](const Expr& at) {
      const Expr record = floordiv(at, tiles_) * Expr(2);
      const Expr slot = value_symbol(b_.load(parts_, record, 1)),
                 before = value_symbol(b_.load(parts_, record + Expr(1), 1)),
                 bin = value_symbol(b_.load(full_, slot, 1)), done = before * Expr(s_.bucket);
      const Expr listed =
          lists() + value_symbol(b_.load(begins_, slot, 1)) + done - Expr(s_.bucket);
      const Expr first = value_symbol(select(b_.test({{before, Expr(0), Expr(1)}}, 1),
                                             b_.index(bucket_of(bin), DType::I64, 1),
                                             b_.index(listed, DType::I64, 1)));
      const Expr count = min(Expr(s_.bucket), value_symbol(b_.load(counts_, bin, 1)) - done);
      body({slot, first, count, floormod(at, tiles_)});
    };
    found_points(parts * tiles_, part, s_.lanes);
  }

  RowShape s_;
  Expr tiles_; ///< of the columns, one for a group of lanes
  Expr lane_;  ///< of this thread in its group
  Expr most_full_;
  bool sparse_; ///< elements are found by the first update of each, and not one after the other
  int counts_ = -1, updates_ = -1, used_ = -1, left_ = -1, ranks_ = -1, slots_ = -1, full_ = -1,
      firsts_ = -1, begins_ = -1, parts_ = -1;
};

} // namespace

RowShape row_shape(const Region& region, const ScatterForm& form) {
  constexpr std::int64_t kLanes = 32, kMostColumns = 4, kInFlight = 64, kMostBucket = 1 << 12;
  const auto count = std::max<std::int64_t>(about(form.column_count), 1);
  RowShape shape;
  shape.lanes =
      int(std::min<std::int64_t>(kLanes, std::int64_t(std::bit_ceil(std::uint64_t(count)))));
  shape.columns = int(std::min(kMostColumns, (count + shape.lanes - 1) / shape.lanes));
  const auto loads =
      std::max<std::int64_t>(std::ssize(region.stages[std::size_t(form.stage)].loads), 1);
  shape.together = int(std::clamp<std::int64_t>(kInFlight / (shape.columns * loads), 1, 4));
  // Of uniformly distributed indices, hardly one has four times as many updates as the others.
  const std::int64_t average =
      about(form.update_count) / std::max<std::int64_t>(about(form.bins), 1);
  shape.bucket = std::min<std::int64_t>(
      kMostBucket, std::int64_t(std::bit_ceil(std::uint64_t(4 * average + 16))));
  return shape;
}

std::string refused_rows(const ScatterForm& form, const RowShape& shape, const Target& target) {
  if (auto why = refused_integers(form, target); !why.empty())
    return why;
  if (form.monoid != Monoid::Sum)
    return "it is no sum of f32";
  if (!form.index_by_update)
    return "columns have indices of their own";
  if (form.choice >= 0)
    return "lanes would choose among the values of joined scatters";
  if (form.bins.upper() >= INT32_MAX / shape.bucket)
    return "more elements than can have buckets";
  return !std::has_single_bit(unsigned(shape.lanes)) || shape.lanes > 32 || shape.threads % 32 != 0
             ? "lanes that are no part of a warp"
             : "";
}

KernelProgram scatter_by_rows(const Region& region, const ScatterForm& form,
                              const RowShape& shape) {
  return RowScatter(region, form, shape).run();
}

} // namespace egret::kernel
