// Mistakes, and what is said of them.
#pragma once

#include "egret/error.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace egret::testing {

struct MessageCase {
  ErrorKind kind;
  std::string message; ///< how what() starts
  std::function<void()> call;
};

inline void expect_message(const MessageCase& c) {
  try {
    c.call();
    ADD_FAILURE() << "nothing was thrown; expected: " << c.message;
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).substr(0, c.message.size()), c.message) << error.what();
    EXPECT_EQ(name_of(error.kind()), std::string(name_of(c.kind))) << error.what();
  }
}

inline void expect_all(const std::vector<MessageCase>& cases) {
  for (const MessageCase& c : cases)
    expect_message(c);
}

} // namespace egret::testing
