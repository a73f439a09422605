// Throwing with a formatted message, and checks of egret's own promises.
#pragma once

#include "egret/error.h"

#include <fmt/format.h>

namespace egret {

template <class... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

/// Throws InternalError with the place when `held` is false. For what egret itself guarantees,
/// never for user input.
template <class... Args>
void ensure(bool held, fmt::format_string<Args...> format, Args&&... args) {
  if (!held)
    throw InternalError("internal error: " + fmt::format(format, std::forward<Args>(args)...));
}

} // namespace egret
