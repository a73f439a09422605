// Sizes over a skeleton for a GPU: blocks go through pieces of the results that all stages share;
// the threads of a block along results that lie side by side, or along what a row sums.
#include "loops/spans.h"

#include "kernel/analysis.h"
#include "loops/facts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

namespace egret::loops {

namespace tree = kernel::loops;
using kernel::Bind;
using kernel::contains;
using kernel::StageKind;

namespace {

/// Sums and values that a thread holds at a time.
constexpr std::int64_t kMostHeld = 64;
/// Tiles of a matrix unit that a warp holds the sums of; parts of a sum that blocks make.
constexpr std::int64_t kMostTiles = 32, kMostParts = 1024;

class GpuSizes {
public:
  GpuSizes(const kernel::Region& region, const kernel::Target& target, const Estimator& estimator,
           const SizesOptions& options, std::size_t& points)
      : r_(region), target_(target), estimator_(estimator), options_(options), points_(points),
        lanes_(lanes_of_region(region, target)), units_(unit_products(region, target)) {}

  std::vector<Sized> run(const std::vector<Nest>& nests) {
    constexpr std::array<std::int64_t, 4> kBlocks{256, 128, 512, 64}; // threads
    std::vector<Sized> all;
    const std::size_t begin = points_;
    for (std::size_t b = 0; b < kBlocks.size(); ++b) {
      // The nests of a program have blocks of one size, so that none has threads without work.
      block_ = kBlocks[b];
      std::vector<std::vector<Sized>> each;
      for (std::size_t n = 0; n < nests.size(); ++n) {
        const std::size_t turn = b * nests.size() + n + 1;
        budget_ = begin + options_.most_points * turn / (kBlocks.size() * nests.size());
        each.push_back(top(nests[n]));
      }
      join_nests(each, all);
      if (options_.stop && options_.stop())
        break;
    }
    keep_best(all, options_.keep);
    return all;
  }

private:
  /// A tile of a block along one axis: threads, `vector` and `times` of them for each.
  struct Tile {
    int axis = -1;
    std::int64_t threads = 1, vector = 1, times = 1;
    std::int64_t size() const { return threads * vector * times; }
  };

  Span span_of(int axis) const {
    return {axis, estimator_.extent_of(axis), r_.axes[std::size_t(axis)].extent, true, false};
  }
  bool spent() const { return points_ >= budget_ || (options_.stop && options_.stop()); }

  bool parallel(const Nest& nest, int axis) const {
    if (nest.body >= 0)
      return is_parallel(r_, nest.body, axis);
    return std::ranges::all_of(nest.parts, [&](const Nest& p) { return parallel(p, axis); });
  }

  /// Whether threads may sum along the axis.
  bool sums_by_threads(const Nest& nest, int axis) const {
    if (!options_.reassociate || !contains(nest.terms, axis))
      return false;
    if (nest.body >= 0) {
      const kernel::Stage& stage = r_.stages[std::size_t(nest.body)];
      return contains(stage.over, axis) ? regroups(stage) : is_parallel(r_, nest.body, axis);
    }
    return std::ranges::all_of(nest.sums,
                               [&](int s) { return regroups(r_.stages[std::size_t(s)]); }) &&
           std::ranges::all_of(nest.parts, [&](const Nest& p) {
             return p.body >= 0
                        ? is_parallel(r_, p.body, axis) || regroups(r_.stages[std::size_t(p.body)])
                        : false;
           });
  }

  bool contiguous(const Nest& nest, int axis) const {
    if (nest.body < 0)
      return std::ranges::any_of(nest.parts, [&](const Nest& p) { return contiguous(p, axis); });
    return std::ranges::any_of(estimator_.accesses(nest.body), [&](const Estimator::Access& a) {
      return a.stride[std::size_t(axis)] == 1;
    });
  }

  /// Loops over pieces of an axis; whether they and those inside go beyond its end.
  bool pieces(int axis, std::int64_t size, Bind bind, std::vector<Made>& outer,
              std::vector<int>& masks) const {
    const Span span = span_of(axis);
    const auto n = span.extent.constant();
    if (n && *n < size) {
      masks.push_back(axis);
      return true;
    }
    const auto s = split(r_, span, size);
    if (!s)
      return false;
    if (s->outer && !(s->outer->extent == Expr(1))) {
      outer.push_back(*s->outer);
      outer.back().bind = bind;
    }
    if (s->inner.masked)
      masks.push_back(axis);
    return true;
  }

