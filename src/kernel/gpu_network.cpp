#include "kernel/gpu_network.h"

#include "kernel/analysis.h"
#include "kernel/gpu_nest.h"

#include <algorithm>
#include <bit>

namespace egret::kernel {

namespace {

/// Bytes of registers that the items of a thread may take; comparisons in the text of a program, of
/// 32 bits each, which compilers take a second or two for.
constexpr std::int64_t kMostItemBytes = 512, kMostComparisons = 768;
/// Items of a thread that is one of several lanes: of more, the loops that merge lanes spill some.
constexpr std::int64_t kMostOfALane = 16;
/// Elements of a thread that are under way when rows go through shared memory.
constexpr std::int64_t kStaged = 8;

class NetworkSort {
public:
  using Item = ItemWriter::Item;
  NetworkSort(const Region& region, const SortForm& form, const GpuNetworkShape& shape)
      : r_(region), f_(form), g_(shape.group), each_(shape.each), b_(region.name), e_(b_, region),
        items_(b_, e_, form, item_type(form, false)), network_(b_, items_, g_),
        thread_(thread_variable(g_.threads)), pitch_(each_ | 1) {
    // Where the elements of a row are beside each other, threads that are beside each other read
    // and write neighbours by way of shared memory. Pitches are odd, so that threads that go along
    // their own items meet in no bank.
    if (g_.across)
      return;
    const std::int64_t places = std::int64_t(g_.threads) * pitch_;
    if (g_.lanes == 1)
      keys_ = b_.shared("keys", form.word, places);
    positions_ = b_.shared("positions", DType::I32, places);
  }

  KernelProgram run() {
    Launch launch;
    launch.threads = g_.threads;
    const Expr blocks = ceildiv(f_.row_count, Expr(g_.rows()));
    if (!proves_less_equal(f_.row_count * f_.kept, Expr(0)))
      b_.grid_loop(blocks, [&](const Expr& block) { rows(block * Expr(g_.rows())); });
    launch.workers = max(Expr(1), blocks);
    return b_.finish(launch);
  }

private:
  Guard exists(const Expr& row) const { return {row, Expr(0), f_.row_count}; }

  void rows(const Expr& first) {
    std::vector<Item> items = keys_ >= 0 ? staged(first) : direct(first);
    network_.sort(items, g_.lanes == 1 ? f_.kept.value() : each_);
    network_.merge(items);
    if (g_.across)
      deliver(first, items);
    else
      deliver_staged(first, items);
  }

  /// An element whose row exists, as a key_word.
  ValueId key(const Expr& row, const Expr& at, std::vector<Guard> mask) {
    Point p = point_of_row(r_, f_, row, at);
    p.mask = std::move(mask);
    return key_word(e_, f_, p);
  }

  /// Lanes that are beside each other read neighbours: of one row, or of rows.
  std::vector<Item> direct(const Expr& first) {
    std::vector<Expr> at;
    std::vector<ValueId> keys;
    const Expr row = first + g_.row();
    for (int e = 0; e < each_; ++e) {
      at.push_back(Expr(std::int64_t(e) * g_.lanes) + g_.lane());
      keys.push_back(key(row, at.back(), {exists(row), {at.back(), Expr(0), f_.length}}));
    }
    std::vector<Item> items;
    for (std::size_t e = 0; e < keys.size(); ++e)
      items.push_back(items_.or_last(items_.item(keys[e], at[e], 1), {at[e], Expr(0), f_.length}));
    return items;
  }

  std::vector<Item> staged(const Expr& first) {
    each_of(f_.length.value(), [&](const std::vector<Expr>& numbers) {
      std::vector<ValueId> keys;
      std::vector<Guard> within;
      for (const Expr& i : numbers) {
        const Expr row = floordiv(i, f_.length);
        within.push_back({row, Expr(0), Expr(g_.rows())});
        keys.push_back(
            key(first + row, floormod(i, f_.length), {exists(first + row), within.back()}));
      }
      for (std::size_t n = 0; n < numbers.size(); ++n)
        b_.store(keys_,
                 floordiv(numbers[n], f_.length) * Expr(pitch_) + floormod(numbers[n], f_.length),
                 keys[n], {within[n]});
    });
    b_.barrier();
    std::vector<Item> items;
    for (int e = 0; e < each_; ++e)
      items.push_back(items_.item(b_.load(keys_, thread_ * Expr(pitch_) + Expr(e), 1), Expr(e), 1));
    return items;
  }

  /// Numbers of the `count` elements of each of the block's rows, some for each thread at a time.
  void each_of(std::int64_t count, const std::function<void(const std::vector<Expr>&)>& body) {
    const std::int64_t all = count * g_.rows(), turns = (all + g_.threads - 1) / g_.threads;
    const std::int64_t together = std::min(turns, kStaged), step = together * g_.threads;
    b_.loop(Expr(0), Expr(all), Expr(step), Expr(all + step), Bind::Serial, [&](const Expr& base) {
      std::vector<Expr> numbers;
      for (std::int64_t i = 0; i < together; ++i)
        numbers.push_back(base + Expr(i * g_.threads) + thread_);
      body(numbers);
    });
  }

