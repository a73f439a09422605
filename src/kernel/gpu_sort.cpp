// Sorts along one axis on a GPU. Short rows are sorted by networks in registers, and the first few
// of any rows are found by lists there. Longer rows that fit a tile are sorted by a block each, in
// its registers and shared memory; those beyond it by all blocks together, digit by digit, with
// look-back between blocks where the rows' lengths are known. Where more than a few of long rows
// are wanted, each block sorts tiles and keeps the first of each, until those of a row fit one
// tile.
#include "kernel/analysis.h"
#include "kernel/families.h"
#include "kernel/gpu_nest.h"
#include "kernel/gpu_network.h"
#include "kernel/gpu_onesweep.h"
#include "kernel/gpu_radix.h"
#include "kernel/knobs.h"
#include "kernel/sort_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <span>

namespace egret::kernel {

namespace {

enum class GpuSortWay : std::uint8_t { Grid, Tile, Select, Onesweep, Network, Lists };

/// Flags for look-back: memory that a loaded kernel keeps.
constexpr std::int64_t kMostSortFlags = 1 << 18;

/// Of a tile, at the most this share is kept when the first of a row are selected.
constexpr std::int64_t kLeastShrink = 4;

class GpuSort {
public:
  GpuSort(const Region& region, const SortForm& form, const RadixShape& shape)
      : r_(region), f_(form), s_(shape), b_(region.name), e_(b_, region) {}

  KernelProgram run(GpuSortWay way) {
    if (!proves_less_equal(f_.row_count * f_.kept, Expr(0))) {
      if (way == GpuSortWay::Grid)
        by_grid();
      else if (way == GpuSortWay::Onesweep)
        by_onesweep();
      else if (way == GpuSortWay::Tile)
        by_tile();
      else
        by_selection();
    }
    Launch launch;
    launch.threads = s_.threads;
    launch.resident = counter_ >= 0;
    launch.workers = max(Expr(1), blocks_);
    return b_.finish(launch);
  }

private:
  void barrier() {
    if (counter_ < 0)
      counter_ = b_.counter("blocks", 2);
    b_.grid_barrier(counter_, Expr(0));
  }

  ValueId word(const Expr& row, const Expr& at, const std::vector<Guard>& mask) {
    Point p = point_of_row(r_, f_, row, at);
    p.mask = mask;
    return key_word(e_, f_, p);
  }

  void by_grid() {
    GridSort sort(b_, s_, f_.row_count, f_.length, f_.word, f_.position, f_.bits);
    run(sort);
  }

  void by_onesweep() {
    OnesweepSort sort(b_, s_, f_.row_count.value(), f_.length.value(), f_.word, f_.position,
                      f_.bits);
    run(sort);
  }

  template <class Sort>
  void run(Sort& sort) {
    blocks_ = sort.blocks();
    sort.run(
        [&](const Expr& row, const Expr& at, const std::vector<Guard>& mask) {
          return word(row, at, mask);
        },
        [&](const Expr& row, const Expr& place, ValueId, ValueId position,
            const std::vector<Guard>& mask) { store_position(e_, f_, row, place, position, mask); },
        [&] { barrier(); });
  }

  void by_tile() {
    TileSort sort(b_, s_, f_.word, f_.position);
    blocks_ = f_.row_count;
    b_.grid_loop(f_.row_count, [&](const Expr& row) {
      sort.sort(f_.length, f_.bits, [&](const Expr& at, const std::vector<Guard>& mask) {
        return TileSort::Element{word(row, at, mask), b_.index(at, f_.position, 1)};
      });
      deliver(sort, row, f_.length);
    });
  }

  void deliver(TileSort& sort, const Expr& row, const Expr& length) {
    sort.take(
        length, f_.kept,
        [&](const Expr& at, const TileSort::Element& element, const std::vector<Guard>& mask) {
          store_position(e_, f_, row, at, element.position, mask);
        });
  }

