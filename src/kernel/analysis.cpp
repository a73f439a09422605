#include "kernel/analysis.h"

#include "kernel/emit.h"

#include <algorithm>
#include <map>

namespace egret::kernel {

namespace {

/// Lanes so far apart are loaded as whole vectors and put together by shuffles, and stored to lines
/// that they fill with a few others.
constexpr std::int64_t kNearLanes = 4;

void collect(const Stage& stage, const Expr& e, const std::vector<int>& indirect,
             std::vector<bool>& seen);

void collect(const Stage& stage, const Load& load, std::vector<bool>& seen) {
  for (const Expr& c : load.map.coords)
    collect(stage, c, load.indirect, seen);
  for (const Hole& hole : load.map.holes)
    for (const Guard& g : hole.valid)
      for (const Expr* e : {&g.value, &g.lo, &g.hi})
        collect(stage, *e, load.indirect, seen);
}

void collect_value(const Stage& stage, int value, std::vector<bool>& seen) {
  const BodyValue& v = stage.body[value];
  if (v.kind == BodyValue::Kind::Load)
    collect(stage, stage.loads[v.load], seen);
  else if (v.kind == BodyValue::Kind::Index)
    collect(stage, v.index, {}, seen);
  else if (v.kind == BodyValue::Kind::Apply)
    for (int a : v.args)
      collect_value(stage, a, seen);
}

void collect(const Stage& stage, const Expr& e, const std::vector<int>& indirect,
             std::vector<bool>& seen) {
  for (const Expr& v : variables_of(e)) {
    if (v.is_axis())
      seen[stage.axes[v.axis_number()]] = true;
    else if (auto j = indirect_of(v))
      collect_value(stage, indirect[*j], seen);
  }
}

std::optional<std::int64_t> stride_in(const Region& region, const std::vector<int>& axes,
                                      const Expr& offset, int axis) {
  for (std::size_t i = 0; i < axes.size(); ++i)
    if (axes[i] == axis) {
      if (!Expr::axis(int(i), region.axes[axis].extent).is_axis())
        return 0; // at most one point
      auto c = coefficient_of(offset, Expr::axis(int(i), region.axes[axis].extent));
      return c ? c->constant() : std::nullopt;
    }
  return 0;
}

/// Of some points along the axis, the stride that most have.
std::optional<std::int64_t> usual_stride_in(const Region& region, const std::vector<int>& axes,
                                            const Expr& offset, int axis) {
  constexpr std::int64_t kSamples = 16;
  const std::int64_t pairs = region.axes[std::size_t(axis)].extent.constant().value_or(0) - 1;
  const std::vector<Expr> variables = variables_of(offset);
  if (!std::ranges::all_of(variables, [](const Expr& v) { return v.is_axis(); }))
    return std::nullopt;
  const auto offset_at = [&](std::int64_t place) {
    return evaluate(offset, [&](const Expr& v) {
      return axes[std::size_t(v.axis_number())] == axis ? place : std::int64_t(0);
    });
  };
  std::map<std::int64_t, std::int64_t> found;
  for (std::int64_t k = 0; pairs > 0 && k < kSamples; ++k) {
    const std::int64_t at = (2 * k + 1) * pairs / (2 * kSamples);
    const std::int64_t stride = offset_at(at + 1) - offset_at(at);
    if (++found[stride] > kSamples / 2)
      return stride;
  }
  return std::nullopt;
}

} // namespace

std::optional<PlaceTest> place_test(const Stage& stage, const BodyValue& choice) {
  const auto is = [](const BodyValue& v, Op op) {
    return v.kind == BodyValue::Kind::Apply && v.op == op;
  };
  if (!is(choice, Op::Select))
    return std::nullopt;
  const BodyValue& test = stage.body[std::size_t(choice.args[0])];
  if (!is(test, Op::Lt))
    return std::nullopt;
  const BodyValue& index = stage.body[std::size_t(test.args[0])];
  const BodyValue& end = stage.body[std::size_t(test.args[1])];
  if (index.kind != BodyValue::Kind::Index || end.kind != BodyValue::Kind::Constant ||
      !is_integer(index.dtype))
    return std::nullopt;
  return PlaceTest{&index, end.constant.as_int()};
}

std::set<int> loads_of(const Stage& stage, int value) {
  std::set<int> loads;
  std::vector<int> waiting{value};
  std::vector<bool> seen(stage.body.size(), false);
  while (!waiting.empty()) {
    const int at = waiting.back();
    waiting.pop_back();
    if (seen[at])
      continue;
    seen[at] = true;
    const BodyValue& v = stage.body[at];
    waiting.insert(waiting.end(), v.args.begin(), v.args.end());
    if (v.kind != BodyValue::Kind::Load)
      continue;
    loads.insert(v.load);
    const auto& indirect = stage.loads[v.load].indirect;
    waiting.insert(waiting.end(), indirect.begin(), indirect.end());
  }
  return loads;
}

Expr without_axes(const Expr& e, const Stage& stage, const std::vector<int>& axes) {
  return substitute(e, [&](const Expr& v) -> std::optional<Expr> {
    if (v.is_axis() && contains(axes, stage.axes[std::size_t(v.axis_number())]))
      return Expr(0);
    return std::nullopt;
  });
}

bool is_sum_over(const Expr& e, const Stage& stage, const std::vector<int>& axes) {
  std::vector<int> others;
  for (const int axis : stage.axes)
    if (!contains(axes, axis))
      others.push_back(axis);
  return without_axes(e, stage, axes) + without_axes(e, stage, others) ==
         e + without_axes(without_axes(e, stage, axes), stage, others);
}

std::vector<bool> axes_of_value(const Region& region, const Stage& stage, int value) {
  std::vector<bool> seen(region.axes.size(), false);
  collect_value(stage, value, seen);
  return seen;
}

int through_casts(const Stage& stage, int value) {
  while (stage.body[value].kind == BodyValue::Kind::Apply && stage.body[value].op == Op::Cast)
    value = stage.body[value].args[0];
  return value;
}

std::vector<bool> axes_of_load(const Region& region, const Stage& stage, const Load& load) {
  std::vector<bool> seen(region.axes.size(), false);
  for (const Expr& c : load.map.coords)
    collect(stage, c, load.indirect, seen);
  return seen;
}

namespace {

/// The one coordinate of what `layout` makes of a map's.
Expr offset_in(const IndexMap& map, const IndexMap& layout) {
  return layout.is_identity() ? map.coords[0] : compose(map, layout).coords[0];
}

} // namespace

Expr offset_of(const Region& region, const Load& load) {
  return offset_in(load.map, region.operands[load.number].layout);
}

Expr offset_of(const Output& output) {
  return offset_in(output.map, output.layout);
}

Expr at_axes(const Region& region, const Expr& offset, const std::vector<int>& axes) {
  return substitute(offset, [&](const Expr& v) -> std::optional<Expr> {
    if (!v.is_axis())
      return std::nullopt;
    const int a = axes[v.axis_number()];
    return Expr::axis(a, region.axes[a].extent);
  });
}

std::optional<std::int64_t> stride_of(const Region& region, const Stage& stage, const Load& load,
                                      int axis) {
  if (load.source == Source::Stage || region.operands[load.number].role == Role::Scalar)
    return 0;
  if (!load.indirect.empty()) {
    // Data-dependent along what the indices depend on; else as written.
    for (int j : load.indirect)
      if (axes_of_value(region, stage, j)[axis])
        return std::nullopt;
  }
  return stride_in(region, stage.axes, offset_of(region, load), axis);
}

std::optional<std::int64_t> stride_of(const Region& region, const Output& output, int axis) {
  return stride_in(region, result_axes(region.stages[output.stage]), offset_of(output), axis);
}

std::int64_t divisor_of(const Expr& e, const Expr& variable) {
  const ExprNode& node = e.node();
  if ((node.kind == ExprKind::FloorDiv || node.kind == ExprKind::FloorMod) &&
      node.operands[0] == variable)
    return node.operands[1].constant().value_or(0);
  for (const Expr& part : node.operands)
    if (!part.is_axis() && !part.is_symbol())
      if (const std::int64_t found = divisor_of(part, variable); found > 0)
        return found;
  return 0;
}

std::optional<std::int64_t> usual_stride_of(const Region& region, const Stage& stage,
                                            const Load& load, int axis) {
  const auto stride = stride_of(region, stage, load, axis);
  return stride || !load.indirect.empty()
             ? stride
             : usual_stride_in(region, stage.axes, offset_of(region, load), axis);
}

std::optional<std::int64_t> usual_stride_of(const Region& region, const Output& output, int axis) {
  const auto stride = stride_of(region, output, axis);
  return stride ? stride
                : usual_stride_in(region, result_axes(region.stages[std::size_t(output.stage)]),
                                  offset_of(output), axis);
}

double flops_of(const Stage& stage) {
  double flops = stage.kind == StageKind::Map ? 0 : double(stage.yields.size());
  for (const BodyValue& v : stage.body)
    if (v.kind == BodyValue::Kind::Apply)
      flops += info_of(v.op).flops;
  return flops;
}

namespace {

/// Whether a GPU's code tests the operands and has a branch for rare ones: quotients that are
/// denormal, angles that need many digits of pi.
bool has_rare_path(const BodyValue& v) {
  if (v.kind != BodyValue::Kind::Apply)
    return false;
  switch (v.op) {
  case Op::Div:
  case Op::Recip:
  case Op::Sqrt:
  case Op::Sin:
  case Op::Cos:
  case Op::Pow:
    return true;
  default:
    return false;
  }
}

} // namespace

double written_work(const Stage& stage) {
  constexpr double kRarePath = 128;
  return flops_of(stage) + double(stage.loads.size()) +
         kRarePath * double(std::ranges::count_if(stage.body, has_rare_path));
}

std::vector<int> readers_of(const Region& region, int stage) {
  std::vector<int> readers;
  for (std::size_t s = 0; s < region.stages.size(); ++s)
    if (std::any_of(region.stages[s].loads.begin(), region.stages[s].loads.end(),
                    [&](const Load& l) { return l.source == Source::Stage && l.number == stage; }))
      readers.push_back(int(s));
  return readers;
}

int sliced_axis(const Region& region) {
  for (const Stage& stage : region.stages)
    for (const Load& load : stage.loads)
      if (load.source == Source::Stage) {
        const std::vector<int> axes = result_axes(region.stages[std::size_t(load.number)]);
        for (std::size_t i = 0; i < axes.size(); ++i)
          if (!contains(stage.axes, axes[i]))
            return axes[i];
      }
  return -1;
}

bool sorts(const Region& region) {
  return std::any_of(region.stages.begin(), region.stages.end(),
                     [](const Stage& s) { return s.kind == StageKind::Sort; });
}

bool is_output(const Region& region, int stage) {
  return std::any_of(region.outputs.begin(), region.outputs.end(),
                     [&](const Output& o) { return o.stage == stage; });
}

double vector_score(const Region& region, std::span<const int> stages, int axis,
                    std::span<const int> inner) {
  double score = 0;
  auto count = [&](std::optional<std::int64_t> stride, DType dtype, bool stored, double weight) {
    const double bytes = weight * double(size_of(dtype));
    if (stride && *stride > 1 && *stride <= kNearLanes)
      score -= stored ? bytes : 0;
    else if (!stride || (*stride != 0 && *stride != 1))
      score -= 4 * bytes;
    else if (*stride == 1)
      score += bytes;
  };
  for (int s : stages) {
    const Stage& stage = region.stages[s];
    if (!contains(stage.axes, axis))
      continue;
    /// `varies`: along an axis.
    const auto weight = [&](const auto& varies) {
      double loaded = 1;
      for (int a : inner)
        if (!contains(stage.axes, a) || !varies(a))
          loaded /= std::max(1.0, double(about(region.axes[std::size_t(a)].extent)));
      return loaded;
    };
    for (const Load& load : stage.loads)
      if (load.source == Source::Operand)
        count(stride_of(region, stage, load, axis), region.operands[load.number].dtype, false,
              weight([&](int a) { return stride_of(region, stage, load, a) != 0; }));
    if (!contains(result_axes(stage), axis))
      continue;
    for (const Output& out : region.outputs)
      if (out.stage == s)
        count(stride_of(region, out, axis), out.dtype, true,
              weight([&](int a) { return stride_of(region, out, a) != 0; }));
  }
  return score;
}

namespace {

/// By value of a body: whether it is arithmetic on indices, which is narrow where it can be, and
/// cheap where it cannot: indices, what loads read by, sums of these and numbers, and numbers that
/// only such arithmetic and its comparisons take. Where a scatter's updates go is one number for
/// all lanes.
std::vector<bool> index_arithmetic(const Region& region, int s) {
  const Stage& stage = region.stages[std::size_t(s)];
  const auto& body = stage.body;
  std::vector<bool> index(body.size(), false);
  const auto is_number = [&](int i) {
    return body[std::size_t(i)].kind == BodyValue::Kind::Constant &&
           is_integer(body[std::size_t(i)].dtype);
  };
  for (std::size_t i = 0; i < body.size(); ++i) {
    const BodyValue& v = body[i];
    const auto counts = [&](int a) { return index[std::size_t(a)] || is_number(a); };
    index[i] = v.kind == BodyValue::Kind::Index ||
               (v.kind == BodyValue::Kind::Apply && v.op == Op::Add && is_integer(v.dtype) &&
                std::all_of(v.args.begin(), v.args.end(), counts));
  }
  std::vector<bool> elsewhere(body.size(), false);
  for (int y : stage.yields)
    elsewhere[std::size_t(y)] = true;
  for (std::size_t i = 0; i < body.size(); ++i) {
    const BodyValue& v = body[i];
    const bool narrow =
        index[i] || (v.op == Op::Lt && v.args.size() == 2 &&
                     (index[std::size_t(v.args[0])] || index[std::size_t(v.args[1])]));
    for (int a : v.args)
      elsewhere[std::size_t(a)] = elsewhere[std::size_t(a)] || !narrow;
  }
  for (std::size_t i = 0; i < body.size(); ++i)
    index[i] = index[i] || (is_number(int(i)) && !elsewhere[i]);
  for (const Load& load : stage.loads)
    for (int j : load.indirect)
      index[std::size_t(j)] = true;
  for (const Output& out : region.outputs)
    if (out.stage == s)
      for (const int c : out.indirect)
        if (c != out.component)
          index[std::size_t(stage.yields[std::size_t(c)])] = true;
  return index;
}

} // namespace

int lanes_for(const Region& region, std::span<const int> stages, std::int64_t vector_bytes) {
  std::size_t widest = 1;
  for (int s : stages) {
    const Stage& stage = region.stages[s];
    const std::vector<bool> index = index_arithmetic(region, s);
    for (std::size_t i = 0; i < stage.body.size(); ++i)
      if (!index[i])
        widest = std::max(widest, size_of(compute_dtype(stage.body[i].dtype)));
    if (stage.kind != StageKind::Map)
      widest = std::max(widest, size_of(compute_dtype(stage.acc_dtype)));
  }
  return int(std::clamp<std::int64_t>(vector_bytes / std::int64_t(widest), 1, 64));
}

CachePolicy usual_store_policy(const Region& region, const Target& target) {
  // A last-level cache is shared with others: of a very large one not all can be counted on.
  std::int64_t enough = std::clamp<std::int64_t>(2 * target.l3_bytes, 16 << 20, 64 << 20);
  Cost cost = cost_of(region);
  bool exceeds = proves_less(Expr(enough), cost.bytes_read + cost.bytes_written);
  return exceeds ? CachePolicy::Streaming : CachePolicy::Default;
}

std::int64_t about(const Expr& e) {
  return std::min<std::int64_t>(e.constant().value_or(e.upper()), std::int64_t(1) << 40);
}

Expr points_of(const Region& region, std::span<const int> axes) {
  Expr n(1);
  for (int a : axes)
    n = n * region.axes[a].extent;
  return n;
}

bool contains(std::span<const int> axes, int axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

bool is_empty(const Region& region, std::span<const int> axes) {
  return std::any_of(axes.begin(), axes.end(),
                     [&](int a) { return region.axes[a].extent == Expr(0); });
}

} // namespace egret::kernel
