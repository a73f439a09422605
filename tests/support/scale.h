#pragma once

#include <algorithm>
#include <cstdlib>

namespace egret::test {

/// What tests multiply the times by for which they wait and the budgets that they give:
/// EGRET_TEST_SCALE, 1 where it is not set or no number. A test's result never depends on it; a
/// slow or busy machine asks for more so that nothing is cut off.
inline double scale() {
  const char* text = std::getenv("EGRET_TEST_SCALE");
  return text ? std::clamp(std::strtod(text, nullptr), 1.0, 1000.0) : 1.0;
}

} // namespace egret::test
