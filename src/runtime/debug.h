// EGRET_DEBUG=1..6: what the library writes to stderr when asked, and nothing otherwise.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

namespace egret::compiler {
struct LaunchValues;
struct PassEvent;
} // namespace egret::compiler

namespace egret::ir {
class Graph;
} // namespace egret::ir

namespace egret::runtime {

/// What is told of at the levels that tell of passes and launches. Empty: all.
struct DebugFilter {
  std::vector<std::string> passes; ///< names (compiler/pipeline.h)
  std::vector<std::string> nodes;  ///< "exp": of this op; "%12": this node of the compiled graph
};

/// 0: nothing. 1: evaluations, plans made and found. 2: kernels with their times. 3: loop nests.
/// 4: generated code. 5: what each pass made. 6: a summary of the values that each launch stored.
/// Read from the environment once, or set by tests.
int debug_level() noexcept;
void set_debug_level(int level) noexcept;
/// Of EGRET_DEBUG_PASSES and EGRET_DEBUG_NODES, read once, or set by tests.
void set_debug_filter(DebugFilter filter);

/// Whether the filter lets a launch through: one of the nodes of `graph` that it computes is named.
bool debug_shows(const ir::Graph& graph, const compiler::LaunchValues& launch);
/// Level 5: the pass with its time, and what it made where that is something new.
void debug_pass(const compiler::PassEvent& event);

/// Writes text to stderr, "egret: " before each line, in one piece.
void write_debug(std::string_view text);

template <class... Args>
void debug(int level, fmt::format_string<Args...> format, Args&&... args) {
  if (debug_level() >= level)
    write_debug(fmt::format(format, std::forward<Args>(args)...));
}

} // namespace egret::runtime