  static void add(std::vector<Made>& to, int axis, std::int64_t n, std::int64_t step, Bind bind) {
    if (n > 1)
      to.push_back({axis, Expr(n), step, bind, double(n)});
  }

  /// Writes `roll_` iterations of the innermost loop over terms out, so that their loads are under
  /// way together; false where they are no divisor.
  bool roll(std::vector<Made>& terms, std::vector<Made>& written_out) const {
    if (roll_ == 1)
      return true;
    const auto n = terms.empty() ? std::nullopt : terms.back().extent.constant();
    if (!n || *n % roll_ != 0 || *n < 2 * roll_)
      return false;
    Made& last = terms.back();
    const Made before = last;
    last.extent = Expr(*n / roll_);
    last.trips = double(*n / roll_);
    last.step *= roll_;
    add(written_out, before.axis, roll_, before.step, Bind::Unroll); // may be the same list
    return true;
  }

  static TreePtr masked(std::vector<int> masks, TreePtr inside) {
    std::ranges::sort(masks);
    for (std::size_t i = masks.size(); i-- > 0;)
      inside = tree::mask(masks[i], std::move(inside));
    return inside;
  }

  static TreePtr summed(const Nest& nest, TreePtr inside) {
    for (std::size_t i = nest.sums.size(); i-- > 0;)
      inside = tree::accumulate(nest.sums[i], std::move(inside));
    return inside;
  }

  void consider(TreePtr t, Way way, std::vector<Sized>& found) {
    ++points_;
    if (!t)
      return;
    const double seconds = estimator_.part_seconds(*t);
    found.push_back({std::move(t), seconds, way});
  }

  std::vector<Sized> top(const Nest& nest) {
    std::vector<Sized> found;
    matrices(nest, found);
    rows(nest, found);
    results(nest, found);
    if (nest.body >= 0)
      in_parts(nest, found);
    if (found.empty())
      consider(of_results(nest, {}, {}, 0, {}), Way::Results, found);
    keep_best(found, options_.keep);
    return found;
  }

  // --- Threads along results

  void results(const Nest& nest, std::vector<Sized>& found) {
    std::vector<int> along, free;
    for (const int a : nest.axes)
      if (parallel(nest, a) && estimator_.extent_of(a) > 1)
        free.push_back(a);
    for (const int a : free)
      if (contiguous(nest, a))
        along.push_back(a);
    if (along.empty() && !free.empty())
      along.push_back(free.back());
    const bool tiles =
        nest.body >= 0
            ? r_.stages[std::size_t(nest.body)].kind != StageKind::Scan
            : std::ranges::all_of(
                  nest.parts,
                  [](const Nest& p) { return p.body >= 0 && p.axes.empty() && p.terms.empty(); }) &&
                  nest.sums.empty();
    for (const std::int64_t times : {1, 2, 4})
      for (const std::int64_t vector : std::set<std::int64_t>{1, lanes_})
        for (const int x : along)
          for (const std::int64_t threads : std::set<std::int64_t>{16, 32, 64, block_}) {
            if (threads > block_ || (!tiles && times * vector > 1))
              continue;
            const Tile wide{x, threads, vector, times};
            if (threads == block_)
              consider_tile(nest, wide, {}, found);
            for (const int y : free)
              for (const std::int64_t height : {1, 2, 4, 8}) {
                if (y == x || (!tiles && height > 1) || height * times * vector > kMostHeld)
                  continue;
                if (spent())
                  return;
                consider_tile(nest, wide, {y, block_ / threads, 1, height}, found);
              }
          }
  }

