// Tests of the C backend need a C compiler, as it does.
#pragma once

#include "backend/c/c_device.h"
#include "egret/error.h"

#include <gtest/gtest.h>

namespace egret::testing {

/// The device with two workers, kept for the process; null where there is no compiler.
inline backend::Device* c_device() {
  static const std::unique_ptr<backend::Device> device = []() -> std::unique_ptr<backend::Device> {
    try {
      return backend::c::make_c_device(2);
    } catch (const Error&) {
      return nullptr;
    }
  }();
  return device.get();
}

} // namespace egret::testing

#define EGRET_NEEDS_C_COMPILER()                                                                   \
  if (!::egret::testing::c_device())                                                               \
  GTEST_SKIP() << "there is no C compiler"