  void deliver(const Expr& first, const std::vector<Item>& items) {
    const Expr row = first + g_.row();
    for (int e = 0; e < each_; ++e) {
      const Expr place = g_.lane() * Expr(each_) + Expr(e);
      store_position(e_, f_, row, place, items_.position(items[std::size_t(e)], 1),
                     {exists(row), {place, Expr(0), f_.kept}});
    }
  }

  void deliver_staged(const Expr& first, const std::vector<Item>& items) {
    for (int e = 0; e < each_; ++e)
      if (g_.lanes > 1 || e < f_.kept.value())
        b_.store(positions_, thread_ * Expr(pitch_) + Expr(e),
                 b_.cast(items_.position(items[std::size_t(e)], 1), DType::I32));
    b_.barrier();
    each_of(f_.kept.value(), [&](const std::vector<Expr>& numbers) {
      for (const Expr& i : numbers) {
        const Expr row = floordiv(i, f_.kept), place = floormod(i, f_.kept);
        const Expr holder = row * Expr(g_.lanes) + floordiv(place, Expr(each_));
        const std::vector<Guard> mask{{row, Expr(0), Expr(g_.rows())}, exists(first + row)};
        const ValueId position =
            b_.load(positions_, holder * Expr(pitch_) + floormod(place, Expr(each_)), 1, mask);
        store_position(e_, f_, first + row, place, position, mask);
      }
    });
    b_.barrier();
  }

  const Region& r_;
  const SortForm& f_;
  RowGroup g_;
  int each_;
  ProgramBuilder b_;
  Emitter e_;
  ItemWriter items_;
  LaneNetwork network_;
  Expr thread_;
  int pitch_; ///< of a thread's items in shared memory
  int keys_ = -1, positions_ = -1;
};

} // namespace

// --- Groups

Expr RowGroup::lane() const {
  return floormod(floordiv(thread_variable(threads), Expr(apart())), Expr(lanes));
}

Expr RowGroup::row() const {
  const Expr thread = thread_variable(threads);
  if (apart() == 1)
    return floordiv(thread, Expr(lanes));
  return floordiv(thread, Expr(kWarpLanes)) * Expr(apart()) + floormod(thread, Expr(apart()));
}

bool rows_lie_across(const Region& region, const SortForm& form) {
  const Stage& stage = region.stages[std::size_t(form.stage)];
  for (const Load& load : stage.loads)
    if (load.source == Source::Operand) {
      const auto stride = stride_of(region, stage, load, form.axis);
      if (stride && (*stride == 1 || *stride == -1))
        return false;
    }
  return !form.rows.empty();
}

// --- Networks over lanes

HeldItems::HeldItems(ProgramBuilder& b, const ItemType& type, const std::vector<Item>& items)
    : b_(b) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    words_.push_back(b_.variable({type.word, 1}));
    if (type.paired)
      positions_.push_back(b_.variable({type.position, 1}));
  }
  set(items);
}

void HeldItems::set(const std::vector<Item>& items) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    b_.set(words_[i], items[i].word);
    if (!positions_.empty())
      b_.set(positions_[i], items[i].position);
  }
}

HeldItems::Item HeldItems::read(std::size_t item) {
  return {b_.read(words_[item]), positions_.empty() ? -1 : b_.read(positions_[item])};
}

std::vector<HeldItems::Item> HeldItems::read() {
  std::vector<Item> items;
  for (std::size_t i = 0; i < words_.size(); ++i)
    items.push_back(read(i));
  return items;
}

std::vector<std::pair<int, int>> network_pairs(std::int64_t items, std::int64_t wanted) {
  std::vector<std::pair<int, int>> pairs;
  odd_even_pairs(items,
                 [&](std::int64_t i, std::int64_t j) { pairs.emplace_back(int(i), int(j)); });
  std::vector<bool> needed(std::size_t(items), false);
  std::fill_n(needed.begin(), std::min(items, wanted), true);
  std::vector<std::pair<int, int>> kept;
  for (std::size_t i = pairs.size(); i-- > 0;) {
    const auto [low, high] = pairs[i];
    if (!needed[std::size_t(low)] && !needed[std::size_t(high)])
      continue;
    needed[std::size_t(low)] = needed[std::size_t(high)] = true;
    kept.push_back(pairs[i]);
  }
  std::reverse(kept.begin(), kept.end());
  return kept;
}

void LaneNetwork::sort(std::vector<Item>& items, std::int64_t wanted) {
  for (const auto& [low, high] : network_pairs(std::int64_t(items.size()), wanted))
    items_.exchange(items[std::size_t(low)], items[std::size_t(high)]);
}

void LaneNetwork::clean(std::vector<Item>& items) {
  for (std::size_t k = items.size() / 2; k >= 1; k /= 2)
    for (std::size_t i = 0; i + k < items.size(); ++i)
      if ((i & k) == 0)
        items_.exchange(items[i], items[i + k]);
}

ValueId LaneNetwork::number(std::int64_t value) {
  return b_.constant(Scalar::of(DType::I32, value));
}

