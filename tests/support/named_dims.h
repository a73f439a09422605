// What tests of functions with named dims share.
#pragma once

#include "egret/error.h"
#include "egret/tensor.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace egret::testing {

inline void expect_near(const Tensor& a, const Tensor& b, double tolerance) {
  ASSERT_EQ(a.sizes(), b.sizes());
  const auto x = a.to_vector(), y = b.to_vector();
  for (std::size_t i = 0; i < x.size(); ++i)
    ASSERT_NEAR(x[i], y[i], tolerance) << i;
}

template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

inline bool holds(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

} // namespace egret::testing
