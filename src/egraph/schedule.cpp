#include "egraph/schedule.h"

#include "support/fail.h"

#include <algorithm>
#include <compare>
#include <limits>

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
                      bool naive, std::uint32_t seen) {
  PlanCache& cache = engine.rulesets[Signature::index(ruleset)].plans;
  Evaluation evaluation = naive ? Evaluation::Naive : Evaluation::SemiNaive;
  for (PlanCache::Entry& entry : cache.entries) {
    if (entry.naive != naive || entry.rules != rules)
      continue;
    if (!still_fits(engine, entry.forest))
      entry.forest = plan_rules(engine, std::move(rules), evaluation, seen);
    else
      plan_news(engine, entry.forest, seen);
    return entry.forest;
  }
  constexpr std::size_t kMostPlans = 8;
  if (cache.entries.size() >= kMostPlans)
    cache.entries.erase(cache.entries.begin());
  Forest forest = plan_rules(engine, rules, evaluation, seen);
  cache.entries.push_back({std::move(rules), naive, std::move(forest)});
  return cache.entries.back().forest;
}

struct RuleMatches {
  std::uint32_t rule;
  Matches matches;
  bool complete = true; ///< all matches were found
};

/// How rules are matched; those that agree in it see the same rows and are matched together.
struct Group {
  bool naive = false;
  bool whole = false; ///< by one plan over all rows
  bool include_subsumed = false;
  std::uint32_t seen = 0; ///< when they were last run
  auto operator<=>(const Group&) const = default;
};

void match_group(Engine& engine, RulesetId ruleset, const std::vector<std::uint32_t>& rules,
                 const Group& group, std::vector<RuleMatches>& out) {
  Clock::time_point start = Clock::now();
  const Forest& forest = planned(engine, ruleset, rules, group.naive, group.seen);
  MatchOptions options;
  options.seen = group.seen;
  options.include_subsumed = group.include_subsumed;
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
    out.push_back({rules[i], std::move(found[i]), !matcher.cut_short()});
  }
}

/// Acts on the matches, rule by rule in the order of declaration. Rules that a limit cut short will
/// match the same rows again.
void act_on(Engine& engine, std::vector<RuleMatches>& all) {
  Actor actor(engine);
  bool deletes = false;
  for (const RuleMatches& item : all)
    deletes |= item.matches.count != 0 && engine.rules[item.rule].action.deletes;
  if (deletes)
    actor.begin_phase();
  bool within = true;
  for (RuleMatches& item : all) {
    item.complete &= within;
    if (item.matches.count == 0 || !within)
      continue;
    Clock::time_point start = Clock::now();
    std::uint64_t rows = actor.appended();
    Rule& rule = engine.rules[item.rule];
    within = actor.run_all(rule.action, item.matches.words.data(), item.matches.width,
                           item.matches.count);
    item.complete &= within;
    rule.stats.apply_seconds += seconds_since(start);
    rule.stats.rows_added += actor.appended() - rows;
  }
  if (deletes)
    actor.end_phase();
}

bool has_news(const Engine& engine, const Rule& rule) {
  for (const TableAtom& atom : rule.query.atoms) {
    const Table& table = engine.table(atom.function);
    if (table.since(rule.seen) < table.rows())
      return true;
  }
  return false;
}

/// Drops the matches of rules that match too much, and bans these for a while. Their new rows stay
/// new for them.
void hold_back(Engine& engine, const BackOff& back_off, std::vector<RuleMatches>& all) {
  constexpr std::uint32_t kMostDoublings = 20;
  std::erase_if(all, [&](RuleMatches& item) {
    Rule& rule = engine.rules[item.rule];
    std::uint32_t doublings = std::min(rule.times_banned, kMostDoublings);
    if (item.matches.count <= back_off.match_limit << doublings)
      return false;
    rule.banned_until = engine.now + 1 + (back_off.ban_length << doublings);
    ++rule.times_banned;
    rule.stats.matches -= item.matches.count;
    return true;
  });
}

} // namespace

