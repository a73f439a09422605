// Run reports: what the rules did between two moments, and why a run ended.
#include "egraph/schedule.h"

#include "support/fail.h"

#include <algorithm>

namespace egret::egraph {

std::vector<RuleStats> rule_stats(const Engine& engine) {
  std::vector<RuleStats> out;
  for (const Rule& rule : engine.rules)
    out.push_back(rule.stats);
  return out;
}

std::vector<RuleReport> rule_reports(const Engine& engine, const std::vector<RuleStats>& before) {
  std::vector<RuleReport> out;
  for (std::size_t i = 0; i < engine.rules.size(); ++i) {
    const RuleStats& now = engine.rules[i].stats;
    RuleStats then = i < before.size() ? before[i] : RuleStats{};
    if (now.runs == then.runs)
      continue;
    RuleReport report;
    report.name = engine.rules[i].name;
    report.matches = now.matches - then.matches;
    report.rows_added = now.rows_added - then.rows_added;
    report.match_seconds = now.match_seconds - then.match_seconds;
    report.apply_seconds = now.apply_seconds - then.apply_seconds;
    report.idle_seconds = now.idle_seconds - then.idle_seconds;
    report.times_banned = engine.rules[i].times_banned;
    out.push_back(std::move(report));
  }
  std::stable_sort(out.begin(), out.end(), [](const RuleReport& a, const RuleReport& b) {
    return a.rows_added > b.rows_added;
  });
  return out;
}

std::string describe(const RunReport& report) {
  static const char* const kReasons[] = {"done",
                                         "the budget of iterations is used up",
                                         "the budget of rows is used up",
                                         "the budget of time is used up",
                                         "the budget of matches is used up",
                                         "the budget of memory is used up",
                                         "interrupted"};
  std::string out = fmt::format("stopped: {}; {} iterations, {} rows, {:.3f} s",
                                kReasons[static_cast<int>(report.stop)], report.iterations,
                                report.rows, report.seconds);
  constexpr std::size_t kShown = 5;
  for (std::size_t i = 0;
       i < std::min(kShown, report.rules.size()) && report.rules[i].rows_added != 0; ++i) {
    const RuleReport& rule = report.rules[i];
    std::string name = rule.name.substr(0, rule.name.find('\n'));
    out += fmt::format("\n  grew by {} rows in {} matches: {}", rule.rows_added, rule.matches,
                       name.substr(0, 80));
  }
  return out;
}

} // namespace egret::egraph
