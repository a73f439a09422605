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

/// What tests of random instances and of threads multiply their number of rounds by: the integer
/// EGRET_TEST_ROUNDS, 1 where it is not set or no number. It finds more and takes longer.
inline int rounds() {
  const char* text = std::getenv("EGRET_TEST_ROUNDS");
  return text ? static_cast<int>(std::clamp(std::strtol(text, nullptr, 10), 1L, 10000L)) : 1;
}

} // namespace egret::test
