// Scatters of many elements: the updates are sorted by their index; neighbours of one index are
// then combined, first within chunks of updates, and then the ends of chunks that belong together.
#include "kernel/gpu_scatter.h"

#include <algorithm>
#include <bit>

namespace egret::kernel {

namespace {

class SortedUpdates : GpuScatter {
public:
  SortedUpdates(const Region& region, const ScatterForm& form, const SortedShape& shape)
      : GpuScatter(region, form, shape.sort.threads), s_(shape),
        chunks_(ceildiv(form.update_count, Expr(shape.chunk))),
        bin_type_(form.bins.upper() < INT32_MAX ? DType::I32 : DType::I64),
        position_(form.update_count.upper() <= INT32_MAX ? DType::I32 : DType::I64) {}

  KernelProgram run() {
    if (empty())
      return finished();
    sort();
    barrier();
    if (!f_.monoid) {
      put_last();
      return finished();
    }
    partial_ = b_.workspace("partial", f_.state, chunks_ * Expr(2) * f_.column_count);
    chunks();
    barrier();
    join();
    return finished();
  }

private:
  KernelProgram finished() {
    KernelProgram program = finish();
    keep_registers(program.launch);
    return program;
  }

  /// The sorted bins and the numbers of their updates. What goes nowhere is behind the last bin.
  void sort() {
    const DType word = bin_type_ == DType::I32 ? DType::U32 : DType::U64;
    const auto most = static_cast<std::uint64_t>(f_.bins.upper());
    const int bits = std::max(1, int(std::bit_width(most)));
    GridSort radix(b_, s_.sort, Expr(1), f_.update_count, word, position_, bits);
    blocks_ = max(blocks_, radix.blocks());
    bins_ = b_.workspace("bins", bin_type_, f_.update_count);
    order_ = b_.workspace("order", position_, f_.update_count);
    const ValueId nowhere = b_.index(f_.bins, bin_type_, 1);
    radix.run(
        [&](const Expr&, const Expr& at, const std::vector<Guard>& mask) {
          Point p = point_of_update(r_, f_, at, Expr(0));
          p.mask = mask;
          const Expr bin = bin_of(e_, f_, p);
          const ValueId known = b_.apply(
              Op::Select, bin_type_,
              {b_.test({{bin, Expr(0), f_.bins}}, 1), b_.index(bin, bin_type_, 1), nowhere});
          return b_.cast(known, word);
        },
        [&](const Expr&, const Expr& place, ValueId bin, ValueId number,
            const std::vector<Guard>& mask) {
          b_.store(bins_, place, b_.cast(bin, bin_type_), mask);
          b_.store(order_, place, number, mask);
        },
        [&] { barrier(); });
  }

  /// Whether the update at a place, where the guards hold, has this bin.
  ValueId has_bin(const Expr& place, const std::vector<Guard>& mask, ValueId bin) {
    const ValueId there = b_.cast(b_.load(bins_, place, 1, mask), b_.type_of(bin).dtype);
    const ValueId same = b_.apply(Op::Eq, DType::Bool, {there, bin});
    return mask.empty() ? same : b_.apply(Op::And, DType::Bool, {same, b_.test(mask, 1)});
  }

  /// The value that update number `number` of the order brings to a column, and its element.
  ValueId update(const Expr& number, const Expr& column, const std::vector<Guard>& mask) {
    Point p = point_of_update(r_, f_, number, column);
    p.mask = mask;
    return update_of(e_, f_, p);
  }
  Expr element(const Expr& bin, const Expr& column) {
    return element_of(r_, f_, point_of_update(r_, f_, Expr(0), column), bin);
  }

  /// Threads along the columns, which are beside each other in memory, and along `count` others.
  void columns_of(const Expr& count,
                  const std::function<void(const Expr& number, const Expr&)>& body) {
    points(count * f_.column_count,
           [&](const Expr& flat) { body(floordiv(flat, columns()), floormod(flat, columns())); });
  }

  /// Of updates with one bin, the last.
  void put_last() {
    columns_of(f_.update_count, [&](const Expr& place, const Expr& column) {
      const Expr next = place + Expr(1);
      const std::vector<Guard> more{{next, Expr(0), f_.update_count}};
      const ValueId own = b_.load(bins_, place, 1), after = b_.load(bins_, next, 1, more);
      const ValueId ends =
          b_.apply(Op::Or, DType::Bool,
                   {b_.apply(Op::Lt, DType::Bool, {own, after}),
                    b_.test({{place, f_.update_count - Expr(1), f_.update_count}}, 1)});
      const Expr bin = value_symbol(own);
      b_.when({holds(ends), {bin, Expr(0), f_.bins}}, [&] {
        const Expr number = value_symbol(b_.load(order_, place, 1));
        update_output(e_, f_, element(bin, column), update(number, column, {}), {});
      });
    });
  }

  /// Where a chunk's first and its last bin are combined with those of its neighbours.
  Expr head(const Expr& chunk, const Expr& column) const {
    return chunk * Expr(2) * f_.column_count + column;
  }
  Expr tail(const Expr& chunk, const Expr& column) const {
    return (chunk * Expr(2) + Expr(1)) * f_.column_count + column;
  }

