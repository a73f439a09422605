#include "egraph/schedule.h"

#include "support/fail.h"

#include <algorithm>
#include <compare>
#include <limits>
#include <utility>

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

/// The plans of a set of rules of a ruleset, which are kept from one run to the next.
const Forest& planned(Engine& engine, RulesetId ruleset, std::vector<std::uint32_t> rules,
                      bool naive, std::uint32_t seen) {
  PlanCache& cache = engine.rulesets[Signature::index(ruleset)].plans;
  Evaluation evaluation = naive ? Evaluation::Naive : Evaluation::SemiNaive;
  for (PlanCache::Entry& entry : cache.entries) {
    if (entry.naive != naive || entry.rules != rules)
      continue;
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

/// Notes in the engine's journal, where it has one, what a rule makes and joins from here to
/// done().
class Noted {
public:
  Noted(Engine& engine, std::uint32_t rule) : engine_(engine), rule_(rule) {
    if (!engine.journal)
      return;
    displaced_ = engine.classes.displaced().size();
    for (std::uint32_t f : engine.ordinary)
      rows_.push_back(engine.tables[f].rows());
  }
  void done() {
    if (!engine_.journal)
      return;
    for (std::size_t i = 0; i < rows_.size(); ++i)
      note_rows(engine_.ordinary[i], rows_[i]);
    const std::vector<Value>& displaced = engine_.classes.displaced();
    for (std::size_t i = displaced_; i < displaced.size(); ++i)
      note_join(engine_, displaced[i], RuleId{rule_});
  }

  static void note_join(Engine& engine, Value lost, std::optional<RuleId> rule) {
    JournalState& state = *engine.journal;
    state.joined.resize(engine.classes.size());
    state.joined[lost] = true;
    state.journal.joined.push_back({lost, std::as_const(engine.classes).find(lost), rule});
  }
  /// Joins that no rule made, but equal nodes.
  static void note_congruence(Engine& engine) {
    engine.journal->joined.resize(engine.classes.size());
    for (Value id = 0; id < engine.classes.size(); ++id)
      if (!engine.classes.is_canonical(id) && !engine.journal->joined[id])
        note_join(engine, id, std::nullopt);
  }

private:
  void note_rows(std::uint32_t f, std::uint32_t from) {
    const Function& function = engine_.signature.function(FunctionId{f});
    if (function.kind != FunctionKind::Constructor)
      return;
    const Table& table = engine_.tables[f];
    for (std::uint32_t row = from; row < table.rows(); ++row) {
      Journal::Made made{FunctionId{f}, {}, table.output(row), RuleId{rule_}};
      for (std::size_t c = 0; c < function.inputs.size(); ++c)
        made.args.push_back(table.at(row, c));
      engine_.journal->journal.made.push_back(std::move(made));
    }
  }

  Engine& engine_;
  std::uint32_t rule_;
  std::size_t displaced_ = 0;
  std::vector<std::uint32_t> rows_; ///< of the ordinary functions' tables, before
};

/// Acts on what the rules of one iteration match. Where the matches do not fit into a batch, it
/// acts before all are found; the tables then show matchers what they held before.
class Phase {
public:
  Phase(Engine& engine, const std::vector<std::uint32_t>& rules) : engine_(engine), actor_(engine) {
    std::vector<const ActionProgram*> programs;
    for (std::uint32_t r : rules) {
      if (engine.rules[r].action.deletes)
        programs.push_back(&engine.rules[r].action);
    }
    actor_.begin_phase(programs);
  }
  Phase(const Phase&) = delete;
  Phase& operator=(const Phase&) = delete;
  ~Phase() { matched(); }

  /// Acts before the matching is over. False if a limit cut that short.
  bool act_early(const std::vector<std::uint32_t>& rules, std::vector<Matches>& found) {
    if (!early_) {
      for (std::uint32_t f : engine_.ordinary)
        engine_.tables[f].begin_snapshot();
    }
    early_ = true;
    Clock::time_point start = Clock::now();
    bool within = true;
    for (std::size_t i = 0; i < rules.size() && within; ++i)
      within = act(rules[i], found[i]);
    within = within && !engine_.limits.cut(engine_.exceeded());
    early_seconds_ += seconds_since(start);
    return within;
  }
  /// The matching is over.
  void matched() {
    for (std::uint32_t f : engine_.ordinary) {
      if (early_)
        engine_.tables[f].end_snapshot();
    }
    early_ = false;
  }
  /// Acts on the stored matches of a rule.
  bool act(std::uint32_t index, Matches& matches) {
    if (matches.count == matches.drained)
      return true;
    Clock::time_point start = Clock::now();
    std::uint64_t rows = actor_.appended();
    Rule& rule = engine_.rules[index];
    Noted noted(engine_, index);
    bool within = actor_.run_all(rule.action, matches.words.data(), matches.width,
                                 matches.count - matches.drained);
    noted.done();
    matches.drained = matches.count;
    matches.words.clear();
    rule.stats.apply_seconds += seconds_since(start);
    rule.stats.rows_added += actor_.appended() - rows;
    return within;
  }
  void finish() { actor_.end_phase(); }
  double early_seconds() const { return early_seconds_; }

private:
  Engine& engine_;
  Actor actor_;
  bool early_ = false;
  double early_seconds_ = 0;
};

/// What the back-off scheduler allows a rule.
std::uint64_t most_matches(const Rule& rule, const BackOff& back_off) {
  constexpr std::uint32_t kMostDoublings = 20;
  return back_off.match_limit << std::min(rule.times_banned, kMostDoublings);
}

void match_group(Engine& engine, RulesetId ruleset, const std::vector<std::uint32_t>& rules,
                 const Group& group, const std::optional<BackOff>& back_off, Phase& phase,
                 std::vector<RuleMatches>& out) {
  Clock::time_point start = Clock::now();
  const double early = phase.early_seconds();
  const Forest& forest = planned(engine, ruleset, rules, group.naive, group.seen);
  MatchOptions options;
  options.seen = group.seen;
  options.snapshot = engine.now - 1;
  options.include_subsumed = group.include_subsumed;
  options.drain = [&](std::vector<Matches>& found) { return phase.act_early(rules, found); };
  for (std::uint32_t r : rules) {
    if (back_off)
      options.most.push_back(most_matches(engine.rules[r], *back_off));
  }
  Matcher matcher(engine, forest, std::move(options));
  std::vector<Matches> found = matcher.run();
  engine.limits.cut(matcher.cut());
  double seconds = seconds_since(start) - (phase.early_seconds() - early);
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
    if (engine.limits.matches != Budget::kNoLimit)
      engine.limits.matches -= std::min(engine.limits.matches, found[i].count);
    out.push_back({rules[i], std::move(found[i]), !matcher.cut()});
  }
}

/// Acts on the matches, rule by rule in the order of declaration. Rules that a limit cut short will
/// match the same rows again.
void act_on(Phase& phase, std::vector<RuleMatches>& all) {
  bool within = true;
  for (RuleMatches& item : all) {
    within = within && phase.act(item.rule, item.matches);
    item.complete &= within;
  }
  phase.finish();
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
  std::erase_if(all, [&](RuleMatches& item) {
    Rule& rule = engine.rules[item.rule];
    const std::uint64_t most = most_matches(rule, back_off);
    if (item.matches.count <= most)
      return false;
    constexpr std::uint32_t kMostDoublings = 20;
    rule.banned_until =
        engine.now + (back_off.ban_length << std::min(rule.times_banned, kMostDoublings));
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
  // What is appended from now on is of a later time, and not seen by the matchers.
  std::uint32_t seen = engine.now++;
  for (std::uint32_t f : engine.ordinary)
    engine.tables[f].stamp(engine.now);
  Phase phase(engine, rules);
  std::vector<RuleMatches> matches;
  for (const auto& [group, members] : groups) {
    if (!engine.limits.reached)
      match_group(engine, ruleset, members, group, back_off, phase, matches);
  }
  phase.matched();
  if (back_off) {
    hold_back(engine, *back_off, matches);
    for (std::uint32_t r : rules) {
      if (engine.rules[r].banned_until >= engine.now)
        next_release = std::min(next_release, engine.rules[r].banned_until);
    }
  }
  std::stable_sort(matches.begin(), matches.end(),
                   [](const auto& a, const auto& b) { return a.rule < b.rule; });
  engine.search_seconds += seconds_since(start) - phase.early_seconds();
  engine.apply_seconds += phase.early_seconds();

  start = Clock::now();
  act_on(phase, matches);
  for (const RuleMatches& item : matches) {
    if (item.complete)
      engine.rules[item.rule].seen = seen;
  }
  engine.apply_seconds += seconds_since(start);
  std::vector<RuleMatches>().swap(matches);
  start = Clock::now();
  rebuild(engine);
  if (engine.journal)
    Noted::note_congruence(engine);
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
  const std::uint64_t matches = std::exchange(engine.limits.matches, Budget::kNoLimit);
  Forest forest = plan_query(engine, query, {});
  MatchOptions options;
  options.include_subsumed = true;
  options.stop_after = 1;
  bool found = Matcher(engine, forest, options).run()[0].count != 0;
  engine.limits.matches = matches; // a test is no rule
  return found;
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
        if (stop(engine_.limits.reached) || !step)
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

  /// Whether a limit forbids another iteration.
  bool exhausted() {
    if (state_.stopped)
      return true;
    if (state_.report.iterations >= state_.budget.iterations)
      return stop(StopReason::Iterations);
    if (engine_.limits.matches == 0)
      return stop(StopReason::Matches);
    return stop(engine_.exceeded());
  }

  bool stop(std::optional<StopReason> reason) {
    if (!reason)
      return false;
    state_.report.stop = *reason;
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
  engine.limits.matches = budget.matches;
  engine.limits.bytes = budget.bytes;
  engine.limits.cancel = budget.cancel;
  constexpr double kLongest = 1e8;     // seconds; beyond this there is no deadline
  if (!(budget.seconds >= kLongest)) { // none is left by NaN and by less than 0
    const std::chrono::duration<double> seconds(std::max(0.0, budget.seconds));
    engine.limits.deadline = state.started + std::chrono::duration_cast<Clock::duration>(seconds);
  }
  {
    struct Unlimited { // also where an action fails
      Engine& engine;
      ~Unlimited() { engine.limits = {}; }
    } after{engine};
    Runner(engine, schedule, state).run(schedule.root);
  }
  state.report.updated = engine.changes() != before;
  state.report.rules = rule_reports(engine, stats);
  state.report.match_steps = engine.match_steps - steps_before;
  state.report.rows = engine.live_rows();
  state.report.seconds = seconds_since(state.started);
  return std::move(state.report);
}

} // namespace egret::egraph
