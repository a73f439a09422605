// Sums of f32 to many elements: the updates are partitioned by ranges of elements, as a radix
// partition does by the first digits of keys, and a block adds those of a range in fixed point in
// its shared memory. Memory is read and written a few times in place of two atomic operations an
// update and two tables of all elements.
#include "kernel/gpu_scatter.h"
#include "kernel/gpu_scatter_fixed.h"

#include "support/checked.h"

#include <algorithm>

namespace egret::kernel {

namespace {

constexpr std::int64_t kKeyBits = 32;

class Partitions : FixedPointScatter {
public:
  Partitions(const Region& region, const ScatterForm& form, const PartitionShape& shape)
      : FixedPointScatter(region, form, shape.threads, shape.together), s_(shape),
        parts_(partitions_of(form, shape)) {
    constexpr std::int64_t kSparse = 32; // all elements pass through a block's memory anyway
    whole_ = writes_whole_output(region, form, kSparse);
  }

  KernelProgram run() {
    if (empty() || parts_ == 0)
      return finish();
    totals_ = b_.workspace("totals", DType::I32, Expr(parts_ + 1));
    cursors_ = b_.workspace("cursors", DType::I32, Expr(parts_));
    pairs_ = b_.workspace("pairs", DType::I64, update_points() * Expr(places()));
    own_ = b_.shared("own", DType::I32, parts_);
    make_tables(s_.range);
    points(Expr(parts_ + 1), [&](const Expr& at) { b_.store(totals_, at, word(0)); });
    barrier();
    count();
    barrier();
    points(Expr(parts_), [&](const Expr& part) {
      b_.store(cursors_, part,
               b_.atomic_fetch_add(totals_, Expr(parts_), b_.load(totals_, part, 1)));
    });
    barrier();
    write_pairs();
    barrier();
    blocks_ = max(blocks_, Expr(parts_));
    b_.grid_loop(Expr(parts_), [&](const Expr& part) { add(part); });
    return finish();
  }

private:
  ValueId word(std::int64_t value) { return number(DType::I32, value); }

  void each_part(const std::function<void(const Expr&)>& body) {
    each_of_block(parts_, [&](const Expr& part, const std::vector<Guard>& mask) {
      b_.when(mask, [&] { body(part); });
    });
  }

  Expr part_of(const Update& u) const { return floordiv(element_number(u), Expr(s_.range)); }

  /// How many updates of each range the block's threads have, and all.
  void count() {
    each_part([&](const Expr& part) { b_.store(own_, part, word(0)); });
    b_.barrier();
    all_updates([&](const std::vector<Update>& updates) {
      for (const Update& u : updates)
        b_.atomic_combine(Monoid::Sum, own_, part_of(u), word(1), u.mask);
    });
    b_.barrier();
    each_part([&](const Expr& part) {
      b_.atomic_combine(Monoid::Sum, totals_, part, b_.load(own_, part, 1));
    });
  }

  /// Writes the block's updates, the same as before, to a part of each partition that it takes: an
  /// element of the range and the bits of what is added.
  void write_pairs() {
    each_part([&](const Expr& part) {
      b_.store(own_, part, b_.atomic_fetch_add(cursors_, part, b_.load(own_, part, 1)));
    });
    b_.barrier();
    all_updates([&](const std::vector<Update>& updates) {
      std::vector<ValueId> pairs;
      for (const Update& u : updates) {
        const ValueId bits = b_.apply(Op::Bitcast, DType::U32, {update_of(e_, f_, u.point)});
        const Expr key = floormod(element_number(u), Expr(s_.range));
        pairs.push_back(apply(
            Op::Or, apply(Op::Shl, b_.index(key, DType::I64, 1), number(DType::I64, kKeyBits)),
            b_.cast(bits, DType::I64)));
      }
      for (std::size_t i = 0; i < updates.size(); ++i) {
        const Update& u = updates[i];
        b_.when(u.mask, [&] {
          const ValueId slot = b_.atomic_fetch_add(own_, part_of(u), word(1));
          b_.store(pairs_, value_symbol(slot), pairs[i]);
        });
      }
    });
  }

  /// The updates of a partition, some at a time.
  void for_pairs(const Expr& begin, const Expr& end,
                 const std::function<void(const std::vector<Placed>&)>& body) {
    const Expr step(std::int64_t(threads_) * s_.each);
    b_.loop(
        begin, end, step, update_points() * Expr(places()), Bind::Serial, [&](const Expr& base) {
          std::vector<Placed> pairs;
          for (int i = 0; i < s_.each; ++i) {
            const Expr at = base + Expr(std::int64_t(i) * threads_) + thread_;
            const std::vector<Guard> mask{{at, Expr(0), end}};
            const ValueId pair = b_.load(pairs_, at, 1, mask);
            const ValueId bits =
                b_.cast(apply(Op::And, pair, number(DType::I64, 0xffffffff)), DType::U32);
            const ValueId key =
                b_.cast(apply(Op::Shr, pair, number(DType::I64, kKeyBits)), DType::I32);
            pairs.push_back({value_symbol(key), b_.apply(Op::Bitcast, DType::F32, {bits}), mask});
          }
          body(pairs);
        });
  }

