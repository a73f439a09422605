#include "backend/reference/estimate.h"

#include "support/fail.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

namespace egret::backend::reference {

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

/// A term's share in the error of a sum of n terms, in units of roundoff, whatever the order of
/// additions. The worst order has n-1; roundings of random sign, or partial sums by lanes and
/// blocks, stay far below this. `run`: the most equal terms in a row (a frame's fill, say), whose
/// roundings may all have one sign.
double growth(std::int64_t terms, std::int64_t run) {
  return terms <= 1 ? 0 : 4 + 2 * std::sqrt(static_cast<double>(terms)) + static_cast<double>(run);
}

/// Results that are one of the operands, a small integer or a truth value: never rounded.
bool is_exact(Op op, DType result, DType operand) {
  switch (op) {
  case Op::Max:
  case Op::Select:
  case Op::StopGradient:
  case Op::Floor:
  case Op::Trunc:
  case Op::Bitcast:
    return true;
  case Op::Cast:
    return is_float(operand) && unit_roundoff(result) <= unit_roundoff(operand);
  default:
    return false;
  }
}

double rounding(Op op, DType result, DType operand, double exact, double rounded) {
  if (!is_float(result) || exact == 0 || !std::isfinite(rounded) || is_exact(op, result, operand))
    return 0;
  const double accuracy = 2 * info_of(op).ulp_f32 * unit_roundoff(accumulator_of(result));
  // Both results are rounded: values that hardly differ may fall to either side.
  return (2 * unit_roundoff(result) + accuracy) * std::fabs(rounded) + smallest_normal(result);
}

double distance(DType type, Number a, Number b) {
  if (!is_float(type)) {
    double d = std::fabs(as_double(type, a) - as_double(type, b));
    return d == 0 && a.i != b.i ? 1 : d;
  }
  if (same(type, a, b) || a.f == b.f)
    return 0;
  double d = std::fabs(a.f - b.f);
  return std::isnan(d) ? kInf : d;
}

/// The points of an operand's interval at which an op is tried.
struct Points {
  Number at[4];
  int count = 1;

  Points(DType type, const Estimate& e) {
    at[0] = e.value;
    if (e.error == 0 || std::isnan(e.value.f))
      return;
    if (type == DType::Bool) {
      at[count++] = {.i = !e.value.i};
    } else if (is_float(type)) {
      at[count++] = {.f = e.value.f - e.error};
      at[count++] = {.f = e.value.f + e.error};
      if (std::fabs(e.value.f) < e.error)
        at[count++] = {};
    } else {
      auto by = static_cast<std::int64_t>(std::min(e.error, 9e18));
      at[count++] =
          round_to(type, {.i = static_cast<std::int64_t>(static_cast<std::uint64_t>(e.value.i) -
                                                         static_cast<std::uint64_t>(by))});
      at[count++] =
          round_to(type, {.i = static_cast<std::int64_t>(static_cast<std::uint64_t>(e.value.i) +
                                                         static_cast<std::uint64_t>(by))});
    }
  }
};

/// In the widest float type, so that a deviation is not lost in the rounding.
DType widest(DType type) {
  return is_float(type) ? DType::F64 : type;
}

/// Sums and products, the most frequent ops, are furthest off at known corners of their operands'
/// intervals. Nothing for other ops, and where a value is infinite or NaN.
std::optional<double> corner_deviation(Op op, DType result, DType operand, const Estimate& a,
                                       const Estimate& b) {
  if ((op != Op::Add && op != Op::Mul) || !is_float(result) || !is_float(operand))
    return std::nullopt;
  const double x = std::fabs(a.value.f), y = std::fabs(b.value.f);
  const double most = op == Op::Add ? x + a.error + (y + b.error) : (x + a.error) * (y + b.error);
  if (!std::isfinite(most))
    return std::nullopt;
  return op == Op::Add ? a.error + b.error : x * b.error + y * a.error + a.error * b.error;
}

/// A remainder whose quotient is in doubt may be anything below the divisor: the largest divisor;
/// 0 where all quotients are equal.
double remainder_deviation(DType type, const Estimate& a, const Estimate& b) {
  const auto quotient = [&](const Number& x, const Number& y) {
    return std::floor(as_double(type, x) / as_double(type, y));
  };
  const Points as(type, a), bs(type, b);
  double deviation = 0;
  for (int i = 0; i < as.count; ++i)
    for (int j = 0; j < bs.count; ++j)
      if (quotient(as.at[i], bs.at[j]) != quotient(a.value, b.value))
        deviation = std::max(deviation, std::fabs(as_double(type, bs.at[j])));
  return deviation;
}

/// Numbers of an interval agree in the bits above the highest one in which its ends differ; what
/// the bits below it amount to.
double bits_in_doubt(DType type, const Estimate& e) {
  const Points ends(type, e);
  std::uint64_t differ = 0;
  for (int i = 1; i < ends.count; ++i)
    differ |= static_cast<std::uint64_t>(ends.at[0].i) ^ static_cast<std::uint64_t>(ends.at[i].i);
  return differ == 0 ? 0 : std::ldexp(1.0, std::bit_width(differ));
}

} // namespace

