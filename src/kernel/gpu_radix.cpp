#include "kernel/gpu_radix.h"

#include "kernel/gpu_nest.h"
#include "kernel/sort_form.h"

#include <optional>

namespace egret::kernel {

namespace {

constexpr int kRadixWarp = 32;
/// Digits whose scans are under way at a time.
constexpr int kTogether = 4;

ValueId number(ProgramBuilder& b, DType dtype, std::int64_t value) {
  return b.constant(Scalar::of(dtype, value));
}

ValueId add(ProgramBuilder& b, ValueId x, ValueId y) {
  return b.apply(Op::Add, b.type_of(x).dtype, {x, b.cast(y, b.type_of(x).dtype)});
}

ValueId minus(ProgramBuilder& b, ValueId x) {
  const DType dtype = b.type_of(x).dtype;
  return b.apply(Op::Mul, dtype, {x, number(b, dtype, -1)});
}

} // namespace

ValueId scan_by_warp(ProgramBuilder& b, const Expr& lane, int buffer, const Expr& first,
                     const Expr& count, const Expr& extent,
                     const std::function<void(const Expr& at, ValueId before,
                                              const std::vector<Guard>& mask)>& then) {
  constexpr std::int64_t kStep = std::int64_t(kRadixWarp) * kTogether;
  const DType dtype = b.buffer_dtype(buffer);
  const VarId carried = b.variable({dtype, 1});
  b.set(carried, number(b, dtype, 0));
  b.loop(Expr(0), count, Expr(kStep), extent + Expr(kStep), Bind::Serial, [&](const Expr& base) {
    std::vector<Expr> at;
    std::vector<std::vector<Guard>> masks;
    std::vector<ValueId> mine;
    for (int i = 0; i < kTogether; ++i) {
      at.push_back(base + Expr(std::int64_t(i) * kRadixWarp) + lane);
      masks.push_back({{at.back(), Expr(0), count}});
      mine.push_back(b.load(buffer, first + at.back(), 1, masks.back()));
    }
    ValueId carry = b.read(carried);
    for (std::size_t i = 0; i < mine.size(); ++i) {
      const ValueId before = b.scan_threads(Monoid::Sum, mine[i], kRadixWarp);
      const ValueId all = b.reduce_threads(Monoid::Sum, mine[i], kRadixWarp);
      then(at[i], add(b, carry, before), masks[i]);
      carry = add(b, carry, all);
    }
    b.set(carried, carry);
  });
  return b.read(carried);
}

std::int64_t radix_shared_bytes(const RadixShape& s) {
  return 4 * (std::int64_t(s.digits()) * (2 * s.warps() + 1) + 1 + kRadixWarp);
}

// --- Bits that differ

DifferingBits::DifferingBits(ProgramBuilder& b, DType word, int threads)
    : b_(b), word_(word), threads_(threads), most_(b.variable({word, 1})),
      most_inverted_(b.variable({word, 1})) {
  for (const VarId v : {most_, most_inverted_})
    b.set(v, number(b, word, 0));
}

void DifferingBits::meet(ValueId word, const std::vector<Guard>& mask) {
  const ValueId inverted =
      b_.apply(Op::Xor, word_, {word, b_.constant(Scalar::from_bits(word_, ~std::uint64_t{0}))});
  for (const auto& [variable, value] : {std::pair{most_, word}, {most_inverted_, inverted}}) {
    const ValueId there =
        b_.apply(Op::Select, word_, {b_.test(mask, 1), value, number(b_, word_, 0)});
    b_.set(variable, b_.apply(Op::Max, word_, {b_.read(variable), there}));
  }
}

void DifferingBits::join() {
  const ValueId most = b_.reduce_threads(Monoid::Max, b_.read(most_), threads_);
  const ValueId inverted = b_.reduce_threads(Monoid::Max, b_.read(most_inverted_), threads_);
  least_ = b_.apply(Op::Xor, word_,
                    {inverted, b_.constant(Scalar::from_bits(word_, ~std::uint64_t{0}))});
  bits_ = b_.apply(Op::Xor, word_, {most, least_});
}

ValueId DifferingBits::differ_from(ValueId shift) const {
  const ValueId above = b_.apply(Op::Shr, word_, {bits_, shift});
  return b_.apply(Op::Lt, DType::Bool, {number(b_, word_, 0), above});
}

// --- Ranks in a tile

TileRanks::TileRanks(ProgramBuilder& b, const RadixShape& shape)
    : b_(b), s_(shape), thread_(thread_variable(shape.threads)),
      warp_(floordiv(thread_, kRadixWarp)), lane_(floormod(thread_, kRadixWarp)),
      counters_(b.shared("digits", DType::I32, std::int64_t(shape.digits()) * shape.warps())),
      marks_(b.shared("marks", DType::U32, std::int64_t(shape.digits()) * shape.warps())),
      firsts_(b.shared("firsts", DType::I32, shape.digits() + 1)),
      groups_(b.shared("groups", DType::I32, kRadixWarp)) {}

Expr TileRanks::place(int e) const {
  return warp_ * Expr(std::int64_t(kRadixWarp) * s_.each) + Expr(std::int64_t(kRadixWarp) * e) +
         lane_;
}

void TileRanks::clear() {
  const Expr digits(s_.digits());
  b_.loop(Expr(0), digits, Expr(kRadixWarp), digits + Expr(kRadixWarp), Bind::Serial,
          [&](const Expr& first) {
            const Expr digit = first + lane_;
            const std::vector<Guard> mask{{digit, Expr(0), digits}};
            b_.store(counters_, warp_ * digits + digit, number(b_, DType::I32, 0), mask);
            b_.store(marks_, warp_ * digits + digit, number(b_, DType::U32, 0), mask);
          });
  b_.subgroup_barrier();
}

std::vector<ValueId> TileRanks::before(const std::vector<ValueId>& digits,
                                       const std::vector<std::vector<Guard>>& masks) {
  std::vector<ValueId> before;
  for (std::size_t i = 0; i < digits.size(); ++i)
    before.push_back(b_.count_in_order(counters_, marks_, counter_of(digits[i]), masks[i]));
  return before;
}

Expr TileRanks::counter_of(ValueId digit) const {
  return warp_ * Expr(s_.digits()) + value_symbol(digit);
}

/// The elements of this thread's digit that each warp has; of threads without a digit 0.
std::vector<ValueId> TileRanks::counts() {
  std::vector<ValueId> counts;
  for (int w = 0; w < s_.warps(); ++w)
    counts.push_back(b_.load(counters_, Expr(std::int64_t(w) * s_.digits()) + thread_, 1,
                             {{thread_, Expr(0), Expr(s_.digits())}}));
  return counts;
}

void TileRanks::totals(
    const std::function<void(const Expr&, ValueId, const std::vector<Guard>&)>& then) {
  b_.barrier();
  ValueId all = number(b_, DType::I32, 0);
  for (const ValueId count : counts())
    all = add(b_, all, count);
  then(thread_, all, {{thread_, Expr(0), Expr(s_.digits())}});
  b_.barrier();
}

void TileRanks::scan() {
  const Expr digits(s_.digits());
  const int width = std::min(kRadixWarp, s_.digits()), groups = s_.digits() / width;
  const std::vector<Guard> mine{{thread_, Expr(0), digits}};
  b_.barrier();
  ValueId all = number(b_, DType::I32, 0);
  const std::vector<ValueId> counts = this->counts();
  for (std::size_t w = 0; w < counts.size(); ++w) {
    b_.store(counters_, Expr(std::int64_t(w) * s_.digits()) + thread_, all, mine);
    all = add(b_, all, counts[w]);
  }
  const ValueId before = b_.scan_threads(Monoid::Sum, all, width);
  const Expr group = floordiv(thread_, Expr(width));
  b_.store(
      groups_, group, add(b_, before, all),
      {{thread_, Expr(0), digits}, {floormod(thread_, Expr(width)), Expr(width - 1), Expr(width)}});
  b_.barrier();
  ValueId first = before;
  for (int g = 0; g + 1 < groups; ++g)
    first = add(b_, first, b_.load(groups_, Expr(g), 1, {{Expr(g), Expr(0), group}}));
  b_.store(firsts_, thread_, first, mine);
  b_.store(firsts_, digits, add(b_, first, all), {{thread_, digits - Expr(1), digits}});
  b_.barrier();
}

std::vector<ValueId> TileRanks::ranks(const std::vector<ValueId>& digits,
                                      const std::vector<std::vector<Guard>>& masks) {
  clear();
  const std::vector<ValueId> own = before(digits, masks);
  scan();
  std::vector<ValueId> ranks;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    const ValueId warps = b_.load(counters_, counter_of(digits[i]), 1, masks[i]);
    const ValueId first = b_.load(firsts_, value_symbol(digits[i]), 1, masks[i]);
    ranks.push_back(add(b_, own[i], add(b_, warps, first)));
  }
  return ranks;
}

