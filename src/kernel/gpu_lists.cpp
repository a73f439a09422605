// The first few of each row on a GPU, by lists of the best items in registers.
#include "kernel/gpu_network.h"

#include "kernel/gpu_nest.h"

#include <functional>

namespace egret::kernel {

namespace {

/// Items of a list, and their bytes, which the text of a program grows with.
constexpr std::int64_t kMostListed = 32, kMostListBytes = 256;
/// Registers that a thread may have, and those that it needs beside its items.
constexpr std::int64_t kMostRegisters = 255, kOtherRegisters = 40;

class ListSort {
public:
  using Item = ItemWriter::Item;
  ListSort(const Region& region, const SortForm& form, const GpuListShape& shape)
      : r_(region), f_(form), g_(shape.group), each_(shape.each), slices_(shape.slices),
        kept_(form.kept.value()), list_(network_power(kept_)), b_(region.name), e_(b_, region),
        items_(b_, e_, form, item_type(form, false)), network_(b_, items_, g_),
        thread_(thread_variable(g_.threads)) {
    if (g_.lanes > kWarpLanes) {
      of_warps_.words = b_.shared("lists", items_.type().word, list_ * g_.threads / kWarpLanes);
      if (items_.type().paired)
        of_warps_.positions =
            b_.shared("positions", items_.type().position, list_ * g_.threads / kWarpLanes);
    }
  }

  KernelProgram run() {
    Launch launch;
    launch.threads = g_.threads;
    Expr blocks(1);
    if (!proves_less_equal(f_.row_count, Expr(0))) {
      launch.resident = slices_ > 1;
      blocks = ceildiv(f_.row_count * Expr(slices_), Expr(g_.rows()));
      if (slices_ > 1)
        by_slices();
      else
        all_rows(f_.row_count, f_.length.value(), by_element(Expr(1)), to_outputs());
    }
    launch.workers = max(Expr(1), blocks);
    return b_.finish(launch);
  }

private:
  /// Item `at` of a row, and what becomes of item `place` of its list, under guards.
  using Fetch = std::function<Item(const Expr& row, const Expr& at, const std::vector<Guard>&)>;
  using Sink = std::function<void(const Expr& row, const Expr& place, const Item&,
                                  const std::vector<Guard>&)>;

  std::int64_t piece() const { return (f_.length.value() + slices_ - 1) / slices_; }

  /// Rows are a slice of a row of the region each.
  Fetch by_element(const Expr& slices) {
    return [this, slices](const Expr& row, const Expr& at, const std::vector<Guard>& mask) {
      const Expr place = floormod(row, slices) * Expr(piece()) + at;
      Point p = point_of_row(r_, f_, floordiv(row, slices), place);
      p.mask = mask;
      p.mask.push_back({place, Expr(0), f_.length});
      return items_.or_last(items_.element(p), {place, Expr(0), f_.length});
    };
  }
  Sink to_outputs() {
    return [this](const Expr& row, const Expr& place, const Item& item,
                  const std::vector<Guard>& mask) {
      store_position(e_, f_, row, place, items_.position(item, 1), mask);
    };
  }

  void by_slices() {
    const ItemWriter::Memory lists =
        items_.memory("slices", f_.row_count * Expr(slices_ * kept_), true);
    all_rows(
        f_.row_count * Expr(slices_), piece(), by_element(Expr(slices_)),
        [&](const Expr& row, const Expr& place, const Item& item, const std::vector<Guard>& mask) {
          items_.store(lists, row * Expr(kept_) + place, item, mask);
        });
    b_.grid_barrier(b_.counter("blocks", 2), Expr(0));
    // A warp for each row.
    const int warps = g_.threads / kWarpLanes;
    b_.grid_loop(ceildiv(f_.row_count, Expr(warps)), [&](const Expr& block) {
      const Expr row = block * Expr(warps) + floordiv(thread_, Expr(kWarpLanes));
      const Guard exists{row, Expr(0), f_.row_count};
      deliver(row, exists, joined(lists, row * Expr(slices_), slices_, kept_, {exists}), kWarpLanes,
              floormod(thread_, Expr(kWarpLanes)), to_outputs());
    });
  }

  void all_rows(const Expr& rows, std::int64_t length, const Fetch& fetch, const Sink& sink) {
    b_.grid_loop(ceildiv(rows, Expr(g_.rows())), [&](const Expr& block) {
      const Expr row = block * Expr(g_.rows()) + g_.row();
      const Guard exists{row, Expr(0), rows};
      std::vector<Item> list = own_list(row, exists, length, fetch);
      network_.keep(list, g_.in_warp(), g_.apart());
      if (g_.lanes > kWarpLanes)
        join_warps(list, [&](const std::vector<Item>& all) {
          deliver(row, exists, all, kWarpLanes, floormod(thread_, Expr(kWarpLanes)), sink);
        });
      else
        deliver(row, exists, list, g_.lanes, g_.lane(), sink);
    });
  }