  void consider_tile(const Nest& nest, const Tile& x, const Tile& y, std::vector<Sized>& found) {
    consider(of_results(nest, x, y, 0, {}), Way::Results, found);
    if (nest.body < 0 || nest.terms.size() != 1 || y.axis < 0 || nest.sums.empty() ||
        r_.stages[std::size_t(nest.body)].kind != StageKind::Reduce)
      return;
    std::vector<int> near; // what several threads read
    for (const Estimator::Access& access : estimator_.accesses(nest.body))
      if (access.operand >= 0 && !access.written && !contains(near, access.operand) &&
          access.stride[std::size_t(nest.terms[0])] != 0 &&
          (access.stride[std::size_t(x.axis)] == 0 || access.stride[std::size_t(y.axis)] == 0))
        near.push_back(access.operand);
    if (!near.empty())
      for (const std::int64_t depth : {8, 16, 32})
        consider(of_results(nest, x, y, depth, near), Way::Results, found);
  }

  /// Blocks of x by y; `depth` terms at a time from copies near, 0 for none.
  TreePtr of_results(const Nest& nest, const Tile& x, const Tile& y, std::int64_t depth,
                     const std::vector<int>& near) {
    std::vector<Made> grid, serial, threads, tile, terms, deep;
    std::vector<int> masks;
    for (const int a : nest.axes) {
      const std::int64_t size = a == x.axis ? x.size() : a == y.axis ? y.size() : 1;
      const bool free = parallel(nest, a);
      if (!pieces(a, size, free ? Bind::Grid : Bind::Serial, free ? grid : serial, masks))
        return nullptr;
    }
    // Rows of a tile side by side, what lies side by side by neighbours.
    add(threads, y.axis, y.threads, y.times, Bind::Warp);
    add(threads, x.axis, x.threads, x.vector, Bind::Lane);
    add(tile, y.axis, y.times, 1, Bind::Unroll);
    add(tile, x.axis, x.times, x.threads * x.vector, Bind::Unroll);
    add(tile, x.axis, x.vector, 1, Bind::Vector);
    const bool whole_sum = contains(nest.sums, nest.body);
    for (const int a : nest.terms) {
      if (!pieces(a, depth > 0 ? depth : 1, Bind::Serial, terms, masks))
        return nullptr;
      add(deep, a, depth, 1, Bind::Serial);
    }
    TreePtr t;
    if (nest.body >= 0)
      t = tree::body(nest.body);
    else
      t = parts(nest, 1, 1);
    if (!t)
      return nullptr;
    t = masked(std::move(masks), std::move(t));
    if (depth > 0) {
      if (!serial.empty())
        return nullptr;
      t = around(threads, around(deep, around(tile, std::move(t))));
      for (const int operand : near)
        t = tree::near(operand, std::move(t));
      return around(grid, summed(nest, around(terms, std::move(t))));
    }
    if (nest.body >= 0 && whole_sum)
      t = summed(nest, around(terms, around(tile, std::move(t))));
    else
      t = around(tile, summed(nest, around(terms, std::move(t))));
    return around(grid, around(threads, around(serial, std::move(t))));
  }

  // --- Threads along what is inside of a row

  /// Lanes of a vector, and terms that are written out.
  std::vector<std::pair<std::int64_t, std::int64_t>> vectors_and_rolls() const {
    std::vector<std::pair<std::int64_t, std::int64_t>> found;
    for (const std::int64_t vector : std::set<std::int64_t>{1, lanes_})
      for (const std::int64_t rolled : {1, 4, 8})
        found.emplace_back(vector, rolled);
    return found;
  }

  void rows(const Nest& nest, std::vector<Sized>& found) {
    Nest inside = nest;
    inside.axes.clear();
    // The whole block for a row, or a warp or a part of one.
    std::vector<std::pair<int, std::int64_t>> by_warps{{-1, 1}};
    for (const std::int64_t group : {32, 8, 4})
      for (const int a : nest.axes)
        if (parallel(nest, a) && block_ > group)
          by_warps.emplace_back(a, block_ / group);
    for (const auto& [axis, warps] : by_warps)
      for (const auto& [vector, rolled] : vectors_and_rolls()) {
        std::vector<Made> grid, serial, threads;
        std::vector<int> masks;
        roll_ = rolled;
        bool fits = nest.body >= 0 || rolled == 1;
        for (const int a : nest.axes) {
          const bool free = parallel(nest, a);
          fits = fits && pieces(a, a == axis ? warps : 1, free ? Bind::Grid : Bind::Serial,
                                free ? grid : serial, masks);
        }
        add(threads, axis, warps, 1, Bind::Warp);
        used_ = false;
        TreePtr t = fits ? within(inside, block_ / warps, vector) : nullptr;
        roll_ = 1;
        if (!t || !used_)
          continue;
        consider(around(grid, around(threads, around(serial, masked(masks, std::move(t))))),
                 Way::Rows, found);
        if (spent())
          return;
      }
  }

