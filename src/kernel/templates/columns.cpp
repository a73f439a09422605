// Reductions with lanes along a parallel axis, such as sums over the rows of a matrix, losses per
// channel, pooling and depthwise convolutions, on a CPU: a tile is `vectors` vectors of results,
// which go through all sweeps together, `copies` terms an iteration. Windows that overlap are read
// from a copy in the thread's memory, small operands whose lanes lie apart from one for all threads
// (`windows`). @split_reduce: few results, with much to sum, are cut into so many parts.
#include "kernel/analysis.h"
#include "kernel/families.h"
#include "kernel/loops/windows.h"
#include "kernel/map_axes.h"
#include "kernel/templates/sweeps.h"
#include "kernel/templates/template.h"

#include <algorithm>
#include <numeric>

namespace egret::kernel {

namespace {

/// Elements that a thread does in a row.
constexpr std::int64_t kElementsInARow = 8192;
/// Terms of an axis that are straight code, at the most.
constexpr std::int64_t kStraight = 8;
/// Points from lane to lane, at the most.
constexpr std::int64_t kMostApart = 4;
/// Additions from which a value is kept rather than computed again, if the schedule names none.
constexpr std::int64_t kWorthKeeping = 12;

constexpr Knob kColumnsKnobs[] = {
    {"copies", 1, 16}, {"vectors", 1, 16}, {"keep", 0, 1 << 20}, {"windows", 0, 1}};

/// From lane to lane along an axis, the points after which everything that is read lies evenly: a
/// multiple of the numbers by which indices along it are divided, as those of windows that are
/// several elements apart are, seen from their elements.
std::int64_t even_step(const Region& region, int axis) {
  std::int64_t step = 1;
  const auto look = [&](const auto& self, const Expr& e) -> void {
    const ExprNode& node = e.node();
    if (node.kind == ExprKind::FloorDiv || node.kind == ExprKind::FloorMod) {
      const auto slope = loops::slope(region, node.operands[0], axis);
      const auto by = node.operands[1].constant();
      if (slope && by)
        step = std::min(std::lcm(step, *by / std::gcd(*slope, *by)), kMostApart + 1);
    }
    for (const Expr& part : node.operands)
      self(self, part);
  };
  for (const Stage& stage : region.stages)
    for (const Load& load : stage.loads)
      if (const auto access = loops::access_of(region, stage, load)) {
        look(look, access->offset);
        for (const Guard& g : access->valid)
          look(look, g.value);
      }
  return step <= kMostApart ? step : 1;
}

} // namespace

SweepShape column_shape(const Region& region, const ReduceAxes& axes, const Schedule& schedule,
                        const Target& target) {
  SweepShape s;
  s.lanes_parallel = true;
  s.lanes = lanes_for(region, all_stages(region),
                      schedule.vector_bytes ? schedule.vector_bytes : target.vector_bytes);
  s.tile_axis = axes.parallel_axis;
  s.inner_axis = axes.passes.reduced.back();
  const std::int64_t width = about(region.axes[std::size_t(s.tile_axis)].extent);
  s.points = schedule.knob("vectors", std::clamp<std::int64_t>(width / s.lanes, 1, 4));
  s.copies = schedule.knob("copies", s.points >= 4 ? 1 : 4 / s.points);
  s.accumulators = s.copies;
  const bool may_stage = schedule.knob("windows", 1) != 0 && schedule.split_reduce <= 1;
  if (may_stage)
    s.staged = staged_operands(region, axes, target);
  if (s.staged.windows.empty())
    s.apart = even_step(region, s.tile_axis);
  for (; s.apart > 1 && s.lanes > 4 && s.lanes * s.apart / 2 >= width; s.lanes /= 2) {
  }
  s.points = (s.points + s.apart - 1) / s.apart * s.apart;
  // A window's row is straight code: its loads are neighbours, its weights numbers.
  const auto terms = region.axes[std::size_t(s.inner_axis)].extent.constant();
  s.straight = may_stage && terms && *terms >= 1 && *terms <= kStraight &&
               (s.apart > 1 || !staged_alone(region, axes, target).empty());
  if (s.straight) {
    s.copies = *terms;
    s.accumulators = 1;
  }
  const std::int64_t depth = about(points_of(region, axes.passes.reduced));
  const std::int64_t tile = s.points * s.lanes;
  s.chunk = kElementsInARow / std::max<std::int64_t>(1, depth * tile) * tile;
  const bool fits = depth * 4 * tile <= target.l2_bytes / 2;
  s.keep = double(schedule.knob("keep", fits ? kWorthKeeping : 1 << 20));
  return s;
}

namespace {

class ColumnsTemplate : public Template {
public:
  std::string name() const override { return "columns"; }