Estimate apply(Op op, DType result, DType operand, const Estimate& a, const Estimate& b,
               const Estimate& c) {
  if (const auto known = corner_deviation(op, result, operand, a, b)) {
    const double exact = op == Op::Add ? a.value.f + b.value.f : a.value.f * b.value.f;
    const Number rounded = round_to(result, {.f = exact});
    if (std::isfinite(rounded.f))
      return {rounded, *known + rounding(op, result, operand, exact, rounded.f)};
  }
  const Number value = apply(op, result, operand, a.value, b.value, c.value);
  const DType first = op == Op::Select ? DType::Bool : operand;
  if (op == Op::Select && a.error == 0)
    return {value, (a.value.i ? b : c).error};
  if (op == Op::Bitcast && is_float(operand) && std::isnan(a.value.f)) // which NaN it is, is open
    return {value, result == DType::Bool ? 1 : kInf};
  const int arity = info_of(op).arity;
  if (a.error == kInf || (arity > 1 && b.error == kInf) || (arity > 2 && c.error == kInf))
    return {value, result == DType::Bool ? 1 : kInf};

  const DType wide = op == Op::Cast && !is_float(result) ? result : widest(result);
  const DType from = op == Op::Bitcast ? operand : widest(operand);
  const bool bits = op == Op::Bitcast;
  auto exact = [&](Number x, Number y, Number z) {
    return bits ? apply(op, result, operand, x, y, z) : apply(op, wide, from, x, y, z);
  };
  Number centre;
  double deviation = 0;
  if (const auto known = corner_deviation(op, result, operand, a, b)) {
    centre.f = op == Op::Add ? a.value.f + b.value.f : a.value.f * b.value.f;
    deviation = *known;
  } else {
    centre = exact(a.value, b.value, c.value);
    const Points as(first, a), bs(operand, b), cs(operand, c);
    for (int i = 0; i < as.count; ++i)
      for (int j = 0; j < bs.count; ++j)
        for (int k = 0; k < cs.count; ++k)
          if (i + j + k > 0)
            deviation =
                std::max(deviation, distance(wide, exact(as.at[i], bs.at[j], cs.at[k]), centre));
  }
  // Between the ends there are both zeros, whose bits are the furthest from those of small numbers.
  if (bits && is_float(operand) && a.error > 0 && std::fabs(a.value.f) <= a.error)
    for (const double zero : {0.0, -0.0})
      deviation = std::max(deviation, distance(wide, exact({.f = zero}, {}, {}), centre));
  // Not monotone, so that the ends say little; their slope is at most 1.
  if (op == Op::Sin || op == Op::Cos)
    deviation = std::max(deviation, std::min(2.0, a.error));
  // Equal somewhere within their intervals, where that need not be at the ends.
  if (op == Op::Eq && a.error + b.error > 0 &&
      std::fabs(as_double(operand, a.value) - as_double(operand, b.value)) <= a.error + b.error)
    deviation = 1;
  if (op == Op::Mod && (is_float(operand) ? deviation > 0 : a.error + b.error > 0))
    deviation = std::max(deviation, remainder_deviation(operand, a, b));
  if ((op == Op::And || op == Op::Or || op == Op::Xor) && operand != DType::Bool)
    deviation = std::max({deviation, bits_in_doubt(operand, a), bits_in_doubt(operand, b)});
  // A negative number has a power at an integer within the exponent's interval, and none beside it.
  if (op == Op::Pow && b.error > 0 && a.value.f - a.error < 0 &&
      std::floor(b.value.f + b.error) >= std::ceil(b.value.f - b.error))
    deviation = kInf;
  if (!is_float(result))
    return {value, deviation};
  double error = deviation + rounding(op, result, operand, centre.f, value.f);
  // A number just beyond the largest is infinite here (NaN in a type without infinities) and may be
  // finite elsewhere, as may any product that is added to a sum without being rounded first.
  if (!std::isfinite(value.f) && std::isfinite(centre.f) &&
      (op == Op::Mul ||
       std::fabs(centre.f) * (1 - 2 * unit_roundoff(result)) - deviation <= largest(result)))
    error = kInf;
  return {value, error};
}

