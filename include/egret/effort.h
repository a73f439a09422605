// How much work the compiler puts into a program before it runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace egret {

enum class Effort : std::uint8_t {
  None,      ///< greedy: the first schedule of the first generator; milliseconds
  Quick,     ///< candidates are ranked by a model of the machine; nothing is measured
  Search,    ///< candidates are compiled, verified and timed, within a budget of seconds
  Exhaustive ///< as Search, over everything that the generators propose
};

/// "none", "quick", "search", "exhaustive".
std::string_view name_of(Effort effort) noexcept;
/// The reverse. Error(Value) that begins with `who` for any other word.
Effort parse_effort(std::string_view word, std::string_view who);

/// What is compiled from now on, by any thread, is compiled with this effort; compiled functions
/// trace anew once. At the start it is None, or what the environment
/// variable EGRET_EFFORT names. `budget_seconds` bounds the search of one program; at the start it
/// is 60, or EGRET_BUDGET. What the budget does not reach keeps its greedy schedule. Error(Value)
/// for a budget that is not a positive number.
void set_effort(Effort effort, std::optional<double> budget_seconds = {});
Effort effort();
double budget_seconds();

} // namespace egret
