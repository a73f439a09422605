// Reductions with lanes along the reduced axis, such as softmax, norms, losses and maxima over a
// last axis, on a CPU: a thread takes whole rows, `rows` of them at a time, through all sweeps. A
// short row is straight code whose values stay in registers; a long one has `copies` vectors an
// iteration, each with accumulators of its own. Values that later sweeps need and that cost more
// than `keep` additions stay in scratch memory. `online`: sums go along with the maximum that
// scales them, and sums of squared deviations with their mean, so that rows are read less often.
// @split_reduce: few rows, with much to sum, are cut into so many parts.
#include "kernel/analysis.h"
#include "kernel/families.h"
#include "kernel/label_terms.h"
#include "kernel/map_axes.h"
#include "kernel/reduce_axes.h"
#include "kernel/templates/sweeps.h"
#include "kernel/templates/template.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace egret::kernel {

namespace {

/// Elements that a thread does in a row.
constexpr std::int64_t kRowElements = 8192;
/// Vectors of a row that is straight code, at the most.
constexpr std::int64_t kStraightRow = 8;
/// Additions that are written out in an iteration, unless one vector has more: compilers take more
/// than linear time for straight code, and so much of it keeps a core busy by itself.
constexpr double kWrittenWorkOfRows = 2048;
/// Additions from which a value is kept rather than computed again, if the schedule names none.
constexpr std::int64_t kWorthKeepingOfRow = 12;

constexpr Knob kRowsKnobs[] = {
    {"copies", 1, 16}, {"rows", 1, 8}, {"keep", 0, 1 << 20}, {"online", 0, 2}, {"prefetch", 0, 1}};

} // namespace

SweepShape row_shape(const Region& region, const ReduceAxes& axes, const Schedule& schedule,
                     const Target& target) {
  SweepShape s;
  s.lanes = lanes_for(region, all_stages(region),
                      schedule.vector_bytes ? schedule.vector_bytes : target.vector_bytes);
  s.inner_axis = axes.reduced_axis;
  s.tile_axis = axes.passes.parallel.empty() ? -1 : axes.passes.parallel.back();
  const Expr& length = region.axes[std::size_t(axes.reduced_axis)].extent;
  const std::int64_t whole = about(length) / s.lanes, all = (about(length) + s.lanes - 1) / s.lanes;
  const std::vector<double> flops = flops_by_pass(region, axes.passes);
  const double work = std::accumulate(flops.begin(), flops.end(), 0.0);
  const auto written = [&](std::int64_t usual) {
    return work * double(usual) > kWrittenWorkOfRows ? std::int64_t{1} : usual;
  };
  s.copies =
      schedule.knob("copies", written(whole <= kStraightRow ? std::max<std::int64_t>(all, 1) : 4));
  s.straight = length.constant() && all <= s.copies;
  s.copies = s.straight ? std::max<std::int64_t>(all, 1) : s.copies;
  s.accumulators = s.copies;
  // The steps that combine the lanes of one row overlap with those of the next.
  const std::int64_t points = whole <= 2 ? 4 : whole <= kStraightRow ? 2 : 1;
  s.points =
      s.tile_axis < 0 ? 1 : schedule.knob("rows", written(s.copies * points) > 1 ? points : 1);
  const std::int64_t row = about(points_of(region, axes.passes.reduced));
  s.chunk = kRowElements / std::max<std::int64_t>(1, row);
  // Values are kept while a row of them fits into half of the second-level cache.
  const std::int64_t bytes = row * 4 * s.points;
  const bool fits = bytes <= target.l2_bytes / 2;
  s.keep = double(schedule.knob("keep", fits ? kWorthKeepingOfRow : 1 << 20));
  // Long rows are read in one sweep and worked on in the next: that with the most arithmetic asks
  // for the next rows.
  const bool useful = bytes >= 2048 && bytes <= target.l2_bytes / 4;
  if (s.tile_axis >= 0 && axes.passes.count > 1 && schedule.knob("prefetch", useful) != 0) {
    const auto most = std::max_element(flops.begin(), flops.end());
    s.prefetching = most == flops.begin() ? -1 : int(most - flops.begin());
  }
  return s;
}

namespace {

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
    if (!prefers_rows(region, axes, target))
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
    for (std::int64_t parts : numbers_of_parts(region, axes, row_shape(region, axes, {}, target))) {
      s.split_reduce = parts;
      add(usual, {});
    }
    s.split_reduce = 1;
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
      built.region = with_label_gathers(whole);
    const Region& region = built.region ? *built.region : whole;
    const ReduceAxes axes(region, online);
    built.reason = axes.passes.reason;
    if (!built.reason.empty())
      return built;
    if (online != Online::No && axes.passes.count >= ReduceAxes(whole).passes.count) {
      built.reason = "no sum goes along with its maximum or its mean";
      return built;
    }
    Built swept = built_sweeps(region, axes, schedule.split_reduce,
                               row_shape(region, axes, schedule, target));
    swept.region = std::move(built.region);
    return swept;
  }
};

} // namespace

const Generator& rows_generator() {
  static const RowsTemplate generator;
  return generator;
}

} // namespace egret::kernel
