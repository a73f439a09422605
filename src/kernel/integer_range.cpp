#include "kernel/integer_range.h"

#include "ir/float_format.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

namespace egret::kernel {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// Integers up to this size are exact in f64.
constexpr double kExact = 9007199254740992.0; // 2^53
/// What rounding to a float may add to a bound, relative to it: half an ulp of f8e5m2 is 1/8.
double slack_of(DType type) {
  return type == DType::F64 ? 1e-15 : type == DType::F32 ? 1e-6 : is_low(type) ? 0.126 : 0;
}

/// A value lies between both, or is NaN where it is a float.
struct Bounds {
  double least = -kInfinity, largest = kInfinity;
};

Bounds all_of(DType type) {
  if (is_float(type))
    return {};
  if (type == DType::Bool)
    return {0, 1};
  const int bits = int(size_of(type)) * 8;
  return is_signed(type) ? Bounds{-std::ldexp(1.0, bits - 1), std::ldexp(1.0, bits - 1) - 1}
                         : Bounds{0, std::ldexp(1.0, bits) - 1};
}

/// By stage and value.
using Known = std::map<std::pair<int, int>, Bounds>;

class Ranges {
public:
  Ranges(const Region& region, int stage, Known& known)
      : region_(region), number_(stage), stage_(region.stages[std::size_t(stage)]), known_(known) {}

  Bounds of(int value) {
    const auto found = known_.find({number_, value});
    if (found != known_.end())
      return found->second;
    const BodyValue& v = stage_.body[std::size_t(value)];
    const Bounds bounds = within(v.dtype, computed(v));
    known_.emplace(std::pair(number_, value), bounds);
    return bounds;
  }

private:
  /// Integers that may leave their dtype wrap; floats are rounded.
  static Bounds within(DType type, Bounds b) {
    const Bounds all = all_of(type);
    if (!(b.least >= all.least && b.largest <= all.largest)) // also where a bound is NaN
      return all;
    if (!is_float(type))
      return b;
    const double slack = slack_of(type), most = largest(type); // beyond it: infinity, or NaN
    b = {b.least - slack * std::abs(b.least), b.largest + slack * std::abs(b.largest)};
    return {b.least < -most ? -kInfinity : b.least, b.largest > most ? kInfinity : b.largest};
  }

  Bounds computed(const BodyValue& v) {
    switch (v.kind) {
    case BodyValue::Kind::Constant: {
      const double number = v.constant.as_double();
      return std::abs(number) <= kExact ? Bounds{number, number} : all_of(v.dtype);
    }
    case BodyValue::Kind::Index: {
      const auto least = double(v.index.lower()), largest = double(v.index.upper());
      return std::abs(least) <= kExact && std::abs(largest) <= kExact ? Bounds{least, largest}
                                                                      : all_of(v.dtype);
    }
    case BodyValue::Kind::Load:
      return loaded(v);
    case BodyValue::Kind::Apply:
      return applied(v);
    }
    return all_of(v.dtype);
  }

  /// Of memory, what its dtype has; of a map before it, what that computes.
  Bounds loaded(const BodyValue& v) {
    const Load& load = stage_.loads[std::size_t(v.load)];
    if (load.source != Source::Stage ||
        region_.stages[std::size_t(load.number)].kind != StageKind::Map || !load.map.is_total())
      return all_of(v.dtype);
    const Stage& before = region_.stages[std::size_t(load.number)];
    const int yield = before.yields[std::size_t(load.component)];
    if (before.body[std::size_t(yield)].dtype != v.dtype)
      return all_of(v.dtype);
    return Ranges(region_, load.number, known_).of(yield);
  }

  std::optional<double> constant(int value) {
    const BodyValue& v = stage_.body[std::size_t(value)];
    if (v.kind == BodyValue::Kind::Constant)
      return v.constant.as_double();
    return std::nullopt;
  }