ValueId TileRanks::first_of(const Expr& digit) {
  return b_.load(firsts_, digit, 1);
}

// --- Rows of a tile

TileSort::TileSort(ProgramBuilder& b, const RadixShape& shape, DType word, DType position)
    : b_(b), s_(shape), ranks_(b, shape), thread_(thread_variable(shape.threads)), word_(word),
      position_(position), words_(b.shared("words", word, shape.tile())),
      positions_(b.shared("positions", position, shape.tile())) {}

void TileSort::sort(const Expr& length, int word_bits, const Load& load) {
  const auto each = std::size_t(s_.each);
  std::vector<VarId> words, positions;
  std::vector<Expr> at;
  std::vector<std::vector<Guard>> masks;
  for (std::size_t e = 0; e < each; ++e) {
    words.push_back(b_.variable({word_, 1}));
    positions.push_back(b_.variable({position_, 1}));
    at.push_back(ranks_.place(int(e)));
    masks.push_back({{at.back(), Expr(0), length}});
  }
  for (std::size_t e = 0; e < each; ++e) {
    const Element element = load(at[e], masks[e]);
    b_.set(words[e], element.word);
    b_.set(positions[e], element.position);
  }
  // Keys of 64 bits are small numbers, mostly. The first pass is made in any case: it stores them.
  std::optional<DifferingBits> differing;
  if (size_of(word_) == 8) {
    differing.emplace(b_, word_, s_.threads);
    for (std::size_t e = 0; e < each; ++e)
      differing->meet(b_.read(words[e]), masks[e]);
    differing->join();
  }
  const auto pass = [&](ValueId shift) {
    std::vector<ValueId> own, digits;
    for (std::size_t e = 0; e < each; ++e) {
      own.push_back(b_.read(words[e]));
      digits.push_back(digit_of(b_, own.back(), shift, s_.bits));
    }
    const std::vector<ValueId> ranks = ranks_.ranks(digits, masks);
    for (std::size_t e = 0; e < each; ++e) {
      const Expr rank = value_symbol(ranks[e]);
      b_.store(words_, rank, own[e], masks[e]);
      b_.store(positions_, rank, b_.read(positions[e]), masks[e]);
    }
    b_.barrier();
    for (std::size_t e = 0; e < each; ++e) {
      b_.set(words[e], b_.load(words_, at[e], 1, masks[e]));
      b_.set(positions[e], b_.load(positions_, at[e], 1, masks[e]));
    }
  };
  const Expr passes(s_.passes(word_bits));
  b_.loop(Expr(0), passes, Expr(1), passes, Bind::Serial, [&](const Expr& number) {
    const ValueId shift = b_.cast(b_.index(number * Expr(s_.bits), DType::I32, 1), word_);
    if (!differing)
      return pass(shift);
    const ValueId needed =
        b_.apply(Op::Or, DType::Bool,
                 {differing->differ_from(shift), b_.test({{number, Expr(0), Expr(1)}}, 1)});
    b_.when({{value_symbol(b_.cast(needed, DType::I32)), Expr(1), Expr(2)}}, [&] { pass(shift); });
  });
}