  /// The first of this thread's items of a row, sorted.
  std::vector<Item> own_list(const Expr& row, const Guard& exists, std::int64_t length,
                             const Fetch& fetch) {
    const std::int64_t step = std::int64_t(each_) * g_.lanes;
    const auto few = [&](const Expr& first) {
      std::vector<Item> items;
      for (int e = 0; e < each_; ++e) {
        const Expr at = first + Expr(std::int64_t(e) * g_.lanes) + g_.lane();
        const Guard within{at, Expr(0), Expr(length)};
        items.push_back(items_.or_last(fetch(row, at, {exists, within}), within));
      }
      network_.sort(items, std::min<std::int64_t>(each_, list_));
      items.resize(std::size_t(std::min<std::int64_t>(each_, list_)));
      return items;
    };
    if (length <= step) {
      std::vector<Item> list = few(Expr(0));
      list.resize(std::size_t(list_), items_.last());
      return list;
    }
    HeldItems held(b_, items_.type(), std::vector<Item>(std::size_t(list_), items_.last()));
    b_.loop(Expr(0), Expr(length), Expr(step), Expr(length + step), Bind::Serial,
            [&](const Expr& first) {
              const std::vector<Item> items = few(first);
              const ValueId better =
                  b_.cast(items_.before(items[0], held.read(std::size_t(list_ - 1))), DType::I32);
              b_.when({{value_symbol(better), Expr(1), Expr(2)}}, [&] {
                std::vector<Item> list = held.read();
                network_.join(list, items);
                held.set(list);
              });
            });
    return held.read();
  }

  /// The lists of the block's warps, joined by the first one.
  void join_warps(const std::vector<Item>& list,
                  const std::function<void(const std::vector<Item>&)>& then) {
    const int warps = g_.threads / kWarpLanes;
    const Expr lane = floormod(thread_, Expr(kWarpLanes)),
               warp = floordiv(thread_, Expr(kWarpLanes));
    for (std::int64_t i = 0; i < list_; ++i)
      items_.store(of_warps_, warp * Expr(list_) + Expr(i), list[std::size_t(i)],
                   {{lane, Expr(0), Expr(1)}});
    b_.barrier();
    b_.when({{warp, Expr(0), Expr(1)}},
            [&] { then(joined(of_warps_, Expr(0), warps, list_, {})); });
    b_.barrier();
  }

  /// `lists` sorted lists of `length` items, from list `first` on, joined by the lanes of a warp.
  std::vector<Item> joined(const ItemWriter::Memory& from, const Expr& first, std::int64_t lists,
                           std::int64_t length, const std::vector<Guard>& mask) {
    const int lanes = int(std::min<std::int64_t>(kWarpLanes, network_power(lists)));
    const auto load = [&](const Expr& number) {
      const Guard within{number, Expr(0), Expr(lists)};
      std::vector<Guard> all = mask;
      all.push_back(within);
      std::vector<Item> list;
      for (std::int64_t i = 0; i < length; ++i)
        list.push_back(items_.or_last(
            items_.load(from, (first + number) * Expr(length) + Expr(i), 1, all), within));
      return list;
    };
    const Expr lane = floormod(thread_, Expr(lanes));
    std::vector<Item> list = load(lane);
    list.resize(std::size_t(list_), items_.last());
    if (lists > lanes) {
      HeldItems held(b_, items_.type(), list);
      b_.loop(Expr(lanes), Expr(lists), Expr(lanes), Expr(lists + lanes), Bind::Serial,
              [&](const Expr& base) {
                std::vector<Item> own = held.read();
                network_.join(own, load(base + lane));
                held.set(own);
              });
      list = held.read();
    }
    network_.keep(list, lanes, 1);
    return list;
  }

  /// All lanes of a row have its list: neighbours store neighbours.
  void deliver(const Expr& row, const Guard& exists, const std::vector<Item>& list, int lanes,
               const Expr& lane, const Sink& sink) {
    for (std::int64_t first = 0; first < kept_; first += lanes) {
      Item item = list[std::size_t(first)];
      for (std::int64_t i = 1; i < lanes && first + i < kept_; ++i)
        item = items_.select(b_.test({{lane, Expr(i), Expr(i + 1)}}, 1),
                             list[std::size_t(first + i)], item);
      const Expr place = Expr(first) + lane;
      sink(row, place, item, {exists, {place, Expr(0), Expr(kept_)}});
    }
  }

  const Region& r_;
  const SortForm& f_;
  RowGroup g_;
  int each_;
  std::int64_t slices_, kept_, list_; ///< items of a list: a power of two
  ProgramBuilder b_;
  Emitter e_;
  ItemWriter items_;
  LaneNetwork network_;
  Expr thread_;
  ItemWriter::Memory of_warps_; ///< the warps' lists, in shared memory
};

} // namespace

std::string lists_refused(const SortForm& form, const GpuListShape& s, const Target& target) {
  if (s.slices > 1 && !target.has(Capability::CoResidentBlocks))
    return "blocks may not wait for each other";
  if (!form.length.is_constant() || !form.kept.is_constant() || form.length.value() < 1 ||
      form.kept.value() < 1)
    return "its rows' length, or how much of them is wanted, is not a known number";
  const std::int64_t list = network_power(form.kept.value());
  const std::int64_t registers = std::min<std::int64_t>(
      kMostRegisters, std::max<std::int64_t>(target.registers, 1 << 16) / s.group.threads);
  if (list > kMostListed || list * item_type(form, false).bytes() > kMostListBytes ||
      (list + std::max<std::int64_t>(s.each, list / 2)) * item_type(form, false).bytes() / 4 +
              kOtherRegisters >
          registers)
    return "more than the first few of its rows are wanted";
  if (s.group.lanes != s.group.threads &&
      (s.group.lanes > kWarpLanes || network_power(s.group.lanes) != s.group.lanes))
    return "a row's lanes are neither a power of two in a warp nor the block";
  if (s.slices > 1 && (s.group.lanes != s.group.threads || s.slices > form.length.value()))
    return "slices of a row are no block's";
  return {};
}

KernelProgram gpu_sort_by_lists(const Region& region, const SortForm& form,
                                const GpuListShape& shape) {
  return ListSort(region, form, shape).run();
}

} // namespace egret::kernel