  Bounds applied(const BodyValue& v) {
    const auto argument = [&](std::size_t i) { return of(v.args[i]); };
    const Bounds all = all_of(v.dtype);
    switch (v.op) {
    case Op::Cast:
      return cast(v);
    case Op::Floor: {
      const Bounds a = argument(0);
      return {std::floor(a.least), std::floor(a.largest)};
    }
    case Op::Trunc: {
      const Bounds a = argument(0);
      return {std::trunc(a.least), std::trunc(a.largest)};
    }
    case Op::Add: {
      const Bounds a = argument(0), b = argument(1);
      return {a.least + b.least, a.largest + b.largest};
    }
    case Op::Mul: {
      const Bounds a = argument(0), b = argument(1);
      const double ends[] = {a.least * b.least, a.least * b.largest, a.largest * b.least,
                             a.largest * b.largest};
      if (std::any_of(std::begin(ends), std::end(ends), [](double e) { return std::isnan(e); }))
        return all;
      return {*std::min_element(std::begin(ends), std::end(ends)),
              *std::max_element(std::begin(ends), std::end(ends))};
    }
    case Op::Max: {
      const Bounds a = argument(0), b = argument(1);
      return {std::max(a.least, b.least), std::max(a.largest, b.largest)};
    }
    case Op::Select: {
      const Bounds a = argument(1), b = argument(2);
      return {std::min(a.least, b.least), std::max(a.largest, b.largest)};
    }
    case Op::And:
      for (const std::size_t i : {0, 1})
        if (const auto mask = constant(v.args[i]); mask && *mask >= 0 && *mask <= kExact)
          return {0, *mask};
      return all;
    case Op::Xor: // with all bits: -1 - a
      for (const std::size_t i : {0, 1})
        if (const auto mask = constant(v.args[i]); mask && *mask == -1) {
          const Bounds a = argument(1 - i);
          return {-1 - a.largest, -1 - a.least};
        }
      return all;
    case Op::IDiv:
    case Op::Mod: {
      const Bounds a = argument(0);
      const auto divisor = constant(v.args[1]);
      if (!divisor || *divisor < 1 || *divisor > kExact || is_float(v.dtype))
        return all;
      if (v.op == Op::IDiv)
        return {std::floor(a.least / *divisor), std::ceil(a.largest / *divisor)};
      return {a.least < 0 ? 1 - *divisor : 0, *divisor - 1};
    }
    case Op::Shr: {
      const Bounds a = argument(0);
      const auto bits = constant(v.args[1]);
      if (!bits || *bits < 0 || *bits >= double(size_of(v.dtype) * 8) || a.least < 0)
        return all;
      return {std::floor(std::ldexp(a.least, -int(*bits))),
              std::floor(std::ldexp(a.largest, -int(*bits)))};
    }
    default:
      return all;
    }
  }

  Bounds cast(const BodyValue& v) {
    const Bounds a = of(v.args[0]);
    if (!is_float(stage_.body[std::size_t(v.args[0])].dtype) || is_float(v.dtype))
      return a;
    if (v.dtype == DType::Bool)
      return {0, 1};
    // Cut off towards zero, then to the nearest end of the type; NaN gives 0.
    const Bounds all = all_of(v.dtype);
    const auto whole = [&](double number) {
      return std::clamp(std::trunc(number), all.least, all.largest);
    };
    return {std::min(0.0, whole(a.least)), std::max(0.0, whole(a.largest))};
  }

  const Region& region_;
  const int number_;
  const Stage& stage_;
  Known& known_;
};

} // namespace

std::optional<IntegerRange> range_of(const Region& region, int stage, int value) {
  const DType type = region.stages[std::size_t(stage)].body[std::size_t(value)].dtype;
  if (is_float(type))
    return std::nullopt;
  Known known;
  const Bounds bounds = Ranges(region, stage, known).of(value), all = all_of(type);
  if (size_of(type) >= 4 && bounds.least <= all.least && bounds.largest >= all.largest)
    return std::nullopt;
  if (std::abs(bounds.least) > kExact || std::abs(bounds.largest) > kExact)
    return std::nullopt;
  return IntegerRange{std::int64_t(bounds.least), std::int64_t(bounds.largest)};
}

} // namespace egret::kernel
