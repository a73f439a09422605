#include "egraph/match.h"

#include "egraph/walk.h"
#include "support/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <utility>

namespace egret::egraph {
namespace {
/// Fewer rows than this are matched faster than threads wake up.
constexpr std::size_t kWorthSharing = 16384;
constexpr std::uint32_t kPieceRows = 2048, kMostPieces = 64; // of one root
} // namespace

Matcher::Matcher(Engine& engine, const Forest& forest, MatchOptions options)
    : engine_(engine), forest_(forest), options_(std::move(options)),
      grounds_(engine, forest, options_.snapshot), nodes_(forest.nodes.size()),
      visits_(forest.nodes.size(), 0) {}

/// Looks up a node's rows; false if there are none, and then what is below it does not matter.
bool Matcher::in_range(std::uint32_t index) {
  const PlanNode& plan = forest_.nodes[index];
  if (plan.step.kind == StepKind::Start || plan.step.kind == StepKind::Prim)
    return true;
  Node& node = nodes_[index];
  node.table = &engine_.tables[plan.step.target];
  if (node.table->live() == 0)
    return false;
  node.border = node.table->since(options_.seen);
  node.low = plan.step.range == RowRange::New ? node.border : 0;
  node.high = plan.step.range == RowRange::Old ? node.border : node.table->since(options_.snapshot);
  return node.low < node.high;
}

/// Whether a ground term's row is new or old.
RowRange Matcher::age(std::uint32_t ground, std::uint32_t row) const {
  const Table& table = engine_.tables[forest_.grounds[ground].function];
  return row >= table.since(options_.seen) ? RowRange::New : RowRange::Old;
}

/// Nothing if what a plan asks of ground terms does not hold.
std::optional<Matcher::Emit> Matcher::ready(const PlanEmit& emit) {
  bool asks_news = emit.only_news;
  for (const GroundCondition& condition : emit.grounds) {
    const std::uint32_t row = grounds_.row(condition.ground);
    if (row == Table::kNone)
      return std::nullopt;
    const Table& table = engine_.tables[forest_.grounds[condition.ground].function];
    const RowRange now = age(condition.ground, row);
    const Operand output = condition.output;
    if (!output.is_const && grounds_.row(~output.value) == Table::kNone)
      return std::nullopt;
    if ((table.state(row) == RowState::Subsumed && !options_.include_subsumed) ||
        (condition.range != RowRange::All && condition.range != now) ||
        table.output(row) != (output.is_const ? output.value : grounds_.value(~output.value)))
      return std::nullopt;
    asks_news = asks_news && now == RowRange::Old;
  }
  return Emit{&emit, asks_news};
}

/// Plans whose first table has no new rows are passed over at their root; others down to the first
/// table without rows in range.
void Matcher::prepare() {
  std::vector<std::uint32_t> stack(forest_.roots.rbegin(), forest_.roots.rend()), reached, probes;
  while (!stack.empty()) {
    std::uint32_t i = stack.back();
    stack.pop_back();
    if (!in_range(i))
      continue;
    reached.push_back(i);
    const auto& children = forest_.nodes[i].children;
    stack.insert(stack.end(), children.rbegin(), children.rend());
  }
  prepared_ = reached.size();
  for (auto at = reached.rbegin(); at != reached.rend(); ++at) { // children before parents
    const PlanNode& plan = forest_.nodes[*at];
    Node& node = nodes_[*at];
    for (const PlanEmit& emit : plan.emits) {
      if (std::optional<Emit> live = ready(emit))
        node.emits.push_back(*live);
    }
    node.active = !node.emits.empty();
    node.concurrent = plan.step.kind != StepKind::Prim ||
                      engine_.signature.primitive(plan.step.target).concurrent;
    for (std::uint32_t child : plan.children) {
      node.active |= nodes_[child].active;
      node.concurrent &= !nodes_[child].active || nodes_[child].concurrent;
    }
  }
  for (std::uint32_t root : forest_.roots)
    turn(root);
  for (std::uint32_t i : reached) {
    reads_tables_ |= nodes_[i].active && forest_.nodes[i].step.kind == StepKind::Prim &&
                     !engine_.signature.primitive(forest_.nodes[i].step.target).pure;
    if (nodes_[i].active && !nodes_[i].turned && forest_.nodes[i].step.kind == StepKind::Probe)
      probes.push_back(i);
  }
  build_indexes(probes);
  for (std::uint32_t i : reached)
    look_ahead(i);
}

/// Where a scan's rows are all looked up in tables with far fewer rows, starts from these.
void Matcher::turn(std::uint32_t root) {
  constexpr std::uint32_t kFewer = 4, kInsert = 4; // the latter in the time of a lookup
  const PlanNode& plan = forest_.nodes[root];
  Node& scan = nodes_[root];
  const std::uint32_t rows = scan.high - scan.low;
  if (!scan.active || plan.step.kind != StepKind::Scan)
    return;
  Table& table = engine_.tables[plan.step.target];
  for (const ColumnOp& op : plan.step.columns) {
    std::vector<std::uint32_t> few;
    for (std::uint32_t child : plan.children) {
      const PlanStep& step = forest_.nodes[child].step;
      if (nodes_[child].active && op.bind && only_column(step) && step.key[0] == op.operand &&
          nodes_[child].high - nodes_[child].low <= rows / kFewer)
        few.push_back(child);
    }
    if (few.empty() || rows * few.size() <= std::size_t{table.unindexed({op.column})} * kInsert)
      continue;
    for (std::uint32_t child : few)
      nodes_[child].turned = &table.index({op.column});
  }
  scan.passed_over = scan.emits.empty() &&
                     std::all_of(plan.children.begin(), plan.children.end(),
                                 [&](auto c) { return !nodes_[c].active || nodes_[c].turned; });
}

void Matcher::build_indexes(const std::vector<std::uint32_t>& probes) {
  struct Job {
    Table* table;
    ColumnIndex* index;
  };
  std::vector<Job> jobs;
  std::size_t missing = 0;
  const auto ask = [&](Table& table, const std::vector<std::uint32_t>& columns) {
    ColumnIndex& index = table.find_index(columns);
    if (std::none_of(jobs.begin(), jobs.end(), [&](Job job) { return job.index == &index; })) {
      missing += table.unindexed(columns);
      jobs.push_back({&table, &index});
    }
    return &index;
  };
  for (std::uint32_t i : probes) {
    const PlanStep& step = forest_.nodes[i].step;
    Node& node = nodes_[i];
    node.index = ask(engine_.tables[step.target], step.index);
    if (step.crossing) {
      Table& crossed = engine_.tables[step.crossing->target];
      node.crossed = &crossed;
      node.crossing_index = ask(crossed, step.crossing->index);
      node.crossed_high = crossed.since(options_.snapshot);
    }
  }
  ThreadPool* pool = missing >= kWorthSharing && jobs.size() > 1 ? engine_.pool() : nullptr;
  if (!pool) {
    for (Job job : jobs)
      job.table->extend(*job.index);
    return;
  }
  std::atomic<std::size_t> next{0};
  pool->run_apart(pool->size(), [&](int, int) {
    for (std::size_t i = next++; i < jobs.size(); i = next++)
      jobs[i].table->extend(*jobs[i].index);
  });
}

/// Notes which index lookups of the children follow from a scanned row alone, so that they can be
/// asked for some rows ahead.
void Matcher::look_ahead(std::uint32_t index) {
  Node& node = nodes_[index];
  const PlanNode& plan = forest_.nodes[index];
  if (plan.step.kind != StepKind::Scan || !node.active)
    return;
  for (std::uint32_t child : plan.children) {
    const PlanStep& step = forest_.nodes[child].step;
    if (!nodes_[child].index || step.key.size() != 1 || step.key[0].is_const)
      continue;
    for (const ColumnOp& op : plan.step.columns) {
      if (op.bind && op.operand == step.key[0])
        node.ahead.push_back(
            {nodes_[child].index, &node.table->words(op.column), nodes_[child].table});
    }
  }
}

std::vector<Matcher::Piece> Matcher::pieces() const {
  std::size_t rows = 0;
  for (std::uint32_t root : forest_.roots) {
    const Node& node = nodes_[root];
    if (node.active && node.concurrent && forest_.nodes[root].step.kind == StepKind::Scan)
      rows += node.high - node.low;
  }
  const bool share = engine_.threads > 1 && options_.stop_after == 0 && rows >= kWorthSharing;
  std::vector<Piece> out;
  for (std::uint32_t root : forest_.roots) {
    const Node& node = nodes_[root];
    if (!node.active)
      continue;
    if (!node.passed_over)
      add_scan(out, root, share);
    for (std::uint32_t child : forest_.nodes[root].children) {
      if (nodes_[child].turned)
        out.push_back({root, node.low, node.high, false, child});
    }
  }
  return out;
}

void Matcher::add_scan(std::vector<Piece>& out, std::uint32_t root, bool share) const {
  const Node& node = nodes_[root];
  if (!share || !node.concurrent || forest_.nodes[root].step.kind != StepKind::Scan) {
    out.push_back({root, node.low, node.high, false});
    return;
  }
  std::uint32_t step = std::max(kPieceRows, (node.high - node.low) / kMostPieces);
  for (std::uint32_t low = node.low; low < node.high;) {
    std::uint32_t high = node.high - low > step ? low + step : node.high;
    out.push_back({root, low, high, true});
    low = high;
  }
}

std::vector<Matches> Matcher::empty_matches() const {
  std::vector<Matches> out(std::max<std::size_t>(1, forest_.rules.size()));
  for (std::size_t i = 0; i < forest_.rules.size(); ++i)
    out[i].width = static_cast<std::uint32_t>(engine_.rules[forest_.rules[i]].inputs.size());
  return out;
}

void Matcher::run_alone(const std::vector<Piece>& pieces, std::vector<Matches>& out) {
  Walker walker(*this, [this](std::vector<Matches>& found) { return drain(found); });
  walker.collect(out);
  for (const Piece& piece : pieces) {
    if (!walker.stopped())
      walker.walk(piece);
  }
  cut_ = walker.cut();
  visits_ = walker.visits();
}

/// Enough matches are stored: has them acted on, or lets them wait where that cannot be. False if
/// nothing more is to be found.
bool Matcher::drain(std::vector<Matches>& found) {
  if (options_.drain && options_.most.empty() && !reads_tables_)
    return options_.drain(found);
  std::size_t bytes = 0;
  for (const Matches& matches : found)
    bytes += matches.words.bytes();
  return !engine_.limits.cut(engine_.exceeded(bytes));
}

/// Any thread takes the next piece; what they found is put together in the order of the pieces.
/// Pieces whose primitives may intern values stay with the caller. False, with nothing found, if
/// there are more matches than one batch holds or the limit allows: one thread then finds them in
/// their order.
bool Matcher::run_shared(const std::vector<Piece>& pieces, std::vector<Matches>& out) {
  ThreadPool* pool = engine_.pool();
  const std::size_t workers = static_cast<std::size_t>(pool->size());
  std::vector<std::vector<std::pair<std::uint32_t, Matches>>> found(pieces.size());
  std::vector<std::vector<Matches>> scratch(workers, empty_matches());
  std::vector<Walker> walkers;
  walkers.reserve(workers);
  for (std::size_t i = 0; i < workers; ++i) {
    walkers.emplace_back(*this, [](std::vector<Matches>&) { return false; });
    walkers[i].collect(scratch[i]);
    walkers[i].share(words_, found_);
  }
  auto take = [&](std::size_t worker, std::size_t piece) {
    Walker& walker = walkers[worker];
    if (walker.stopped())
      return;
    walker.walk(pieces[piece]);
    for (std::uint32_t rule : walker.take_touched()) {
      std::uint32_t width = scratch[worker][rule].width;
      found[piece].emplace_back(rule, std::exchange(scratch[worker][rule], {width, 0, {}}));
    }
  };
  std::atomic<std::size_t> next{0};
  pool->run_apart(pool->size(), [&](int worker, int) {
    for (std::size_t i = next++; i < pieces.size(); i = next++) {
      if (pieces[i].shared)
        take(static_cast<std::size_t>(worker), i);
    }
  });
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    shared_pieces_ += pieces[i].shared;
    if (!pieces[i].shared)
      take(0, i);
  }
  for (Walker& walker : walkers)
    walker.publish();
  if (words_ > engine_.batch() || found_ > engine_.limits.matches) {
    shared_pieces_ = 0;
    return false;
  }
  for (const Walker& walker : walkers) {
    if (!cut_)
      cut_ = walker.cut();
    for (std::size_t n = 0; n < visits_.size(); ++n)
      visits_[n] += walker.visits()[n];
  }
  std::vector<std::size_t> words(out.size(), 0);
  for (const auto& parts : found) {
    for (const auto& [rule, part] : parts)
      words[rule] += part.words.size();
  }
  for (std::size_t rule = 0; rule < out.size(); ++rule)
    out[rule].words.reserve(words[rule]);
  for (auto& parts : found) {
    for (const auto& [rule, part] : parts) {
      out[rule].count += part.count;
      out[rule].words.append(part.words);
    }
    parts.clear();
  }
  return true;
}

