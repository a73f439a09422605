// Reductions with lanes along the reduced axis, such as softmax, norms, losses and maxima over a
// last axis, on a CPU: a thread takes whole rows, `rows` of them at a time, through all sweeps. A
// short row is straight code whose values stay in registers; a long one has `copies` vectors an
// iteration, each with accumulators of its own. Values that later sweeps need and that cost more
// than `keep` additions stay in scratch memory. `online`: sums go along with the maximum that
// scales them, and sums of squared deviations with their mean, so that rows are read less often.
#include "kernel/analysis.h"
#include "kernel/families.h"
#include "kernel/map_axes.h"
#include "kernel/picks.h"
#include "kernel/reduce_axes.h"
#include "kernel/templates/sweeps.h"
#include "kernel/templates/template.h"

#include <algorithm>
#include <array>

namespace egret::kernel {

namespace {

using loops::TreePtr;

/// Elements that a thread does in a row.
constexpr std::int64_t kElementsInARow = 8192;
/// Vectors of a row that is straight code, at the most.
constexpr std::int64_t kStraight = 8;
/// Arithmetic of a point (in additions) that hides latency by itself.
constexpr double kHeavy = 16;
/// Additions from which a value is kept rather than computed again, if the schedule names none.
constexpr std::int64_t kWorthKeeping = 12;

constexpr Knob kRowsKnobs[] = {
    {"copies", 1, 16}, {"rows", 1, 8}, {"keep", 0, 1 << 20}, {"online", 0, 2}, {"prefetch", 0, 1}};

/// The sizes of a schedule.
struct RowSizes {
  std::int64_t lanes = 1;
  int tile_axis = -1;      ///< of the rows that are done together; -1: there is one row
  std::int64_t rows = 1;   ///< of a tile
  std::int64_t copies = 1; ///< vectors of a row in an iteration
  bool straight = false;   ///< which are all of it
  int prefetching = -1;    ///< the sweep that asks for the next tile; -1: none
  double keep = 0;         ///< additions
};

RowSizes sizes_of(const Region& region, const ReduceAxes& axes, const Schedule& schedule,
                  const Target& target) {
  RowSizes s;
  s.lanes = lanes_for(region, all_stages(region),
                      schedule.vector_bytes ? schedule.vector_bytes : target.vector_bytes);
  s.tile_axis = axes.passes.parallel.empty() ? -1 : axes.passes.parallel.back();
  const Expr& length = region.axes[std::size_t(axes.reduced_axis)].extent;
  const std::int64_t whole = about(length) / s.lanes, all = (about(length) + s.lanes - 1) / s.lanes;
  s.copies = schedule.knob("copies", whole <= kStraight ? std::max<std::int64_t>(all, 1) : 4);
  s.straight = length.constant() && all <= s.copies;
  s.copies = s.straight ? std::max<std::int64_t>(all, 1) : s.copies;
  // The steps that combine the lanes of one row overlap with those of the next.
  s.rows = s.tile_axis < 0 ? 1 : schedule.knob("rows", whole <= 2 ? 4 : whole <= kStraight ? 2 : 1);
  // Values are kept while a row of them fits into half of the second-level cache.
  const bool fits =
      about(points_of(region, axes.passes.reduced)) * 4 * s.rows <= target.l2_bytes / 2;
  s.keep = double(schedule.knob("keep", fits ? kWorthKeeping : 1 << 20));
  // Long rows are read in one sweep and worked on in the next: that with the most arithmetic asks
  // for the next rows.
  const std::int64_t bytes = about(points_of(region, axes.passes.reduced)) * 4 * s.rows;
  const bool useful = bytes >= 2048 && bytes <= target.l2_bytes / 4;
  if (s.tile_axis >= 0 && axes.passes.count > 1 && schedule.knob("prefetch", useful) != 0) {
    const std::vector<double> flops = flops_by_pass(region, axes.passes);
    const auto most = std::max_element(flops.begin(), flops.end());
    s.prefetching = most == flops.begin() ? -1 : int(most - flops.begin());
  }
  return s;
}

class RowsTemplate : public Template {
public:
  std::string name() const override { return "rows"; }

protected:
  std::string refuses(const Region& region) const override {
    return ReduceAxes(region).passes.reason;
  }

  std::span<const Knob> parameters() const override { return kRowsKnobs; }

  bool ranks() const override { return false; }

  std::vector<Schedule> proposals(const Region& region, const Target& target) const override {
    const ReduceAxes axes(region);
    std::vector<Schedule> out;
    if (!prefers_rows(axes, region, target))
      return out;
    const CachePolicy usual = usual_store_policy(region, target);
    const CachePolicy other =
        usual == CachePolicy::Default ? CachePolicy::Streaming : CachePolicy::Default;
    Schedule s;
    s.generator = name();
    const auto add = [&](CachePolicy policy, std::map<std::string, std::int64_t> knobs) {
      s.store_policy = policy;
      s.knobs = std::move(knobs);
      out.push_back(s);
    };
    // A row that does not stay in the cache comes from memory for every sweep.
    const Online online = fewest_passes(region, axes.passes.count);
    const bool stays = about(points_of(region, axes.passes.reduced)) * 4 <= target.l2_bytes / 2;
    const auto add_online = [&] {
      for (int copies : {8, 4})
        if (online != Online::No && (!stays || copies == 8))
          add(usual, {{"online", std::int64_t(online)}, {"copies", copies}});
    };
    if (!stays)
      add_online();
    for (CachePolicy policy : {usual, other}) {
      add(policy, {});
      for (int prefetch : {0, 1})
        add(policy, {{"prefetch", prefetch}});
    }
    for (int rows : {1, 2, 4})
      add(usual, {{"rows", rows}});
    // More or fewer accumulators, and what is worth keeping from sweep to sweep: all, or nothing.
    for (int copies : {2, 8})
      add(usual, {{"copies", copies}});
    for (int keep : {0, 1 << 20})
      add(usual, {{"keep", keep}});
    if (stays)
      add_online();
    if (target.vector_bytes > 16) {
      s.vector_bytes = target.vector_bytes / 2;
      add(usual, {});
    }
    return out;
  }

