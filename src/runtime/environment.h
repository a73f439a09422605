// The environment variables that egret reads: one table with what each may be.
#pragma once

#include "runtime/runtime.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace egret::runtime {

struct EnvironmentVariable {
  const char* name;
  const char* values;  ///< for people: "0 or 1"
  const char* meaning; ///< likewise
  /// Throws Error(Value) or Error(File) that begins with `who` when the text is no such value.
  void (*check)(std::string_view text, std::string_view who);
};

/// All of them, by name; docs/install.md shows the same table.
std::span<const EnvironmentVariable> environment_variables();

/// Looks at every variable that is set; throws the error of the first that has no sensible value.
void check_environment();

/// A variable's text; nothing when it is not set or empty.
std::optional<std::string> environment(const char* name);

// What the texts mean; Error(Value) that begins with `who` for others.
bool parse_flag(std::string_view text, std::string_view who); ///< 0, 1
/// Operations that a thread records before they run: 1 to 1000000.
int parse_queue_operations(std::string_view text, std::string_view who);
int parse_megabytes(std::string_view text, std::string_view who);   ///< 1 to 1000000
int parse_debug_level(std::string_view text, std::string_view who); ///< 0 to 6
/// Names of passes with commas between.
std::vector<std::string> parse_debug_passes(std::string_view text, std::string_view who);
/// Names of ops, and nodes as "%12", with commas between.
std::vector<std::string> parse_debug_nodes(std::string_view text, std::string_view who);
/// Seconds of a search: a finite number above 0.
double parse_budget(std::string_view text, std::string_view who);
double checked_budget(double seconds, std::string_view who);
Engine parse_engine(std::string_view text, std::string_view who); ///< cpu, interpreter, reference
RuleTags parse_tags(std::string_view text, std::string_view who); ///< tags with commas between

} // namespace egret::runtime
