// What a stream's sums do not depend on: masked points, and the scale that a maximum gives.
#include "kernel/analysis.h"
#include "kernel/stream_form.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

namespace egret::kernel {

namespace {

constexpr double kLowest = -std::numeric_limits<double>::infinity();

/// A condition of a stage's body: where `bound` is negative, the value is `then`.
struct Condition {
  int value = -1;
  double then = 0;
  Expr bound; ///< over the region's axes
};

class StageReader {
public:
  StageReader(const Region& region, int stage)
      : r_(region), number_(stage), s_(region.stages[std::size_t(stage)]) {}

  std::vector<Condition> conditions() const {
    std::vector<Condition> found;
    for (std::size_t i = 0; i < s_.body.size(); ++i) {
      const BodyValue& v = s_.body[i];
      if (v.kind != BodyValue::Kind::Apply || v.op != Op::Lt)
        continue;
      const auto a = index(v.args[0]), b = index(v.args[1]);
      if (!a || !b)
        continue;
      found.push_back({int(i), 0, *b - *a - Expr(1)});
      found.push_back({int(i), 1, *a - *b});
    }
    return found;
  }

  /// Whether every yield is its monoid's identity where the condition holds, what is added to an
  /// infinity and what multiplies or divides 0 being numbers: as far as these are of the rows, they
  /// are noted in `rows`.
  bool is_neutral(const Condition& c, std::vector<RowCondition>& rows) {
    rows_.clear();
    Known known{{c.value, c.then}};
    for (int y : s_.yields) {
      const auto v = constant(y, known);
      const double identity = s_.monoid == Monoid::Max ? kLowest : s_.monoid == Monoid::Sum ? 0 : 1;
      if (!v || *v != identity)
        return false;
    }
    for (const RowCondition& condition : rows_)
      if (std::find(rows.begin(), rows.end(), condition) == rows.end())
        rows.push_back(condition);
    return s_.monoid != Monoid::ArgMax;
  }

private:
  using Known = std::map<int, std::optional<double>>;

  /// What an operation on one known value gives, whatever the other one is.
  double taken(Op op, int other, double result) {
    const std::vector<bool> axes = axes_of_value(r_, s_, other);
    bool of_row = true;
    for (int a : s_.over)
      of_row = of_row && !axes[std::size_t(a)];
    if (of_row)
      rows_.push_back({number_, other, op, choices_ == 0});
    return result;
  }

  std::optional<Expr> index(int i) const {
    const BodyValue& v = s_.body[std::size_t(i)];
    switch (v.kind) {
    case BodyValue::Kind::Index:
      return substitute(v.index, [&](const Expr& e) -> std::optional<Expr> {
        if (!e.is_axis())
          return std::nullopt;
        const int axis = s_.axes[std::size_t(e.axis_number())];
        return Expr::axis(axis, r_.axes[std::size_t(axis)].extent);
      });
    case BodyValue::Kind::Constant:
      if (!is_integer(v.dtype))
        return std::nullopt;
      return Expr(v.constant.as_int());
    case BodyValue::Kind::Load:
      return std::nullopt;
    case BodyValue::Kind::Apply:
      break;
    }
    if (v.op == Op::Cast && is_integer(v.dtype))
      return index(v.args[0]);
    if (v.op != Op::Add && v.op != Op::Mul)
      return std::nullopt;
    const auto a = index(v.args[0]), b = index(v.args[1]);
    if (!a || !b)
      return std::nullopt;
    return v.op == Op::Add ? *a + *b : *a * *b;
  }

  std::optional<double> constant(int i, Known& known) {
    if (const auto it = known.find(i); it != known.end())
      return it->second;
    return known[i] = compute(s_.body[std::size_t(i)], known);
  }

