// Reductions of many short rows, such as softmax, norms, maxima and means over a last axis of a few
// dozen elements, on a CPU: the lanes of a vector are rows, each of which is summed without a
// combination of lanes. Operands that are contiguous along the rows are staged, which transposes
// them in registers: one pass takes blocks of as many elements as lanes from there, several passes
// read the rows from scratch memory (`scratch`). A pass is a loop with `unroll` elements an
// iteration; values that later passes need and that cost more than `keep` additions stay in scratch
// memory. Rows that the points of another parallel axis share, as distances between all pairs of
// points do, are staged once for a block of these, `tile` of which are reduced together.
#include "kernel/analysis.h"
#include "kernel/families.h"
#include "kernel/map_axes.h"
#include "kernel/passes.h"
#include "kernel/templates/sweeps.h"
#include "kernel/templates/template.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>

namespace egret::kernel {

namespace {

using loops::TreePtr;

/// Elements of a row at the most.
constexpr std::int64_t kMostRow = 256, kMostSharedRow = 1024;
/// Points that share staged rows, at the least, and in a block.
constexpr std::int64_t kLeastShared = 16, kSharedBlock = 64;
/// Points of an axis from which lanes prefer it where results are contiguous along it.
constexpr std::int64_t kEnoughLanes = 32;
/// Lanes so few elements apart are loaded as whole vectors and put together by shuffles.
constexpr std::int64_t kNearLanes = 3;
/// Elements that a thread does in a row.
constexpr std::int64_t kElements = 16384;
/// Additions from which a value is kept rather than computed again, if the schedule names none.
constexpr std::int64_t kKept = 12;

constexpr Knob kReductionKnobs[] = {
    {"unroll", 1, 64}, {"keep", 0, 1 << 20}, {"scratch", 0, 1}, {"tile", 1, 16}};

/// The axes of a region of many short rows.
struct ShortRows {
  Passes passes;
  int lane = -1;   ///< along which the lanes are rows
  int row = -1;    ///< along which operands are contiguous
  int shared = -1; ///< parallel, all of whose points read the same of these; -1: there is none
  std::set<int> operands; ///< that lie so
  std::string reason;     ///< why the region is none
};

/// Whether a load is of rows that lie across the lanes; -1: lanes would have to be gathered.
int lies_across(const Region& region, const Stage& stage, const Load& load, int lane, int row) {
  const auto across = stride_of(region, stage, load, lane);
  if (across && *across >= 0 && *across <= kNearLanes)
    return 0;
  const auto length = region.axes[std::size_t(row)].extent.constant();
  return across && load.indirect.empty() && load.map.is_total() && length &&
                 std::abs(*across) >= *length && // windows overlap
                 stride_of(region, stage, load, row) == 1
             ? 1
             : -1;
}

ShortRows short_rows(const Region& region) {
  ShortRows rows;
  rows.passes = plan_passes(region);
  rows.reason = rows.passes.reason;
  if (!rows.reason.empty())
    return rows;
  const Expr points = points_of(region, rows.passes.reduced);
  if (!points.constant() || *points.constant() < 2 || *points.constant() > kMostSharedRow) {
    rows.reason = "its rows are not short";
    return rows;
  }
  const std::vector<int> stages = all_stages(region);
  rows.row = rows.passes.reduced.back();
  for (int a : rows.passes.reduced)
    if (vector_score(region, stages, a) > vector_score(region, stages, rows.row))
      rows.row = a;
  using Preference = std::pair<bool, std::int64_t>;
  std::optional<Preference> best;
  for (int a : rows.passes.parallel) {
    const auto along = [&](auto matches) {
      return std::all_of(region.outputs.begin(), region.outputs.end(),
                         [&](const Output& o) { return matches(stride_of(region, o, a)); });
    };
    const std::int64_t extent = about(region.axes[std::size_t(a)].extent);
    const Preference own{extent >= kEnoughLanes && along([](auto s) { return s == 1; }), extent};
    if (along([](auto s) { return s != 0; }) && (!best || own >= *best)) {
      rows.lane = a;
      best = own;
    }
  }
  if (rows.lane < 0) {
    rows.reason = "has no parallel axis for lanes";
    return rows;
  }
  std::vector<int> shared = rows.passes.parallel;
  bool again = false; // whether points of some axis would stage the same rows
  for (const Stage& stage : region.stages)
    for (const Load& load : stage.loads) {
      if (load.source != Source::Operand)
        continue;
      const int lies = lies_across(region, stage, load, rows.lane, rows.row);
      if (lies < 0) {
        rows.reason = "lanes would have to be gathered";
        return rows;
      }
      if (lies <= 0)
        continue;
      const auto varies = [&](int a) { return stride_of(region, stage, load, a) != 0; };
      again =
          again || !std::all_of(rows.passes.parallel.begin(), rows.passes.parallel.end(), varies);
      std::erase_if(shared, varies);
      rows.operands.insert(load.number);
    }
  for (int a : again ? shared : std::vector<int>{})
    if (const std::int64_t extent = about(region.axes[std::size_t(a)].extent);
        extent >= kLeastShared &&
        (rows.shared < 0 || extent > about(region.axes[std::size_t(rows.shared)].extent)))
      rows.shared = a;
  if (again && rows.shared < 0)
    rows.reason = "rows would be transposed again for points that share them";
  else if (rows.shared < 0 && *points.constant() > kMostRow)
    rows.reason = "its rows are not short";
  else if (rows.shared >= 0 &&
           std::any_of(region.outputs.begin(), region.outputs.end(),
                       [&](const Output& o) { return stride_of(region, o, rows.lane) != 1; }))
    rows.reason = "results of points that share rows would lie across the lanes";
  if (!rows.reason.empty())
    return rows;
  const bool stores_rows =
      std::any_of(region.outputs.begin(), region.outputs.end(), [&](const Output& o) {
        return stride_of(region, o, rows.lane) != 1 && stride_of(region, o, rows.row) == 1;
      });
  if (rows.operands.empty() && !stores_rows)
    rows.reason = "neither operands nor results lie across the lanes";
  return rows;
}

/// Whether one reduction in one pass is all that reads the rows, and they have a vector at least:
/// blocks may stay in registers.
bool stays_in_registers(const Region& region, const ShortRows& rows, std::int64_t lanes) {
  const Passes& p = rows.passes;
  return rows.shared < 0 && p.count == 1 && p.reductions[0].size() == 1 && p.outputs[0].empty() &&
         region.axes[std::size_t(rows.row)].extent.value() >= lanes;
}

/// Whether rows across lanes take fewer instructions than rows one by one, whose lanes are
/// combined at the end of each reduction and whose last vector is partly empty.
bool pays(const Region& region, const ShortRows& rows, std::int64_t lanes) {
  const auto n = double(points_of(region, rows.passes.reduced).value()), l = double(lanes);
  const double rounds = std::log2(l), vectors = std::ceil(n / l), empty = vectors - n / l;
  double point = 1, combining = 0; // of a vector of points; of the lanes of all reductions
  for (const Stage& stage : region.stages) {
    point += stage.axes.size() == region.axes.size() ? flops_of(stage) : 0;
    if (stage.kind == StageKind::Reduce)
      combining += stage.monoid == Monoid::ArgMax ? 20 * l
                   : stage.monoid == Monoid::Max  ? 6 * rounds
                                                  : 2 * rounds;
  }
  double stored = 0;
  for (const auto& outputs : rows.passes.outputs)
    stored += double(outputs.size());
  const double w = std::exp2(std::floor(std::log2(std::min(n, l))));
  // A block's loads, or stores, and shuffles; what goes through scratch memory is moved once more.
  const double block = std::ceil(n / w) * (1 + std::log2(w) + (l / w - 1) * w / l);
  const bool in_registers = stays_in_registers(region, rows, lanes);
  // How often a row is staged for one reduction of it.
  const double times =
      rows.shared < 0
          ? 1
          : 1 / double(std::min(about(region.axes[std::size_t(rows.shared)].extent), kSharedBlock));
  const double moving =
      times * double(rows.operands.size()) * (block + (in_registers ? 0 : 2 * n / l)) +
      stored * (block + 2 * n / l);
  const double partly = empty > 0 ? 6 + 0.5 * point : 0;
  return moving < combining + empty * point + partly + 2;
}

class ReductionTemplate : public Template {
public:
  std::string name() const override { return "reduction"; }

protected:
  std::string refuses(const Region& region) const override { return short_rows(region).reason; }

