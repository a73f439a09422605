#include "kernel/gpu_onesweep.h"

#include "kernel/gpu_nest.h"
#include "kernel/sort_form.h"

#include <algorithm>
#include <optional>

namespace egret::kernel {

namespace {

constexpr std::int64_t kSweepWarp = 32;
/// Chunks of all rows whose digits are counted apart.
constexpr std::int64_t kMostChunks = 512;

std::int64_t chunks_for(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

/// Tiles of a group: about as many as there are groups.
std::int64_t tiles_of_group(std::int64_t tiles) {
  std::int64_t group = 4;
  while (group * group < tiles)
    group *= 2;
  return group;
}

ValueId sweep_number(ProgramBuilder& b, DType dtype, std::int64_t value) {
  return b.constant(Scalar::of(dtype, value));
}

ValueId sweep_sum(ProgramBuilder& b, ValueId x, ValueId y) {
  return b.apply(Op::Add, b.type_of(x).dtype, {x, b.cast(y, b.type_of(x).dtype)});
}

ValueId sweep_difference(ProgramBuilder& b, ValueId x, ValueId y) {
  const DType dtype = b.type_of(x).dtype;
  return sweep_sum(b, x, b.apply(Op::Mul, dtype, {b.cast(y, dtype), sweep_number(b, dtype, -1)}));
}

} // namespace

std::int64_t onesweep_shared_bytes(const RadixShape& s, DType word, DType position) {
  return radix_shared_bytes(s) + s.tile() * std::int64_t(size_of(word) + size_of(position)) +
         std::int64_t(size_of(position)) * (s.digits() + s.threads);
}

OnesweepSort::OnesweepSort(ProgramBuilder& b, const RadixShape& shape, std::int64_t rows,
                           std::int64_t length, DType word, DType position, int word_bits)
    : b_(b), s_(shape), ranks_(b, shape), thread_(thread_variable(shape.threads)), rows_(rows),
      length_(length), tiles_(chunks_for(length, shape.tile())), group_(tiles_of_group(tiles_)),
      groups_(chunks_for(tiles_, group_)), chunk_(chunks_for(rows * tiles_, kMostChunks)),
      chunks_(chunks_for(tiles_, chunk_)), passes_(shape.passes(word_bits)), word_(word),
      position_(position) {
  const std::int64_t elements = rows * length, digits = shape.digits();
  words_ = b.workspace("words", word, Expr(elements * 2));
  positions_ = b.workspace("positions", position, Expr(elements * 2));
  histograms_ = b.workspace("histograms", position, Expr(rows * passes_ * digits * chunks_));
  totals_ = b.workspace("totals", position, Expr(rows * passes_ * digits));
  counts_ = b.workspace("counts", position, Expr(rows * tiles_ * digits));
  sums_ = b.workspace("sums", position, Expr(rows * groups_ * digits));
  tile_flags_ = b.counter("tiles", passes_ * rows * tiles_);
  group_flags_ = b.counter("groups", passes_ * rows * groups_);
  tile_end_ = b.counter("tiles_end", 1);
  group_end_ = b.counter("groups_end", 1);
  sorted_words_ = b.shared("sorted_words", word, shape.tile());
  sorted_positions_ = b.shared("sorted_positions", position, shape.tile());
  partial_ = b.shared("partial", position, shape.threads);
  starts_ = b.shared("starts", position, digits);
}

std::vector<ValueId> OnesweepSort::digits_of(const std::vector<ValueId>& words, const Expr& pass) {
  const ValueId shift = b_.cast(b_.index(pass * Expr(s_.bits), DType::I32, 1), word_);
  std::vector<ValueId> digits;
  for (const ValueId word : words)
    digits.push_back(digit_of(b_, word, shift, s_.bits));
  return digits;
}

void OnesweepSort::run(const GridSort::Word& word, const GridSort::Sink& sink,
                       const std::function<void()>& barrier) {
  count(word);
  barrier();
  total();
  barrier();
  const Expr passes(passes_);
  if (rows_ == 1)
    needed_ = needed(Expr(0));
  b_.loop(Expr(0), passes, Expr(1), passes, Bind::Serial, [&](const Expr& number) {
    b_.when(met_before(number), barrier);
    pass(number, sink);
  });
  b_.clear_flags(tile_flags_, passes_ * rows_ * tiles_, tile_end_);
  b_.clear_flags(group_flags_, passes_ * rows_ * groups_, group_end_);
}

/// The elements as words and positions, and how many there are of each digit of each pass.
void OnesweepSort::count(const GridSort::Word& word) {
  const Expr chunks(chunks_), passes(passes_), tiles(tiles_), length(length_);
  b_.grid_loop(Expr(rows_ * chunks_), [&](const Expr& flat) {
    const Expr row = floordiv(flat, chunks), chunk = floormod(flat, chunks);
    const auto each_tile = [&](const auto& body) {
      const Expr first = chunk * Expr(chunk_);
      b_.loop(first, min(first + Expr(chunk_), tiles), Expr(1), tiles + Expr(chunk_), Bind::Serial,
              [&](const Expr& tile) {
                std::vector<Expr> at;
                std::vector<std::vector<Guard>> masks;
                for (int e = 0; e < s_.each; ++e) {
                  // Threads beside each other read neighbours.
                  at.push_back(tile * Expr(s_.tile()) + Expr(std::int64_t(e) * s_.threads) +
                               thread_);
                  masks.push_back({{at.back(), Expr(0), length}});
                }
                body(at, masks);
              });
    };
    std::optional<DifferingBits> differing;
    if (size_of(word_) == 8) // small numbers, mostly
      differing.emplace(b_, word_, s_.threads);
    each_tile([&](const std::vector<Expr>& at, const std::vector<std::vector<Guard>>& masks) {
      for (std::size_t e = 0; e < at.size(); ++e) {
        const Expr place = row * length + at[e];
        const ValueId key = word(row, at[e], masks[e]);
        b_.store(words_, place, key, masks[e]);
        b_.store(positions_, place, b_.index(at[e], position_, 1), masks[e]);
        if (differing)
          differing->meet(key, masks[e]);
      }
    });
    if (differing)
      differing->join();
    const auto histogram = [&](const Expr& pass, const Expr& digit) {
      return ((row * passes + pass) * Expr(s_.digits()) + digit) * chunks + chunk;
    };
    const auto count_digits = [&](const Expr& pass) {
      ranks_.clear();
      each_tile([&](const std::vector<Expr>& at, const std::vector<std::vector<Guard>>& masks) {
        std::vector<ValueId> words;
        for (std::size_t e = 0; e < at.size(); ++e)
          words.push_back(b_.load(words_, row * length + at[e], 1, masks[e]));
        ranks_.before(digits_of(words, pass), masks);
      });
      ranks_.totals([&](const Expr& digit, ValueId count, const std::vector<Guard>& mask) {
        b_.store(histograms_, histogram(pass, digit), b_.cast(count, position_), mask);
      });
    };
    // All elements of the chunk have the digit of any.
    const auto count_one = [&](const Expr& pass) {
      const Expr first = chunk * Expr(chunk_ * s_.tile());
      const ValueId all = b_.index(min(Expr(chunk_ * s_.tile()), length - first), position_, 1);
      const ValueId mine =
          b_.apply(Op::Eq, DType::Bool,
                   {digits_of({differing->least()}, pass)[0], b_.index(thread_, DType::I32, 1)});
      b_.store(histograms_, histogram(pass, thread_),
               b_.apply(Op::Select, position_, {mine, all, sweep_number(b_, position_, 0)}),
               {{thread_, Expr(0), Expr(s_.digits())}});
    };
    b_.loop(Expr(0), passes, Expr(1), passes, Bind::Serial, [&](const Expr& pass) {
      if (!differing)
        return count_digits(pass);
      const ValueId shift = b_.cast(b_.index(pass * Expr(s_.bits), DType::I32, 1), word_);
      const ValueId differ = b_.cast(differing->differ_from(shift), DType::I32);
      b_.either(
          {{value_symbol(differ), Expr(1), Expr(2)}}, [&] { count_digits(pass); },
          [&] { count_one(pass); });
    });
  });
}

/// The histograms of a row's chunks, added by a warp for each digit.
void OnesweepSort::total() {
  const Expr lane = floormod(thread_, Expr(kSweepWarp)), chunks(chunks_);
  const std::int64_t lists = rows_ * passes_ * s_.digits();
  b_.grid_loop(Expr(chunks_for(lists, s_.warps())), [&](const Expr& block) {
    const Expr list = block * Expr(s_.warps()) + floordiv(thread_, Expr(kSweepWarp));
    b_.when({{list, Expr(0), Expr(lists)}}, [&] {
      const VarId sum = b_.variable({position_, 1});
      b_.set(sum, sweep_number(b_, position_, 0));
      b_.loop(Expr(0), chunks, Expr(kSweepWarp), chunks + Expr(kSweepWarp), Bind::Serial,
              [&](const Expr& first) {
                const Expr at = first + lane;
                const ValueId count =
                    b_.load(histograms_, list * chunks + at, 1, {{at, Expr(0), chunks}});
                b_.set(sum, sweep_sum(b_, b_.read(sum), count));
              });
      b_.store(totals_, list, b_.reduce_threads(Monoid::Sum, b_.read(sum), int(kSweepWarp)),
               {{lane, Expr(0), Expr(1)}});
    });
  });
}

/// Of a row, a bit for each pass that moves elements: where all have one digit, none does. The last
/// pass moves them to their results if no other one does.
ValueId OnesweepSort::needed(const Expr& row) {
  const Expr digits(s_.digits());
  ValueId constant = sweep_number(b_, DType::I64, 0);
  for (int pass = 0; pass < passes_; ++pass) {
    const Expr list = row * Expr(passes_) + Expr(std::int64_t(pass));
    const ValueId total =
        b_.load(totals_, list * digits + thread_, 1, {{thread_, Expr(0), digits}});
    const ValueId all = b_.cast(
        b_.apply(Op::Eq, DType::Bool, {total, sweep_number(b_, position_, length_)}), DType::I64);
    const ValueId bit = sweep_number(b_, DType::I64, std::int64_t{1} << pass);
    constant = sweep_sum(b_, constant, b_.apply(Op::Mul, DType::I64, {all, bit}));
  }
  // One digit at the most has all elements, so that no bit is added twice.
  constant = b_.reduce_threads(Monoid::Sum, constant, s_.threads);
  const std::int64_t every = (std::int64_t{1} << passes_) - 1;
  const ValueId moved = sweep_difference(b_, sweep_number(b_, DType::I64, every), constant);
  const ValueId none = b_.apply(Op::Eq, DType::Bool, {moved, sweep_number(b_, DType::I64, 0)});
  return b_.apply(Op::Select, DType::I64,
                  {none, sweep_number(b_, DType::I64, std::int64_t{1} << (passes_ - 1)), moved});
}

/// Of the bits of needed(): those of this pass and later ones, from bit 0 on, and those of the
/// passes before.
OnesweepSort::PassBits OnesweepSort::bits_at(const Expr& pass, ValueId needed) {
  const ValueId one = sweep_number(b_, DType::I64, 1), number = b_.index(pass, DType::I64, 1);
  const ValueId below = sweep_difference(b_, b_.apply(Op::Shl, DType::I64, {one, number}), one);
  return {b_.apply(Op::Shr, DType::I64, {needed, number}),
          b_.apply(Op::And, DType::I64, {needed, below})};
}

/// Where blocks wait for those that made the pass before. Passes of one row that move nothing are
/// the same for all of them.
std::vector<Guard> OnesweepSort::met_before(const Expr& pass) {
  if (needed_ < 0)
    return {{pass, Expr(1), Expr(passes_)}};
  const PassBits bits = bits_at(pass, needed_);
  const ValueId now = b_.apply(Op::And, DType::I64, {bits.from, sweep_number(b_, DType::I64, 1)});
  const ValueId none =
      b_.apply(Op::Eq, DType::Bool, {bits.before, sweep_number(b_, DType::I64, 0)});
  return {{value_symbol(now), Expr(1), Expr(2)},
          {value_symbol(b_.cast(none, DType::I32)), Expr(0), Expr(1)}};
}

void OnesweepSort::pass(const Expr& pass, const GridSort::Sink& sink) {
  const auto integer = [&](Op op, ValueId x, ValueId y) {
    return b_.apply(op, DType::I64, {x, y});
  };
  const ValueId one = sweep_number(b_, DType::I64, 1);
  // The half that the needed passes before this one left the elements in.
  const auto half_of = [&](ValueId parity) {
    for (const std::int64_t distance : {16, 8, 4, 2, 1})
      parity = integer(Op::Xor, parity,
                       integer(Op::Shr, parity, sweep_number(b_, DType::I64, distance)));
    return integer(Op::And, parity, one);
  };
  b_.grid_loop(Expr(rows_ * tiles_), [&](const Expr& flat) {
    const Expr row = floordiv(flat, Expr(tiles_));
    const PassBits bits = bits_at(pass, needed_ >= 0 ? needed_ : needed(row));
    const ValueId now = integer(Op::And, bits.from, one), later = integer(Op::Shr, bits.from, one);
    b_.when({{value_symbol(now), Expr(1), Expr(2)}}, [&] {
      move(pass, row, floormod(flat, Expr(tiles_)), value_symbol(half_of(bits.before)),
           value_symbol(later), sink);
    });
  });
}

/// Moves a tile's elements from a half to the other one, or if none move `later` to their results.
void OnesweepSort::move(const Expr& pass, const Expr& row, const Expr& number,
                        const Expr& from_half, const Expr& later, const GridSort::Sink& sink) {
  const Expr all(rows_ * length_), half = from_half * all;
  Tile tile;
  tile.row = row;
  tile.number = number;
  tile.memory = tile.row * Expr(length_);
  const Expr first = tile.number * Expr(s_.tile());
  tile.length = min(Expr(s_.tile()), Expr(length_) - first);
  std::vector<ValueId> words, positions;
  std::vector<std::vector<Guard>> masks;
  for (int e = 0; e < s_.each; ++e) {
    const Expr at = ranks_.place(e);
    masks.push_back({{at, Expr(0), tile.length}});
    const Expr from = half + tile.memory + first + at;
    words.push_back(b_.load(words_, from, 1, masks.back()));
    positions.push_back(b_.load(positions_, from, 1, masks.back()));
  }
  const std::vector<ValueId> ranks = ranks_.ranks(digits_of(words, pass), masks);
  publish(pass, tile);
  // In order of their digits, neighbours go to neighbouring places.
  for (std::size_t e = 0; e < words.size(); ++e) {
    const Expr rank = value_symbol(ranks[e]);
    b_.store(sorted_words_, rank, words[e], masks[e]);
    b_.store(sorted_positions_, rank, positions[e], masks[e]);
  }
  look_back(pass, tile);
  starts(pass, tile);
  const auto each = [&](const auto& body) {
    for (int e = 0; e < s_.each; ++e) {
      const Expr at = thread_ + Expr(std::int64_t(e) * s_.threads);
      const std::vector<Guard> mask{{at, Expr(0), tile.length}};
      const ValueId word = b_.load(sorted_words_, at, 1, mask);
      const ValueId digit = digits_of({word}, pass)[0];
      const ValueId start = b_.load(starts_, value_symbol(digit), 1, mask);
      const ValueId place = sweep_sum(b_, start, b_.index(at, position_, 1));
      body(value_symbol(place), word, b_.load(sorted_positions_, at, 1, mask), mask);
    }
  };
  const auto hand_on = [&] {
    const Expr to = all - half + tile.memory;
    each([&](const Expr& place, ValueId word, ValueId position, const std::vector<Guard>& mask) {
      b_.store(words_, to + place, word, mask);
      b_.store(positions_, to + place, position, mask);
    });
  };
  const auto deliver = [&] {
    each([&](const Expr& place, ValueId word, ValueId position, const std::vector<Guard>& mask) {
      sink(tile.row, place, word, position, mask);
    });
  };
  if (passes_ == 1)
    deliver();
  else
    b_.either({{later, Expr(0), Expr(1)}}, deliver, hand_on);
  b_.barrier();
}

/// The tile's counts, for the tiles behind it.
void OnesweepSort::publish(const Expr& pass, const Tile& tile) {
  const Expr digits(s_.digits()), flat = tile.row * Expr(tiles_) + tile.number;
  b_.when({{thread_, Expr(0), digits}}, [&] {
    const ValueId count =
        sweep_difference(b_, ranks_.first_of(thread_ + Expr(1)), ranks_.first_of(thread_));
    b_.store(counts_, flat * digits + thread_, b_.cast(count, position_));
  });
  b_.barrier();
  b_.when({{thread_, Expr(0), Expr(1)}},
          [&] { b_.publish_flag(tile_flags_, pass * Expr(rows_ * tiles_) + flat); });
}

/// This thread's part of the counts [begin, end) of its digit, added to `sum`.
void OnesweepSort::sum(int counts, const Expr& begin, const Expr& end, std::int64_t extent,
                       VarId sum) {
  const Expr digits(s_.digits());
  const std::int64_t parts = s_.threads / s_.digits();
  const Expr digit = floormod(thread_, digits), part = floordiv(thread_, digits);
  // Threads beyond the last whole part have nothing to do.
  b_.when({{part, Expr(0), Expr(parts)}}, [&] {
    constexpr int kUnderWay = 4;
    const std::int64_t step = parts * kUnderWay;
    b_.loop(begin, end, Expr(step), Expr(extent + step), Bind::Serial, [&](const Expr& first) {
      std::vector<ValueId> loaded;
      for (int i = 0; i < kUnderWay; ++i) {
        const Expr at = first + Expr(i * parts) + part;
        loaded.push_back(b_.load(counts, at * digits + digit, 1, {{at, Expr(0), end}}));
      }
      for (const ValueId count : loaded)
        b_.set(sum, sweep_sum(b_, b_.read(sum), count));
    });
  });
}

/// The parts of the threads' sums to shared memory: by part and digit.
void OnesweepSort::join(VarId sum) {
  b_.barrier();
  b_.store(partial_, thread_, b_.read(sum));
  b_.barrier();
}

/// The sums of the counts of all tiles of the row before this one, in `partial_`. The last tile of
/// a group publishes the sum of the group first.
void OnesweepSort::look_back(const Expr& pass, const Tile& tile) {
  const Expr digits(s_.digits()), group = floordiv(tile.number, Expr(group_));
  const Expr row_tiles = tile.row * Expr(tiles_), row_groups = tile.row * Expr(groups_);
  const Expr tile_flags = pass * Expr(rows_ * tiles_) + row_tiles;
  const Expr group_flags = pass * Expr(rows_ * groups_) + row_groups;
  const VarId total = b_.variable({position_, 1});
  const Expr begin = group * Expr(group_);
  b_.set(total, sweep_number(b_, position_, 0));
  b_.wait_flags(tile_flags_, tile_flags + begin, tile_flags + tile.number, [&] {
    sum(counts_, row_tiles + begin, row_tiles + tile.number, rows_ * tiles_, total);
  });
  b_.when({{floormod(tile.number, Expr(group_)), Expr(group_ - 1), Expr(group_)}}, [&] {
    join(total);
    b_.when({{thread_, Expr(0), digits}}, [&] {
      const VarId own = b_.variable({position_, 1});
      b_.set(own, b_.load(counts_, (row_tiles + tile.number) * digits + thread_, 1));
      const Expr parts(s_.threads / s_.digits());
      b_.loop(Expr(0), parts, Expr(1), parts, Bind::Serial, [&](const Expr& part) {
        b_.set(own, sweep_sum(b_, b_.read(own), b_.load(partial_, part * digits + thread_, 1)));
      });
      b_.store(sums_, (row_groups + group) * digits + thread_, b_.read(own));
    });
    b_.barrier();
    b_.when({{thread_, Expr(0), Expr(1)}},
            [&] { b_.publish_flag(group_flags_, group_flags + group); });
  });
  b_.wait_flags(group_flags_, group_flags, group_flags + group,
                [&] { sum(sums_, row_groups, row_groups + group, rows_ * groups_, total); });
  join(total);
}

/// Where the tile's elements of a digit begin in the row, less their first rank in the tile.
void OnesweepSort::starts(const Expr& pass, const Tile& tile) {
  const Expr digits(s_.digits()), lane = floormod(thread_, Expr(kSweepWarp));
  const Expr parts(s_.threads / s_.digits());
  b_.when({{floordiv(thread_, Expr(kSweepWarp)), Expr(0), Expr(1)}}, [&] {
    scan_by_warp(b_, lane, totals_, (tile.row * Expr(passes_) + pass) * digits, digits, digits,
                 [&](const Expr& digit, ValueId before, const std::vector<Guard>& mask) {
                   const VarId start = b_.variable({position_, 1});
                   b_.set(start, sweep_difference(b_, before, ranks_.first_of(min(digit, digits))));
                   b_.loop(Expr(0), parts, Expr(1), parts, Bind::Serial, [&](const Expr& part) {
                     const ValueId of_part = b_.load(partial_, part * digits + digit, 1, mask);
                     b_.set(start, sweep_sum(b_, b_.read(start), of_part));
                   });
                   b_.store(starts_, digit, b_.read(start), mask);
                 });
  });
  b_.barrier();
}

} // namespace egret::kernel
