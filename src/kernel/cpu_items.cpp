#include "kernel/cpu_sort.h"

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

ItemWriter::Item ItemWriter::load(const Memory& from, const Expr& at, int lanes) {
  return {b_.load(from.words, at, lanes), t_.paired ? b_.load(from.positions, at, lanes) : -1};
}

void ItemWriter::store(const Memory& to, const Expr& at, const Item& item,
                       const std::vector<Guard>& mask) {
  b_.store(to.words, at, item.word, mask);
  if (t_.paired)
    b_.store(to.positions, at, item.position, mask);
}

ItemWriter::Item ItemWriter::element(const Point& point) {
  const DType bits = t_.word == DType::I32 ? DType::U32 : DType::U64;
  const Expr& at = point.at[std::size_t(f_.axis)];
  ValueId word = b_.cast(key_word(e_, f_, point), bits);
  if (b_.type_of(word).lanes != point.lanes)
    word = b_.splat(word, point.lanes);
  if (t_.position_bits > 0) {
    const ValueId place = b_.index(at, bits, point.lanes);
    word = b_.apply(Op::Shl, bits, {word, number(t_.position_bits, bits, point.lanes)});
    word = b_.apply(Op::Or, bits, {word, place});
  }
  // As a signed number it has the same order once its top bit is turned over.
  if (fills_word())
    word = b_.apply(Op::Xor, bits, {word, b_.constant(top_bit(), point.lanes)});
  return {b_.apply(Op::Bitcast, t_.word, {word}),
          t_.paired ? b_.index(at, t_.position, point.lanes) : -1};
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

void ItemWriter::exchange(Item& a, Item& b) {
  ValueId swap = less(b.word, a.word);
  if (t_.paired) {
    const ValueId equal = b_.apply(Op::Eq, DType::Bool, {a.word, b.word});
    const ValueId earlier = b_.apply(Op::And, DType::Bool, {equal, less(b.position, a.position)});
    swap = b_.apply(Op::Or, DType::Bool, {swap, earlier});
  }
  const Item first = a;
  a.word = select(swap, b.word, first.word);
  b.word = select(swap, first.word, b.word);
  if (!t_.paired)
    return;
  a.position = select(swap, b.position, first.position);
  b.position = select(swap, first.position, b.position);
}

} // namespace egret::kernel