  /// The elements of a row that are left, in workspaces.
  struct Left {
    std::int64_t count = 0, pitch = 0; ///< of a row
    int words = -1, positions = -1;    ///< -1: they are the region's elements
  };

  void by_selection() {
    TileSort sort(b_, s_, f_.word, f_.position);
    const std::int64_t kept = f_.kept.value(), tile = s_.tile();
    Left left{f_.length.value()};
    blocks_ = f_.row_count * Expr((left.count + tile - 1) / tile);
    while (left.count > tile) {
      const std::int64_t tiles = (left.count + tile - 1) / tile;
      const std::int64_t rest = left.count - (tiles - 1) * tile;
      Left next{(tiles - 1) * kept + std::min(kept, rest), tiles * kept};
      next.words = b_.workspace(fmt::format("words{}", next.count), f_.word,
                                f_.row_count * Expr(next.pitch));
      next.positions = b_.workspace(fmt::format("positions{}", next.count), f_.position,
                                    f_.row_count * Expr(next.pitch));
      b_.grid_loop(f_.row_count * Expr(tiles), [&](const Expr& flat) {
        const Expr row = floordiv(flat, Expr(tiles)), number = floormod(flat, Expr(tiles));
        const Expr length = min(Expr(tile), Expr(left.count) - number * Expr(tile));
        load(sort, left, row, number * Expr(tile), length);
        const Expr to = row * Expr(next.pitch) + number * Expr(kept);
        sort.take(
            length, Expr(kept),
            [&](const Expr& at, const TileSort::Element& element, const std::vector<Guard>& mask) {
              b_.store(next.words, to + at, element.word, mask);
              b_.store(next.positions, to + at, element.position, mask);
            });
      });
      barrier();
      left = next;
    }
    b_.grid_loop(f_.row_count, [&](const Expr& row) {
      load(sort, left, row, Expr(0), Expr(left.count));
      deliver(sort, row, Expr(left.count));
    });
  }

  /// Sorts elements of a row from `first` on.
  void load(TileSort& sort, const Left& left, const Expr& row, const Expr& first,
            const Expr& length) {
    sort.sort(length, f_.bits, [&](const Expr& at, const std::vector<Guard>& mask) {
      if (left.words < 0)
        return TileSort::Element{word(row, first + at, mask), b_.index(first + at, f_.position, 1)};
      const Expr from = row * Expr(left.pitch) + first + at;
      return TileSort::Element{b_.load(left.words, from, 1, mask),
                               b_.load(left.positions, from, 1, mask)};
    });
  }

  const Region& r_;
  const SortForm& f_;
  RadixShape s_;
  ProgramBuilder b_;
  Emitter e_;
  int counter_ = -1; ///< of the barrier of the grid
  Expr blocks_ = Expr(1);
};

constexpr Knob kGpuSortKnobs[] = {{"way", 0, 5},  {"threads", 32, 1024, 32}, {"each", 1, 128},
                                  {"bits", 2, 8}, {"lanes", 1, 512},         {"slices", 1, 4096}};

RowGroup row_group(const Region& region, const SortForm& form, const Schedule& schedule) {
  return {int(schedule.knob("threads", 128)), int(schedule.knob("lanes", 1)),
          rows_lie_across(region, form)};
}

std::string refused(const SortForm& form, const RadixShape& shape, GpuSortWay way,
                    const Target& target) {
  if (shape.each > 32)
    return "a thread has more than 32 elements";
  if (shape.digits() > shape.threads)
    return "a block has fewer threads than digits";
  const bool fits = proves_less_equal(form.length, Expr(shape.tile()));
  if (way == GpuSortWay::Onesweep) {
    if (!target.has(Capability::CoResidentBlocks))
      return "blocks may not wait for each other";
    if (!form.row_count.is_constant() || !form.length.is_constant() || form.length.value() < 1 ||
        form.row_count.value() < 1)
      return "the number or the length of its rows is not known";
    const std::int64_t tiles = (form.length.value() + shape.tile() - 1) / shape.tile();
    if (form.row_count.value() > kMostSortFlags / tiles / shape.passes(form.bits))
      return "its tiles need too many flags";
    if (onesweep_shared_bytes(shape, form.word, form.position) > target.block_shared_bytes)
      return "a tile takes more shared memory than there is";
  }
  if (way == GpuSortWay::Tile && !fits)
    return "its rows may be longer than a tile";
  if (way == GpuSortWay::Select &&
      (fits || !form.length.is_constant() || !form.kept.is_constant() ||
       form.kept.value() * kLeastShrink > shape.tile()))
    return "its rows are not long, or too much of them is wanted";
  return {};
}

class GpuSortGenerator : public Generator {
public:
  std::string name() const override { return "gpu_sort"; }

