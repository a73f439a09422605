#include "kernel/scatter_form.h"

#include "kernel/analysis.h"
#include "kernel/gpu_nest.h"
#include "kernel/scatter_axes.h"
#include "kernel/stored_stages.h"

#include <algorithm>

namespace egret::kernel {

namespace {

/// The bound of the index when the output's map asks for nothing else.
std::optional<Expr> bins_of(const Output& out) {
  std::optional<Expr> bins;
  for (const Hole& hole : out.map.holes)
    for (const Guard& guard : hole.valid) {
      if (!(guard.value == indirect_symbol(0)) || !(guard.lo == Expr(0)))
        return std::nullopt;
      bins = bins ? min(*bins, guard.hi) : guard.hi;
    }
  return bins;
}

/// The axis of a few places that the stage chooses by: select(place < number, ..); -1: none.
int choice_axis(const Region& region, const Stage& stage, const std::vector<int>& updates) {
  constexpr std::int64_t kMostPlaces = 16;
  for (const BodyValue& v : stage.body) {
    const auto test = place_test(stage, v);
    if (!test || !test->index->index.is_axis())
      continue;
    const int axis = stage.axes[std::size_t(test->index->index.axis_number())];
    const auto places = region.axes[std::size_t(axis)].extent.constant();
    if (contains(updates, axis) && places && *places <= kMostPlaces)
      return axis;
  }
  return -1;
}

/// Where the output has what the point's coordinates and its index name.
Expr coordinates_to_element(const Region& region, const ScatterForm& form, const Point& point,
                            const Expr& index) {
  const std::vector<int>& axes = region.stages[std::size_t(form.stage)].axes;
  return substitute(offset_of(region.outputs[0]), [&](const Expr& v) -> std::optional<Expr> {
    if (v.is_axis())
      return point.at[std::size_t(axes[std::size_t(v.axis_number())])];
    return indirect_of(v) ? std::optional(index) : std::nullopt;
  });
}

} // namespace

std::optional<ScatterForm> scatter_form(const Region& region) {
  if (region.outputs.size() != 1)
    return std::nullopt;
  const Output& out = region.outputs[0];
  if (out.combine == Combine::Store || out.indirect.size() != 1)
    return std::nullopt;
  const StoredStages stored = stored_stages(region);
  for (std::size_t s = 0; s < region.stages.size(); ++s)
    if (region.stages[s].kind != StageKind::Map || stored.stages[s])
      return std::nullopt;
  const auto bins = bins_of(out);
  if (!bins)
    return std::nullopt;
  ScatterForm form;
  form.stage = out.stage;
  form.bins = *bins;
  form.columns = independent_axes(region, out);
  const Stage& stage = region.stages[std::size_t(out.stage)];
  const std::vector<int> axes = result_axes(stage);
  for (const int a : axes)
    if (!contains(form.columns, a))
      form.updates.push_back(a);
  // Updates of a column differ by their index only.
  for (const Expr& v : variables_of(offset_of(out)))
    if (v.is_axis() && !contains(form.columns, axes[std::size_t(v.axis_number())]))
      return std::nullopt;
  form.choice = choice_axis(region, stage, form.updates);
  form.column_count = points_of(region, form.columns);
  form.update_count = points_of(region, form.updates);
  form.state = compute_dtype(out.dtype);
  if (out.combine != Combine::Set)
    form.monoid = out.combine == Combine::Add ? Monoid::Sum : Monoid::Max;
  const std::vector<bool> index =
      axes_of_value(region, stage, stage.yields[std::size_t(out.indirect[0])]);
  form.index_by_update = std::none_of(form.columns.begin(), form.columns.end(),
                                      [&](int a) { return index[std::size_t(a)]; }) &&
                         std::none_of(stage.loads.begin(), stage.loads.end(), [](const Load& load) {
                           return load.source == Source::Stage;
                         });
  return form;
}

ScatterForm whole_form(const Region& region, const ScatterForm& form) {
  const Output& out = region.outputs[0];
  ScatterForm whole = form;
  whole.columns.clear();
  whole.updates = result_axes(region.stages[std::size_t(form.stage)]);
  whole.column_count = Expr(1);
  whole.update_count = points_of(region, whole.updates);
  whole.bins = Expr(1);
  for (const Expr& extent : out.shape)
    whole.bins = whole.bins * extent;
  whole.index_by_update = whole.whole = true;
  return whole;
}

bool writes_whole_output(const Region& region, const ScatterForm& form, std::int64_t sparse) {
  const Output& out = region.outputs[0];
  if (!form.monoid || out.alias < 0)
    return false;
  const Operand& data = region.operands[std::size_t(out.alias)];
  return data.role == Role::Tensor && data.dtype == out.dtype &&
         element_count(data.shape) == element_count(out.shape) &&
         form.bins * form.column_count == element_count(out.shape) &&
         about(form.bins) <= sparse * about(form.update_count);
}

Point point_of_update(const Region& region, const ScatterForm& form, const Expr& update,
                      const Expr& column) {
  Point p;
  p.at.resize(region.axes.size());
  const auto put = [&](const std::vector<int>& axes, const Expr& number) {
    std::vector<Expr> extents;
    for (const int a : axes)
      extents.push_back(region.axes[std::size_t(a)].extent);
    const std::vector<Expr> at = unflatten(number, extents);
    for (std::size_t i = 0; i < axes.size(); ++i)
      p.at[std::size_t(axes[i])] = at[i];
  };
  put(form.updates, update);
  put(form.columns, column);
  return p;
}

ValueId bins_of_updates(Emitter& emitter, const ScatterForm& form, const Point& point) {
  const Region& r = emitter.region();
  const int yield = r.stages[std::size_t(form.stage)].yields[std::size_t(r.outputs[0].indirect[0])];
  const Value index = emitter.value(form.stage, yield, point);
  const bool direct = index.dtype == DType::I32 || index.dtype == DType::I64;
  return direct ? index.id : emitter.builder().cast(index.id, DType::I64);
}

Expr bin_of(Emitter& emitter, const ScatterForm& form, const Point& point) {
  const Region& r = emitter.region();
  ProgramBuilder& b = emitter.builder();
  const ValueId given = bins_of_updates(emitter, form, point);
  if (!form.whole)
    return value_symbol(given);
  const DType type = b.type_of(given).dtype;
  const auto number = [&](DType dtype, std::int64_t value) {
    return b.constant(Scalar::of(dtype, value));
  };
  // Within its line, or outside of everything.
  const ValueId within = b.test({{value_symbol(given), Expr(0), *bins_of(r.outputs[0])}}, 1);
  const ValueId safe = b.apply(Op::Select, type, {within, given, number(type, 0)});
  const ValueId element =
      b.index(coordinates_to_element(r, form, point, value_symbol(safe)), DType::I64, 1);
  return value_symbol(b.apply(Op::Select, DType::I64, {within, element, number(DType::I64, -1)}));
}

ValueId update_of(Emitter& emitter, const ScatterForm& form, const Point& point) {
  const Region& r = emitter.region();
  const int yield = r.stages[std::size_t(form.stage)].yields[std::size_t(r.outputs[0].component)];
  return emitter.builder().splat(emitter.value(form.stage, yield, point).id, point.lanes);
}

Expr element_of(const Region& region, const ScatterForm& form, const Point& point,
                const Expr& bin) {
  return form.whole ? bin : coordinates_to_element(region, form, point, bin);
}

ValueId combine_updates(ProgramBuilder& b, const ScatterForm& form, ValueId first, ValueId second) {
  return form.monoid ? b.apply(op_of(*form.monoid), form.state, {first, second}) : second;
}

void update_output(Emitter& emitter, const ScatterForm& form, const Expr& element, ValueId state,
                   const std::vector<Guard>& mask, int buffer) {
  ProgramBuilder& b = emitter.builder();
  if (buffer < 0)
    buffer = emitter.output_buffer(0);
  const DType dtype = b.buffer_dtype(buffer);
  if (form.monoid) {
    const ValueId old = b.cast(b.load(buffer, element, b.type_of(state).lanes, mask), form.state);
    state = combine_updates(b, form, old, state);
  }
  b.store(buffer, element, b.cast(state, dtype), mask);
}

} // namespace egret::kernel