void Matcher::share_work(const std::vector<std::uint64_t>& visits) {
  work_.assign(forest_.rules.size(), 0);
  // Every node's visits are shared out evenly among the rules below it.
  struct Item {
    std::uint32_t node;
    double inherited;
  };
  std::vector<Item> stack;
  for (std::uint32_t root : forest_.roots)
    stack.push_back({root, 0});
  while (!stack.empty()) {
    auto [index, inherited] = stack.back();
    stack.pop_back();
    const PlanNode& plan = forest_.nodes[index];
    double each = inherited + static_cast<double>(visits[index]) / std::max(1u, plan.rules_below);
    for (const PlanEmit& emit : plan.emits) {
      if (emit.rule < work_.size())
        work_[emit.rule] += each;
    }
    for (std::uint32_t child : plan.children)
      stack.push_back({child, each});
  }
}

std::vector<Matches> Matcher::run() {
  std::vector<Matches> out = empty_matches();
  prepare();
  std::vector<Piece> work = pieces();
  bool shared =
      std::any_of(work.begin(), work.end(), [](const Piece& piece) { return piece.shared; }) &&
      engine_.pool() != nullptr;
  if (!shared || !run_shared(work, out))
    run_alone(work, out);
  share_work(visits_);
  for (std::uint64_t visits : visits_)
    engine_.match_steps += visits;
  return out;
}

} // namespace egret::egraph