  /// Combines the updates of each chunk. A bin that begins and ends in the chunk is complete; what
  /// the chunk has of one that began before it is its head, of one that goes on behind it its tail.
  void chunks() {
    const Expr size(s_.chunk);
    columns_of(chunks_, [&](const Expr& chunk, const Expr& column) {
      const Expr first = chunk * size, end = min(f_.update_count, first + size);
      const VarId bin = b_.variable({DType::I64, 1}), state = b_.variable({f_.state, 1});
      const VarId of_head = b_.variable({DType::I32, 1});
      const auto number = [&](std::int64_t v, DType dtype) {
        return b_.constant(Scalar::of(dtype, v));
      };
      const ValueId own = b_.cast(b_.load(bins_, first, 1), DType::I64);
      b_.set(bin, own);
      b_.set(state, identity());
      b_.set(of_head,
             b_.cast(has_bin(first - Expr(1), {{chunk, Expr(1), chunks_}}, own), DType::I32));
      // The bin is over: it goes to its element, or stays the head.
      const auto flush = [&] {
        const ValueId sum = b_.read(state);
        const Expr is_head = value_symbol(b_.read(of_head)), at = value_symbol(b_.read(bin));
        b_.either(
            {{is_head, Expr(1), Expr(2)}}, [&] { b_.store(partial_, head(chunk, column), sum); },
            [&] {
              update_output(e_, f_, element(at, column), sum, {{at, Expr(0), f_.bins}});
            });
      };
      b_.loop(first, end, Expr(s_.together), f_.update_count, Bind::Serial, [&](const Expr& base) {
        std::vector<ValueId> bins, values;
        std::vector<std::vector<Guard>> masks;
        for (int i = 0; i < s_.together; ++i) {
          const Expr place = base + Expr(i);
          masks.push_back({{place, Expr(0), end}});
          bins.push_back(b_.cast(b_.load(bins_, place, 1, masks.back()), DType::I64));
          const Expr which = value_symbol(b_.load(order_, place, 1, masks.back()));
          values.push_back(update(which, column, masks.back()));
        }
        for (std::size_t i = 0; i < bins.size(); ++i)
          b_.when(masks[i], [&] {
            const ValueId same = b_.apply(Op::Eq, DType::Bool, {bins[i], b_.read(bin)});
            b_.when({holds(same, false)}, [&] {
              flush();
              b_.set(bin, bins[i]);
              b_.set(state, identity());
              b_.set(of_head, number(0, DType::I32));
            });
            b_.set(state, combine_updates(b_, f_, b_.read(state), values[i]));
          });
      });
      const ValueId goes_on = has_bin(end, {{end, Expr(0), f_.update_count}}, b_.read(bin));
      const ValueId began_here =
          b_.apply(Op::Eq, DType::Bool, {b_.read(of_head), number(0, DType::I32)});
      // One that came from before is the head, wherever it ends.
      b_.either(
          {holds(b_.apply(Op::And, DType::Bool, {goes_on, began_here}))},
          [&] { b_.store(partial_, tail(chunk, column), b_.read(state)); }, flush);
    });
  }

  /// Bins of several chunks: the tail where one begins, and the heads of those that follow.
  void join() {
    const Expr size(s_.chunk);
    columns_of(chunks_, [&](const Expr& chunk, const Expr& column) {
      const Expr first = chunk * size, end = first + size;
      b_.when({{end, Expr(0), f_.update_count}}, [&] {
        const ValueId own = b_.load(bins_, end - Expr(1), 1);
        const Expr bin = value_symbol(own);
        const ValueId goes_on = has_bin(end, {}, own);
        // All of the chunk may have come from before.
        const ValueId before = has_bin(first - Expr(1), {{chunk, Expr(1), chunks_}}, own);
        b_.when({holds(goes_on), holds(before, false), {bin, Expr(0), f_.bins}}, [&] {
          const VarId state = b_.variable({f_.state, 1});
          b_.set(state, b_.load(partial_, tail(chunk, column), 1));
          const Expr last = floordiv(value_symbol(end_of(own, end)) - Expr(1), size);
          b_.loop(chunk + Expr(1), last + Expr(1), Expr(1), chunks_, Bind::Serial,
                  [&](const Expr& c) {
                    b_.set(state, combine_updates(b_, f_, b_.read(state),
                                                  b_.load(partial_, head(c, column), 1)));
                  });
          update_output(e_, f_, element(bin, column), b_.read(state), {});
        });
      });
    });
  }

  /// The place behind the last update of a bin, which has one at `from`: by halving.
  ValueId end_of(ValueId bin, const Expr& from) {
    const VarId low = b_.variable({DType::I64, 1}), high = b_.variable({DType::I64, 1});
    b_.set(low, b_.index(from + Expr(1), DType::I64, 1));
    b_.set(high, b_.index(f_.update_count, DType::I64, 1));
    const int steps = int(std::bit_width(static_cast<std::uint64_t>(f_.update_count.upper())));
    b_.loop(Expr(0), Expr(steps), Expr(1), Expr(steps), Bind::Serial, [&](const Expr&) {
      const ValueId a = b_.read(low), z = b_.read(high);
      const Expr middle = floordiv(value_symbol(a) + value_symbol(z), Expr(2));
      const std::vector<Guard> open{{middle, Expr(0), value_symbol(z)}};
      const ValueId inside = has_bin(middle, open, bin);
      b_.set(low, b_.apply(Op::Select, DType::I64,
                           {inside, b_.index(middle + Expr(1), DType::I64, 1), a}));
      b_.set(high, b_.apply(Op::Select, DType::I64,
                            {inside, z, b_.index(min(middle, value_symbol(z)), DType::I64, 1)}));
    });
    return b_.read(low);
  }

  SortedShape s_;
  Expr chunks_;
  DType bin_type_, position_;
  int bins_ = -1, order_ = -1, partial_ = -1;
};

} // namespace

std::string refused_sorted(const ScatterForm& form, const RadixShape& shape) {
  if (!form.index_by_update)
    return "columns have indices of their own";
  return shape.digits() > shape.threads ? "a block has fewer threads than digits" : "";
}

KernelProgram scatter_by_sorting(const Region& region, const ScatterForm& form,
                                 const SortedShape& shape) {
  return SortedUpdates(region, form, shape).run();
}

} // namespace egret::kernel
