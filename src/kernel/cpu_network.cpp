#include "kernel/analysis.h"
#include "kernel/cpu_sort.h"
#include "kernel/nest.h"

#include <algorithm>

namespace egret::kernel {

namespace {

/// Items of the sorted blocks that are merged with all their items.
std::int64_t network_run(const NetworkShape& s) {
  return std::max<std::int64_t>(s.block, network_power(s.kept));
}

class SortNetwork {
public:
  using Item = ItemWriter::Item;
  SortNetwork(const Region& region, const SortForm& form, const NetworkShape& shape)
      : r_(region), f_(form), s_(shape), b_(region.name), e_(b_, region),
        items_(b_, e_, form, item_type(form, true)) {}

  KernelProgram run() {
    const int along = network_axis(r_, f_, s_.lanes);
    std::vector<Expr> extents;
    for (const int a : f_.rows)
      extents.push_back(a == along ? ceildiv(r_.axes[std::size_t(a)].extent, Expr(s_.lanes))
                                   : r_.axes[std::size_t(a)].extent);
    if (s_.length > s_.block)
      memory_ = items_.memory("items", Expr(s_.length * s_.lanes), false);
    core_loop(b_, extents, [&](std::span<const Expr> at) {
      point_.at.assign(r_.axes.size(), Expr(0));
      point_.lanes = s_.lanes;
      point_.mask.clear();
      for (std::size_t i = 0; i < f_.rows.size(); ++i) {
        const int a = f_.rows[i];
        Expr& place = point_.at[std::size_t(a)];
        place = at[i];
        if (a != along || s_.lanes == 1)
          continue;
        place = at[i] * Expr(s_.lanes) + lane_variable(s_.lanes);
        point_.mask = {{place, Expr(0), r_.axes[std::size_t(a)].extent}};
      }
      sort();
    });
    const NetworkWork work = network_work(s_);
    return b_.finish(useful_workers(product(extents), product(extents) * Expr(work.exchanges)));
  }

private:
  static Expr product(std::span<const Expr> extents) {
    Expr all(1);
    for (const Expr& e : extents)
      all = all * e;
    return all;
  }

  Item fetch(const Expr& at) {
    Point p = point_;
    p.at[std::size_t(f_.axis)] = at;
    return items_.element(p);
  }
  void deliver(const Expr& at, const Item& item) {
    Point p = point_;
    p.at[std::size_t(f_.axis)] = at;
    items_.deliver(p, item);
  }
  Expr place(const Expr& row) const {
    return row * Expr(s_.lanes) + (s_.lanes > 1 ? lane_variable(s_.lanes) : Expr(0));
  }
  Item load(const Expr& row) { return items_.load(memory_, place(row), s_.lanes); }
  void store(const Expr& row, const Item& item) { items_.store(memory_, place(row), item, {}); }
  void loop(const Expr& begin, const Expr& end, std::int64_t step,
            const std::function<void(const Expr&)>& body) {
    b_.loop(begin, end, Expr(step), Expr(s_.length + step), Bind::Serial, body);
  }

  /// `body` for each block of rows, the last one perhaps shorter.
  void blocks(std::int64_t length,
              const std::function<void(const Expr& first, std::int64_t count)>& body) {
    const std::int64_t whole = length / s_.block * s_.block;
    loop(Expr(0), Expr(whole), s_.block, [&](const Expr& first) { body(first, s_.block); });
    if (whole < length)
      body(Expr(whole), length - whole);
  }

  void sort() {
    if (s_.length <= s_.block) {
      std::vector<Item> rows;
      for (std::int64_t i = 0; i < s_.length; ++i)
        rows.push_back(fetch(Expr(i)));
      sort_block(rows);
      for (std::int64_t i = 0; i < s_.kept; ++i)
        deliver(Expr(i), rows[std::size_t(i)]);
      return;
    }
    blocks(s_.length, [&](const Expr& first, std::int64_t count) {
      std::vector<Item> rows;
      for (std::int64_t i = 0; i < count; ++i)
        rows.push_back(fetch(first + Expr(i)));
      sort_block(rows);
      put(first, rows);
    });
    const std::int64_t run = network_run(s_);
    for (std::int64_t p = s_.block; p < std::min(run, s_.length); p *= 2)
      merge(p);
    for (std::int64_t p = run; p < s_.length; p *= 2)
      keep(run, p);
    loop(Expr(0), Expr(s_.kept), 1, [&](const Expr& i) { deliver(i, load(i)); });
  }

  void sort_block(std::vector<Item>& rows) {
    odd_even_pairs(std::int64_t(rows.size()), [&](std::int64_t i, std::int64_t j) {
      items_.exchange(rows[std::size_t(i)], rows[std::size_t(j)]);
    });
  }
  void put(const Expr& first, const std::vector<Item>& rows) {
    for (std::size_t i = 0; i < rows.size(); ++i)
      store(first + Expr(std::int64_t(i)), rows[i]);
  }
  void exchange(const Expr& low, const Expr& high) {
    Item a = load(low), b = load(high);
    items_.exchange(a, b);
    store(low, a);
    store(high, b);
  }