void TileSort::take(const Expr& length, const Expr& count, const Take& take) {
  for (int e = 0; e < s_.each; ++e) {
    const Expr at = thread_ + Expr(std::int64_t(e) * s_.threads);
    const std::vector<Guard> mask{{at, Expr(0), length}, {at, Expr(0), count}};
    if (proves_less_equal(count, Expr(std::int64_t(e) * s_.threads)))
      break;
    take(at, {b_.load(words_, at, 1, mask), b_.load(positions_, at, 1, mask)}, mask);
  }
  b_.barrier();
}

// --- Rows of many tiles

GridSort::GridSort(ProgramBuilder& b, const RadixShape& shape, const Expr& rows, const Expr& length,
                   DType word, DType position, int word_bits)
    : b_(b), s_(shape), ranks_(b, shape), thread_(thread_variable(shape.threads)), rows_(rows),
      length_(length), tiles_(ceildiv(length, Expr(shape.tile()))), word_(word),
      position_(position), word_bits_(word_bits),
      words_(b.workspace("words", word, rows * length * Expr(2))),
      positions_(b.workspace("positions", position, rows * length * Expr(2))),
      counts_(b.workspace("counts", position, rows * tiles_ * Expr(shape.digits()))),
      totals_(b.workspace("totals", position, rows * Expr(shape.digits()))),
      starts_(b.shared("starts", position, shape.digits())) {}