  std::span<const Knob> parameters() const override { return kReductionKnobs; }

  std::vector<Schedule> proposals(const Region& region, const Target& target) const override {
    std::vector<Schedule> out;
    const ShortRows rows = short_rows(region);
    const std::int64_t lanes = lanes_for(region, all_stages(region), target.vector_bytes);
    if (!pays(region, rows, lanes))
      return out;
    Schedule s;
    s.generator = name();
    s.store_policy = usual_store_policy(region, target);
    const auto add = [&](std::map<std::string, std::int64_t> knobs) {
      s.knobs = std::move(knobs);
      out.push_back(s);
    };
    if (stays_in_registers(region, rows, lanes))
      add({{"scratch", 0}});
    if (rows.shared >= 0)
      for (auto [tile, unroll] : {std::pair{8, 2}, {4, 4}, {4, 2}, {8, 1}})
        add({{"tile", tile}, {"unroll", unroll}});
    for (int unroll : {8, 16, 32, 4})
      add({{"unroll", unroll}});
    for (int keep : {0, 1 << 20})
      add({{"keep", keep}});
    return out;
  }

  Built build(const Region& region, const Schedule& schedule, const Target& target) const override {
    const ShortRows rows = short_rows(region);
    const std::int64_t bytes = schedule.vector_bytes ? schedule.vector_bytes : target.vector_bytes;
    const std::int64_t lanes = lanes_for(region, all_stages(region), bytes);
    const Expr& count = region.axes[std::size_t(rows.lane)].extent;
    if (target.is_gpu() || lanes == 1 || about(count) < lanes)
      return {nullptr, "there are fewer rows than lanes"};
    TreePtr tree;
    if (schedule.knob("scratch", 1) == 0) {
      if (!stays_in_registers(region, rows, lanes))
        return {nullptr, "several passes read the rows, or they are shorter than a vector"};
      tree = blocks(region, rows, lanes);
    } else {
      const std::int64_t tile =
          rows.shared < 0 || rows.passes.count > 1 ? 1 : schedule.knob("tile", 1);
      tree = loop(rows.lane, Expr(lanes), 1, Bind::Vector, passes(region, schedule, rows, tile));
      if (rows.shared >= 0)
        tree = loop(rows.shared, Expr(kSharedBlock / tile), tile, Bind::Serial, std::move(tree));
      tree = staged(rows, std::move(tree));
    }
    std::vector<int> outer = axes_but(rows.passes.parallel, std::array{rows.lane, rows.shared});
    const std::int64_t row = points_of(region, rows.passes.reduced).value();
    const std::int64_t chunk = std::max<std::int64_t>(kElements / row / lanes, 1) * lanes;
    std::vector<LoopDigit> steps{{lanes, bind_after(region, outer)}};
    if (chunk > lanes && !proves_less_equal(count, Expr(chunk)))
      steps = {{chunk, bind_after(region, outer)}, {lanes, Bind::Serial}};
    tree = digits(region, rows.lane, steps, std::move(tree));
    if (rows.shared >= 0)
      tree = loop(rows.shared,
                  ceildiv(region.axes[std::size_t(rows.shared)].extent, Expr(kSharedBlock)),
                  kSharedBlock, bind_after(region, outer), std::move(tree));
    return {parallel_loops(region, outer, std::move(tree)), ""};
  }

private:
  static TreePtr staged(const ShortRows& rows, TreePtr rest) {
    for (int o : rows.operands)
      rest = loops::near(o, std::move(rest));
    return rest;
  }

