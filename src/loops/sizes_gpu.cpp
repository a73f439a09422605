// Sizes over a skeleton for a GPU: blocks go through pieces of the results that all stages share;
// the threads of a block along results that lie side by side, or along what a row sums.
#include "loops/spans.h"

#include "kernel/analysis.h"
#include "loops/facts.h"

#include <algorithm>
#include <array>
#include <set>

namespace egret::loops {

namespace tree = kernel::loops;
using kernel::Bind;
using kernel::contains;
using kernel::StageKind;

namespace {

/// Sums and values that a thread holds at a time.
constexpr std::int64_t kMostHeld = 64;

class GpuSizes {
public:
  GpuSizes(const kernel::Region& region, const kernel::Target& target, const Estimator& estimator,
           const SizesOptions& options, std::size_t& points)
      : r_(region), estimator_(estimator), options_(options), points_(points),
        lanes_(lanes_of_region(region, target)) {}

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

  void consider(TreePtr t, std::vector<Sized>& found) {
    ++points_;
    if (!t)
      return;
    const double seconds = estimator_.part_seconds(*t);
    found.push_back({std::move(t), seconds});
  }

  std::vector<Sized> top(const Nest& nest) {
    std::vector<Sized> found;
    rows(nest, found);
    results(nest, found);
    if (found.empty())
      consider(of_results(nest, {}, {}, 0, {}), found);
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
    consider(of_results(nest, x, y, 0, {}), found);
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
        consider(of_results(nest, x, y, depth, near), found);
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

  void rows(const Nest& nest, std::vector<Sized>& found) {
    Nest inside = nest;
    inside.axes.clear();
    std::vector<std::pair<int, std::int64_t>> by_warps{{-1, 1}};
    for (const int a : nest.axes)
      if (parallel(nest, a) && block_ > 32)
        by_warps.emplace_back(a, block_ / 32);
    for (const auto& [axis, warps] : by_warps)
      for (const std::int64_t vector : std::set<std::int64_t>{1, lanes_}) {
        std::vector<Made> grid, serial, threads;
        std::vector<int> masks;
        bool fits = true;
        for (const int a : nest.axes) {
          const bool free = parallel(nest, a);
          fits = fits && pieces(a, a == axis ? warps : 1, free ? Bind::Grid : Bind::Serial,
                                free ? grid : serial, masks);
        }
        add(threads, axis, warps, 1, Bind::Warp);
        used_ = false;
        TreePtr t = fits ? within(inside, block_ / warps, vector) : nullptr;
        if (!t || !used_)
          continue;
        consider(around(grid, around(threads, around(serial, masked(masks, std::move(t))))), found);
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

  const kernel::Region& r_;
  const Estimator& estimator_;
  const SizesOptions& options_;
  std::size_t& points_;
  std::size_t budget_ = 0;
  std::int64_t lanes_, block_ = 0;
  bool used_ = false; ///< threads, in the tree that is being made
};

} // namespace

std::vector<Sized> gpu_sizes_of(const kernel::Region& region, const kernel::Target& target,
                                const std::vector<Nest>& nests, const Estimator& estimator,
                                const SizesOptions& options, std::size_t& points) {
  return GpuSizes(region, target, estimator, options, points).run(nests);
}

} // namespace egret::loops
