// Regions as streams take them: without quotients that a sum's terms have in common, and without
// scores that are rounded between two values of 32 bits.
#include "kernel/analysis.h"
#include "kernel/stream_form.h"

#include <algorithm>
#include <optional>

namespace egret::kernel {

namespace {

/// A quotient on the way from a sum's term to its factors.
struct Quotient {
  int value = -1; ///< of the sum's body
  int load = -1;  ///< the divisor
};

/// Whether a value is read by nothing but one other value of the body, once.
bool is_read_once(const Stage& stage, int value) {
  std::ptrdiff_t reads = std::count(stage.yields.begin(), stage.yields.end(), value);
  for (const BodyValue& v : stage.body)
    reads += std::count(v.args.begin(), v.args.end(), value);
  return reads == 1;
}

class DivisorFinder {
public:
  DivisorFinder(const Region& region, int sum, bool rounded)
      : r_(region), s_(region.stages[std::size_t(sum)]), rounded_(rounded) {}

  std::optional<Quotient> run() const {
    if (s_.kind != StageKind::Reduce || s_.monoid != Monoid::Sum || s_.yields.size() != 1 ||
        s_.acc_dtype != DType::F32)
      return std::nullopt;
    return below(s_.yields[0]);
  }

private:
  /// Looks through products and conversions that do not round; with `rounded_`, also through a
  /// rounding of exp(x - m) over the divisor: exp(x - m) is at most 1, and fits into every type.
  std::optional<Quotient> below(int i) const {
    const BodyValue& v = s_.body[std::size_t(i)];
    if (v.kind != BodyValue::Kind::Apply || !is_read_once(s_, i))
      return std::nullopt;
    if (rounded_ && v.op == Op::Cast && (v.dtype == DType::BF16 || v.dtype == DType::F16)) {
      const BodyValue& quotient = s_.body[std::size_t(v.args[0])];
      if (quotient.kind != BodyValue::Kind::Apply || quotient.op != Op::Div)
        return std::nullopt;
      const BodyValue& dividend = s_.body[std::size_t(quotient.args[0])];
      return dividend.kind == BodyValue::Kind::Apply && dividend.op == Op::Exp ? below(v.args[0])
                                                                               : std::nullopt;
    }
    if (v.dtype != DType::F32)
      return std::nullopt;
    if (v.op == Op::Div) {
      const BodyValue& divisor = s_.body[std::size_t(v.args[1])];
      if (divisor.kind == BodyValue::Kind::Load && is_sum_of_exponentials(divisor.load))
        return Quotient{i, divisor.load};
      return std::nullopt;
    }
    if (v.op != Op::Mul && !(v.op == Op::Cast && is_taken(s_.body[std::size_t(v.args[0])].dtype)))
      return std::nullopt;
    for (int arg : v.args)
      if (auto found = below(arg))
        return found;
    return std::nullopt;
  }

  bool is_taken(DType type) const {
    return type == DType::F32 || (rounded_ && (type == DType::BF16 || type == DType::F16));
  }

  bool is_sum_of_exponentials(int load) const {
    const Load& l = s_.loads[std::size_t(load)];
    if (l.source != Source::Stage || r_.stages[std::size_t(l.number)].over != s_.over)
      return false;
    for (std::size_t m = 0; m < r_.stages.size(); ++m)
      if (is_scaled_by(r_, l.number, int(m), true))
        return true;
    return false;
  }

