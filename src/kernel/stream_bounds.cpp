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
      : r_(region), s_(region.stages[std::size_t(stage)]) {}

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

  /// Whether every yield is its monoid's identity where the condition holds. An infinity that is
  /// added to is taken to stay one, so that a row without any point that counts, whose result is
  /// no number, may be computed of no points.
  bool is_neutral(const Condition& c) const {
    std::map<int, std::optional<double>> known{{c.value, c.then}};
    for (int y : s_.yields) {
      const auto v = constant(y, known);
      const double identity = s_.monoid == Monoid::Max ? kLowest : s_.monoid == Monoid::Sum ? 0 : 1;
      if (!v || *v != identity)
        return false;
    }
    return s_.monoid != Monoid::ArgMax;
  }

private:
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

  using Known = std::map<int, std::optional<double>>;

  std::optional<double> constant(int i, Known& known) const {
    if (const auto it = known.find(i); it != known.end())
      return it->second;
    return known[i] = compute(s_.body[std::size_t(i)], known);
  }

  std::optional<double> compute(const BodyValue& v, Known& known) const {
    if (v.kind == BodyValue::Kind::Constant)
      return v.dtype == DType::Bool || is_integer(v.dtype) ? double(v.constant.as_int())
                                                           : v.constant.as_double();
    if (v.kind != BodyValue::Kind::Apply)
      return std::nullopt;
    std::vector<std::optional<double>> a;
    for (int arg : v.args)
      a.push_back(constant(arg, known));
    const auto is = [&](std::size_t i, double x) { return a[i] && *a[i] == x; };
    switch (v.op) {
    case Op::Cast:
    case Op::StopGradient:
      return a[0];
    case Op::Select:
      if (a[0])
        return *a[0] != 0 ? a[1] : a[2];
      return a[1] && a[2] && *a[1] == *a[2] ? a[1] : std::nullopt;
    case Op::Add:
      if (a[0] && a[1])
        return *a[0] + *a[1];
      return is(0, kLowest) || is(1, kLowest) ? std::optional(kLowest) : std::nullopt;
    case Op::Mul:
      if (a[0] && a[1])
        return *a[0] * *a[1];
      return is(0, 0) || is(1, 0) ? std::optional(0.0) : std::nullopt;
    case Op::Div:
      if (is(0, 0) && (!a[1] || *a[1] != 0))
        return 0.0;
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

  const Region& r_;
  const Stage& s_;
};

/// What a sum's terms have to do with a maximum over the same points.
class ScaleReader {
public:
  ScaleReader(const Region& region, int sum, int maximum)
      : s_(region.stages[std::size_t(sum)]), m_(region.stages[std::size_t(maximum)]),
        maximum_(maximum) {}

  /// Whether a value is exp(x - m) times what does not depend on m, m being the maximum of x.
  bool scales(int i) const {
    const BodyValue& v = s_.body[std::size_t(i)];
    if (v.kind != BodyValue::Kind::Apply)
      return false;
    switch (v.op) {
    case Op::Exp: {
      const BodyValue& difference = s_.body[std::size_t(v.args[0])];
      if (difference.kind != BodyValue::Kind::Apply || difference.op != Op::Add ||
          difference.dtype != DType::F32)
        return false;
      for (std::size_t k : {0u, 1u})
        if (is_minus_maximum(difference.args[k]) && same(difference.args[1 - k], m_.yields[0]))
          return true;
      return false;
    }
    case Op::Mul:
      return (scales(v.args[0]) && !depends(v.args[1])) ||
             (scales(v.args[1]) && !depends(v.args[0]));
    case Op::Div:
      return scales(v.args[0]) && !depends(v.args[1]);
    case Op::Cast:
      return v.dtype == DType::F32 && s_.body[std::size_t(v.args[0])].dtype == DType::F32 &&
             scales(v.args[0]);
    default:
      return false;
    }
  }

private:
  bool is_maximum(int i) const {
    const BodyValue& v = s_.body[std::size_t(i)];
    return v.kind == BodyValue::Kind::Load &&
           s_.loads[std::size_t(v.load)].source == Source::Stage &&
           s_.loads[std::size_t(v.load)].number == maximum_;
  }

  bool is_minus_maximum(int i) const {
    const BodyValue& v = s_.body[std::size_t(i)];
    if (v.kind != BodyValue::Kind::Apply || v.op != Op::Mul || v.dtype != DType::F32)
      return false;
    for (std::size_t k : {0u, 1u}) {
      const BodyValue& factor = s_.body[std::size_t(v.args[k])];
      if (factor.kind == BodyValue::Kind::Constant && factor.constant.as_double() == -1 &&
          is_maximum(v.args[1 - k]))
        return true;
    }
    return false;
  }

  bool depends(int i) const {
    const BodyValue& v = s_.body[std::size_t(i)];
    return is_maximum(i) ||
           std::any_of(v.args.begin(), v.args.end(), [&](int a) { return depends(a); });
  }

  /// Whether a value of the sum's body is one of the maximum's. Both stages have the same axes.
  bool same(int i, int j) const {
    const BodyValue &a = s_.body[std::size_t(i)], &b = m_.body[std::size_t(j)];
    if (a.kind != b.kind || a.dtype != b.dtype)
      return false;
    switch (a.kind) {
    case BodyValue::Kind::Constant:
      return a.constant == b.constant;
    case BodyValue::Kind::Index:
      return a.index == b.index;
    case BodyValue::Kind::Load: {
      const Load &x = s_.loads[std::size_t(a.load)], &y = m_.loads[std::size_t(b.load)];
      return x.source == y.source && x.number == y.number && x.component == y.component &&
             x.map.hash() == y.map.hash() && x.indirect.empty() && y.indirect.empty();
    }
    case BodyValue::Kind::Apply:
      break;
    }
    if (a.op != b.op || a.args.size() != b.args.size())
      return false;
    for (std::size_t k = 0; k < a.args.size(); ++k)
      if (!same(a.args[k], b.args[k]))
        return false;
    return true;
  }

  const Stage &s_, &m_;
  int maximum_;
};

} // namespace

std::vector<Expr> stream_bounds(const Region& region, const std::vector<int>& reductions) {
  std::vector<Expr> bounds;
  for (std::size_t n = 0; n < reductions.size(); ++n) {
    const StageReader reader(region, reductions[n]);
    std::vector<Expr> here;
    for (const Condition& c : reader.conditions())
      if (reader.is_neutral(c))
        here.push_back(c.bound);
    if (n == 0) {
      bounds = std::move(here);
      continue;
    }
    std::erase_if(bounds, [&](const Expr& b) {
      return std::find(here.begin(), here.end(), b) == here.end();
    });
  }
  return bounds;
}

bool is_scaled_by(const Region& region, int stage, int maximum) {
  const Stage& sum = region.stages[std::size_t(stage)];
  const Stage& max = region.stages[std::size_t(maximum)];
  return sum.monoid == Monoid::Sum && max.monoid == Monoid::Max && sum.acc_dtype == DType::F32 &&
         max.yield_dtypes[0] == DType::F32 && sum.yield_dtypes[0] == DType::F32 &&
         sum.yields.size() == 1 && sum.axes == max.axes &&
         ScaleReader(region, stage, maximum).scales(sum.yields[0]);
}

} // namespace egret::kernel
