// The ways to sort rows by radix, and to select the first few of long rows.
#include "kernel/cpu_sort.h"
#include "kernel/analysis.h"
#include "kernel/nest.h"

#include <algorithm>

namespace egret::kernel {

namespace {

/// Vectors that are compared with the last item that is kept before the result is looked at.
constexpr int kVectorsTogether = 4;

class CpuSort {
public:
  CpuSort(const Region& region, const SortForm& form, SortWay way, const CpuRadixShape& shape)
      : r_(region), f_(form), way_(way), s_(shape), b_(region.name), e_(b_, region),
        items_(b_, e_, form, item_type(form, false)) {}

  KernelProgram run() {
    if (proves_less_equal(f_.row_count * f_.kept, Expr(0)))
      return b_.finish(Expr(1));
    Expr pieces = f_.row_count;
    std::int64_t each = 8;
    switch (way_) {
    case SortWay::Slices:
      slices();
      pieces = pieces * slices_;
      break;
    case SortWay::Insert:
      insert();
      each = 1;
      break;
    case SortWay::Filter:
      filter();
      each = 1;
      break;
    default:
      rows();
    }
    return b_.finish(useful_workers(pieces, f_.row_count * f_.length * Expr(each)));
  }

private:
  using Item = ItemWriter::Item;
  using Slice = CpuRadix::Slice;

  Point point(const Expr& row, const Expr& at, int lanes) const {
    Point p = point_of_row(r_, f_, row, at);
    p.lanes = lanes;
    return p;
  }
  void each(const Expr& begin, const Expr& end, const Expr& extent,
            const std::function<void(const Expr&)>& body) {
    b_.loop(begin, end, Expr(1), extent, Bind::Serial, body);
  }
  void each_row(const std::function<void(const Expr&)>& body) {
    const std::vector<Expr> extents{f_.row_count};
    core_loop(b_, extents, [&](std::span<const Expr> at) { body(at[0]); });
  }
  void fetch(CpuRadix& radix, const Expr& row, const Slice& slice) {
    radix.fetch(slice, f_.length,
                [&](const Expr& at, int lanes) { return items_.element(point(row, at, lanes)); });
  }
  /// Sorted items [begin, end) of a row, from `memory` on, to the results.
  void deliver(const ItemWriter::Memory& from, const Expr& memory, const Expr& row,
               const Expr& begin, const Expr& end) {
    const Expr lanes(s_.lanes);
    const auto one = [&](const Expr& i) {
      items_.deliver(point(row, i, 1), items_.load(from, memory + i, 1));
    };
    Expr whole = begin;
    if (s_.lanes > 1) {
      whole = begin + floordiv(end - begin, lanes) * lanes;
      b_.loop(begin, whole, lanes, f_.length + lanes, Bind::Serial, [&](const Expr& first) {
        const Expr at = first + lane_variable(s_.lanes);
        items_.deliver(point(row, at, s_.lanes), items_.load(from, memory + at, s_.lanes));
      });
    }
    each(whole, end, f_.length, one);
  }

  // --- By radix

  void rows() {
    CpuRadix radix(b_, items_, s_, f_.length, Expr(std::int64_t{1} << s_.bits), false);
    each_row([&](const Expr& row) {
      const Slice all{Expr(0), f_.length, Expr(0), Expr(0)};
      fetch(radix, row, all);
      const Expr sorted = radix.sort(all, radix.range(radix.bounds(all, f_.length)), f_.length);
      deliver(radix.memory(), sorted, row, Expr(0), f_.kept);
    });
  }