LaneNetwork::Item LaneNetwork::other(const Item& item, ValueId mask) {
  return {b_.shuffle_xor(item.word, mask),
          item.position >= 0 ? b_.shuffle_xor(item.position, mask) : -1};
}

/// Whether this lane's number in its row has the bit `lanes`.
ValueId LaneNetwork::high(ValueId lanes) {
  const ValueId lane = b_.index(g_.lane(), DType::I32, 1);
  return b_.apply(Op::Lt, DType::Bool, {number(0), b_.apply(Op::And, DType::I32, {lane, lanes})});
}

/// The smaller item, or in the lanes that are high the larger one.
LaneNetwork::Item LaneNetwork::choose(const Item& own, const Item& other, ValueId high) {
  const ValueId swap = b_.apply(Op::Xor, DType::Bool, {items_.before(other, own), high});
  return items_.select(swap, other, own);
}

void LaneNetwork::merge(std::vector<Item>& items) {
  if (g_.lanes == 1)
    return;
  const auto integer = [&](Op op, ValueId x, ValueId y) {
    return b_.apply(op, DType::I32, {x, y});
  };
  const ValueId apart = number(g_.apart());
  HeldItems held(b_, items_.type(), items);
  // An exchange with lanes that differ in the bits of `mask`, the item there by `from`.
  const auto across = [&](ValueId mask, ValueId bit, const auto& from) {
    const std::vector<Item> own = held.read();
    std::vector<Item> next;
    for (std::size_t i = 0; i < own.size(); ++i)
      next.push_back(choose(own[i], other(own[from(i)], integer(Op::Mul, mask, apart)), high(bit)));
    held.set(next);
  };
  const Expr merges(std::bit_width(unsigned(g_.lanes)) - 1);
  b_.loop(Expr(0), merges, Expr(1), merges, Bind::Serial, [&](const Expr& number_of_merge) {
    const ValueId run = integer(Op::Shl, number(1), b_.index(number_of_merge, DType::I32, 1));
    // The second run the other way round, so that both are a bitonic sequence.
    across(integer(Op::Add, integer(Op::Add, run, run), number(-1)), run,
           [&](std::size_t i) { return items.size() - 1 - i; });
    b_.loop(Expr(0), number_of_merge, Expr(1), merges, Bind::Serial, [&](const Expr& step) {
      const ValueId distance = integer(Op::Shr, run, b_.index(step + Expr(1), DType::I32, 1));
      across(distance, distance, [](std::size_t i) { return i; });
    });
    std::vector<Item> own = held.read();
    clean(own);
    held.set(own);
  });
  items = held.read();
}

void LaneNetwork::join(std::vector<Item>& a, const std::vector<Item>& b) {
  const std::size_t n = std::min(a.size(), b.size());
  for (std::size_t i = 0; i < n; ++i) {
    Item& own = a[a.size() - 1 - i];
    own = items_.select(items_.before(b[i], own), b[i], own);
  }
  clean(a);
}

void LaneNetwork::keep(std::vector<Item>& items, int lanes, int apart) {
  if (lanes == 1)
    return;
  HeldItems held(b_, items_.type(), items);
  const Expr steps(std::bit_width(unsigned(lanes)) - 1);
  b_.loop(Expr(0), steps, Expr(1), steps, Bind::Serial, [&](const Expr& step) {
    const ValueId mask =
        b_.apply(Op::Shl, DType::I32, {number(apart), b_.index(step, DType::I32, 1)});
    std::vector<Item> own = held.read(), others;
    for (const Item& item : own)
      others.push_back(other(item, mask));
    join(own, others);
    held.set(own);
  });
  items = held.read();
}

// --- Whole rows

std::string network_refused(const SortForm& form, const GpuNetworkShape& s) {
  if (!form.length.is_constant() || !form.kept.is_constant() || form.length.value() < 1 ||
      form.kept.value() < 1)
    return "its rows' length, or how much of them is wanted, is not a known number";
  if (s.group.lanes > kWarpLanes || network_power(s.group.lanes) != s.group.lanes)
    return "a row's lanes are no power of two in a warp";
  if (s.group.lanes == 1 ? s.each != form.length.value() : network_power(s.each) != s.each)
    return "a thread's items are not those of its row, or no power of two";
  if (std::int64_t(s.each) * s.group.lanes < form.length.value())
    return "its rows are longer than the items of their lanes";
  if (s.each * item_type(form, false).bytes() > kMostItemBytes ||
      (s.group.lanes > 1 && s.each > kMostOfALane))
    return "a thread's items take too many registers";
  const std::int64_t merging =
      s.group.lanes > 1 ? s.each * (2 + std::bit_width(unsigned(s.each)) / 2) : 0;
  const auto pairs =
      std::int64_t(network_pairs(s.each, s.group.lanes > 1 ? s.each : form.kept.value()).size());
  if ((pairs + merging) * item_type(form, false).bytes() / 4 > kMostComparisons)
    return "a thread's network is long";
  return {};
}

KernelProgram gpu_sort_by_network(const Region& region, const SortForm& form,
                                  const GpuNetworkShape& shape) {
  return NetworkSort(region, form, shape).run();
}

} // namespace egret::kernel