Accumulator::Accumulator(Monoid monoid, DType type, DType acc)
    : monoid_(monoid), type_(type), acc_(acc),
      value_(number_of(identity_of(monoid, monoid == Monoid::ArgMax ? DType::I64 : type))),
      highest_(-kInf), lowest_(-kInf) {}

Accumulator::Accumulator(Monoid monoid, DType type, DType acc, const Estimate& start)
    : Accumulator(monoid, type, acc) {
  add(start);
  value_ = start.value; // not 0 + value, which would lose the sign of -0
  started_ = true;
}

void Accumulator::add(const Estimate& term) {
  ++terms_;
  errors_ += term.error;
  if (monoid_ == Monoid::ArgMax) {
    contenders_.push_back(term);
    return;
  }
  const bool floats = is_float(type_);
  if (monoid_ == Monoid::Sum && floats)
    value_.f += term.value.f; // most terms are such
  else
    value_ = combine(monoid_, floats ? DType::F64 : type_, value_, term.value);
  const double size = std::fabs(as_double(type_, term.value));
  run_ = terms_ > 1 && same(type_, term.value, last_) ? run_ + 1 : 1;
  last_ = term.value;
  if (size != 0 && (size != 1 || monoid_ == Monoid::Sum) && run_ > 1)
    longest_run_ = std::max(longest_run_, run_);
  if (monoid_ == Monoid::Sum) {
    if (std::isfinite(size)) {
      sizes_ += size;
    } else {
      const double value = as_double(type_, term.value);
      infinite_ = true;
      nan_ = nan_ || std::isnan(value);
      plus_ = plus_ || value > 0;
      minus_ = minus_ || value < 0;
    }
  } else if (monoid_ == Monoid::Prod) {
    infinite_ = infinite_ || std::isinf(size);
    (size > 1 ? large_ : small_) *= size > 0 ? size : 1;
    if (size > 0)
      relative_ += term.error / size;
    else
      zero_in_doubt_ |= term.error > 0;
  } else {
    const double value = as_double(type_, term.value);
    highest_ = std::max(highest_, value + term.error);
    lowest_ = std::max(lowest_, value - term.error);
  }
}