  void slices() {
    slices_ = max(Expr(1), min(Expr(kMostSlices), floordiv(f_.length, Expr(kSliceLength))));
    const Expr digits(std::int64_t{1} << s_.bits);
    CpuRadix radix(b_, items_, s_, f_.row_count * f_.length, f_.row_count * slices_ * digits, true);
    const DType word = items_.type().word;
    const int bounds = b_.workspace("bounds", word, f_.row_count * slices_ * Expr(3));
    const auto each_kind = [](const auto& f) {
      f(0, &CpuRadix::Bounds::least);
      f(1, &CpuRadix::Bounds::largest);
      f(2, &CpuRadix::Bounds::disorder);
    };
    each_slice([&](const Expr& row, const Expr& number, const Slice& slice) {
      fetch(radix, row, slice);
      const CpuRadix::Bounds own = radix.bounds(slice, f_.length);
      each_kind([&](int kind, auto member) {
        b_.store(bounds, (row * slices_ + number) * Expr(3) + Expr(kind), own.*member);
      });
    });
    const auto range_of = [&](const Expr& row) {
      const auto load = [&](const Expr& number) {
        CpuRadix::Bounds of;
        each_kind([&](int kind, auto member) {
          of.*member = b_.load(bounds, (row * slices_ + number) * Expr(3) + Expr(kind), 1);
        });
        return of;
      };
      VarId variables[3];
      const CpuRadix::Bounds first = load(Expr(0));
      each_kind([&](int kind, auto member) {
        variables[kind] = b_.variable({word, 1});
        b_.set(variables[kind], first.*member);
      });
      const auto read = [&] {
        return CpuRadix::Bounds{b_.read(variables[0]), b_.read(variables[1]),
                                b_.read(variables[2])};
      };
      each(Expr(1), slices_, slices_, [&](const Expr& number) {
        const CpuRadix::Bounds all = radix.join(read(), load(number));
        each_kind([&](int kind, auto member) { b_.set(variables[kind], all.*member); });
      });
      return radix.range(read());
    };
    radix.each_pass([&](const Expr& pass) {
      const auto needed = [&](const auto& body) {
        // A slice's items have been moved there by others.
        b_.barrier();
        each_slice([&](const Expr& row, const Expr&, const Slice& slice) {
          const CpuRadix::Range range = range_of(row);
          b_.when(radix.needed(range, pass), [&] { body(slice, range); });
        });
      };
      needed([&](const Slice& slice, const CpuRadix::Range& range) {
        radix.count(slice, range, pass, f_.length);
      });
      b_.barrier();
      each_row([&](const Expr& row) {
        b_.when(radix.needed(range_of(row), pass),
                [&] { radix.prefix(row * slices_ * digits, slices_); });
      });
      needed([&](const Slice& slice, const CpuRadix::Range& range) {
        radix.move(slice, range, pass, f_.length);
      });
    });
    b_.barrier();
    each_slice([&](const Expr& row, const Expr&, const Slice& slice) {
      deliver(radix.memory(), radix.sorted(range_of(row)) + slice.memory, row, slice.begin,
              min(slice.end, f_.kept));
    });
  }

  void
  each_slice(const std::function<void(const Expr& row, const Expr& number, const Slice&)>& body) {
    const std::vector<Expr> extents{f_.row_count, slices_};
    const Expr size = ceildiv(f_.length, slices_), digits(std::int64_t{1} << s_.bits);
    core_loop(b_, extents, [&](std::span<const Expr> at) {
      const Expr begin = min(f_.length, at[1] * size);
      body(at[0], at[1],
           {begin, min(f_.length, begin + size), at[0] * f_.length,
            (at[0] * slices_ + at[1]) * digits});
    });
  }

  // --- By selection

  /// Calls `take` with the elements [begin, end) of vectors in which one is better than the key
  /// in `worst`; those at the end come singly. Several vectors are looked at together.
  void improvements(const Expr& row, const Expr& begin, const Expr& end, VarId worst,
                    const std::function<void(const Expr&)>& take) {
    const Expr extent = f_.length + Expr(kVectorsTogether * s_.lanes);
    const auto level = [&](const Expr& from, const Expr& to, int vectors, const auto& body) {
      const Expr step(vectors * s_.lanes), whole = from + floordiv(to - from, step) * step;
      b_.loop(from, whole, step, extent, Bind::Serial, [&](const Expr& first) {
        ValueId better = -1;
        for (int i = 0; i < vectors; ++i) {
          const Expr at =
              first + Expr(i * s_.lanes) + (s_.lanes > 1 ? lane_variable(s_.lanes) : Expr(0));
          const ValueId one =
              items_.less(key_word(e_, f_, point(row, at, s_.lanes)), b_.read(worst));
          better = better < 0 ? one : b_.apply(Op::Or, DType::Bool, {better, one});
        }
        const ValueId any = b_.reduce_lanes(Monoid::Max, b_.cast(better, DType::I32));
        b_.when({{value_symbol(any), Expr(1), Expr(2)}}, [&] { body(first, first + step); });
      });
      return whole;
    };
    const auto singly = [&](const Expr& from, const Expr& to) { each(from, to, extent, take); };
    const Expr rest = level(begin, end, kVectorsTogether,
                            [&](const Expr& from, const Expr& to) { level(from, to, 1, singly); });
    singly(rest, end);
  }

  void insert() {
    const auto best = items_.memory("best", f_.kept, false);
    each_row([&](const Expr& row) {
      const VarId worst = b_.variable({f_.word, 1});
      const auto worst_now = [&] {
        b_.set(worst, items_.key(b_.load(best.words, f_.kept - Expr(1), 1)));
      };
      each(Expr(0), f_.kept, f_.kept, [&](const Expr& i) {
        items_.store(best, i, items_.element(point(row, i, 1)), {});
        sift(best, i);
      });
      worst_now();
      improvements(row, f_.kept, f_.length, worst, [&](const Expr& i) {
        const Point p = point(row, i, 1);
        const ValueId better =
            b_.cast(items_.less(key_word(e_, f_, p), b_.read(worst)), DType::I32);
        b_.when({{value_symbol(better), Expr(1), Expr(2)}}, [&] {
          items_.store(best, f_.kept - Expr(1), items_.element(p), {});
          sift(best, f_.kept - Expr(1));
          worst_now();
        });
      });
      each(Expr(0), f_.kept, f_.kept,
           [&](const Expr& i) { items_.deliver(point(row, i, 1), items_.load(best, i, 1)); });
    });
  }