  Built build(const Region& whole, const Schedule& schedule, const Target& target) const override {
    const auto online = Online(schedule.knob("online", 0));
    Built built;
    if (online != Online::No)
      built.region = with_picks(whole, PickBy::Load);
    const Region& region = built.region ? *built.region : whole;
    const ReduceAxes axes(region, online);
    built.reason = axes.passes.reason;
    if (!built.reason.empty())
      return built;
    if (online != Online::No && axes.passes.count >= ReduceAxes(whole).passes.count) {
      built.reason = "no sum goes along with its maximum or its mean";
      return built;
    }
    const RowSizes sizes = sizes_of(region, axes, schedule, target);
    TreePtr tree = sweeps(region, axes, sizes);
    const int tile = sizes.tile_axis;
    if (tile >= 0) {
      const std::vector<int> outer = axes_but(axes.passes.parallel, std::array{tile});
      const std::int64_t row = about(points_of(region, axes.passes.reduced));
      const std::int64_t chunk =
          std::max<std::int64_t>(1, kElementsInARow / std::max<std::int64_t>(1, row * sizes.rows)) *
          sizes.rows;
      std::vector<LoopDigit> steps{{sizes.rows, bind_after(region, outer)}};
      if (chunk > sizes.rows && !proves_less_equal(region.axes[std::size_t(tile)].extent, chunk))
        steps = {{chunk, bind_after(region, outer)}, {sizes.rows, Bind::Serial}};
      tree = parallel_loops(region, outer, digits(region, tile, steps, std::move(tree)));
    }
    built.tree = std::move(tree);
    return built;
  }

private:
  /// All sweeps over a tile of rows, with the results that are made between them.
  static TreePtr sweeps(const Region& region, const ReduceAxes& axes, const RowSizes& sizes) {
    const Passes& p = axes.passes;
    const std::vector<Kept> kept = worth_keeping(region, p, sizes.keep);
    const std::vector<double> flops = flops_by_pass(region, p);
    std::vector<TreePtr> parts;
    for (int sweep = 0; sweep <= p.count; ++sweep) {
      if (const std::vector<int> results = results_before(region, p, sweep); !results.empty())
        parts.push_back(rows_of_tile(sizes, bodies(sizes, -1, results)));
      if (sweep == p.count)
        break;
      std::vector<int> maxima, others = stages_of_sweep(region, p, kept, sweep);
      for (int s : p.reductions[std::size_t(sweep)])
        if (const int m = p.scaled_by[std::size_t(s)]; m >= 0 && !contains(maxima, m))
          maxima.push_back(m);
      std::erase_if(others, [&](int s) { return contains(maxima, s); });
      const bool heavy = maxima.empty() && flops[std::size_t(sweep)] > kHeavy;
      const std::int64_t copies =
          heavy && !sizes.straight ? std::max<std::int64_t>(1, sizes.copies / 2) : sizes.copies;
      TreePtr tree = vectors(axes, sizes, copies, others);
      if (!maxima.empty())
        tree = loops::then(vectors(axes, sizes, copies, maxima), std::move(tree));
      if (!sizes.straight)
        tree = digits(region, axes.reduced_axis, {{copies * sizes.lanes, Bind::Serial}},
                      std::move(tree));
      for (std::size_t i = p.reduced.size(); i-- > 0;)
        if (p.reduced[i] != axes.reduced_axis)
          tree = digits(region, p.reduced[i], {{1, Bind::Serial}}, std::move(tree));
      for (int s : p.reductions[std::size_t(sweep)])
        if (!contains(maxima, s))
          tree = loops::accumulate(s, std::move(tree), copies);
      for (int m : maxima)
        tree = loops::accumulate(m, std::move(tree));
      if (sweep == sizes.prefetching)
        tree = loops::prefetch(sizes.tile_axis, sizes.rows, std::move(tree));
      parts.push_back(std::move(tree));
    }
    return in_turn(std::move(parts));
  }

  /// The vectors of an iteration, of all rows of the tile.
  static TreePtr vectors(const ReduceAxes& axes, const RowSizes& sizes, std::int64_t copies,
                         const std::vector<int>& stages) {
    const int a = axes.reduced_axis;
    TreePtr tree = loops::loop(a, Expr(sizes.lanes), 1, Bind::Vector, bodies(sizes, a, stages));
    tree = loops::loop(a, Expr(copies), sizes.lanes, Bind::Unroll, std::move(tree));
    return rows_of_tile(sizes, std::move(tree));
  }

  static TreePtr rows_of_tile(const RowSizes& sizes, TreePtr rest) {
    return sizes.rows == 1
               ? rest
               : loops::loop(sizes.tile_axis, Expr(sizes.rows), 1, Bind::Unroll, std::move(rest));
  }

  /// Of the rows that there are, and of their elements along the axis.
  static TreePtr bodies(const RowSizes& sizes, int axis, const std::vector<int>& stages) {
    std::vector<TreePtr> parts;
    for (int s : stages)
      parts.push_back(loops::body(s));
    TreePtr tree = in_turn(std::move(parts));
    if (axis >= 0)
      tree = loops::mask(axis, std::move(tree));
    return sizes.tile_axis < 0 ? tree : loops::mask(sizes.tile_axis, std::move(tree));
  }
};

} // namespace

const Generator& rows_generator() {
  static const RowsTemplate generator;
  return generator;
}

} // namespace egret::kernel