  TreePtr parts(const Nest& nest, std::int64_t threads, std::int64_t vector) {
    TreePtr all;
    for (std::size_t i = nest.parts.size(); i-- > 0;) {
      TreePtr one = within(nest.parts[i], threads, vector);
      if (!one)
        return nullptr;
      all = all ? tree::then(std::move(one), std::move(all)) : std::move(one);
    }
    return all;
  }

  /// A nest's own loops, along one of them that many threads.
  TreePtr within(const Nest& nest, std::int64_t threads, std::int64_t vector) {
    int x = -1;
    for (const bool wanted : {true, false})
      for (const auto* axes : {&nest.axes, &nest.terms})
        for (const int a : *axes)
          if (x < 0 && threads > 1 && estimator_.extent_of(a) > 1 &&
              contiguous(nest, a) == wanted &&
              (axes == &nest.axes ? parallel(nest, a) : sums_by_threads(nest, a)))
            x = a;
    const bool sum = x >= 0 && contains(nest.terms, x);
    const bool reduces =
        nest.body >= 0 && r_.stages[std::size_t(nest.body)].kind == StageKind::Reduce;
    std::int64_t lanes = 1;
    if (x >= 0 && nest.body >= 0 && contiguous(nest, x) &&
        (sum ? reduces : r_.stages[std::size_t(nest.body)].kind != StageKind::Scan))
      lanes = vector;
    used_ = used_ || x >= 0;
    std::vector<Made> results, terms, tile;
    std::vector<int> masks;
    for (const auto* axes : {&nest.axes, &nest.terms})
      for (const int a : *axes) {
        auto& loops = axes == &nest.axes ? results : terms;
        if (!pieces(a, a == x ? threads * lanes : 1, Bind::Serial, loops, masks))
          return nullptr;
      }
    if (nest.body >= 0 && !(reduces ? roll(terms, terms) : roll_ == 1))
      return nullptr;
    if (x >= 0)
      add(sum ? terms : results, x, threads, lanes, Bind::Lane);
    add(tile, x, lanes, 1, Bind::Vector);
    TreePtr t = nest.body >= 0 ? tree::body(nest.body) : parts(nest, x >= 0 ? 1 : threads, vector);
    if (!t)
      return nullptr;
    t = around(tile, masked(std::move(masks), std::move(t)));
    // The lanes of a vector are summed before the threads' sums.
    if (sum && !tile.empty())
      t = tree::accumulate(nest.body, std::move(t));
    return around(results, summed(nest, around(terms, std::move(t))));
  }

  // --- Tiles of a matrix unit

  /// Of the depth, warps and tiles of a warp along rows and columns.
  struct Matrices {
    std::int64_t warps_m = 1, warps_n = 1, tiles_m = 1, tiles_n = 1, depth = 16;
    bool near = false;
    std::int64_t rows(const UnitProduct& u) const { return warps_m * tiles_m * u.rows; }
    std::int64_t columns(const UnitProduct& u) const { return warps_n * tiles_n * u.columns; }
  };

  /// The nest that makes the unit's product: this one, or the first of several whose others go
  /// along its results.
  const Nest* product_in(const Nest& nest, const UnitProduct& unit) const {
    if (nest.body >= 0)
      return nest.body == unit.stage && contains(nest.axes, unit.m) && contains(nest.axes, unit.n)
                 ? &nest
                 : nullptr;
    const Nest* found = nullptr;
    for (const Nest& p : nest.parts) {
      if (p.body < 0 || !p.axes.empty())
        return nullptr;
      if (p.body == unit.stage)
        found = &p;
      else if (!p.terms.empty() || r_.stages[std::size_t(p.body)].kind != StageKind::Map)
        return nullptr;
    }
    return found && nest.sums.empty() && nest.terms.empty() && contains(nest.axes, unit.m) &&
                   contains(nest.axes, unit.n)
               ? found
               : nullptr;
  }

