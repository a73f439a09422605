#include "compiler/fuse_column_reductions.h"

#include "kernel/analysis.h"
#include "kernel/families.h"
#include "kernel/passes.h"

#include <algorithm>
#include <optional>

namespace egret::compiler {

using ir::NodeId;
using kernel::Load;
using kernel::Region;
using kernel::Source;
using kernel::Stage;
using kernel::StageKind;

namespace {

/// Both regions as two axes, rows then columns: where these stand in each.
struct Axes {
  int rows, columns;         ///< of the one that goes row by row
  int sum_rows, sum_columns; ///< of the one that sums over the rows
};

std::optional<Axes> common_axes(const Region& by_rows, const kernel::Passes& a, const Region& sums,
                                const kernel::Passes& b) {
  if (!a.reason.empty() || !b.reason.empty() || b.carries() || by_rows.axes.size() != 2 ||
      sums.axes.size() != 2 || a.reduced != std::vector{1} || b.reduced.size() != 1)
    return std::nullopt;
  const Axes axes{0, 1, b.reduced[0], 1 - b.reduced[0]};
  if (!(by_rows.axes[0].extent == sums.axes[axes.sum_rows].extent) ||
      !(by_rows.axes[1].extent == sums.axes[axes.sum_columns].extent))
    return std::nullopt;
  // Its results must be of columns only; others would be written by rows.
  for (const kernel::Output& out : sums.outputs)
    if (kernel::result_axes(sums.stages[out.stage]) != std::vector{axes.sum_columns})
      return std::nullopt;
  return axes;
}

/// Writes the stages of a region of sums behind those of a region of rows.
class ColumnReductionFusion {
public:
  ColumnReductionFusion(const BuiltRegion& by_rows, const BuiltRegion& sums, const Axes& axes)
      : out_(by_rows), sums_(sums), axes_(axes),
        shift_(static_cast<int>(out_.region.stages.size())) {}

  /// Nothing when something that is read in full is not at hand.
  std::optional<BuiltRegion> run() {
    out_.region.axes[0].reduction = true;
    for (const Stage& stage : sums_.region.stages)
      if (!add(stage))
        return std::nullopt;
    for (std::size_t o = 0; o < sums_.outputs.size(); ++o) {
      kernel::Output out = sums_.region.outputs[o];
      out.stage += shift_;
      if (out.alias >= 0)
        out.alias = operand(out.alias);
      out_.region.outputs.push_back(std::move(out));
      out_.outputs.push_back(sums_.outputs[o]);
    }
    for (NodeId node : sums_.region.nodes)
      if (std::find(out_.region.nodes.begin(), out_.region.nodes.end(), node) ==
          out_.region.nodes.end())
        out_.region.nodes.push_back(node);
    out_.region.name += "_and_sums";
    return std::move(out_);
  }

private:
  bool add(const Stage& source) {
    Stage stage = source;
    stage.axes.clear();
    const bool full = source.axes.size() == 2;
    if (full)
      stage.axes = {0, 1};
    else if (source.axes == std::vector{axes_.sum_columns})
      stage.axes = {1};
    else if (source.axes == std::vector{axes_.sum_rows})
      stage.axes = {0};
    if (stage.kind == StageKind::Reduce)
      stage.over = {0};
    turned_ = full && axes_.sum_rows == 1;
    for (Load& load : stage.loads)
      if (!move(load, full))
        return false;
    for (kernel::BodyValue& v : stage.body)
      if (v.kind == kernel::BodyValue::Kind::Index)
        v.index = moved(v.index);
    out_.region.stages.push_back(std::move(stage));
    return true;
  }

  /// An expression over the variables of a stage of the sums, over those of the moved stage.
  Expr moved(const Expr& e) const {
    if (!turned_)
      return e;
    return substitute(e, [&](const Expr& v) -> std::optional<Expr> {
      if (!v.is_axis())
        return std::nullopt;
      const int axis = 1 - v.axis_number();
      return Expr::axis(axis, out_.region.axes[axis].extent);
    });
  }

  IndexMap moved(const IndexMap& map) const {
    IndexMap out = map;
    if (turned_)
      std::reverse(out.dims.begin(), out.dims.end());
    for (Expr& c : out.coords)
      c = moved(c);
    for (Hole& hole : out.holes)
      for (Guard& g : hole.valid)
        g = {moved(g.value), moved(g.lo), moved(g.hi)};
    return out;
  }

  bool move(Load& load, bool full) {
    load.map = moved(load.map);
    if (load.source == Source::Stage) {
      load.number += shift_;
      return true;
    }
    const NodeId node = sums_.operands[load.number];
    const auto made = std::find(out_.outputs.begin(), out_.outputs.end(), node);
    if (made != out_.outputs.end())
      return read_stage(load, static_cast<int>(made - out_.outputs.begin()), full);
    const bool there =
        std::find(out_.operands.begin(), out_.operands.end(), node) != out_.operands.end();
    load.number = operand(load.number);
    if (!full)
      return !there; // a state that both read could no longer be written over where it is read last
    return !varies_by_both(load) || (there && is_read(load));
  }