  /// Merges neighbouring runs of p items. Where items are missing at the end, the largest ones
  /// would stand there, which no comparison moves.
  void merge(std::int64_t p) {
    const Expr length(s_.length);
    loop(Expr(0), Expr(s_.length - p), 2 * p, [&](const Expr& base) {
      loop(max(Expr(0), base + Expr(2 * p) - length), Expr(p), 1,
           [&](const Expr& i) { exchange(base + i, base + Expr(2 * p - 1) - i); });
      halves(base, 2 * p, p / 2, length);
    });
    clean_blocks(s_.length);
  }

  /// Of runs of `run` items, the first of each 2p items gets the least of both.
  void keep(std::int64_t run, std::int64_t p) {
    const Expr length(s_.length);
    loop(Expr(0), Expr(s_.length - p), 2 * p, [&](const Expr& base) {
      loop(max(Expr(0), base + Expr(p + run) - length), Expr(run), 1, [&](const Expr& i) {
        Item a = load(base + i), b = load(base + Expr(p + run - 1) - i);
        items_.exchange(a, b);
        store(base + i, a);
      });
      halves(base, run, run / 2, length);
      loop(base, base + Expr(run), s_.block, [&](const Expr& first) { clean(first, s_.block); });
    });
  }

  /// Compares items at distances from `k` down to a block's, of bitonic runs of 2k among `count`
  /// rows from `base` on.
  void halves(const Expr& base, std::int64_t count, std::int64_t k, const Expr& length) {
    for (; k >= s_.block; k /= 2) {
      const Expr end = min(base + Expr(count), length);
      loop(base, end - Expr(k), 2 * k, [&](const Expr& first) {
        loop(first, min(first + Expr(k), end - Expr(k)), 1,
             [&](const Expr& i) { exchange(i, i + Expr(k)); });
      });
    }
  }

  void clean_blocks(std::int64_t length) {
    blocks(length, [&](const Expr& first, std::int64_t count) { clean(first, count); });
  }
  void clean(const Expr& first, std::int64_t count) {
    std::vector<Item> rows;
    for (std::int64_t i = 0; i < count; ++i)
      rows.push_back(load(first + Expr(i)));
    for (std::int64_t k = s_.block / 2; k >= 1; k /= 2)
      for (std::int64_t i = 0; i + k < count; ++i)
        if ((i & k) == 0)
          items_.exchange(rows[std::size_t(i)], rows[std::size_t(i + k)]);
    put(first, rows);
  }

  const Region& r_;
  const SortForm& f_;
  NetworkShape s_;
  ProgramBuilder b_;
  Emitter e_;
  ItemWriter items_;
  ItemWriter::Memory memory_; ///< row i's item in lane l at i * lanes + l
  Point point_;               ///< of the rows that are being sorted
};

} // namespace

NetworkWork network_work(const NetworkShape& s) {
  NetworkWork work;
  const auto block = [&](std::int64_t count) {
    odd_even_pairs(count, [&](std::int64_t, std::int64_t) { ++work.exchanges; });
  };
  block(s.length % s.block);
  const std::int64_t others = work.exchanges;
  work.exchanges = 0;
  block(s.block);
  work.exchanges = work.exchanges * (s.length / s.block) + others;
  work.transfers = s.length + s.kept;
  if (s.length <= s.block)
    return work;
  const std::int64_t run = network_run(s);
  std::int64_t inside = 0; // distances within a block
  while ((2 << inside) <= s.block)
    ++inside;
  // Merges of runs of p, of which `items` take part: distances beyond a block's are compared in
  // memory.
  const auto merge = [&](std::int64_t p, std::int64_t items) {
    std::int64_t outside = 1;
    for (std::int64_t k = p / 2; k >= s.block; k /= 2)
      ++outside;
    work.exchanges += items / 2 * (outside + inside);
    work.transfers += 2 * items * (outside + 1);
  };
  for (std::int64_t p = s.block; p < std::min(run, s.length); p *= 2)
    merge(p, s.length);
  if (run < s.length)
    for (std::int64_t left = (s.length + run - 1) / run; left > 1; --left)
      merge(run / 2, run);
  return work;
}

int network_axis(const Region& region, const SortForm& form, int lanes) {
  int best = -1;
  std::int64_t filled = 0;
  for (const int a : form.rows) {
    const std::int64_t n = about(region.axes[std::size_t(a)].extent);
    const std::int64_t of_vectors =
        1024 * n / std::max<std::int64_t>(lanes, (n + lanes - 1) / lanes * lanes);
    if (best < 0 || of_vectors >= filled) {
      best = a;
      filled = of_vectors;
    }
  }
  return best;
}

KernelProgram sort_by_network(const Region& region, const SortForm& form,
                              const NetworkShape& shape) {
  return SortNetwork(region, form, shape).run();
}

} // namespace egret::kernel
