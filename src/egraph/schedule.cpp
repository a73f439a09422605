#include "egraph/schedule.h"

#include "support/fail.h"

#include <algorithm>

namespace egret::egraph {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// The rules of a ruleset and of its parts, each once.
std::vector<std::uint32_t> rules_of(const Engine& engine, RulesetId root) {
  std::vector<std::uint32_t> out;
  std::vector<bool> visited(engine.rulesets.size(), false);
  std::vector<RulesetId> stack{root};
  while (!stack.empty()) {
    RulesetId id = stack.back();
    stack.pop_back();
    if (visited[Signature::index(id)])
      continue;
    visited[Signature::index(id)] = true;
    const Ruleset& ruleset = engine.rulesets[Signature::index(id)];
    for (RuleId rule : ruleset.rules)
      out.push_back(static_cast<std::uint32_t>(rule));
    for (auto part = ruleset.parts.rbegin(); part != ruleset.parts.rend(); ++part)
      stack.push_back(*part);
  }
  return out;
}

const Forest& planned(Engine& engine, RulesetId ruleset, std::vector<std::uint32_t> rules,
                      bool naive) {
  PlanCache& cache = engine.rulesets[Signature::index(ruleset)].plans;
  for (PlanCache::Entry& entry : cache.entries) {
    if (entry.naive != naive || entry.rules != rules)
      continue;
    if (!still_fits(engine, entry.forest))
      entry.forest =
          plan_rules(engine, std::move(rules), naive ? Evaluation::Naive : Evaluation::SemiNaive);
    return entry.forest;
  }
  constexpr std::size_t kMostPlans = 8;
  if (cache.entries.size() >= kMostPlans)
    cache.entries.erase(cache.entries.begin());
  Forest forest = plan_rules(engine, rules, naive ? Evaluation::Naive : Evaluation::SemiNaive);
  cache.entries.push_back({std::move(rules), naive, std::move(forest)});
  return cache.entries.back().forest;
}

struct RuleMatches {
  std::uint32_t rule;
  Matches matches;
};

/// Matches the rules that were last run at the same time, together.
void match_group(Engine& engine, RulesetId ruleset, const std::vector<std::uint32_t>& rules,
                 bool naive, std::uint32_t seen, std::vector<RuleMatches>& out) {
  Clock::time_point start = Clock::now();
  const Forest& forest = planned(engine, ruleset, rules, naive);
  MatchOptions options;
  options.seen = naive ? 0 : seen;
  Matcher matcher(engine, forest, options);
  std::vector<Matches> found = matcher.run();
  double seconds = seconds_since(start);
  double total = 1e-9;
  for (double w : matcher.work())
    total += w;
  for (std::size_t i = 0; i < rules.size(); ++i) {
    RuleStats& stats = engine.rules[rules[i]].stats;
    double share = seconds * matcher.work()[i] / total;
    ++stats.runs;
    stats.match_seconds += share;
    stats.matches += found[i].count;
    stats.idle_seconds += found[i].count == 0 ? share : 0;
    out.push_back({rules[i], std::move(found[i])});
  }
}

void act_on(Engine& engine, const std::vector<RuleMatches>& all) {
  Actor actor(engine);
  bool deletes = false;
  for (const RuleMatches& item : all)
    deletes |= item.matches.count != 0 && engine.rules[item.rule].action.deletes;
  if (deletes)
    actor.begin_phase();
  for (const RuleMatches& item : all) {
    if (item.matches.count == 0)
      continue;
    Clock::time_point start = Clock::now();
    Rule& rule = engine.rules[item.rule];
    std::uint64_t rows = engine.live_rows();
    actor.run_all(rule.action, item.matches.words.data(), item.matches.width, item.matches.count);
    rule.stats.apply_seconds += seconds_since(start);
    rule.stats.rows_added += std::max(engine.live_rows(), rows) - rows;
  }
  if (deletes)
    actor.end_phase();
}

} // namespace