  std::optional<double> compute(const BodyValue& v, Known& known) {
    if (v.kind == BodyValue::Kind::Constant)
      return v.dtype == DType::Bool || is_integer(v.dtype) ? double(v.constant.as_int())
                                                           : v.constant.as_double();
    if (v.kind != BodyValue::Kind::Apply)
      return std::nullopt;
    if (v.op == Op::Select)
      return chosen(v, known);
    std::vector<std::optional<double>> a;
    for (int arg : v.args)
      a.push_back(constant(arg, known));
    const auto is = [&](std::size_t i, double x) { return a[i] && *a[i] == x; };
    switch (v.op) {
    case Op::Cast:
    case Op::StopGradient:
      return a[0];
    case Op::Add:
      if (a[0] && a[1])
        return *a[0] + *a[1];
      if (is(0, kLowest) || is(1, kLowest))
        return taken(v.op, v.args[is(0, kLowest) ? 1 : 0], kLowest);
      return std::nullopt;
    case Op::Mul:
      if (a[0] && a[1])
        return *a[0] * *a[1];
      if (is(0, 0) || is(1, 0))
        return taken(v.op, v.args[is(0, 0) ? 1 : 0], 0);
      return std::nullopt;
    case Op::Div:
      if (is(0, 0) && !a[1])
        return taken(v.op, v.args[1], 0);
      return a[0] && a[1] ? std::optional(*a[0] / *a[1]) : std::nullopt;
    case Op::Exp:
      return a[0] ? std::optional(std::exp(*a[0])) : std::nullopt;
    case Op::And:
      if (v.dtype == DType::Bool && (is(0, 0) || is(1, 0)))
        return 0.0;
      return std::nullopt;
    case Op::Xor:
      if (v.dtype == DType::Bool && a[0] && a[1])
        return double((*a[0] != 0) != (*a[1] != 0));
      return std::nullopt;
    default:
      return std::nullopt;
    }
  }

  /// What is not chosen does not count.
  std::optional<double> chosen(const BodyValue& v, Known& known) {
    if (const auto which = constant(v.args[0], known))
      return constant(v.args[*which != 0 ? 1 : 2], known);
    ++choices_;
    const auto a = constant(v.args[1], known), b = constant(v.args[2], known);
    --choices_;
    return a && b && *a == *b ? a : std::nullopt;
  }

  const Region& r_;
  int number_;
  const Stage& s_;
  std::vector<RowCondition> rows_;
  int choices_ = 0; ///< that are open where a value is looked at
};

/// What a sum's terms have to do with a maximum over the same points.
class ScaleReader {
public:
  /// `through_maps`: values that other stages make of the same point count as if they stood here.
  /// `rounded`: so do roundings to 16 bits.
  ScaleReader(const Region& region, int sum, int maximum, bool through_maps, bool rounded)
      : r_(region), sum_(region.stages[std::size_t(sum)]), m_(region.stages[std::size_t(maximum)]),
        maximum_(maximum), through_(through_maps), rounded_(rounded) {}

  /// Whether the sum's term is exp(x - m) times what does not depend on m, m being the maximum of
  /// x; `alone`: times nothing.
  bool scales(bool alone) const { return scales(place(sum_, sum_.yields[0]), alone); }

  /// Whether the sum's term is the square of x - m, x being the other stage's term and m what that
  /// one sums, divided by `count`.
  bool spreads(std::int64_t count) const {
    const At square = place(sum_, sum_.yields[0]);
    const BodyValue& v = square.body();
    if (v.kind != BodyValue::Kind::Apply || v.op != Op::Mul || v.dtype != DType::F32)
      return false;
    const At apart = argument(square, 0), again = argument(square, 1);
    if (apart.body().kind != BodyValue::Kind::Apply || apart.body().op != Op::Add ||
        apart.body().dtype != DType::F32 || !same(apart, again))
      return false;
    for (std::size_t k : {0u, 1u})
      if (is_minus_mean(argument(apart, k), count) &&
          same(argument(apart, 1 - k), place(m_, m_.yields[0])))
        return true;
    return false;
  }

private:
  /// A value of a stage's body.
  struct At {
    const Stage* stage;
    int value;
    const BodyValue& body() const { return stage->body[std::size_t(value)]; }
  };
  At place(const Stage& stage, int value) const {
    At at{&stage, value};
    while (through_ && at.body().kind == BodyValue::Kind::Load) {
      const Load& load = at.stage->loads[std::size_t(at.body().load)];
      if (load.source != Source::Stage ||
          r_.stages[std::size_t(load.number)].kind != StageKind::Map)
        break;
      at.stage = &r_.stages[std::size_t(load.number)];
      at.value = at.stage->yields[std::size_t(load.component)];
    }
    return at;
  }
  At argument(const At& at, std::size_t number) const {
    return place(*at.stage, at.body().args[number]);
  }

