// What is known of an array whose elements are not kept.
#pragma once

#include "backend/reference/host_array.h"
#include "support/hash128.h"

#include <cstdint>
#include <string>

namespace egret::compiler {

/// Minimum, maximum, mean and root mean square are those of the finite elements, 0 without any.
struct ValueSummary {
  std::int64_t elements = 0, nan = 0, infinite = 0;
  double least = 0, most = 0, mean = 0, rms = 0;
  Hash128 hash; ///< of the bytes

  bool finite() const { return nan == 0 && infinite == 0; }
  std::string text() const; ///< "min -1 mean 0.25 max 3, 0 nan, 0 inf"
  friend bool operator==(const ValueSummary&, const ValueSummary&) = default;
};
ValueSummary summary_of(const backend::reference::HostArray& array);

/// The first element that is NaN or infinite; -1: none is.
std::int64_t first_nonfinite(const backend::reference::HostArray& array);

/// "[1,2]": an element of an array by its number in row-major order.
std::string element_text(const backend::reference::Dims& dims, std::int64_t element);

} // namespace egret::compiler
