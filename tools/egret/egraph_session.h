// Running programs of egraph's language: from files and line by line, with what is written after
// them.
#pragma once

#include "egraph/serialize.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace egret::tool {

/// How many functions and rows of each the files written beside a program show at most, unless told
/// otherwise; as egglog.
inline constexpr std::size_t kMostShown = 40;

/// What the command line asks for.
struct EgraphOptions {
  std::vector<std::string> files;
  std::string facts, json, dot, report;
  std::string mode = "normal";
  bool stats = false, to_json = false, to_dot = false, to_svg = false;
  bool naive = false, tensors = false, strict = false, no_decomp = false;
  std::uint32_t threads = 1;
  egraph::Budget budget;
  std::optional<std::size_t> max_functions, max_calls;
  egraph::SerializeOptions serialize;

  /// What goes into the file named by --json or --dot, or else beside the program.
  egraph::SerializeOptions exported(bool beside) const {
    egraph::SerializeOptions out = serialize;
    out.max_functions = max_functions.value_or(beside ? kMostShown : out.max_functions);
    out.max_calls_per_function =
        max_calls.value_or(beside ? kMostShown : out.max_calls_per_function);
    return out;
  }
};

/// Exit code where a limit ended a run early.
inline constexpr int kCutShort = 3;

/// Runs programs one after the other on one e-graph, until one fails; `-` is standard input. The
/// exit code: 0, 1 where something failed, kCutShort where a limit ended a run early, kInterrupted.
int run_programs(const EgraphOptions& options);
/// Reads commands from standard input until its end. An error is shown and the session goes on.
int run_session(const EgraphOptions& options);

} // namespace egret::tool