  bool scales(const At& at, bool alone) const {
    const BodyValue& v = at.body();
    if (v.kind != BodyValue::Kind::Apply)
      return false;
    switch (v.op) {
    case Op::Exp: {
      const At difference = argument(at, 0);
      if (difference.body().kind != BodyValue::Kind::Apply || difference.body().op != Op::Add ||
          difference.body().dtype != DType::F32)
        return false;
      for (std::size_t k : {0u, 1u})
        if (is_minus_maximum(argument(difference, k)) &&
            same(argument(difference, 1 - k), place(m_, m_.yields[0])))
          return true;
      return false;
    }
    case Op::Mul:
      return !alone && ((scales(argument(at, 0), false) && !depends(argument(at, 1))) ||
                        (scales(argument(at, 1), false) && !depends(argument(at, 0))));
    case Op::Div:
      return !alone && scales(argument(at, 0), false) && !depends(argument(at, 1));
    case Op::Cast:
      return is_taken(v.dtype) && is_taken(argument(at, 0).body().dtype) &&
             scales(argument(at, 0), alone);
    default:
      return false;
    }
  }

  bool is_taken(DType type) const {
    return type == DType::F32 || (rounded_ && (type == DType::BF16 || type == DType::F16));
  }

  bool is_maximum(const At& at) const {
    if (at.body().kind != BodyValue::Kind::Load)
      return false;
    const Load& load = at.stage->loads[std::size_t(at.body().load)];
    return load.source == Source::Stage && load.number == maximum_;
  }

  bool is_minus_maximum(const At& at) const {
    const BodyValue& v = at.body();
    if (v.kind != BodyValue::Kind::Apply || v.op != Op::Mul || v.dtype != DType::F32)
      return false;
    for (std::size_t k : {0u, 1u}) {
      const BodyValue& factor = argument(at, k).body();
      if (factor.kind == BodyValue::Kind::Constant && factor.constant.as_double() == -1 &&
          is_maximum(argument(at, 1 - k)))
        return true;
    }
    return false;
  }

  /// Factors of -1 and of 1 / count, in any order, or a division by the count.
  bool is_minus_mean(const At& at, std::int64_t count) const {
    double factor = 1;
    At rest = at;
    while (!is_maximum(rest)) {
      const BodyValue& v = rest.body();
      if (v.kind != BodyValue::Kind::Apply || v.dtype != DType::F32 ||
          (v.op != Op::Mul && v.op != Op::Div))
        return false;
      const BodyValue& second = argument(rest, 1).body();
      const BodyValue& first = argument(rest, 0).body();
      if (second.kind == BodyValue::Kind::Constant) {
        const double c = second.constant.as_double();
        factor = v.op == Op::Mul ? factor * c : factor / c;
        rest = argument(rest, 0);
      } else if (v.op == Op::Mul && first.kind == BodyValue::Kind::Constant) {
        factor *= first.constant.as_double();
        rest = argument(rest, 1);
      } else {
        return false;
      }
    }
    return std::abs(factor * double(count) + 1) < 1e-6;
  }

  bool depends(const At& at) const {
    if (is_maximum(at))
      return true;
    return std::ranges::any_of(values_read(*at.stage, at.value),
                               [&](int value) { return depends(place(*at.stage, value)); });
  }

  /// An expression over a stage's variables, over those of the region.
  Expr of_region(const Stage& stage, const Expr& e) const {
    return substitute(e, [&](const Expr& v) -> std::optional<Expr> {
      if (!v.is_axis())
        return std::nullopt;
      const int axis = stage.axes[std::size_t(v.axis_number())];
      return Expr::axis(axis, r_.axes[std::size_t(axis)].extent);
    });
  }

  bool same_element(const At& here, const At& there) const {
    const Load& x = here.stage->loads[std::size_t(here.body().load)];
    const Load& y = there.stage->loads[std::size_t(there.body().load)];
    if (x.source != y.source || x.number != y.number || x.component != y.component ||
        x.indirect.size() != y.indirect.size() || x.map.coords.size() != y.map.coords.size() ||
        x.map.holes.size() != y.map.holes.size())
      return false;
    for (std::size_t j = 0; j < x.indirect.size(); ++j)
      if (!same(place(*here.stage, x.indirect[j]), place(*there.stage, y.indirect[j])))
        return false;
    const auto same = [&](const Expr& a, const Expr& b) {
      return of_region(*here.stage, a) == of_region(*there.stage, b);
    };
    for (std::size_t i = 0; i < x.map.coords.size(); ++i)
      if (!same(x.map.coords[i], y.map.coords[i]))
        return false;
    for (std::size_t h = 0; h < x.map.holes.size(); ++h) {
      const Hole &a = x.map.holes[h], &b = y.map.holes[h];
      if (!(a.fill == b.fill) || a.valid.size() != b.valid.size())
        return false;
      for (std::size_t g = 0; g < a.valid.size(); ++g)
        if (!same(a.valid[g].value, b.valid[g].value) || !same(a.valid[g].lo, b.valid[g].lo) ||
            !same(a.valid[g].hi, b.valid[g].hi))
          return false;
    }
    return true;
  }

