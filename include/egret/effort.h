// How much work the compiler puts into a program before it runs.
#pragma once

#include "egret/rule_tags.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace egret {

enum class Effort : std::uint8_t {
  None,      ///< greedy: the first schedule of the first generator; milliseconds
  Quick,     ///< rules, and schedules that searches found before; nothing is measured
  Search,    ///< candidates are compiled, verified and timed, within a budget of seconds
  Exhaustive ///< as Search, over everything that the generators propose
};

/// "none", "quick", "search", "exhaustive".
std::string_view name_of(Effort effort) noexcept;
/// The reverse. Error(Value) that begins with `who` for any other word.
Effort parse_effort(std::string_view word, std::string_view who);

/// What is compiled from now on, by any thread, is compiled with this effort; compiled functions
/// trace anew once. Empty: the defaults, which are Quick for compiled functions and explicit
/// graphs on CPUs, and None on GPUs, for what is compiled while it is evaluated (lazy tensors) and
/// for functions whose operations are not fused. At the start it is empty, or what the environment
/// variable EGRET_EFFORT names. `budget_seconds` bounds the search of one program; at the start it
/// is 60, or EGRET_BUDGET. What the budget does not reach keeps its greedy schedule. Error(Value)
/// for a budget that is not a positive number.
void set_effort(std::optional<Effort> effort, std::optional<double> budget_seconds = {});
/// That of compiled functions whose options name none, on the device in use.
Effort effort();
/// What was set; empty: the defaults.
std::optional<Effort> effort_setting();
double budget_seconds();

/// Frozen: what searches have found before is used and nothing is measured or written, so that the
/// same program always gets the same plan. At the start as EGRET_FROZEN says: 0 or 1.
void set_frozen(bool frozen);
bool frozen();

/// Rules with these tags may rewrite what is compiled from now on with any effort above None; exact
/// ones always may. At the start those that EGRET_ALLOW names, separated by commas, or none beside
/// the exact ones. Those that are inference-only are for programs without gradients.
void allow_rules(RuleTags tags);
RuleTags allowed_rules();

/// Checked execution: the results of every run are compared with the reference's, each element
/// within the tolerance of its dtype, and WrongResult (checked_execution.h) is thrown where one
/// differs. For finding faults: it takes thousands of times as long. At the start as EGRET_CHECKED
/// says: 0 or 1.
void set_checked_execution(bool checked);
bool checked_execution();

/// How far a search is.
struct SearchProgress {
  std::string kernel;                        ///< that is being searched
  std::size_t done = 0, kernels = 0;         ///< kernels that are decided, of how many
  std::size_t candidate = 0, candidates = 0; ///< of this kernel
  double seconds = 0, budget_seconds = 0;
  double best_seconds = 0;        ///< of a launch of this kernel, as far as it is known; 0: not yet
  std::string best_schedule = {}; ///< that took them, as text
};
/// `hook` is called a few times a second while a search goes on, by the thread that compiles; when
/// it gives false the search ends, and what is not decided keeps its greedy schedule. An empty one
/// takes it away. It must not call into egret.
void on_search_progress(std::function<bool(const SearchProgress&)> hook);

} // namespace egret
