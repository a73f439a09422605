#include "kernel/sort_items.h"

#include <algorithm>

namespace egret::kernel {

ItemType item_type(const SortForm& form, bool wide) {
  ItemType type;
  const std::int64_t longest = form.length.upper();
  int bits = 0;
  while (bits < 62 && (std::int64_t{1} << bits) < longest)
    ++bits;
  if (form.bits + bits <= 64) {
    type.position_bits = bits;
    type.word = form.bits + bits <= 32 ? DType::I32 : DType::I64;
    return type;
  }
  type.paired = true;
  type.word = form.bits <= 32 ? DType::I32 : DType::I64;
  type.position = wide ? type.word : form.position;
  return type;
}

ValueId ItemWriter::number(std::int64_t value, DType dtype, int lanes) {
  return b_.constant(Scalar::of(dtype, value), lanes);
}

ItemWriter::Memory ItemWriter::memory(const std::string& name, const Expr& elements, bool shared) {
  const auto declare = [&](const std::string& called, DType dtype) {
    return shared ? b_.workspace(called, dtype, elements)
                  : b_.worker_memory(called, dtype, elements);
  };
  Memory m;
  m.words = declare(name, t_.word);
  if (t_.paired)
    m.positions = declare(name + "_positions", t_.position);
  return m;
}

ItemWriter::Item ItemWriter::load(const Memory& from, const Expr& at, int lanes,
                                  const std::vector<Guard>& mask) {
  return {b_.load(from.words, at, lanes, mask),
          t_.paired ? b_.load(from.positions, at, lanes, mask) : -1};
}

void ItemWriter::store(const Memory& to, const Expr& at, const Item& item,
                       const std::vector<Guard>& mask) {
  b_.store(to.words, at, item.word, mask);
  if (t_.paired)
    b_.store(to.positions, at, item.position, mask);
}

ItemWriter::Item ItemWriter::element(const Point& point) {
  return item(key_word(e_, f_, point), point.at[std::size_t(f_.axis)], point.lanes);
}

ItemWriter::Item ItemWriter::item(ValueId key, const Expr& at, int lanes) {
  const DType bits = t_.word == DType::I32 ? DType::U32 : DType::U64;
  ValueId word = b_.splat(b_.cast(key, bits), lanes);
  if (t_.position_bits > 0) {
    const ValueId place = b_.index(at, bits, lanes);
    word = b_.apply(Op::Shl, bits, {word, number(t_.position_bits, bits, lanes)});
    word = b_.apply(Op::Or, bits, {word, place});
  }
  // As a signed number it has the same order once its top bit is turned over.
  if (fills_word())
    word = b_.apply(Op::Xor, bits, {word, b_.constant(top_bit(), lanes)});
  return {b_.apply(Op::Bitcast, t_.word, {word}),
          t_.paired ? b_.index(at, t_.position, lanes) : -1};
}

ItemWriter::Item ItemWriter::last() {
  const auto largest = [&](DType dtype) {
    return number(dtype == DType::I32 ? INT32_MAX : INT64_MAX, dtype);
  };
  return {largest(t_.word), t_.paired ? largest(t_.position) : -1};
}

ItemWriter::Item ItemWriter::or_last(const Item& item, const Guard& guard) {
  const std::vector<Guard> open = unproved({guard});
  return open.empty() ? item : select(b_.test(open, 1), item, last());
}

bool ItemWriter::fills_word() const {
  return f_.bits + t_.position_bits == 8 * int(size_of(t_.word));
}

Scalar ItemWriter::top_bit() const {
  const DType bits = t_.word == DType::I32 ? DType::U32 : DType::U64;
  return Scalar::from_bits(bits, std::uint64_t{1} << (8 * size_of(bits) - 1));
}

ValueId ItemWriter::key(ValueId word) {
  const DType bits = t_.word == DType::I32 ? DType::U32 : DType::U64;
  ValueId key = b_.apply(Op::Bitcast, bits, {word});
  if (fills_word())
    key = b_.apply(Op::Xor, bits, {key, b_.constant(top_bit())});
  return b_.cast(b_.apply(Op::Shr, bits, {key, number(t_.position_bits, bits)}), f_.word);
}

ValueId ItemWriter::position(const Item& item, int lanes) {
  if (t_.paired)
    return item.position;
  const std::int64_t mask = (std::int64_t{1} << t_.position_bits) - 1;
  return b_.apply(Op::And, t_.word, {item.word, number(mask, t_.word, lanes)});
}

void ItemWriter::deliver(const Point& point, const Item& item) {
  const Value value{b_.cast(position(item, point.lanes), DType::I64), DType::I64};
  for (std::size_t o = 0; o < e_.region().outputs.size(); ++o)
    e_.store(int(o), point, value);
}

ValueId ItemWriter::before(const Item& a, const Item& b) {
  const ValueId before = less(a.word, b.word);
  if (!t_.paired)
    return before;
  const ValueId equal = b_.apply(Op::Eq, DType::Bool, {a.word, b.word});
  const ValueId earlier = b_.apply(Op::And, DType::Bool, {equal, less(a.position, b.position)});
  return b_.apply(Op::Or, DType::Bool, {before, earlier});
}

ItemWriter::Item ItemWriter::select(ValueId which, const Item& a, const Item& b) {
  return {select(which, a.word, b.word), t_.paired ? select(which, a.position, b.position) : -1};
}

void ItemWriter::exchange(Item& a, Item& b) {
  const ValueId swap = before(b, a);
  const Item first = a;
  a = select(swap, b, first);
  b = select(swap, first, b);
}

} // namespace egret::kernel