  /// Whether a value of the sum is one of the maximum.
  bool same(const At& here, const At& there) const {
    const BodyValue &a = here.body(), &b = there.body();
    if (a.kind != b.kind || a.dtype != b.dtype)
      return false;
    switch (a.kind) {
    case BodyValue::Kind::Constant:
      return a.constant == b.constant;
    case BodyValue::Kind::Index:
      return of_region(*here.stage, a.index) == of_region(*there.stage, b.index);
    case BodyValue::Kind::Load:
      return same_element(here, there);
    case BodyValue::Kind::Apply:
      break;
    }
    if (a.op != b.op || a.args.size() != b.args.size())
      return false;
    for (std::size_t k = 0; k < a.args.size(); ++k)
      if (!same(argument(here, k), argument(there, k)))
        return false;
    return true;
  }

  const Region& r_;
  const Stage &sum_, &m_;
  int maximum_;
  bool through_, rounded_;
};

} // namespace

void find_bounds(const Region& region, const std::vector<int>& reductions, StreamForm& form) {
  form.bounds.clear();
  for (std::size_t n = 0; n < reductions.size(); ++n) {
    StageReader reader(region, reductions[n]);
    std::vector<Expr> here;
    for (const Condition& c : reader.conditions())
      if (reader.is_neutral(c, form.conditions))
        here.push_back(c.bound);
    if (n == 0) {
      form.bounds = std::move(here);
      continue;
    }
    std::erase_if(form.bounds, [&](const Expr& b) {
      return std::find(here.begin(), here.end(), b) == here.end();
    });
  }
  form.tests.clear();
  for (int stage : reductions)
    for (const Condition& c : StageReader(region, stage).conditions())
      for (std::size_t b = 0; b < form.bounds.size(); ++b)
        if (form.bounds[b] == c.bound)
          form.tests.push_back({stage, c.value, b, c.then == 0});
}

bool is_scaled_by(const Region& region, int stage, int maximum, bool alone, bool through_maps,
                  bool rounded) {
  const Stage& sum = region.stages[std::size_t(stage)];
  const Stage& max = region.stages[std::size_t(maximum)];
  if (sum.kind != StageKind::Reduce || max.kind != StageKind::Reduce || sum.monoid != Monoid::Sum ||
      max.monoid != Monoid::Max || sum.acc_dtype != DType::F32 ||
      max.yield_dtypes[0] != DType::F32 || sum.yield_dtypes[0] != DType::F32 ||
      sum.yields.size() != 1 || max.yields.size() != 1 || sum.over != max.over)
    return false;
  // A sum may have columns beside the points of the maximum.
  return std::includes(sum.axes.begin(), sum.axes.end(), max.axes.begin(), max.axes.end()) &&
         ScaleReader(region, stage, maximum, through_maps, rounded).scales(alone);
}

bool is_spread_of(const Region& region, int stage, int sum) {
  const Stage& spread = region.stages[std::size_t(stage)];
  const Stage& mean = region.stages[std::size_t(sum)];
  std::int64_t count = 1;
  for (int a : mean.over) {
    const auto extent = region.axes[std::size_t(a)].extent.constant();
    if (!extent || *extent < 1 || *extent > (std::int64_t(1) << 24) / count)
      return false; // more are not counted exactly in f32
    count *= *extent;
  }
  for (const Stage* s : {&spread, &mean})
    if (s->kind != StageKind::Reduce || s->monoid != Monoid::Sum || s->acc_dtype != DType::F32 ||
        s->yields.size() != 1 || s->yield_dtypes[0] != DType::F32)
      return false;
  return spread.over == mean.over && spread.axes == mean.axes &&
         ScaleReader(region, stage, sum, true, false).spreads(count);
}

} // namespace egret::kernel