void GridSort::run(const Word& word, const Sink& sink, const std::function<void()>& barrier) {
  const Expr all = rows_ * length_;
  each_tile([&](const Tile& tile) {
    for (int e = 0; e < s_.each; ++e) {
      // Threads beside each other read neighbours.
      const Expr at = tile.number * Expr(s_.tile()) + Expr(std::int64_t(e) * s_.threads) + thread_;
      const std::vector<Guard> mask{{at, Expr(0), length_}};
      const Expr place = tile.row * length_ + at;
      b_.store(words_, place, word(tile.row, at, mask), mask);
      b_.store(positions_, place, b_.index(at, position_, 1), mask);
    }
  });
  const Expr passes(s_.passes(word_bits_));
  b_.loop(Expr(0), passes, Expr(1), passes, Bind::Serial, [&](const Expr& pass) {
    const Expr half = floormod(pass, Expr(2)) * all;
    barrier();
    count(pass, half);
    barrier();
    scan();
    barrier();
    move(pass, half, sink);
  });
}

void GridSort::each_tile(const std::function<void(const Tile&)>& body) {
  b_.grid_loop(rows_ * tiles_, [&](const Expr& flat) {
    Tile tile;
    const Expr tiles = tiles_.lower() >= 1 ? tiles_ : max(tiles_, Expr(1));
    tile.row = floordiv(flat, tiles);
    tile.number = floormod(flat, tiles);
    for (int e = 0; e < s_.each; ++e) {
      tile.at.push_back(tile.number * Expr(s_.tile()) + ranks_.place(e));
      tile.masks.push_back({{tile.at.back(), Expr(0), length_}});
    }
    body(tile);
  });
}

std::vector<ValueId> GridSort::words_of(const Tile& tile, const Expr& half) {
  std::vector<ValueId> words;
  for (std::size_t e = 0; e < tile.at.size(); ++e)
    words.push_back(b_.load(words_, half + tile.row * length_ + tile.at[e], 1, tile.masks[e]));
  return words;
}

