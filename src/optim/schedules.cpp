#include "egret/schedules.h"

#include "support/fail.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

namespace egret::optim {

namespace {

/// From `a` to `b` along half a cosine; `part` in 0..1.
double half_cosine(double a, double b, double part) {
  return b + (a - b) * 0.5 * (1 + std::cos(std::numbers::pi * part));
}

} // namespace

double Warmup::at(std::int64_t step) const {
  return step < warmup ? peak * static_cast<double>(step + 1) / static_cast<double>(warmup) : peak;
}

double WarmupCosine::at(std::int64_t step) const {
  if (step < warmup)
    return Warmup{peak, warmup}.at(step);
  if (step >= total)
    return least;
  return half_cosine(peak, least,
                     static_cast<double>(step - warmup) / static_cast<double>(total - warmup));
}

double StepDecay::at(std::int64_t step) const {
  if (every <= 0)
    fail(ErrorKind::Value, "StepDecay: every {} steps", every);
  const std::int64_t times = step / every;
  return start * std::pow(factor, static_cast<double>(times));
}

double Exponential::at(std::int64_t step) const {
  return start * std::pow(factor, static_cast<double>(step));
}

double Linear::at(std::int64_t step) const {
  if (step >= total)
    return end;
  return start + (end - start) * static_cast<double>(step) / static_cast<double>(total);
}

double OneCycle::at(std::int64_t step) const {
  if (total < 2 || !(rise > 0 && rise < 1))
    fail(ErrorKind::Value,
         "OneCycle: {} steps, of which {} rise; at least 2, and a part between 0 "
         "and 1",
         total, rise);
  const double first = peak / start_divisor;
  const double last_up = rise * static_cast<double>(total) - 1;
  const auto last = static_cast<double>(total - 1);
  const double at = std::min(static_cast<double>(step), last);
  if (at <= last_up)
    return half_cosine(first, peak, at / last_up);
  return half_cosine(peak, first / end_divisor, (at - last_up) / (last - last_up));
}

namespace {

enum { kRate, kBest, kBad, kCooldown };

} // namespace

Plateau::Plateau(const PlateauOptions& options)
    : state(tensor(std::vector<double>{options.lr, std::numeric_limits<double>::infinity(), 0, 0})),
      options_(options) {
  if (!(options.factor > 0 && options.factor < 1))
    fail(ErrorKind::Value, "Plateau: a factor of {}; it lies between 0 and 1", options.factor);
}

double Plateau::lr() const {
  return state.to_vector<double>()[kRate];
}

double Plateau::update(double measured) {
  auto now = state.to_vector<double>();
  if (measured < now[kBest] * (1 - options_.threshold)) {
    now[kBest] = measured;
    now[kBad] = 0;
  } else {
    now[kBad] += 1;
  }
  if (now[kCooldown] > 0) {
    now[kCooldown] -= 1;
    now[kBad] = 0;
  }
  if (now[kBad] > static_cast<double>(options_.patience)) {
    now[kRate] = std::max(now[kRate] * options_.factor, options_.least);
    now[kCooldown] = static_cast<double>(options_.cooldown);
    now[kBad] = 0;
  }
  state.assign(tensor(now));
  return now[kRate];
}

} // namespace egret::optim
