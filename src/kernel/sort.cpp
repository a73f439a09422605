// Sorts along one axis on a CPU, by radix, least significant digit first and stable. A worker sorts
// whole rows; where these are few and long, workers share them: each counts and moves the digits of
// slices of the row. Where only the first few of a row are wanted, a worker keeps the best so far
// and looks at vectors of elements for one that is better.
#include "kernel/analysis.h"
#include "kernel/families.h"
#include "kernel/knobs.h"
#include "kernel/nest.h"
#include "kernel/sort_form.h"

#include <algorithm>

namespace egret::kernel {

namespace {

/// Elements of a slice, and rows that are enough to go without.
constexpr std::int64_t kSlice = 1 << 14, kFewRows = 16, kMostSlices = 64;
/// Of long rows, the first so many are selected.
constexpr std::int64_t kMostSelected = 256, kLeastShare = 8;

enum class CpuSortWay : std::uint8_t { Rows, Slices, Select };

class CpuSort {
public:
  CpuSort(const Region& region, const SortForm& form, CpuSortWay way, int bits, int lanes)
      : r_(region), f_(form), way_(way), bits_(bits), lanes_(lanes), b_(region.name),
        e_(b_, region) {}

  KernelProgram run() {
    if (proves_less_equal(f_.row_count * f_.kept, Expr(0)))
      return b_.finish(Expr(1));
    if (way_ == CpuSortWay::Select)
      select();
    else
      sort();
    const Expr pieces = way_ == CpuSortWay::Slices ? f_.row_count * slices_ : f_.row_count;
    const Expr each(way_ == CpuSortWay::Select ? 1 : 8 * passes());
    return b_.finish(useful_workers(pieces, f_.row_count * f_.length * each));
  }

private:
  std::int64_t passes() const { return (f_.bits + bits_ - 1) / bits_; }

  ValueId number(std::int64_t v, DType dtype) { return b_.constant(Scalar::of(dtype, v)); }
  ValueId add(ValueId x, ValueId y) { return b_.apply(Op::Add, b_.type_of(x).dtype, {x, y}); }
  ValueId word(const Expr& row, const Expr& at) {
    return key_word(e_, f_, point_of_row(r_, f_, row, at));
  }
  void each(const Expr& begin, const Expr& end, const Expr& extent,
            const std::function<void(const Expr&)>& body) {
    b_.loop(begin, end, Expr(1), extent, Bind::Serial, body);
  }

  // --- By radix

  /// A row or slice of one, and where its memory begins.
  struct Slice {
    Expr row, begin, end, memory, counts;
  };

  void sort() {
    const bool shared = way_ == CpuSortWay::Slices;
    const Expr digits(std::int64_t{1} << bits_);
    slices_ =
        shared ? max(Expr(1), min(Expr(kMostSlices), floordiv(f_.length, Expr(kSlice)))) : Expr(1);
    const Expr elements = shared ? f_.row_count * f_.length : f_.length;
    const auto memory = [&](const char* name, DType dtype, const Expr& count) {
      return shared ? b_.workspace(name, dtype, count) : b_.worker_memory(name, dtype, count);
    };
    for (const int half : {0, 1}) {
      words_[half] = memory(half ? "words1" : "words0", f_.word, elements);
      positions_[half] = memory(half ? "positions1" : "positions0", f_.position, elements);
    }
    counts_ = memory("counts", f_.position, shared ? f_.row_count * slices_ * digits : digits);
    if (!shared) {
      const std::vector<Expr> extents{f_.row_count};
      core_loop(b_, extents, [&](std::span<const Expr> at) {
        const Slice all{at[0], Expr(0), f_.length, Expr(0), Expr(0)};
        fetch(all);
        for (int pass = 0; pass < passes(); ++pass) {
          count(all, pass);
          prefix(all.counts, Expr(1));
          move(all, pass);
        }
      });
      return;
    }
    slices([&](const Slice& slice) { fetch(slice); });
    for (int pass = 0; pass < passes(); ++pass) {
      // A slice's elements have been moved there by others.
      b_.barrier();
      slices([&](const Slice& slice) { count(slice, pass); });
      b_.barrier();
      const std::vector<Expr> extents{f_.row_count};
      core_loop(b_, extents,
                [&](std::span<const Expr> at) { prefix(at[0] * slices_ * digits, slices_); });
      b_.barrier();
      slices([&](const Slice& slice) { move(slice, pass); });
    }
  }

  void slices(const std::function<void(const Slice&)>& body) {
    const std::vector<Expr> extents{f_.row_count, slices_};
    const Expr size = ceildiv(f_.length, slices_), digits(std::int64_t{1} << bits_);
    core_loop(b_, extents, [&](std::span<const Expr> at) {
      const Expr begin = min(f_.length, at[1] * size);
      body({at[0], begin, min(f_.length, begin + size), at[0] * f_.length,
            (at[0] * slices_ + at[1]) * digits});
    });
  }

