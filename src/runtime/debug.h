// EGRET_DEBUG=1..4: what the library writes to stderr when asked, and nothing otherwise.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace egret::runtime {

/// 0: nothing. 1: evaluations, plans made and found. 2: kernels with their times. 3: loop nests.
/// 4: generated code. Read from the environment once, or set by tests.
int debug_level() noexcept;
void set_debug_level(int level) noexcept;

/// Writes text to stderr, "egret: " before each line, in one piece.
void write_debug(std::string_view text);

template <class... Args>
void debug(int level, fmt::format_string<Args...> format, Args&&... args) {
  if (debug_level() >= level)
    write_debug(fmt::format(format, std::forward<Args>(args)...));
}

} // namespace egret::runtime
