#include "compiler/values/value_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace egret::compiler {

using backend::reference::as_double;
using backend::reference::HostArray;

ValueSummary summary_of(const HostArray& array) {
  ValueSummary summary;
  summary.elements = array.size();
  summary.hash = hash128({reinterpret_cast<const char*>(array.bytes.data()), array.bytes.size()});
  std::int64_t count = 0;
  double sum = 0, squares = 0;
  for (std::int64_t i = 0; i < summary.elements; ++i) {
    const double value = as_double(array.dtype, array.at(i));
    if (!std::isfinite(value)) {
      ++(std::isnan(value) ? summary.nan : summary.infinite);
      continue;
    }
    summary.least = count == 0 ? value : std::min(summary.least, value);
    summary.most = count == 0 ? value : std::max(summary.most, value);
    sum += value;
    squares += value * value;
    ++count;
  }
  if (count > 0) {
    const double largest = std::max(std::abs(summary.least), std::abs(summary.most));
    summary.mean = std::clamp(sum / static_cast<double>(count), -largest, largest); // sums overflow
    summary.rms = std::min(std::sqrt(squares / static_cast<double>(count)), largest);
  }
  return summary;
}

std::string ValueSummary::text() const {
  if (elements == nan + infinite)
    return fmt::format("no finite number, {} nan, {} inf", nan, infinite);
  return fmt::format("min {:g} mean {:g} max {:g}, {} nan, {} inf", least, mean, most, nan,
                     infinite);
}

std::int64_t first_nonfinite(const HostArray& array) {
  if (is_float(array.dtype))
    for (std::int64_t i = 0; i < array.size(); ++i)
      if (!std::isfinite(array.at(i).f))
        return i;
  return -1;
}

std::string element_text(const backend::reference::Dims& dims, std::int64_t element) {
  std::string text;
  for (std::size_t axis = dims.size(); axis-- > 0;) {
    text = fmt::format("{}{}{}", element % dims[axis], text.empty() ? "" : ",", text);
    element /= dims[axis];
  }
  return fmt::format("[{}]", text);
}

} // namespace egret::compiler