  void fetch(const Slice& slice) {
    each(slice.begin, slice.end, f_.length, [&](const Expr& i) {
      b_.store(words_[0], slice.memory + i, word(slice.row, i));
      b_.store(positions_[0], slice.memory + i, b_.index(i, f_.position, 1));
    });
  }

  Expr digit(ValueId word, int pass) {
    const ValueId shift = number(std::int64_t(pass) * bits_, f_.word);
    return value_symbol(digit_of(b_, word, shift, bits_));
  }

  void count(const Slice& slice, int pass) {
    const Expr digits(std::int64_t{1} << bits_);
    each(Expr(0), digits, digits,
         [&](const Expr& d) { b_.store(counts_, slice.counts + d, number(0, f_.position)); });
    each(slice.begin, slice.end, f_.length, [&](const Expr& i) {
      const ValueId w = b_.load(words_[pass % 2], slice.memory + i, 1);
      const Expr place = slice.counts + digit(w, pass);
      b_.store(counts_, place, add(b_.load(counts_, place, 1), number(1, f_.position)));
    });
  }

  /// Of each digit, in its slices in order: how many elements of the row stand before.
  void prefix(const Expr& first, const Expr& slices) {
    const Expr digits(std::int64_t{1} << bits_);
    const VarId sum = b_.variable({f_.position, 1});
    b_.set(sum, number(0, f_.position));
    each(Expr(0), digits, digits, [&](const Expr& d) {
      each(Expr(0), slices, slices, [&](const Expr& slice) {
        const Expr place = first + slice * digits + d;
        const ValueId here = b_.load(counts_, place, 1), before = b_.read(sum);
        b_.store(counts_, place, before);
        b_.set(sum, add(before, here));
      });
    });
  }

  void move(const Slice& slice, int pass) {
    each(slice.begin, slice.end, f_.length, [&](const Expr& i) {
      const ValueId w = b_.load(words_[pass % 2], slice.memory + i, 1);
      const ValueId position = b_.load(positions_[pass % 2], slice.memory + i, 1);
      const Expr counter = slice.counts + digit(w, pass);
      const ValueId place = b_.load(counts_, counter, 1);
      b_.store(counts_, counter, add(place, number(1, f_.position)));
      if (pass + 1 == passes()) {
        store_position(e_, f_, slice.row, value_symbol(place), position, {});
        return;
      }
      const Expr to = slice.memory + value_symbol(place);
      b_.store(words_[1 - pass % 2], to, w);
      b_.store(positions_[1 - pass % 2], to, position);
    });
  }

  // --- By selection

  void select() {
    words_[0] = b_.worker_memory("best", f_.word, f_.kept);
    positions_[0] = b_.worker_memory("where", f_.position, f_.kept);
    const std::vector<Expr> extents{f_.row_count};
    core_loop(b_, extents, [&](std::span<const Expr> at) {
      const Expr& row = at[0];
      const VarId worst = b_.variable({f_.word, 1});
      each(Expr(0), f_.kept, f_.kept, [&](const Expr& i) { insert(row, i, i, true); });
      b_.set(worst, b_.load(words_[0], f_.kept - Expr(1), 1));
      const auto improve = [&](const Expr& i) {
        const ValueId better =
            b_.cast(b_.apply(Op::Lt, DType::Bool, {word(row, i), b_.read(worst)}), DType::I32);
        b_.when({{value_symbol(better), Expr(1), Expr(2)}}, [&] {
          insert(row, i, f_.kept, false);
          b_.set(worst, b_.load(words_[0], f_.kept - Expr(1), 1));
        });
      };
      const Expr lanes(lanes_);
      const Expr whole = f_.kept + floordiv(f_.length - f_.kept, lanes) * lanes;
      b_.loop(f_.kept, whole, lanes, f_.length + lanes, Bind::Serial, [&](const Expr& first) {
        b_.when({{value_symbol(any_better(row, first, worst)), Expr(1), Expr(2)}},
                [&] { each(first, first + lanes, f_.length + lanes, improve); });
      });
      each(whole, f_.length, f_.length, improve);
      each(Expr(0), f_.kept, f_.kept, [&](const Expr& i) {
        store_position(e_, f_, row, i, b_.load(positions_[0], i, 1), {});
      });
    });
  }

  /// 1 where one of a vector of elements is better than the worst that is kept, else 0.
  ValueId any_better(const Expr& row, const Expr& first, VarId worst) {
    Point p = point_of_row(r_, f_, row, first + (lanes_ > 1 ? lane_variable(lanes_) : Expr(0)));
    p.lanes = lanes_;
    const ValueId words = key_word(e_, f_, p);
    const ValueId better = b_.apply(Op::Lt, DType::Bool, {words, b_.read(worst)});
    return b_.reduce_lanes(Monoid::Max, b_.cast(better, DType::I32));
  }