  /// Operands whose neighbours in memory are not reduced together, turned: whole rows then.
  std::vector<LayoutWish> layouts(const Region& region, const Target&) const override {
    ReduceAxes facts(region);
    if (!facts.passes.reason.empty() || facts.parallel_axis < 0)
      return {};
    std::vector<LayoutWish> wishes;
    for (const Stage& stage : region.stages) {
      if (stage.kind != StageKind::Reduce)
        continue;
      for (const Load& load : stage.loads) {
        const auto memory = axes_in_memory(region, stage, load);
        if (!memory || memory->empty() || region.axes[memory->back()].reduction)
          continue;
        LayoutWish wish{load.number, {}, "order along the reduced axes"};
        std::vector<Digit> reduced;
        for (std::size_t i = 0; i < memory->size(); ++i) {
          const Axis& axis = region.axes[(*memory)[i]];
          wish.layout.box.push_back(axis.extent.value());
          (axis.reduction ? reduced : wish.layout.digits).push_back({int(i), 0});
        }
        wish.layout.digits.insert(wish.layout.digits.end(), reduced.begin(), reduced.end());
        if (!reduced.empty())
          wishes.push_back(std::move(wish));
      }
    }
    return wishes;
  }

protected:
  std::string refuses(const Region& region) const override {
    const ReduceAxes axes(region);
    return !axes.passes.reason.empty() ? axes.passes.reason
           : axes.parallel_axis < 0    ? "has no parallel axis for lanes"
                                       : "";
  }

  std::span<const Knob> parameters() const override { return kColumnsKnobs; }

  bool ranks() const override { return false; }

  std::vector<Schedule> proposals(const Region& region, const Target& target) const override {
    const ReduceAxes axes(region);
    std::vector<Schedule> out;
    Schedule s;
    s.generator = name();
    const auto add = [&](std::map<std::string, std::int64_t> knobs) {
      s.knobs = std::move(knobs);
      out.push_back(s);
    };
    if (!prefers_rows(region, axes, target)) {
      s.store_policy = usual_store_policy(region, target);
      for (std::int64_t parts :
           numbers_of_parts(region, axes, column_shape(region, axes, s, target))) {
        s.split_reduce = parts;
        add({});
      }
      s.split_reduce = 1;
      s.store_policy = CachePolicy::Default;
    }
    add({});
    for (int vectors : {1, 2, 8})
      add({{"vectors", vectors}});
    for (auto [vectors, copies] : {std::pair{4, 2}, {2, 1}, {2, 4}, {1, 1}, {1, 8}})
      add({{"vectors", vectors}, {"copies", copies}});
    add({{"windows", 0}});
    return out;
  }

  Built build(const Region& region, const Schedule& schedule, const Target& target) const override {
    const ReduceAxes axes(region);
    return built_sweeps(region, axes, schedule.split_reduce,
                        column_shape(region, axes, schedule, target));
  }
};

} // namespace

const Generator& columns_generator() {
  static const ColumnsTemplate generator;
  return generator;
}

} // namespace egret::kernel