bool run_ruleset(Engine& engine, RulesetId ruleset, ScheduleState& state) {
  std::uint64_t before = engine.changes();
  Clock::time_point start = Clock::now();
  std::vector<std::uint32_t> rules = rules_of(engine, ruleset);
  // Rules that were last run at the same time see the same new rows and are matched together.
  std::map<std::pair<bool, std::uint32_t>, std::vector<std::uint32_t>> groups;
  for (std::uint32_t r : rules) {
    const Rule& rule = engine.rules[r];
    bool naive = rule.naive || !engine.seminaive;
    if (rule.query.atoms.empty() && rule.seen != 0 && !naive)
      continue; // it can find nothing new
    groups[{naive, naive ? 0 : rule.seen}].push_back(r);
  }
  std::vector<RuleMatches> matches;
  for (const auto& [key, group] : groups)
    match_group(engine, ruleset, group, key.first, key.second, matches);
  std::stable_sort(matches.begin(), matches.end(),
                   [](const auto& a, const auto& b) { return a.rule < b.rule; });
  for (std::uint32_t r : rules)
    engine.rules[r].seen = engine.now;
  ++engine.now;
  for (Table& table : engine.tables)
    table.stamp(engine.now);
  engine.search_seconds += seconds_since(start);

  start = Clock::now();
  act_on(engine, matches);
  engine.apply_seconds += seconds_since(start);
  std::vector<RuleMatches>().swap(matches);
  start = Clock::now();
  rebuild(engine);
  engine.rebuild_seconds += seconds_since(start);
#ifdef EGRET_CHECKS
  check_invariants(engine);
#endif
  ++state.report.iterations;
  return engine.changes() != before;
}

bool holds(Engine& engine, const Query& query) {
  Forest forest = plan_query(engine, query, {});
  MatchOptions options;
  options.include_subsumed = true;
  options.stop_after = 1;
  return Matcher(engine, forest, options).run()[0].count != 0;
}

namespace {

class Runner {
public:
  Runner(Engine& engine, const Schedule& schedule, ScheduleState& state)
      : engine_(engine), schedule_(schedule), state_(state) {}

  bool run(std::uint32_t index) {
    const ScheduleNode& node = schedule_.nodes[index];
    bool changed = false;
    switch (node.kind) {
    case ScheduleNode::Kind::Run:
      for (std::uint64_t i = 0; i < node.times && !exhausted(); ++i) {
        if (node.until && holds(engine_, *node.until))
          break;
        bool step = run_ruleset(engine_, node.ruleset, state_);
        changed |= step;
        if (!step)
          break;
      }
      return changed;
    case ScheduleNode::Kind::Sequence:
      return sequence(node);
    case ScheduleNode::Kind::Repeat:
      for (std::uint64_t i = 0; i < node.times && !state_.stopped; ++i) {
        bool step = sequence(node);
        changed |= step;
        if (!step)
          break;
      }
      return changed;
    case ScheduleNode::Kind::Saturate:
      while (!state_.stopped && sequence(node))
        changed = true;
      return changed;
    }
    return false;
  }

private:
  bool sequence(const ScheduleNode& node) {
    bool changed = false;
    for (std::uint32_t child : node.children)
      changed |= run(child);
    return changed;
  }

  bool exhausted() {
    const Budget& budget = state_.budget;
    RunReport& report = state_.report;
    if (state_.stopped)
      return true;
    if (report.iterations >= budget.iterations)
      report.stop = StopReason::Iterations;
    else if (engine_.live_rows() > budget.rows)
      report.stop = StopReason::Rows;
    else if (seconds_since(state_.started) > budget.seconds)
      report.stop = StopReason::Time;
    else
      return false;
    return state_.stopped = true;
  }

  Engine& engine_;
  const Schedule& schedule_;
  ScheduleState& state_;
};

} // namespace

RunReport run_schedule(Engine& engine, const Schedule& schedule, const Budget& budget) {
  ScheduleState state;
  state.budget = budget;
  std::uint64_t before = engine.changes();
  std::vector<RuleStats> stats = rule_stats(engine);
  Runner(engine, schedule, state).run(schedule.root);
  state.report.updated = engine.changes() != before;
  state.report.rules = rule_reports(engine, stats);
  state.report.rows = engine.live_rows();
  state.report.seconds = seconds_since(state.started);
  return std::move(state.report);
}

} // namespace egret::egraph