  void matrices(const Nest& nest, std::vector<Sized>& found) {
    for (const UnitProduct& unit : units_) {
      const Nest* product = product_in(nest, unit);
      if (!options_.reassociate || !product)
        continue;
      const std::vector<int> near = read_again(unit);
      const std::int64_t warps = block_ / 32;
      for (std::int64_t warps_m = 1; warps_m <= warps; warps_m *= 2)
        for (const std::int64_t tiles_m : {1, 2, 4})
          for (const std::int64_t tiles_n : {1, 2, 4, 8})
            for (const std::int64_t depth : {16, 32, 64}) {
              if (spent())
                return;
              Matrices tile{warps_m, warps / warps_m, tiles_m, tiles_n, depth, !near.empty()};
              if (tiles_m * tiles_n > kMostTiles || too_large(unit, tile))
                continue;
              consider(of_matrices(nest, *product, unit, tile, near, 1), Way::Matrices, found);
              // Of products with few results, blocks make parts of each.
              if (nest.body >= 0)
                for (const std::int64_t parts :
                     parts_of(nest, unit.k, tile_count(nest, unit, tile)))
                  consider(of_matrices(nest, *product, unit, tile, near, parts), Way::MatrixParts,
                           found);
              if (depth == 16) {
                tile.near = false;
                consider(of_matrices(nest, *product, unit, tile, {}, 1), Way::Matrices, found);
              }
            }
    }
  }

  /// Whether a smaller tile covers the product as well.
  bool too_large(const UnitProduct& unit, const Matrices& tile) const {
    const auto beyond = [&](int axis, std::int64_t size, std::int64_t least) {
      return size > least && double(size) >= 2 * estimator_.extent_of(axis);
    };
    return beyond(unit.m, tile.rows(unit), unit.rows) ||
           beyond(unit.n, tile.columns(unit), unit.columns) ||
           beyond(unit.k, tile.depth, unit.depth);
  }

  double tile_count(const Nest& nest, const UnitProduct& unit, const Matrices& tile) const {
    double count = 1;
    for (const int a : nest.axes)
      count *= std::ceil(estimator_.extent_of(a) / (a == unit.m   ? double(tile.rows(unit))
                                                    : a == unit.n ? double(tile.columns(unit))
                                                                  : 1.0));
    return count;
  }

  /// Operands of the product that change along the depth and along rows or columns alone.
  std::vector<int> read_again(const UnitProduct& unit) const {
    std::vector<int> near;
    for (const Estimator::Access& access : estimator_.accesses(unit.stage)) {
      const auto goes = [&](int axis) { return access.stride[std::size_t(axis)] != 0; };
      if (access.operand >= 0 && !access.written && goes(unit.k) && goes(unit.m) != goes(unit.n) &&
          !contains(near, access.operand))
        near.push_back(access.operand);
    }
    return near;
  }

  /// How many parts blocks may make of each of so many pieces of results, so that all have work.
  std::vector<std::int64_t> parts_of(const Nest& nest, int axis, double pieces) const {
    std::vector<std::int64_t> found;
    const kernel::Stage& stage = r_.stages[std::size_t(nest.body)];
    if (!options_.reassociate || stage.kind != StageKind::Reduce || !regroups(stage) ||
        !contains(nest.terms, axis) || pieces >= target_.workers ||
        !std::ranges::all_of(nest.axes, [&](int a) { return parallel(nest, a); }))
      return found;
    for (const double blocks : {1.0, 2.0, 4.0}) {
      const auto parts = std::int64_t(blocks * target_.workers / pieces);
      if (parts > 1 && parts <= kMostParts && !contains_number(found, parts))
        found.push_back(parts);
    }
    return found;
  }
  static bool contains_number(const std::vector<std::int64_t>& list, std::int64_t n) {
    return std::ranges::find(list, n) != list.end();
  }

  /// Terms of one part: a multiple of `unit`.
  std::int64_t part_size(int axis, std::int64_t parts, std::int64_t unit) const {
    const double each = estimator_.extent_of(axis) / double(parts * unit);
    return std::max<std::int64_t>(1, std::int64_t(std::ceil(each))) * unit;
  }