  /// Item `last` goes to its place among the sorted ones before it, behind its equals.
  void sift(const ItemWriter::Memory& best, const Expr& last) {
    const Item item = items_.load(best, last, 1);
    const auto choose = [&](ValueId which, const Item& a, const Item& b) {
      return Item{items_.select(which, a.word, b.word),
                  a.position < 0 ? -1 : items_.select(which, a.position, b.position)};
    };
    each(Expr(0), last, f_.kept, [&](const Expr& step) {
      const Expr place = last - step;
      const Item before = items_.load(best, place - Expr(1), 1), here = items_.load(best, place, 1);
      const Item stays = choose(items_.less(item.word, here.word), item, here);
      items_.store(best, place, choose(items_.less(item.word, before.word), before, stays), {});
    });
    const Item first = items_.load(best, Expr(0), 1);
    items_.store(best, Expr(0), choose(items_.less(item.word, first.word), item, first), {});
  }

  void filter() {
    const std::int64_t kept = f_.kept.value(), room = filter_memory(kept),
                       length = f_.length.value();
    CpuRadix radix(b_, items_, s_, Expr(room), Expr(std::int64_t{1} << s_.bits), false);
    const ItemWriter::Memory& memory = radix.memory();
    each_row([&](const Expr& row) {
      const VarId worst = b_.variable({f_.word, 1}), count = b_.variable({DType::I64, 1});
      const auto sort = [&](const Expr& items) {
        const Slice all{Expr(0), items, Expr(0), Expr(0)};
        const Expr sorted = radix.sort(all, radix.range(radix.bounds(all, Expr(room))), Expr(room));
        each(Expr(0), Expr(kept), Expr(kept), [&](const Expr& i) {
          items_.store(memory, i, items_.load(memory, sorted + i, 1), {});
        });
        b_.set(worst, items_.key(b_.load(memory.words, Expr(kept - 1), 1)));
        b_.set(count, items_.number(kept, DType::I64));
      };
      // The first elements, without a comparison; then pieces of those behind.
      each(Expr(0), Expr(room - kFiltered), Expr(room),
           [&](const Expr& i) { items_.store(memory, i, items_.element(point(row, i, 1)), {}); });
      b_.set(count, items_.number(room - kFiltered, DType::I64));
      const std::int64_t pieces = (length - (room - kFiltered) + kFiltered - 1) / kFiltered;
      each(Expr(0), Expr(pieces + 1), Expr(pieces + 1), [&](const Expr& piece) {
        // Sorted before the first piece and behind the last one, and where memory may not suffice.
        const Expr now = value_symbol(b_.read(count));
        const ValueId ends = b_.test({{piece, Expr(1), Expr(pieces)}}, 1);
        const ValueId fits = b_.test({{now, Expr(0), Expr(room - kFiltered)}}, 1);
        const ValueId enough = b_.cast(b_.apply(Op::And, DType::Bool, {ends, fits}), DType::I32);
        b_.when({{value_symbol(enough), Expr(0), Expr(1)}}, [&] { sort(now); });
        const Expr begin = Expr(room - kFiltered) + piece * Expr(kFiltered);
        improvements(row, min(begin, Expr(length)), min(begin + Expr(kFiltered), Expr(length)),
                     worst, [&](const Expr& i) {
                       const Point p = point(row, i, 1);
                       const ValueId n = b_.read(count);
                       items_.store(memory, value_symbol(n), items_.element(p), {});
                       const ValueId better =
                           b_.cast(items_.less(key_word(e_, f_, p), b_.read(worst)), DType::I64);
                       b_.set(count, b_.apply(Op::Add, DType::I64, {n, better}));
                     });
      });
      deliver(memory, Expr(0), row, Expr(0), f_.kept);
    });
  }

  const Region& r_;
  const SortForm& f_;
  SortWay way_;
  CpuRadixShape s_;
  ProgramBuilder b_;
  Emitter e_;
  ItemWriter items_;
  Expr slices_ = Expr(1);
};

} // namespace

std::int64_t filter_memory(std::int64_t kept) {
  return std::max<std::int64_t>(2 * kFiltered, 4 * kept);
}

KernelProgram sort_by_radix(const Region& region, const SortForm& form, SortWay way,
                            const CpuRadixShape& shape) {
  return CpuSort(region, form, way, shape).run();
}

} // namespace egret::kernel