  bool varies_by_both(const Load& load) const {
    if (!load.indirect.empty())
      return true;
    if (load.map.coords.empty()) // a number by value
      return false;
    const std::vector<Expr> variables = variables_of(load.map.coords.at(0));
    return std::count_if(variables.begin(), variables.end(),
                         [](const Expr& v) { return v.is_axis(); }) == 2;
  }

  /// Whether the rows read the same element at the same point.
  bool is_read(const Load& wanted) const {
    for (int s = 0; s < shift_; ++s) {
      const Stage& stage = out_.region.stages[s];
      if (stage.axes.size() == 2)
        for (const Load& load : stage.loads)
          if (load.source == Source::Operand && load.number == wanted.number &&
              load.indirect.empty() && load.map == wanted.map)
            return true;
    }
    return false;
  }

  /// What the rows make is read where it is made, if that is the element of the same point.
  bool read_stage(Load& load, int output, bool full) {
    const kernel::Output& out = out_.region.outputs[output];
    const std::vector<int> axes = kernel::result_axes(out_.region.stages[out.stage]);
    if (!full || !load.map.is_total() || !load.indirect.empty() || !out.map.is_total() ||
        out.combine != kernel::Combine::Store)
      return false;
    // The output's map is over its result axes, a part of the moved stage's.
    std::vector<Expr> point;
    for (int a : axes)
      point.push_back(Expr::axis(a, out_.region.axes[a].extent));
    const Expr written = substitute(out.map.coords.at(0), [&](const Expr& v) {
      return v.is_axis() ? std::optional(point.at(v.axis_number())) : std::nullopt;
    });
    if (!(written == load.map.coords.at(0)))
      return false;
    load.source = Source::Stage;
    load.number = out.stage;
    load.component = out.component;
    load.map.coords = point;
    return true;
  }

  int operand(int number) {
    const NodeId node = sums_.operands[number];
    auto at = std::find(out_.operands.begin(), out_.operands.end(), node);
    if (at == out_.operands.end()) {
      out_.operands.push_back(node);
      out_.region.operands.push_back(sums_.region.operands[number]);
      return static_cast<int>(out_.operands.size()) - 1;
    }
    return static_cast<int>(at - out_.operands.begin());
  }

  BuiltRegion out_;
  const BuiltRegion& sums_;
  Axes axes_;
  int shift_; ///< of the numbers of the sums' stages
  bool turned_ = false;
};

/// Sums of less than this share of the second-level cache find there what the rows have read.
constexpr std::int64_t kCachedShare = 2;

bool is_worth_it(const Region& sums, const kernel::Target& target) {
  return proves_less(Expr(target.l2_bytes / kCachedShare), kernel::cost_of(sums).bytes_read);
}

bool is_supported(const Region& region, const kernel::Target& target) {
  return !kernel::gpu_rows_generator().space(region, target).empty();
}

} // namespace

void fuse_column_reductions(std::vector<BuiltRegion>& regions, const kernel::Target& target) {
  if (!target.is_gpu())
    return; // only a GPU's generator does
  std::vector<kernel::Passes> passes;
  for (const BuiltRegion& built : regions)
    passes.push_back(kernel::plan_passes(built.region, true));
  for (std::size_t a = 0; a < regions.size(); ++a)
    for (std::size_t b = a + 1; b < regions.size(); ++b) {
      const auto axes = common_axes(regions[a].region, passes[a], regions[b].region, passes[b]);
      if (!axes || !is_worth_it(regions[b].region, target))
        continue;
      // What stands between them must not be waited for.
      const auto& reads = regions[b].operands;
      const auto is_read = [&](NodeId node) {
        return std::find(reads.begin(), reads.end(), node) != reads.end();
      };
      const auto first = regions.begin() + static_cast<std::ptrdiff_t>(a),
                 last = regions.begin() + static_cast<std::ptrdiff_t>(b);
      if (std::any_of(first + 1, last, [&](const BuiltRegion& between) {
            return std::any_of(between.outputs.begin(), between.outputs.end(), is_read);
          }))
        continue;
      auto both = ColumnReductionFusion(*first, *last, *axes).run();
      if (!both)
        continue;
      kernel::verify(both->region);
      if (!is_supported(both->region, target))
        continue;
      *first = std::move(*both);
      passes[a] = kernel::plan_passes(first->region, true);
      regions.erase(last);
      passes.erase(passes.begin() + static_cast<std::ptrdiff_t>(b));
      --b;
    }
}

} // namespace egret::compiler