  std::vector<Schedule> space(const Region& region, const Target& target) const override {
    const auto form = sort_form(region);
    if (!form)
      return {};
    std::vector<Schedule> out = networks(region, *form, target);
    const auto offer = [&](GpuSortWay way, int threads, int each, int bits) {
      const RadixShape shape{threads, each, bits};
      if (!refused(*form, shape, way, target).empty())
        return;
      Schedule s;
      s.generator = name();
      s.knobs = {{"way", int(way)}, {"threads", threads}, {"each", each}, {"bits", bits}};
      if (std::ranges::find(out, s) == out.end())
        out.push_back(std::move(s));
    };
    // A row in the smallest tile that holds it: blocks of few threads wait less for each other. Of
    // few long rows all blocks together take less time.
    const auto offer_tiles = [&](std::span<const Tile> tiles) {
      for (const int most : {8, 6, 5})
        for (const auto& [threads, each] : tiles)
          offer(GpuSortWay::Tile, threads, each,
                std::min(most, int(std::bit_width(unsigned(threads))) - 1));
    };
    const bool many = about(form->row_count) * 4 >= target.workers;
    offer_tiles(kTiles);
    if (many)
      offer_tiles(kLargeTiles);
    for (const int bits : {8, 6})
      for (const int each : {16, 8})
        offer(GpuSortWay::Select, 256, each, bits);
    for (const GpuSortWay way : {GpuSortWay::Onesweep, GpuSortWay::Grid})
      for (const int bits : {8, 7})
        for (const auto& [threads, each] : long_tiles(*form, target))
          offer(way, threads, each, bits);
    if (!many)
      offer_tiles(kLargeTiles);
    return out;
  }