  /// Element `i` among the first `count` that are kept, which are in order; it comes behind its
  /// equals. With `grows`, none is dropped.
  void insert(const Expr& row, const Expr& i, const Expr& count, bool grows) {
    const VarId words = b_.variable({f_.word, 1}), positions = b_.variable({f_.position, 1});
    b_.set(words, word(row, i));
    b_.set(positions, b_.index(i, f_.position, 1));
    each(Expr(0), count, f_.kept, [&](const Expr& j) {
      const ValueId w = b_.load(words_[0], j, 1), position = b_.load(positions_[0], j, 1);
      const ValueId mine = b_.read(words), where = b_.read(positions);
      const ValueId later = b_.apply(Op::And, DType::Bool,
                                     {b_.apply(Op::Eq, DType::Bool, {w, mine}),
                                      b_.apply(Op::Lt, DType::Bool, {where, position})});
      const ValueId swap =
          b_.apply(Op::Or, DType::Bool, {b_.apply(Op::Lt, DType::Bool, {mine, w}), later});
      b_.store(words_[0], j, b_.apply(Op::Select, f_.word, {swap, mine, w}));
      b_.store(positions_[0], j, b_.apply(Op::Select, f_.position, {swap, where, position}));
      b_.set(words, b_.apply(Op::Select, f_.word, {swap, w, mine}));
      b_.set(positions, b_.apply(Op::Select, f_.position, {swap, position, where}));
    });
    if (grows) {
      b_.store(words_[0], count, b_.read(words));
      b_.store(positions_[0], count, b_.read(positions));
    }
  }

  const Region& r_;
  const SortForm& f_;
  CpuSortWay way_;
  int bits_, lanes_;
  ProgramBuilder b_;
  Emitter e_;
  int words_[2] = {-1, -1}, positions_[2] = {-1, -1}; ///< Select: what is kept, in the first
  int counts_ = -1;
  Expr slices_ = Expr(1);
};

constexpr Knob kSortKnobs[] = {{"way", 0, 2}, {"bits", 2, 12}};

std::string refused(const SortForm& form, CpuSortWay way) {
  if (way == CpuSortWay::Select &&
      (!form.kept.is_constant() || form.kept.value() > kMostSelected || form.kept.value() < 1 ||
       !proves_less_equal(form.kept * Expr(kLeastShare), form.length)))
    return "not the first few of long rows are wanted";
  return {};
}

class SortGenerator : public Generator {
public:
  std::string name() const override { return "sort"; }

  std::vector<Schedule> space(const Region& region, const Target&) const override {
    const auto form = sort_form(region);
    if (!form)
      return {};
    const std::int64_t length = about(form->length);
    const bool few = about(form->row_count) < kFewRows && length >= 4 * kSlice;
    std::vector<Schedule> out;
    const auto offer = [&](CpuSortWay way, int bits) {
      if (!refused(*form, way).empty())
        return;
      Schedule s;
      s.generator = name();
      s.knobs = {{"way", int(way)}, {"bits", bits}};
      out.push_back(std::move(s));
    };
    const int usual = length <= 64 ? 4 : 8;
    offer(CpuSortWay::Select, usual);
    for (const CpuSortWay way : few ? std::vector{CpuSortWay::Slices, CpuSortWay::Rows}
                                    : std::vector{CpuSortWay::Rows, CpuSortWay::Slices})
      offer(way, usual);
    offer(few ? CpuSortWay::Slices : CpuSortWay::Rows, length <= 64          ? 2
                                                       : length >= (1 << 16) ? 11
                                                                             : 6);
    return out;
  }

  Lowered lower(const Region& region, const Schedule& schedule,
                const Target& target) const override {
    if (auto why = refused_settings(schedule, target, kSortKnobs); !why.empty())
      return {false, {}, why};
    const auto form = sort_form(region);
    if (!form)
      return {false, {}, "it is no sort"};
    const auto way = static_cast<CpuSortWay>(schedule.knob("way", 0));
    if (auto why = refused(*form, way); !why.empty())
      return {false, {}, why};
    const std::int64_t bytes = schedule.vector_bytes ? schedule.vector_bytes : target.vector_bytes;
    const int stages[] = {form->stage};
    const int lanes =
        std::min(lanes_for(region, stages, bytes), int(bytes / std::int64_t(size_of(form->word))));
    return {true,
            CpuSort(region, *form, way, int(schedule.knob("bits", 8)), std::max(1, lanes)).run(),
            ""};
  }
};

} // namespace

const Generator& sort_generator() {
  static const SortGenerator generator;
  return generator;
}

} // namespace egret::kernel