  /// One pass by square blocks that are transposed in registers, then the results made of it.
  static TreePtr blocks(const Region& region, const ShortRows& rows, std::int64_t lanes) {
    const auto vector = [&](TreePtr rest) {
      return loop(rows.lane, Expr(lanes), 1, Bind::Vector, std::move(rest));
    };
    const int sum = rows.passes.reductions[0][0];
    TreePtr block = loop(rows.row, Expr(lanes), 1, Bind::Unroll,
                         vector(loops::mask(rows.lane, loops::mask(rows.row, loops::body(sum)))));
    TreePtr tree = digits(region, rows.row, {{lanes, Bind::Serial}}, staged(rows, block));
    for (std::size_t i = rows.passes.reduced.size(); i-- > 0;)
      if (const int a = rows.passes.reduced[i]; a != rows.row)
        tree = digits(region, a, {{1, Bind::Serial}}, std::move(tree));
    std::vector<TreePtr> parts{loops::accumulate(sum, std::move(tree))};
    for (int pass = 0; pass <= rows.passes.count; ++pass)
      for (int s : results_before(region, rows.passes, pass))
        parts.push_back(vector(loops::mask(rows.lane, loops::body(s))));
    return in_turn(std::move(parts));
  }

  /// All passes over the rows of a vector, one after the other, with the results that are made
  /// between them.
  static TreePtr passes(const Region& region, const Schedule& schedule, const ShortRows& rows,
                        std::int64_t tile) {
    const Passes& p = rows.passes;
    // A point of each row, or the same of the points of a tile that share the rows.
    const auto points = [&](TreePtr rest) {
      rest = loops::mask(rows.lane, std::move(rest));
      if (rows.shared >= 0)
        rest = loops::mask(rows.shared, std::move(rest));
      return tile == 1 ? rest : loop(rows.shared, Expr(tile), 1, Bind::Unroll, std::move(rest));
    };
    const auto kept = worth_keeping(region, p, double(schedule.knob("keep", kKept)));
    std::vector<TreePtr> parts;
    for (int pass = 0; pass <= p.count; ++pass) {
      for (int s : results_before(region, p, pass))
        parts.push_back(points(loops::body(s)));
      if (pass == p.count)
        break;
      std::vector<TreePtr> inside;
      for (int s : stages_of_sweep(region, p, kept, pass))
        inside.push_back(points(loops::mask(rows.row, loops::body(s))));
      TreePtr tree = in_turn(std::move(inside));
      const std::int64_t unroll = schedule.knob("unroll", 8);
      const bool whole = proves_less_equal(region.axes[std::size_t(rows.row)].extent, Expr(unroll));
      tree = whole ? digits(region, rows.row, {{1, Bind::Unroll}}, std::move(tree))
                   : digits(region, rows.row, {{unroll, Bind::Serial}, {1, Bind::Unroll}},
                            std::move(tree));
      for (std::size_t i = p.reduced.size(); i-- > 0;)
        if (p.reduced[i] != rows.row)
          tree = digits(region, p.reduced[i], {{1, Bind::Serial}}, std::move(tree));
      for (int s : p.reductions[std::size_t(pass)])
        tree = loops::accumulate(s, std::move(tree));
      parts.push_back(std::move(tree));
    }
    return in_turn(std::move(parts));
  }
};

} // namespace

const Generator& reduction_generator() {
  static const ReductionTemplate generator;
  return generator;
}

} // namespace egret::kernel