  Lowered lower(const Region& region, const Schedule& schedule,
                const Target& target) const override {
    if (auto why = refused_settings(schedule, target, kGpuSortKnobs); !why.empty())
      return {false, {}, why};
    const auto form = sort_form(region);
    if (!form)
      return {false, {}, "it is no sort"};
    const auto way = static_cast<GpuSortWay>(schedule.knob("way", 0));
    if (way == GpuSortWay::Network) {
      const GpuNetworkShape shape{row_group(region, *form, schedule),
                                  int(schedule.knob("each", 1))};
      if (auto why = network_refused(*form, shape); !why.empty())
        return {false, {}, why};
      return within_block(gpu_sort_by_network(region, *form, shape), target);
    }
    if (way == GpuSortWay::Lists) {
      const GpuListShape shape{row_group(region, *form, schedule), int(schedule.knob("each", 8)),
                               schedule.knob("slices", 1)};
      if (auto why = lists_refused(*form, shape, target); !why.empty())
        return {false, {}, why};
      return within_block(gpu_sort_by_lists(region, *form, shape), target);
    }
    const RadixShape shape{int(schedule.knob("threads", 256)), int(schedule.knob("each", 16)),
                           int(schedule.knob("bits", 8))};
    if (auto why = refused(*form, shape, way, target); !why.empty())
      return {false, {}, why};
    return within_block(GpuSort(region, *form, shape).run(way), target);
  }

private:
  /// Ways by networks, by their estimated times.
  static std::vector<Schedule> networks(const Region& region, const SortForm& form,
                                        const Target& target) {
    std::vector<std::pair<double, Schedule>> found;
    const auto offer = [&](double time, GpuSortWay way, const RowGroup& group, std::int64_t each) {
      Schedule s;
      s.generator = "gpu_sort";
      s.knobs = {
          {"way", int(way)}, {"threads", group.threads}, {"lanes", group.lanes}, {"each", each}};
      found.emplace_back(time, std::move(s));
    };
    if (!form.length.is_constant() || !form.kept.is_constant())
      return {};
    const bool across = rows_lie_across(region, form);
    const std::int64_t length = form.length.value();
    for (int lanes = 1; lanes <= 32; lanes *= 2) {
      const std::int64_t each = lanes == 1 ? length : network_power((length + lanes - 1) / lanes);
      const GpuNetworkShape shape{{128, lanes, across}, int(std::min<std::int64_t>(each, 1024))};
      if (network_refused(form, shape).empty())
        offer(network_time(form, shape, target), GpuSortWay::Network, shape.group, each);
    }
    const auto lists = [&](int threads, int lanes, std::int64_t slices) {
      for (const int each : {2, 4, 8, 16}) {
        const GpuListShape shape{{threads, lanes, across}, each, slices};
        if (!lists_refused(form, shape, target).empty())
          continue;
        offer(lists_time(form, shape, target), GpuSortWay::Lists, shape.group, each);
        if (slices > 1)
          found.back().second.knobs["slices"] = slices;
      }
    };
    for (int lanes = 1; lanes <= 32; lanes *= 2)
      lists(128, lanes, 1);
    const std::int64_t rows = std::max<std::int64_t>(1, about(form.row_count));
    for (const int threads : {128, 256, 512}) {
      lists(threads, threads, 1);
      for (const std::int64_t blocks : {1, 4})
        if (const std::int64_t slices =
                std::min<std::int64_t>(blocks * target.workers / rows, length / threads);
            slices > 1)
          lists(threads, threads, slices);
    }
    std::ranges::stable_sort(found, {}, [](const auto& each) { return each.first; });
    found.resize(std::min<std::size_t>(found.size(), kNetworks));
    std::vector<Schedule> out;
    for (auto& [time, schedule] : found)
      out.push_back(std::move(schedule));
    return out;
  }

  static constexpr std::size_t kNetworks = 8; ///< schedules that are offered
  struct Tile {
    int threads, each;
  };
  static constexpr Tile kTiles[] = {{32, 1},  {32, 3},  {64, 3},   {64, 5},  {128, 5},
                                    {128, 9}, {256, 9}, {256, 15}, {512, 15}};
  static constexpr Tile kLargeTiles[] = {{512, 20}, {1024, 12}, {1024, 16}};
  /// Tiles of rows that need several, the largest first; of 64-bit words the smaller ones.
  static constexpr Tile kLongTiles[] = {{384, 18}, {512, 12}, {256, 16}, {256, 12}, {256, 8}};

  /// The largest tile of which there is one for each multiprocessor comes first.
  static std::vector<Tile> long_tiles(const SortForm& form, const Target& target) {
    const std::int64_t elements = about(form.row_count) * about(form.length);
    std::vector<Tile> tiles;
    for (const Tile& tile : kLongTiles)
      if (size_of(form.word) <= 4 || tile.each <= 12)
        tiles.push_back(tile);
    std::ranges::stable_partition(tiles, [&](const Tile& tile) {
      return elements >= std::int64_t(tile.threads) * tile.each * target.workers;
    });
    // Where there are too few of any, the smallest are the most.
    if (elements < std::int64_t(tiles.front().threads) * tiles.front().each * target.workers)
      std::ranges::reverse(tiles);
    return tiles;
  }
};

} // namespace

const Generator& gpu_sort_generator() {
  static const GpuSortGenerator generator;
  return generator;
}

} // namespace egret::kernel
