// Comparing what a backend computed with what the reference says.
#pragma once

#include "backend/reference/estimate.h"
#include "backend/reference/host_array.h"

#include <string>

namespace egret::backend::reference {

/// A result of the reference with its tolerances, element by element.
struct Expected {
  HostArray value;
  std::vector<double> error; ///< empty: 0 everywhere

  Estimate at(std::int64_t element) const {
    return {value.at(element), error.empty() ? 0 : error[static_cast<std::size_t>(element)]};
  }
};

struct CompareOptions {
  double scale = 1;        ///< multiplies every tolerance
  bool zero_signs = false; ///< 0 and -0 differ
};

/// What a comparison found. `checked` counts elements, `vacuous` those of them with an infinite
/// tolerance.
struct Comparison {
  bool ok = true;
  std::int64_t checked = 0, vacuous = 0, wrong = 0;
  std::int64_t first = -1;    ///< number of the first wrong element
  std::int64_t furthest = -1; ///< and of the one with the largest ratio of difference to tolerance
  double worst = 0;           ///< largest ratio of difference to tolerance among right elements
  std::string
      message; ///< empty when ok; else names the first wrong element, both values, the tolerance
};

/// Whether `actual` is an acceptable value for `expected`: NaN where NaN is expected and nowhere
/// else, infinities alike, integers and bools equal, floats within the tolerance.
bool accepts(DType type, const Estimate& expected, Number actual,
             const CompareOptions& options = {});
/// Whether tolerances are so wide that they judge little: of more than an eighth of the elements
/// above a hundredth of the values' root mean square. Errors of long recurrences grow so.
bool judges_little(const Expected& expected);
/// Text of a value: "0.1", "nan", "true".
std::string text_of(DType type, Number value);
/// Compares every element. A difference of dtype or shape is a failure too. `name` says what was
/// compared, for the message.
Comparison compare(const HostArray& actual, const Expected& expected, const std::string& name,
                   const CompareOptions& options = {});

} // namespace egret::backend::reference