  void add(const Expr& part) {
    const Expr low = part * Expr(s_.range);
    const ValueId total = b_.load(totals_, part, 1), end = b_.load(cursors_, part, 1);
    const Expr last = value_symbol(end), first = last - value_symbol(total);
    fill_tables([&](const auto& add) { for_pairs(first, last, add); });
    const Expr step(std::int64_t(threads_) * s_.each);
    b_.loop(Expr(0), Expr(s_.range), step, Expr(s_.range) + step, Bind::Serial,
            [&](const Expr& base) { hand_on(low, base); });
    b_.barrier();
  }

  /// Combines some elements of a thread with the output.
  void hand_on(const Expr& low, const Expr& base) {
    struct Element {
      Expr at; ///< in the output
      ValueId peak, sum, data;
      std::vector<Guard> mask;
    };
    std::vector<Element> all;
    for (int i = 0; i < s_.each; ++i) {
      const Expr at = base + Expr(std::int64_t(i) * threads_) + thread_, number = low + at;
      const std::vector<Guard> mask =
          unproved({{at, Expr(0), Expr(s_.range)}, {number, Expr(0), elements()}});
      const Point p = point_of_update(r_, f_, Expr(0), floormod(number, columns()));
      all.push_back({element_of(r_, f_, p, floordiv(number, columns())),
                     b_.load(peaks_, at, 1, mask), b_.load(sums_, at, 1, mask), -1, mask});
      if (whole_)
        all.back().data = b_.load(e_.operand_buffer(r_.outputs[0].alias), all.back().at, 1, mask);
    }
    const int output = e_.output_buffer(0);
    for (const Element& e : all)
      if (whole_) {
        const ValueId data = b_.cast(e.data, f_.state);
        const ValueId updated = less(word(0), e.peak);
        const ValueId sum = combine_updates(b_, f_, data, from_fixed(e.sum, e.peak));
        b_.store(output, e.at, b_.cast(select(updated, sum, data), b_.buffer_dtype(output)),
                 e.mask);
      } else {
        combine_with_output(e.at, is_updated(e.peak), e.mask,
                            [&] { return from_fixed(e.sum, e.peak); });
      }
  }

  PartitionShape s_;
  std::int64_t parts_;
  int totals_ = -1;  ///< updates of each range; behind them, how many have room
  int cursors_ = -1; ///< the first free place of each partition; at last, its end
  int pairs_ = -1;
  int own_ = -1; ///< of the block: updates of each range, then where its next one goes
};

} // namespace

std::optional<PartitionShape> partition_shape(const ScatterForm& form, const Target& target) {
  constexpr std::int64_t kLeastRange = 16, kReserved = 16 << 10; // bytes for what ranges count
  const std::int64_t elements = about(form.bins) * about(form.column_count),
                     updates = about(form.update_count) * about(form.column_count),
                     most = (target.block_shared_bytes - kReserved) / kFixedBytes;
  if (elements < kLeastRange * target.workers || most < kLeastRange)
    return std::nullopt;
  PartitionShape shape;
  const std::int64_t rounds = ceil_quotient(elements, target.workers * most);
  shape.range = ceil_quotient(elements, target.workers * rounds);
  // All updates in one iteration of the blocks, or as many in each as registers hold.
  shape.together =
      int(std::clamp<std::int64_t>(ceil_quotient(updates, target.workers * shape.threads), 1, 8));
  return shape;
}

std::int64_t partitions_of(const ScatterForm& form, const PartitionShape& shape) {
  return ceil_quotient(form.bins.value() * form.column_count.value(), shape.range);
}

std::string refused_partitions(const ScatterForm& form, const PartitionShape& shape,
                               const Target& target) {
  if (auto why = refused_integers(form, target); !why.empty())
    return why;
  if (form.monoid != Monoid::Sum)
    return "it is no sum of f32";
  constexpr std::int64_t kMost = INT32_MAX;
  if (!form.bins.is_constant() || !form.column_count.is_constant() ||
      !form.update_count.is_constant())
    return "it is not known how many updates or elements there are";
  if (form.bins.value() > kMost / std::max<std::int64_t>(form.column_count.value(), 1) ||
      form.update_count.value() > kMost / std::max<std::int64_t>(form.column_count.value(), 1))
    return "more updates or elements than 32 bits count";
  const std::int64_t bytes = shape.range * kFixedBytes + partitions_of(form, shape) * 4;
  return bytes + 1024 > target.block_shared_bytes ? "more ranges than a block can count" : "";
}

KernelProgram scatter_by_partitions(const Region& region, const ScatterForm& form,
                                    const PartitionShape& shape) {
  return Partitions(region, form, shape).run();
}

} // namespace egret::kernel