  /// Warps along rows and columns, tiles of registers; `depth` terms at a time from copies near of
  /// both factors. `parts`: of each result, made by blocks of their own.
  TreePtr of_matrices(const Nest& nest, const Nest& product, const UnitProduct& u,
                      const Matrices& tile, const std::vector<int>& near, std::int64_t parts) {
    std::vector<Made> shared, grid, terms, warps, deep, tiles;
    std::vector<int> masks;
    for (const int a : nest.axes) {
      const std::int64_t size = a == u.m ? tile.rows(u) : a == u.n ? tile.columns(u) : 1;
      if (!parallel(nest, a) || !pieces(a, size, Bind::Grid, grid, masks))
        return nullptr;
    }
    std::vector<int> over_results = masks;
    if (parts > 1) {
      const std::int64_t part = part_size(u.k, parts, tile.depth);
      if (!pieces(u.k, part, Bind::Grid, shared, masks) || shared.empty())
        return nullptr;
      add(terms, u.k, part / tile.depth, tile.depth, Bind::Serial);
    } else if (!pieces(u.k, tile.depth, Bind::Serial, terms, masks))
      return nullptr;
    add(warps, u.m, tile.warps_m, tile.tiles_m * u.rows, Bind::Warp);
    add(warps, u.n, tile.warps_n, tile.tiles_n * u.columns, Bind::Warp);
    add(deep, u.k, tile.depth / u.depth, u.depth, Bind::Unroll);
    add(tiles, u.m, tile.tiles_m, u.rows, Bind::Unroll);
    add(tiles, u.n, tile.tiles_n, u.columns, Bind::Unroll);
    std::vector<Made> unit;
    add(unit, u.m, u.rows, 1, Bind::Matrix);
    add(unit, u.n, u.columns, 1, Bind::Matrix);
    add(unit, u.k, u.depth, 1, Bind::Matrix);
    TreePtr t = around(unit, masked(masks, tree::body(u.stage)));
    t = around(warps, around(deep, around(tiles, std::move(t))));
    for (const int operand : near)
      t = tree::near(operand, std::move(t));
    t = tree::accumulate(u.stage, around(terms, std::move(t)));
    if (parts > 1)
      return tree::accumulate(u.stage, around(shared, around(grid, std::move(t))));
    if (nest.body >= 0)
      return around(grid, std::move(t));
    TreePtr all;
    for (std::size_t i = nest.parts.size(); i-- > 0;) {
      TreePtr one = &nest.parts[i] == &product
                        ? t
                        : along_unit(nest.parts[i].body, u, warps, tiles, over_results);
      all = all ? tree::then(std::move(one), std::move(all)) : std::move(one);
    }
    return around(grid, std::move(all));
  }

  /// A map along the elements that each thread has of the results of a warp's products.
  static TreePtr along_unit(int body, const UnitProduct& u, const std::vector<Made>& warps,
                            const std::vector<Made>& tiles, const std::vector<int>& masks) {
    std::vector<Made> held;
    add(held, u.m, u.rows / 8, 8, Bind::Unroll);
    add(held, u.m, 8, 1, Bind::Lane);
    add(held, u.n, u.columns / 2, 2, Bind::Lane);
    add(held, u.n, 2, 1, Bind::Vector);
    return around(warps, around(tiles, around(held, masked(masks, tree::body(body)))));
  }

  // --- Sums that blocks share

  /// A reduction with few results: blocks make parts of them, threads along results or terms.
  void in_parts(const Nest& nest, std::vector<Sized>& found) {
    if (nest.terms.empty())
      return;
    for (const int axis : nest.terms) {
      const bool across = contiguous(nest, axis);
      for (const auto& [vector, rolled] : vectors_and_rolls()) {
        roll_ = rolled;
        if (across) // all threads along the terms of one result
          for (const int by : nest.terms)
            for (const std::int64_t parts : parts_of(nest, by, count_of(nest.axes)))
              consider(parts_by_terms(nest, axis, by, vector, parts), Way::Parts, found);
        for (const int x : nest.axes) // or a result each
          for (const std::int64_t threads : std::set<std::int64_t>{32, 64, block_})
            if (contiguous(nest, x) && threads <= block_)
              for (const std::int64_t parts :
                   parts_of(nest, axis,
                            count_of(nest.axes) /
                                double(std::min<std::int64_t>(
                                    threads * vector, std::int64_t(estimator_.extent_of(x))))))
                consider(parts_by_results(nest, axis, {x, threads, vector, 1}, parts), Way::Parts,
                         found);
        roll_ = 1;
        if (spent())
          return;
      }
    }
  }

