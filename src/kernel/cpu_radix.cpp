#include "kernel/cpu_sort.h"

#include <algorithm>

namespace egret::kernel {

CpuRadix::CpuRadix(ProgramBuilder& b, ItemWriter& items, const CpuRadixShape& shape,
                   const Expr& elements, const Expr& counts, bool shared)
    : b_(b), items_(items), s_(shape),
      key_bits_(8 * int(size_of(items.type().word)) - items.type().position_bits),
      elements_(elements), memory_(items.memory("items", elements * Expr(2), shared)) {
  // Elements of a row have numbers that fit the type of positions; a packed word is as wide.
  const DType dtype = items.type().paired ? items.type().position : DType::I32;
  counts_ =
      shared ? b_.workspace("counts", dtype, counts) : b_.worker_memory("counts", dtype, counts);
}

std::int64_t CpuRadix::passes() const {
  return (key_bits_ + s_.bits - 1) / s_.bits;
}

void CpuRadix::vectors(const Expr& begin, const Expr& end, const Expr& extent,
                       const std::function<void(const Expr& at, int lanes)>& body) {
  Expr whole = begin;
  if (s_.lanes > 1) {
    const Expr lanes(s_.lanes);
    whole = begin + floordiv(end - begin, lanes) * lanes;
    b_.loop(begin, whole, lanes, extent + lanes, Bind::Serial,
            [&](const Expr& first) { body(first + lane_variable(s_.lanes), s_.lanes); });
  }
  each(whole, end, extent, [&](const Expr& at) { body(at, 1); });
}

void CpuRadix::fetch(const Slice& slice, const Expr& extent,
                     const std::function<Item(const Expr& at, int lanes)>& element) {
  vectors(slice.begin, slice.end, extent, [&](const Expr& at, int lanes) {
    items_.store(memory_, slice.memory + at, element(at, lanes), {});
  });
}

CpuRadix::Bounds CpuRadix::join(const Bounds& a, const Bounds& b) {
  const DType word = items_.type().word;
  const auto or_ = [&](ValueId x, ValueId y) { return b_.apply(Op::Or, word, {x, y}); };
  return {items_.select(items_.less(b.least, a.least), b.least, a.least),
          b_.apply(Op::Max, word, {a.largest, b.largest}),
          or_(or_(a.disorder, b.disorder), b_.cast(items_.less(b.least, a.largest), word))};
}

CpuRadix::Bounds CpuRadix::bounds(const Slice& slice, const Expr& extent) {
  const DType word = items_.type().word;
  const std::uint64_t top = std::uint64_t{1} << (8 * int(size_of(word)) - 1);
  struct Variables {
    VarId least, largest, disorder;
  };
  const auto variables = [&](int lanes) {
    const Variables v{b_.variable({word, lanes}), b_.variable({word, lanes}),
                      b_.variable({word, lanes})};
    b_.set(v.least, b_.constant(Scalar::from_bits(word, top - 1), lanes));
    b_.set(v.largest, b_.constant(Scalar::from_bits(word, top), lanes));
    b_.set(v.disorder, items_.number(0, word, lanes));
    return v;
  };
  const auto include = [&](const Variables& v, ValueId low, ValueId high, ValueId disorder) {
    const ValueId least = b_.read(v.least);
    b_.set(v.least, items_.select(items_.less(low, least), low, least));
    b_.set(v.largest, b_.apply(Op::Max, word, {high, b_.read(v.largest)}));
    b_.set(v.disorder, b_.apply(Op::Or, word, {disorder, b_.read(v.disorder)}));
  };
  const Variables one = variables(1), many = s_.lanes > 1 ? variables(s_.lanes) : one;
  // Each item but the last, with the one behind it.
  const Expr last = max(slice.begin, slice.end - Expr(1));
  vectors(slice.begin, last, extent, [&](const Expr& at, int lanes) {
    const ValueId here = b_.load(memory_.words, slice.memory + at, lanes);
    const ValueId next = b_.load(memory_.words, slice.memory + at + Expr(1), lanes);
    include(lanes > 1 ? many : one, here, here, b_.cast(items_.less(next, here), word));
  });
  each(last, slice.end, extent, [&](const Expr& at) {
    const ValueId here = b_.load(memory_.words, slice.memory + at, 1);
    include(one, here, here, items_.number(0, word));
  });
  if (s_.lanes > 1) {
    const ValueId least = b_.read(many.least), largest = b_.read(many.largest);
    const ValueId disorder = b_.read(many.disorder);
    for (int i = 0; i < s_.lanes; ++i)
      include(one, b_.extract(least, i), b_.extract(largest, i), b_.extract(disorder, i));
  }
  return {b_.read(one.least), b_.read(one.largest), b_.read(one.disorder)};
}

ValueId CpuRadix::unsigned_word(ValueId word) {
  return b_.apply(Op::Bitcast, bits_type(), {word});
}

CpuRadix::Range CpuRadix::range(const Bounds& bounds) {
  const DType type = bits_type(), word = items_.type().word;
  // Positions are in order already: the least item without its own.
  const int places = items_.type().position_bits;
  const std::uint64_t ones = type == DType::U32 ? 0xFFFFFFFFu : ~std::uint64_t{0};
  const std::uint64_t keys = ones & ~((std::uint64_t{1} << places) - 1);
  const ValueId base = b_.apply(
      Op::And, type, {unsigned_word(bounds.least), b_.constant(Scalar::from_bits(type, keys))});
  const ValueId minus =
      b_.apply(Op::Add, type,
               {b_.apply(Op::Xor, type, {base, b_.constant(Scalar::from_bits(type, ones))}),
                items_.number(1, type)});
  const ValueId sorted = b_.apply(Op::Eq, DType::Bool, {bounds.disorder, items_.number(0, word)});
  const ValueId spread = b_.apply(Op::Add, type, {unsigned_word(bounds.largest), minus});
  return {minus, items_.select(sorted, items_.number(0, type), spread)};
}

void CpuRadix::each_pass(const std::function<void(const Expr&)>& body) {
  each(Expr(0), Expr(passes()), Expr(passes()), body);
}

ValueId CpuRadix::shift_of(const Expr& pass) {
  return b_.index(pass * Expr(s_.bits) + Expr(items_.type().position_bits), bits_type(), 1);
}

std::vector<Guard> CpuRadix::needed(const Range& range, const Expr& pass) {
  const DType type = bits_type();
  const ValueId rest = b_.apply(Op::Shr, type, {range.spread, shift_of(pass)});
  const ValueId any = items_.less(items_.number(0, type), rest);
  return {{value_symbol(b_.cast(any, DType::I32)), Expr(1), Expr(2)}};
}

Expr CpuRadix::digit(ValueId word, const Range& range, ValueId shift) {
  const ValueId above = b_.apply(Op::Add, bits_type(), {unsigned_word(word), range.minus_least});
  return value_symbol(digit_of(b_, above, shift, s_.bits));
}

void CpuRadix::count(const Slice& slice, const Range& range, const Expr& pass, const Expr& extent) {
  const DType dtype = b_.buffer_dtype(counts_);
  const Expr from = floormod(pass, Expr(2)) * elements_ + slice.memory;
  each(Expr(0), digits(), digits(),
       [&](const Expr& d) { b_.store(counts_, slice.counts + d, items_.number(0, dtype)); });
  const ValueId shift = shift_of(pass);
  each(slice.begin, slice.end, extent, [&](const Expr& i) {
    const ValueId word = b_.load(memory_.words, from + i, 1);
    const Expr place = slice.counts + digit(word, range, shift);
    b_.store(counts_, place,
             b_.apply(Op::Add, dtype, {b_.load(counts_, place, 1), items_.number(1, dtype)}));
  });
}

void CpuRadix::prefix(const Expr& counts, const Expr& slices) {
  const DType dtype = b_.buffer_dtype(counts_);
  const VarId sum = b_.variable({dtype, 1});
  b_.set(sum, items_.number(0, dtype));
  each(Expr(0), digits(), digits(), [&](const Expr& d) {
    each(Expr(0), slices, slices, [&](const Expr& slice) {
      const Expr place = counts + slice * digits() + d;
      const ValueId here = b_.load(counts_, place, 1), before = b_.read(sum);
      b_.store(counts_, place, before);
      b_.set(sum, b_.apply(Op::Add, dtype, {before, here}));
    });
  });
}

void CpuRadix::move(const Slice& slice, const Range& range, const Expr& pass, const Expr& extent) {
  const DType dtype = b_.buffer_dtype(counts_);
  const Expr half = floormod(pass, Expr(2)) * elements_;
  const Expr from = half + slice.memory, to = elements_ - half + slice.memory;
  const ValueId shift = shift_of(pass);
  each(slice.begin, slice.end, extent, [&](const Expr& i) {
    const Item item = items_.load(memory_, from + i, 1);
    const Expr counter = slice.counts + digit(item.word, range, shift);
    const ValueId place = b_.load(counts_, counter, 1);
    b_.store(counts_, counter, b_.apply(Op::Add, dtype, {place, items_.number(1, dtype)}));
    items_.store(memory_, to + value_symbol(place), item, {});
  });
}

Expr CpuRadix::sorted(const Range& range) {
  const VarId half = b_.variable({DType::I64, 1});
  b_.set(half, items_.number(0, DType::I64));
  each_pass([&](const Expr& pass) {
    b_.when(needed(range, pass), [&] {
      b_.set(half, b_.apply(Op::Xor, DType::I64, {items_.number(1, DType::I64), b_.read(half)}));
    });
  });
  return value_symbol(b_.read(half)) * elements_;
}

Expr CpuRadix::sort(const Slice& slice, const Range& range, const Expr& extent) {
  each_pass([&](const Expr& pass) {
    b_.when(needed(range, pass), [&] {
      count(slice, range, pass, extent);
      prefix(slice.counts, Expr(1));
      move(slice, range, pass, extent);
    });
  });
  return sorted(range);
}

} // namespace egret::kernel