double Accumulator::bound() const {
  if (!is_float(type_))
    return errors_ > 0 ? kInf : 0;
  const double u = unit_roundoff(acc_);
  const double size = std::fabs(value_.f);
  switch (monoid_) {
  case Monoid::Sum:
    // A partial sum may overflow, and meet an infinity then. It is NaN in any order where a term
    // is, or infinities of both signs are.
    if (terms_ > 1 && sizes_ > largest(acc_) && !nan_ && !(plus_ && minus_))
      return kInf;
    if (infinite_) // a NaN or an infinity decides
      return errors_ == kInf ? kInf : 0;
    return errors_ + growth(terms_, longest_run_) * u * sizes_;
  case Monoid::Prod:
    if (infinite_) { // decides, unless a partial product may vanish before it meets the infinity
      const bool vanishes = relative_ >= 1 || small_ < smallest_normal(acc_);
      return errors_ == kInf || zero_in_doubt_ || (!std::isnan(value_.f) && vanishes) ? kInf : 0;
    }
    if (terms_ > 1 && large_ > largest(acc_))
      return kInf;
    if (zero_in_doubt_ || relative_ > 1)
      return errors_ > 0 ? kInf : 0;
    if (terms_ > 1 && small_ < smallest_normal(acc_)) // a partial product may vanish
      return size == 0 ? smallest_normal(acc_) * large_ : size + smallest_normal(acc_) * large_;
    return size * (2 * relative_ + growth(terms_, longest_run_) * u);
  default:
    if (errors_ == 0)
      return 0;
    if (!std::isfinite(value_.f)) // a NaN or an infinity decides
      return errors_ == kInf ? kInf : 0;
    return std::max(highest_ - value_.f, value_.f - lowest_);
  }
}

Estimate Accumulator::argmax() const {
  std::size_t best = 0;
  auto value = [&](std::size_t i) { return contenders_[i].value; };
  auto larger = [&](Number a, Number b) {
    if (!is_float(type_))
      return apply(Op::Lt, DType::Bool, type_, b, a).i != 0;
    return std::isnan(a.f) ? !std::isnan(b.f) : a.f > b.f;
  };
  for (std::size_t i = 1; i < contenders_.size(); ++i)
    if (larger(value(i), value(best)))
      best = i;
  double error = 0;
  for (std::size_t i = 0; errors_ > 0 && i < contenders_.size(); ++i) {
    const double doubt = contenders_[i].error + contenders_[best].error;
    const double gap =
        as_double(type_, value(best)) - as_double(type_, value(i)); // NaN when in no doubt
    if (doubt == kInf || (doubt > 0 && gap <= doubt))
      error = std::max(error, std::fabs(static_cast<double>(i) - static_cast<double>(best)));
  }
  return {{.i = static_cast<std::int64_t>(best)}, error};
}

Estimate Accumulator::result(DType result) const {
  if (monoid_ == Monoid::ArgMax)
    return argmax();
  if (!is_float(type_))
    return {round_to(result, value_), bound()};
  const Number rounded = round_to(result, value_);
  if (started_ && terms_ == 1)
    return {rounded, errors_};
  double error = bound();
  if (monoid_ != Monoid::Max && terms_ > 1 && std::isfinite(rounded.f))
    error += 2 * unit_roundoff(result) * std::fabs(rounded.f);
  if (!std::isfinite(rounded.f) && std::isfinite(value_.f) &&
      std::fabs(value_.f) * (1 - 2 * unit_roundoff(result)) - error <= largest(result))
    error = kInf;
  return {rounded, error};
}

void Recurrence::add(const Estimate& term, const Estimate& factor) {
  const double a = as_double(type_, factor.value), b = as_double(type_, term.value);
  error_ = (std::fabs(a) + factor.error) * error_ + std::fabs(value_) * factor.error + term.error;
  value_ = a * value_ + b;
  size_ = std::fabs(a) * size_ + std::fabs(b);
  widest_ = std::max(1.0, std::fabs(a) * widest_);
  ++terms_;
  const double most = largest(acc_); // a NaN is no number up to it
  infinite_ = infinite_ || !(size_ <= most) || !(error_ <= most);
  overflows_ = (overflows_ && !(a == 0 && factor.error == 0)) || !(widest_ <= most);
}

Estimate Recurrence::result(DType result) const {
  const Number rounded = round_to(result, {.f = value_});
  if (infinite_ || overflows_ || !std::isfinite(rounded.f))
    return {rounded, kInf};
  const double maps = 2 * static_cast<double>(terms_) + 2;
  return {rounded, error_ + maps * unit_roundoff(acc_) * size_ +
                       2 * unit_roundoff(result) * std::fabs(rounded.f) +
                       maps * smallest_normal(acc_) * widest_};
}

} // namespace egret::backend::reference
