// Expressions as arguments of messages: their text is made only where a message is.
#pragma once

#include "egret/expr.h"

#include <fmt/format.h>

#include <string>

template <>
struct fmt::formatter<egret::Expr> : fmt::formatter<std::string> {
  template <class Context>
  auto format(const egret::Expr& e, Context& context) const {
    return fmt::formatter<std::string>::format(e.str(), context);
  }
};
