// Running rulesets: one iteration, and schedules with budgets.
#pragma once

#include "egraph/engine.h"
#include "egraph/match.h"

#include <chrono>
#include <functional>

namespace egret::egraph {

struct ScheduleState;

/// One iteration: match every rule on the present tables, then act, then rebuild. True if anything
/// changed.
bool run_ruleset(Engine& engine, RulesetId ruleset, ScheduleState& state);

/// Whether the query has a match, subsumed rows included.
bool holds(Engine& engine, const Query& query);

/// A schedule as a tree; nodes refer to each other by number.
struct ScheduleNode {
  enum class Kind : std::uint8_t { Run, Sequence, Repeat, Saturate } kind{};
  RulesetId ruleset{};
  std::uint64_t times = 1;
  std::vector<std::uint32_t> children;
  std::optional<Query> until;
  std::optional<BackOff> back_off;
};

struct Schedule {
  std::vector<ScheduleNode> nodes;
  std::uint32_t root = 0;
};

struct ScheduleState {
  Budget budget;
  RunReport report;
  std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
  bool stopped = false; ///< a budget ran out
};

/// The statistics of every rule now, and what happened since then.
std::vector<RuleStats> rule_stats(const Engine& engine);
std::vector<RuleReport> rule_reports(const Engine& engine, const std::vector<RuleStats>& before);
/// A report as text: why it ended and which rules grew the most.
std::string describe(const RunReport& report);

/// Runs a schedule within a budget.
RunReport run_schedule(Engine& engine, const Schedule& schedule, const Budget& budget);

} // namespace egret::egraph
