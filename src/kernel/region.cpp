#include "kernel/region.h"

#include "kernel/analysis.h"
#include "kernel/parts.h"
#include "support/fail.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

namespace egret::kernel {

namespace {

constexpr std::string_view kIndirectPrefix = "%i";
/// Iterations of an axis whose extent is known only when it runs.
constexpr std::int64_t kUnknownExtent = 512;

/// The two factors of a sum of products, looking through conversions; nothing when the reduction is
/// no contraction.
bool is_contraction(const Region& region, const Stage& stage) {
  if (stage.kind != StageKind::Reduce || stage.monoid != Monoid::Sum || stage.yields.size() != 1)
    return false;
  const BodyValue& mul = stage.body[through_casts(stage, stage.yields[0])];
  if (mul.kind != BodyValue::Kind::Apply || mul.op != Op::Mul)
    return false;
  auto left = axes_of_value(region, stage, mul.args[0]);
  auto right = axes_of_value(region, stage, mul.args[1]);
  bool left_only = false, right_only = false, shared = false;
  for (int a : stage.axes) {
    bool reduced = std::find(stage.over.begin(), stage.over.end(), a) != stage.over.end();
    if (reduced)
      shared = shared || (left[a] && right[a]);
    else {
      left_only = left_only || (left[a] && !right[a]);
      right_only = right_only || (right[a] && !left[a]);
    }
  }
  return left_only && right_only && shared;
}

/// For each region axis, bytes of the elements that are read and stored by accesses which are
/// contiguous along it (one element further is the next in memory): of a scale a row, as many as
/// there are rows. Stores count where a stage runs over all axes.
std::vector<double> contiguous_bytes(const Region& region) {
  std::vector<double> bytes(region.axes.size(), 0);
  const auto count = [&](const std::vector<int>& axes, DType dtype,
                         const std::function<std::optional<std::int64_t>(int)>& stride_along) {
    double moved = double(size_of(dtype));
    std::vector<int> contiguous;
    for (int a : axes) {
      const auto stride = stride_along(a);
      if (stride != 0)
        moved *= double(region.axes[std::size_t(a)].extent.constant().value_or(kUnknownExtent));
      if (stride == 1)
        contiguous.push_back(a);
    }
    for (int a : contiguous)
      bytes[std::size_t(a)] += moved;
  };
  for (const Stage& stage : region.stages)
    for (const Load& load : stage.loads)
      if (load.source == Source::Operand)
        count(stage.axes, region.operands[std::size_t(load.number)].dtype,
              [&](int a) { return usual_stride_of(region, stage, load, a); });
  for (const Output& out : region.outputs)
    if (const auto axes = result_axes(region.stages[std::size_t(out.stage)]);
        axes.size() == region.axes.size())
      count(axes, out.dtype, [&](int a) { return usual_stride_of(region, out, a); });
  return bytes;
}

} // namespace

Expr indirect_symbol(int j) {
  return Expr::symbol(std::string(kIndirectPrefix) + std::to_string(j), INT64_MIN, INT64_MAX);
}

std::optional<int> indirect_of(const Expr& variable) {
  if (!variable.is_symbol())
    return std::nullopt;
  const std::string& name = variable.node().name;
  if (!name.starts_with(kIndirectPrefix))
    return std::nullopt;
  return std::stoi(name.substr(kIndirectPrefix.size()));
}

std::vector<int> result_axes(const Stage& stage) {
  if (stage.kind != StageKind::Reduce)
    return stage.axes;
  std::vector<int> axes;
  for (int a : stage.axes)
    if (std::find(stage.over.begin(), stage.over.end(), a) == stage.over.end())
      axes.push_back(a);
  return axes;
}

const char* name_of(Form form) noexcept {
  switch (form) {
  case Form::Elementwise:
    return "elementwise";
  case Form::Row:
    return "row";
  case Form::Column:
    return "column";
  case Form::Contraction:
    return "contraction";
  case Form::Scan:
    return "scan";
  case Form::Sort:
    return "sort";
  case Form::Scatter:
    return "scatter";
  case Form::General:
    return "general";
  }
  return "unknown";
}

Form classify(const Region& region) {
  for (const Output& out : region.outputs)
    if (out.combine != Combine::Store)
      return Form::Scatter;
  const std::vector<int>* over = nullptr;
  bool same = true, contraction = false;
  for (const Stage& stage : region.stages) {
    if (stage.kind == StageKind::Scan)
      return Form::Scan;
    if (stage.kind == StageKind::Sort)
      return Form::Sort;
    if (stage.kind != StageKind::Reduce)
      continue;
    contraction = contraction || is_contraction(region, stage);
    same = same && (!over || *over == stage.over);
    over = &stage.over;
  }
  if (!over)
    return Form::Elementwise;
  if (contraction)
    return Form::Contraction;
  // Rows and columns: every stage runs over all parallel axes, and over all reduced ones or none.
  std::vector<int> parallel;
  for (std::size_t a = 0; a < region.axes.size(); ++a)
    if (std::find(over->begin(), over->end(), int(a)) == over->end())
      parallel.push_back(int(a));
  for (const Stage& stage : region.stages) {
    bool all = stage.axes.size() == region.axes.size();
    same = same && (all || (stage.kind == StageKind::Map && stage.axes == parallel));
  }
  if (!same)
    return Form::General;
  auto bytes = contiguous_bytes(region);
  double along_rows = 0, along_columns = 0;
  for (std::size_t a = 0; a < region.axes.size(); ++a) {
    bool reduced = std::find(over->begin(), over->end(), int(a)) != over->end();
    auto& sum = reduced ? along_rows : along_columns;
    sum = std::max(sum, bytes[a]);
  }
  return along_columns > along_rows ? Form::Column : Form::Row;
}

namespace {

/// When a kernel reads and writes: stage by stage, where a value of a map may be computed anew for
/// each stage that needs it, and is stored when it is there first.
class Order {
public:
  explicit Order(const Region& region) : r_(region) {}