  double count_of(const std::vector<int>& axes) const {
    double count = 1;
    for (const int a : axes)
      count *= estimator_.extent_of(a);
    return count;
  }

  /// Threads go along `axis`; the parts are pieces of it or of another.
  TreePtr parts_by_terms(const Nest& nest, int axis, int by, std::int64_t vector,
                         std::int64_t parts) {
    std::vector<Made> shared, grid, terms, lanes, tile;
    std::vector<int> masks;
    for (const int a : nest.axes)
      if (!pieces(a, 1, Bind::Grid, grid, masks))
        return nullptr;
    const std::int64_t turn = block_ * vector, unit = by == axis ? turn : 1,
                       part = part_size(by, parts, unit * roll_);
    if (!pieces(by, part, Bind::Grid, shared, masks) || shared.empty())
      return nullptr;
    for (const int a : nest.terms)
      if (a == by)
        add(terms, by, part / unit, unit, Bind::Serial);
      else if (!pieces(a, a == axis ? turn : 1, Bind::Serial, terms, masks))
        return nullptr;
    if (!roll(terms, terms))
      return nullptr;
    add(lanes, axis, block_, vector, Bind::Lane);
    add(tile, axis, vector, 1, Bind::Vector);
    TreePtr t = around(tile, masked(masks, tree::body(nest.body)));
    if (!tile.empty()) // the lanes of a vector are summed before the threads' sums
      t = tree::accumulate(nest.body, std::move(t));
    t = tree::accumulate(nest.body, around(terms, around(lanes, std::move(t))));
    return tree::accumulate(nest.body, around(shared, around(grid, std::move(t))));
  }

  /// Threads side by side along results, each with terms of its own result.
  TreePtr parts_by_results(const Nest& nest, int axis, const Tile& x, std::int64_t parts) {
    std::vector<Made> shared, grid, terms, lanes, tile;
    std::vector<int> masks;
    for (const int a : nest.axes)
      if (!pieces(a, a == x.axis ? x.size() : 1, Bind::Grid, grid, masks))
        return nullptr;
    const std::int64_t part = part_size(axis, parts, roll_);
    if (!pieces(axis, part, Bind::Grid, shared, masks) || shared.empty())
      return nullptr;
    for (const int a : nest.terms)
      if (a == axis)
        add(terms, axis, part, 1, Bind::Serial);
      else if (!pieces(a, 1, Bind::Serial, terms, masks))
        return nullptr;
    if (!roll(terms, tile))
      return nullptr;
    add(lanes, x.axis, x.threads, x.vector, Bind::Lane);
    add(tile, x.axis, x.vector, 1, Bind::Vector);
    TreePtr t = around(tile, masked(masks, tree::body(nest.body)));
    t = tree::accumulate(nest.body, around(lanes, around(terms, std::move(t))));
    return tree::accumulate(nest.body, around(shared, around(grid, std::move(t))));
  }

  const kernel::Region& r_;
  const kernel::Target& target_;
  const Estimator& estimator_;
  const SizesOptions& options_;
  std::size_t& points_;
  std::size_t budget_ = 0;
  std::int64_t lanes_, block_ = 0;
  std::vector<UnitProduct> units_;
  std::int64_t roll_ = 1; ///< terms that are written out
  bool used_ = false;     ///< threads, in the tree that is being made
};

} // namespace

std::vector<Sized> gpu_sizes_of(const kernel::Region& region, const kernel::Target& target,
                                const std::vector<Nest>& nests, const Estimator& estimator,
                                const SizesOptions& options, std::size_t& points) {
  return GpuSizes(region, target, estimator, options, points).run(nests);
}

} // namespace egret::loops
