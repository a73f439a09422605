#include "backend/reference/compare.h"

#include "support/fail.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace egret::backend::reference {

namespace {

Dims point_of(const Dims& dims, std::int64_t number) {
  Dims point(dims.size());
  for (std::size_t i = dims.size(); i-- > 0;) {
    point[i] = number % dims[i];
    number /= dims[i];
  }
  return point;
}

/// How many tolerances a wrong element is off; infinite where one of the two is no finite number.
double distance(DType type, const Estimate& want, Number got) {
  const double difference = std::fabs(as_double(type, want.value) - as_double(type, got));
  return std::isfinite(difference) ? difference / std::max(want.error, 1e-300)
                                   : std::numeric_limits<double>::infinity();
}

bool is_vacuous(const Estimate& e) {
  return std::isinf(e.error);
}

} // namespace

std::string text_of(DType type, Number value) {
  return scalar_of(type, value).str();
}

bool accepts(DType type, const Estimate& expected, Number actual, const CompareOptions& options) {
  if (is_vacuous(expected))
    return true;
  if (!is_float(type))
    return expected.error == 0
               ? expected.value.i == actual.i
               : std::fabs(as_double(type, expected.value) - as_double(type, actual)) <=
                     expected.error;
  const double want = expected.value.f, got = actual.f;
  const double tolerance = expected.error * options.scale;
  if (std::isnan(got) && type == DType::F8E4M3 && std::fabs(want) + tolerance > largest(type))
    return true; // without an infinity, too large is NaN
  if (std::isnan(want) || std::isnan(got))
    return std::isnan(want) && std::isnan(got);
  if (std::isinf(want) || std::isinf(got)) {
    if (std::isinf(want) && std::isinf(got))
      return want == got;
    const bool overflows = std::isinf(got) && std::fabs(want) + tolerance > largest(type);
    return overflows && std::signbit(want) == std::signbit(got);
  }
  if (options.zero_signs && want == 0 && got == 0 && tolerance == 0)
    return std::signbit(want) == std::signbit(got);
  return std::fabs(want - got) <= tolerance;
}

bool judges_little(const Expected& expected) {
  const std::int64_t size = expected.value.size();
  const DType type = expected.value.dtype;
  if (!is_float(type) || expected.error.empty())
    return false;
  double squares = 0;
  std::int64_t finite = 0, wide = 0;
  for (std::int64_t i = 0; i < size; ++i)
    if (const double value = as_double(type, expected.value.at(i)); std::isfinite(value)) {
      squares += value * value;
      ++finite;
    }
  const double most = 0.01 * std::sqrt(squares / double(std::max<std::int64_t>(1, finite)));
  for (const double error : expected.error)
    wide += error > most ? 1 : 0;
  return wide * 8 > size;
}

Comparison compare(const HostArray& actual, const Expected& expected, const std::string& name,
                   const CompareOptions& options) {
  Comparison report;
  const DType type = expected.value.dtype;
  if (actual.dtype != type || actual.dims != expected.value.dims) {
    report.ok = false;
    report.message =
        fmt::format("{}: got {}{}, expected {}{}", name, name_of(actual.dtype),
                    to_string(actual.dims), name_of(type), to_string(expected.value.dims));
    return report;
  }
  double furthest = 0;
  for (std::int64_t i = 0; i < actual.size(); ++i) {
    const Estimate want = expected.at(i);
    const Number got = actual.at(i);
    ++report.checked;
    report.vacuous += is_vacuous(want);
    if (!accepts(type, want, got, options)) {
      if (report.wrong++ == 0)
        report.first = i;
      if (const double far = distance(type, want, got); far > furthest || report.furthest < 0) {
        furthest = far;
        report.furthest = i;
      }
    } else if (is_float(type) && want.error > 0 && std::isfinite(got.f)) {
      report.worst = std::max(report.worst, std::fabs(want.value.f - got.f) / want.error);
    }
  }
  if (report.wrong == 0)
    return report;
  report.ok = false;
  const Estimate want = expected.at(report.first);
  report.message = fmt::format(
      "{}: element {} is {}, expected {} (tolerance {:.3g}, {}); {} of {} elements are wrong", name,
      to_string(point_of(actual.dims, report.first)), text_of(type, actual.at(report.first)),
      text_of(type, want.value), want.error * options.scale, name_of(type), report.wrong,
      report.checked);
  return report;
}

} // namespace egret::backend::reference