bool run_ruleset(Engine& engine, RulesetId ruleset, ScheduleState& state,
                 const std::optional<BackOff>& back_off) {
  std::uint64_t before = engine.changes();
  Clock::time_point start = Clock::now();
  std::vector<std::uint32_t> rules = rules_of(engine, ruleset);
  std::uint32_t next_release = std::numeric_limits<std::uint32_t>::max();
  std::map<Group, std::vector<std::uint32_t>> groups;
  for (std::uint32_t r : rules) {
    const Rule& rule = engine.rules[r];
    if (back_off && rule.banned_until > engine.now) {
      next_release = std::min(next_release, rule.banned_until);
      continue;
    }
    // Where all rows are new, one plan over all of them finds what a plan for each atom would.
    bool naive = rule.naive || !engine.seminaive || rule.seen == 0;
    if (rule.query.atoms.empty() && !naive)
      continue; // it can find nothing new
    // A premise that is matched as a whole has no root to be passed over at, so that is done here.
    bool whole = !naive && rule.query.atoms.size() > kMostFocused;
    if (whole && !has_news(engine, rule))
      continue;
    groups[{naive, whole, rule.include_subsumed, naive ? 0 : rule.seen}].push_back(r);
  }
  std::vector<RuleMatches> matches;
  for (const auto& [group, members] : groups)
    match_group(engine, ruleset, members, group, matches);
  if (back_off) {
    hold_back(engine, *back_off, matches);
    for (std::uint32_t r : rules) {
      if (engine.rules[r].banned_until > engine.now)
        next_release = std::min(next_release, engine.rules[r].banned_until);
    }
  }
  std::stable_sort(matches.begin(), matches.end(),
                   [](const auto& a, const auto& b) { return a.rule < b.rule; });
  std::uint32_t seen = engine.now++;
  for (std::uint32_t f : engine.ordinary)
    engine.tables[f].stamp(engine.now);
  engine.search_seconds += seconds_since(start);

  start = Clock::now();
  act_on(engine, matches);
  for (const RuleMatches& item : matches) {
    if (item.complete)
      engine.rules[item.rule].seen = seen;
  }
  engine.apply_seconds += seconds_since(start);
  std::vector<RuleMatches>().swap(matches);
  start = Clock::now();
  rebuild(engine);
  engine.rebuild_seconds += seconds_since(start);
#ifdef EGRET_CHECKS
  check_invariants(engine);
#endif
  ++state.report.iterations;
  if (engine.changes() != before)
    return true;
  if (next_release == std::numeric_limits<std::uint32_t>::max())
    return false;
  // Nothing else moves, so the rules that are held back come sooner.
  std::uint32_t sooner = next_release > engine.now ? next_release - engine.now : 0;
  for (std::uint32_t r : rules) {
    if (engine.rules[r].banned_until > engine.now)
      engine.rules[r].banned_until -= sooner;
  }
  return true;
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
        bool step = run_ruleset(engine_, node.ruleset, state_, node.back_off);
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
  std::uint64_t steps_before = engine.match_steps;
  std::vector<RuleStats> stats = rule_stats(engine);
  engine.limits = {};
  engine.limits.rows = budget.rows;
  constexpr double kLongest = 1e8; // seconds; beyond this there is no deadline
  if (budget.seconds < kLongest)
    engine.limits.deadline = state.started + std::chrono::duration_cast<Clock::duration>(
                                                 std::chrono::duration<double>(budget.seconds));
  Runner(engine, schedule, state).run(schedule.root);
  engine.limits = {};
  state.report.updated = engine.changes() != before;
  state.report.rules = rule_reports(engine, stats);
  state.report.match_steps = engine.match_steps - steps_before;
  state.report.rows = engine.live_rows();
  state.report.seconds = seconds_since(state.started);
  return std::move(state.report);
}

} // namespace egret::egraph