  const Region& r_;
  const Stage& s_;
  bool rounded_;
};

/// Leaves out the values and loads that nothing reads.
void drop_unread(Stage& stage) {
  std::vector<bool> read(stage.body.size(), false), loaded(stage.loads.size(), false);
  for (int y : stage.yields)
    read[std::size_t(y)] = true;
  for (std::size_t i = stage.body.size(); i-- > 0;) {
    if (!read[i])
      continue;
    for (const int value : values_read(stage, int(i)))
      read[std::size_t(value)] = true;
    if (const BodyValue& v = stage.body[i]; v.kind == BodyValue::Kind::Load)
      loaded[std::size_t(v.load)] = true;
  }
  const auto kept = [](auto& list, const std::vector<bool>& keep) {
    std::vector<int> place(list.size(), -1);
    std::remove_reference_t<decltype(list)> rest;
    for (std::size_t i = 0; i < list.size(); ++i)
      if (keep[i]) {
        place[i] = int(rest.size());
        rest.push_back(std::move(list[i]));
      }
    list = std::move(rest);
    return place;
  };
  const std::vector<int> value = kept(stage.body, read), load = kept(stage.loads, loaded);
  const auto move = [&](std::vector<int>& list) {
    for (int& i : list)
      i = value[std::size_t(i)];
  };
  for (BodyValue& v : stage.body) {
    move(v.args);
    if (v.kind == BodyValue::Kind::Load)
      v.load = load[std::size_t(v.load)];
  }
  for (Load& l : stage.loads)
    move(l.indirect);
  move(stage.yields);
}

/// The map of a stage over `axes` that reads, of a result over a part of them, the same point.
IndexMap aligned(const Region& region, const std::vector<int>& axes,
                 const std::vector<int>& result) {
  IndexMap map;
  for (int a : axes)
    map.dims.push_back(region.axes[std::size_t(a)].extent);
  for (int a : result) {
    const auto at = std::find(axes.begin(), axes.end(), a) - axes.begin();
    map.coords.push_back(Expr::axis(int(at), region.axes[std::size_t(a)].extent));
  }
  return map;
}

/// Makes room for a stage behind `stage`, which is what others read instead of it from then on.
void insert_behind(Region& region, int stage, Stage fresh) {
  region.stages.insert(region.stages.begin() + stage + 1, std::move(fresh));
  for (std::size_t s = std::size_t(stage) + 2; s < region.stages.size(); ++s)
    for (Load& l : region.stages[s].loads)
      if (l.source == Source::Stage && l.number >= stage)
        ++l.number;
  for (Output& out : region.outputs)
    if (out.stage >= stage)
      ++out.stage;
}

void divide_late(Region& region, int sum, const Quotient& q) {
  Stage& s = region.stages[std::size_t(sum)];
  const int divisor = s.loads[std::size_t(q.load)].number;
  const std::vector<int> own = result_axes(s);
  Stage quotient;
  quotient.kind = StageKind::Map;
  quotient.axes = own;
  quotient.acc_dtype = DType::F32;
  const auto load = [&](int stage, int component) {
    const std::vector<int> axes = result_axes(region.stages[std::size_t(stage)]);
    quotient.loads.push_back({Source::Stage, stage, component, aligned(region, own, axes), {}});
    BodyValue v;
    v.kind = BodyValue::Kind::Load;
    v.load = int(quotient.loads.size()) - 1;
    quotient.body.push_back(v);
  };
  load(sum, 0);
  load(divisor, s.loads[std::size_t(q.load)].component);
  BodyValue div;
  div.op = Op::Div;
  div.args = {0, 1};
  quotient.body.push_back(div);
  if (s.yield_dtypes[0] != DType::F32) {
    BodyValue cast;
    cast.op = Op::Cast;
    cast.dtype = s.yield_dtypes[0];
    cast.args = {2};
    quotient.body.push_back(cast);
  }
  quotient.yields = {int(quotient.body.size()) - 1};
  quotient.yield_dtypes = {s.yield_dtypes[0]};

  const int numerator = s.body[std::size_t(q.value)].args[0];
  for (BodyValue& v : s.body)
    std::replace(v.args.begin(), v.args.end(), q.value, numerator);
  std::replace(s.yields.begin(), s.yields.end(), q.value, numerator);
  s.yield_dtypes[0] = DType::F32;
  drop_unread(s);
  insert_behind(region, sum, std::move(quotient));
}

/// Whether a value of a stage's body is a sum in f32 that another stage made, rounded to 16 bits.
bool is_rounded_sum(const Region& region, const Stage& stage, const BodyValue& v) {
  if (v.kind != BodyValue::Kind::Apply || v.op != Op::Cast ||
      (v.dtype != DType::BF16 && v.dtype != DType::F16))
    return false;
  const BodyValue& from = stage.body[std::size_t(v.args[0])];
  if (from.kind != BodyValue::Kind::Load || from.dtype != DType::F32)
    return false;
  const Load& load = stage.loads[std::size_t(from.load)];
  if (load.source != Source::Stage)
    return false;
  const Stage& sum = region.stages[std::size_t(load.number)];
  return sum.kind == StageKind::Reduce && sum.monoid == Monoid::Sum && sum.acc_dtype == DType::F32;
}

/// What is computed in f32 from a rounded sum is computed from the sum itself.
void leave_sums_unrounded(const Region& region, Stage& stage) {
  bool changed = false;
  for (std::size_t i = 0; i < stage.body.size(); ++i) {
    const BodyValue& v = stage.body[i];
    if (v.kind != BodyValue::Kind::Apply || v.op != Op::Cast || v.dtype != DType::F32)
      continue;
    const BodyValue& rounded = stage.body[std::size_t(v.args[0])];
    if (!is_rounded_sum(region, stage, rounded))
      continue;
    const int sum = rounded.args[0];
    for (BodyValue& reader : stage.body)
      std::replace(reader.args.begin(), reader.args.end(), int(i), sum);
    std::replace(stage.yields.begin(), stage.yields.end(), int(i), sum);
    changed = true;
  }
  if (changed)
    drop_unread(stage);
}

} // namespace

Region prepared_for_stream(const Region& region, StreamTakes takes) {
  Region out = region;
  const bool rounded = takes != StreamTakes::Vectors;
  if (rounded)
    for (Stage& stage : out.stages)
      leave_sums_unrounded(out, stage);
  for (int s = 0; s < int(out.stages.size()); ++s)
    while (const auto q = DivisorFinder(out, s, rounded).run())
      divide_late(out, s, *q);
  return out;
}

} // namespace egret::kernel