  /// Whether all loads of stage `from` at a point come before the store of `output` at that point.
  bool loads_before_store(int from, int output) const {
    const int stored = r_.outputs[output].stage;
    const std::vector<char> needed_by = behind(from, false);
    for (int stage = stored + 1; stage < count(); ++stage)
      if (needed_by[stage])
        return false;
    if (r_.outputs.size() == 1)
      return true; // it is made of all that is loaded
    if (!is_map(from))
      return needed_by[stored];
    const std::vector<char> reached = behind(from, true);
    for (int stage = from; stage < count(); ++stage)
      if (reached[stage] && !is_map(stage) && !behind(stage, false)[stored])
        return false;
    bool others = false;
    for (const Output& out : r_.outputs) {
      if (!reached[out.stage] || !is_map(out.stage) || out.stage == stored)
        continue;
      if (result_axes(r_.stages[out.stage]) != result_axes(r_.stages[stored]))
        return false;
      others = true;
    }
    return !others || is_last(stored);
  }

private:
  int count() const { return int(r_.stages.size()); }
  bool is_map(int stage) const { return r_.stages[stage].kind == StageKind::Map; }

  /// By stage: whether it is `from` or depends on it; with `by_maps` up to the first stages that
  /// are no maps.
  std::vector<char> behind(int from, bool by_maps) const {
    std::vector<char> found(r_.stages.size(), 0);
    found[from] = 1;
    for (int stage = from + 1; stage < count(); ++stage)
      for (const Load& load : r_.stages[stage].loads)
        if (load.source == Source::Stage && found[load.number] && (!by_maps || is_map(load.number)))
          found[stage] = 1;
    return found;
  }

  /// Whether it and all that is made of it is computed point by point at the end of a line, with
  /// the loads of a point before its stores.
  bool is_last(int stored) const {
    const std::vector<char> reached = behind(stored, true);
    for (int stage = stored + 1; stage < count(); ++stage)
      if (reached[stage] &&
          (!is_map(stage) || r_.stages[stage].axes != result_axes(r_.stages[stored])))
        return false;
    return true;
  }

  const Region& r_;
};

} // namespace

bool may_alias(const Region& region, int output, int operand, bool declared) {
  const Output& out = region.outputs[output];
  const Operand& in = region.operands[operand];
  if (in.role != Role::Tensor || in.dtype != out.dtype)
    return false;
  if (out.combine != Combine::Store) {
    // The data to update; nobody else may read it.
    for (const Stage& stage : region.stages)
      for (const Load& load : stage.loads)
        if (load.source == Source::Operand && load.number == operand)
          return false;
    return out.layout == in.layout;
  }
  if (!out.map.is_total() || !out.indirect.empty())
    return false;
  const Stage& producer = region.stages[out.stage];
  if (producer.kind == StageKind::Sort) // what it writes depends on the whole line
    return false;
  std::vector<int> written_axes = result_axes(producer);
  IndexMap written = compose(out.map, out.layout);
  const Order order(region);
  for (std::size_t s = 0; s < region.stages.size(); ++s) {
    const Stage& stage = region.stages[s];
    for (const Load& load : stage.loads) {
      if (load.source != Source::Operand || load.number != operand)
        continue;
      // Same axes, same offset: the load touches the element of its own point only. A stage with
      // more or fewer axes would read at points that other points have written.
      if (stage.axes != written_axes || !load.indirect.empty())
        return false;
      // Scalars of several parts have no axes in common: another block may read later.
      if (written_axes.empty() && !are_of_one_part(region, std::size_t(out.stage), s))
        return false;
      IndexMap read = compose(load.map, in.layout);
      if (read.coords != written.coords || (!declared && !order.loads_before_store(int(s), output)))
        return false;
    }
  }
  return true;
}

Cost cost_of(const Region& region) {
  Cost cost{Expr(0), Expr(0), Expr(0)};
  std::vector<Expr> touched(region.operands.size(), Expr(0));
  for (const Stage& stage : region.stages) {
    Expr points(1);
    for (int a : stage.axes)
      points = points * region.axes[a].extent;
    for (const Load& load : stage.loads) {
      if (load.source != Source::Operand)
        continue;
      std::vector<bool> seen = axes_of_load(region, stage, load);
      Expr reads(1);
      for (int a : stage.axes)
        if (seen[a])
          reads = reads * region.axes[a].extent;
      touched[load.number] = touched[load.number] + reads;
    }
    cost.flops = cost.flops + points * Expr(std::int64_t(std::llround(flops_of(stage))));
  }
  for (std::size_t i = 0; i < region.operands.size(); ++i) {
    const Operand& operand = region.operands[i];
    if (operand.role == Role::Tensor)
      cost.bytes_read = cost.bytes_read + min(touched[i], element_count(operand.shape)) *
                                              Expr(std::int64_t(size_of(operand.dtype)));
  }
  for (const Output& out : region.outputs) {
    Expr size(std::int64_t(size_of(out.dtype)));
    Expr points(1);
    for (int a : result_axes(region.stages[out.stage]))
      points = points * region.axes[a].extent;
    Expr elements = out.combine == Combine::Store ? element_count(out.shape) : points;
    cost.bytes_written = cost.bytes_written + elements * size;
    if (out.combine == Combine::Add || out.combine == Combine::Max)
      cost.bytes_read = cost.bytes_read + elements * size;
  }
  return cost;
}

} // namespace egret::kernel