std::vector<ValueId> GridSort::digits_of(const std::vector<ValueId>& words, const Expr& pass) {
  const ValueId shift = b_.cast(b_.index(pass * Expr(s_.bits), DType::I32, 1), word_);
  std::vector<ValueId> digits;
  for (const ValueId word : words)
    digits.push_back(digit_of(b_, word, shift, s_.bits));
  return digits;
}

void GridSort::count(const Expr& pass, const Expr& half) {
  const Expr digits(s_.digits());
  each_tile([&](const Tile& tile) {
    ranks_.clear();
    ranks_.before(digits_of(words_of(tile, half), pass), tile.masks);
    ranks_.totals([&](const Expr& digit, ValueId count, const std::vector<Guard>& mask) {
      b_.store(counts_, (tile.row * digits + digit) * tiles_ + tile.number,
               b_.cast(count, position_), mask);
    });
  });
}

void GridSort::scan() {
  const Expr lane = floormod(thread_, kRadixWarp), lists = rows_ * Expr(s_.digits());
  b_.grid_loop(ceildiv(lists, Expr(s_.warps())), [&](const Expr& block) {
    const Expr list = block * Expr(s_.warps()) + floordiv(thread_, kRadixWarp);
    b_.when({{list, Expr(0), lists}}, [&] {
      const ValueId all =
          scan_by_warp(b_, lane, counts_, list * tiles_, tiles_, tiles_,
                       [&](const Expr& at, ValueId before, const std::vector<Guard>& mask) {
                         b_.store(counts_, list * tiles_ + at, before, mask);
                       });
      b_.store(totals_, list, all, {{lane, Expr(0), Expr(1)}});
    });
  });
}

void GridSort::move(const Expr& pass, const Expr& half, const Sink& sink) {
  const Expr digits(s_.digits()), passes(s_.passes(word_bits_)), all = rows_ * length_;
  const Expr lane = floormod(thread_, kRadixWarp);
  each_tile([&](const Tile& tile) {
    const std::vector<ValueId> words = words_of(tile, half), own = digits_of(words, pass);
    std::vector<ValueId> positions;
    for (std::size_t e = 0; e < words.size(); ++e)
      positions.push_back(
          b_.load(positions_, half + tile.row * length_ + tile.at[e], 1, tile.masks[e]));
    const std::vector<ValueId> ranks = ranks_.ranks(own, tile.masks);
    // Where the tile's elements of a digit begin in the row, less their first rank in the tile.
    b_.when({{floordiv(thread_, kRadixWarp), Expr(0), Expr(1)}}, [&] {
      scan_by_warp(b_, lane, totals_, tile.row * digits, digits, digits,
                   [&](const Expr& digit, ValueId before, const std::vector<Guard>& mask) {
                     const ValueId tiles = b_.load(
                         counts_, (tile.row * digits + digit) * tiles_ + tile.number, 1, mask);
                     const ValueId first = minus(b_, ranks_.first_of(min(digit, digits)));
                     b_.store(starts_, digit, add(b_, before, add(b_, tiles, first)), mask);
                   });
    });
    b_.barrier();
    std::vector<ValueId> places;
    for (std::size_t e = 0; e < ranks.size(); ++e)
      places.push_back(add(b_, b_.load(starts_, value_symbol(own[e]), 1, tile.masks[e]), ranks[e]));
    const auto hand_on = [&] {
      const Expr other = all - half;
      for (std::size_t e = 0; e < places.size(); ++e) {
        const Expr to = other + tile.row * length_ + value_symbol(places[e]);
        b_.store(words_, to, words[e], tile.masks[e]);
        b_.store(positions_, to, positions[e], tile.masks[e]);
      }
    };
    const auto deliver = [&] {
      for (std::size_t e = 0; e < places.size(); ++e)
        sink(tile.row, value_symbol(places[e]), words[e], positions[e], tile.masks[e]);
    };
    if (proves_less_equal(passes, Expr(1)))
      deliver();
    else
      b_.either({{pass, passes - Expr(1), passes}}, deliver, hand_on);
    b_.barrier();
  });
}

} // namespace egret::kernel
