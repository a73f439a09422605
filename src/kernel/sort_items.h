// Items that sorts compare: an element's key and its position along the axis, in one word where
// both fit, so that all items of a row differ and every order of them is stable. Of networks that
// sort them: the comparisons.
#pragma once

#include "kernel/sort_form.h"

#include <algorithm>

namespace egret::kernel {

/// Batcher's odd-even merge sort of any number of items: calls `f` with each pair to compare.
template <class F>
void odd_even_pairs(std::int64_t n, const F& f) {
  for (std::int64_t p = 1; p < n; p *= 2)
    for (std::int64_t k = p; k >= 1; k /= 2)
      for (std::int64_t j = k % p; j + k < n; j += 2 * k)
        for (std::int64_t i = 0; i < std::min(k, n - j - k); ++i)
          if ((i + j) / (2 * p) == (i + j + k) / (2 * p))
            f(i + j, i + j + k);
}

/// The least power of two that is not below `n`.
constexpr std::int64_t network_power(std::int64_t n) {
  std::int64_t p = 1;
  while (p < n)
    p *= 2;
  return p;
}

/// How the items of a region's rows lie in memory and in registers.
struct ItemType {
  DType word = DType::I64; ///< I32 or I64, in the order of the items
  int position_bits = 0;   ///< of the word's lower end, that hold the position
  bool paired = false;     ///< the position is beside the word, in `position`
  DType position = DType::I64;

  std::int64_t bytes() const {
    return std::int64_t(size_of(word)) + (paired ? std::int64_t(size_of(position)) : 0);
  }
};
/// `wide`: positions beside words are as wide as these.
ItemType item_type(const SortForm& form, bool wide);

/// Items in registers and in memory.
class ItemWriter {
public:
  ItemWriter(ProgramBuilder& b, Emitter& e, const SortForm& form, const ItemType& type)
      : b_(b), e_(e), f_(form), t_(type) {}

  struct Item {
    ValueId word = -1, position = -1; ///< -1: in the word
  };
  struct Memory {
    int words = -1, positions = -1;
  };
  const ItemType& type() const { return t_; }
  /// Memory of a worker, or of all workers.
  Memory memory(const std::string& name, const Expr& elements, bool shared);
  Item load(const Memory& from, const Expr& at, int lanes, const std::vector<Guard>& mask = {});
  void store(const Memory& to, const Expr& at, const Item& item, const std::vector<Guard>& mask);
  /// The items of the region's elements at a point, in all its lanes.
  Item element(const Point& point);
  /// The item of an element at `at` of its row whose key_word is known.
  Item item(ValueId key, const Expr& at, int lanes);
  /// A scalar item that no other one stands behind; an item, or that where the guard fails.
  Item last();
  Item or_last(const Item& item, const Guard& guard);
  /// The position that an item of `lanes` lanes holds.
  ValueId position(const Item& item, int lanes);
  /// The key of one item's word, as key_word gives it.
  ValueId key(ValueId word);
  /// Stores the item's position as the region's result at the point.
  void deliver(const Point& point, const Item& item);

  ValueId number(std::int64_t value, DType dtype, int lanes = 1);
  ValueId less(ValueId a, ValueId b) { return b_.apply(Op::Lt, DType::Bool, {a, b}); }
  ValueId select(ValueId which, ValueId a, ValueId b) {
    return b_.apply(Op::Select, b_.type_of(a).dtype, {which, a, b});
  }
  /// Whether item `a` stands before `b`.
  ValueId before(const Item& a, const Item& b);
  Item select(ValueId which, const Item& a, const Item& b);
  /// The smaller item becomes `a`.
  void exchange(Item& a, Item& b);

private:
  /// Whether keys and positions use all bits of a word.
  bool fills_word() const;
  Scalar top_bit() const;

  ProgramBuilder& b_;
  Emitter& e_;
  const SortForm& f_;
  ItemType t_;
};

} // namespace egret::kernel
