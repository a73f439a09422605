#include "egraph/plan.h"

#include "egraph/engine.h"
#include "egraph/estimate.h"
#include "egraph/ground.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

namespace egret::egraph {
namespace {

/// The position of a ground term in the forest, which it joins if it is new.
std::uint32_t ground_of(Forest& forest, Ground ground) {
  auto [at, added] = forest.ground_positions.try_emplace(
      ground, static_cast<std::uint32_t>(forest.grounds.size()));
  if (added)
    forest.grounds.push_back(std::move(ground));
  return at->second;
}

/// What the planning of a query starts from, whichever atom takes the new rows.
struct QueryShape {
  std::vector<std::uint32_t> uses; ///< per variable: how often the query and the action mention it
  std::vector<std::vector<std::uint32_t>> atoms_of, prims_of; ///< per variable
  std::vector<std::size_t> unbound;      ///< per atom: key positions that are not bound yet
  std::vector<std::size_t> prim_missing; ///< per primitive: arguments that are not bound yet
  std::vector<std::uint32_t> ready_prims;
  std::vector<std::optional<std::uint32_t>> ground; ///< per variable: the ground term that it is
  std::vector<std::optional<GroundCondition>> conditions; ///< per atom, of those of ground terms
  std::vector<std::optional<Value>> constants;            ///< per variable: its value, if ground

  QueryShape(const Engine& engine, Forest& forest, const Query& query,
             std::span<const QueryTerm> inputs)
      : uses(query.variables, 0), atoms_of(query.variables), prims_of(query.variables),
        unbound(query.atoms.size(), 0), prim_missing(query.prims.size(), 0),
        ground(query.variables), conditions(query.atoms.size()), constants(query.variables) {
    std::vector<std::uint32_t> ready;
    for (std::uint32_t a = 0; a < query.atoms.size(); ++a) {
      const auto& terms = query.atoms[a].terms;
      for (std::size_t i = 0; i < terms.size(); ++i) {
        if (terms[i].is_const)
          continue;
        ++uses[terms[i].value];
        if (atoms_of[terms[i].value].empty() || atoms_of[terms[i].value].back() != a)
          atoms_of[terms[i].value].push_back(a);
        unbound[a] += i + 1 < terms.size();
      }
      if (unbound[a] == 0)
        ready.push_back(a);
    }
    std::reverse(ready.begin(), ready.end());
    while (!ready.empty()) {
      std::uint32_t a = ready.back();
      ready.pop_back();
      take_ground(engine, forest, query, a, ready);
    }
    for (std::uint32_t p = 0; p < query.prims.size(); ++p) {
      for (QueryTerm term : query.prims[p].args) {
        if (!term.is_const) {
          prims_of[term.value].push_back(p);
          prim_missing[p] += !ground[term.value];
          ++uses[term.value];
        }
      }
      if (!query.prims[p].out.is_const)
        ++uses[query.prims[p].out.value];
      if (prim_missing[p] == 0)
        ready_prims.push_back(p);
    }
    std::reverse(ready_prims.begin(), ready_prims.end());
    for (QueryTerm term : inputs) {
      if (!term.is_const)
        ++uses[term.value];
    }
  }

  /// A ground term that has no row.
  std::optional<std::uint32_t> missing;

private:
  /// The key of an atom is ground, so its row is known before matching.
  void take_ground(const Engine& engine, Forest& forest, const Query& query, std::uint32_t a,
                   std::vector<std::uint32_t>& ready) {
    const TableAtom& atom = query.atoms[a];
    Ground term{static_cast<std::uint32_t>(atom.function), {}};
    std::vector<Value> key;
    for (std::size_t i = 0; i + 1 < atom.terms.size(); ++i) {
      const QueryTerm t = atom.terms[i];
      term.key.push_back(t.is_const ? Operand{true, t.value} : ground_register(*ground[t.value]));
      key.push_back(t.is_const ? t.value : constants[t.value].value_or(0));
    }
    const std::uint32_t id = ground_of(forest, std::move(term));
    const Table& table = engine.table(atom.function);
    const std::uint32_t row = missing ? Table::kNone : table.find(key.data());
    if (!missing && row == Table::kNone)
      missing = id;
    conditions[a] = {id, RowRange::All, ground_register(id)};
    const QueryTerm out = atom.terms.back();
    if (out.is_const || ground[out.value]) {
      conditions[a]->output =
          out.is_const ? Operand{true, out.value} : ground_register(*ground[out.value]);
      return;
    }
    ground[out.value] = id;
    if (row != Table::kNone)
      constants[out.value] = table.output(row);
    for (std::uint32_t other : atoms_of[out.value]) {
      const auto& terms = query.atoms[other].terms;
      std::size_t before = unbound[other];
      for (std::size_t i = 0; i + 1 < terms.size(); ++i)
        unbound[other] -= !terms[i].is_const && terms[i].value == out.value;
      if (before != 0 && unbound[other] == 0)
        ready.push_back(other);
    }
  }
};

/// Orders the steps of one query greedily: what is free first (primitives, known keys), then the
/// cheapest way to a new atom.
class Planner {
public:
  Planner(const Engine& engine, const Query& query, const QueryShape& shape, Estimates& estimates)
      : engine_(engine), query_(query), shape_(shape), estimates_(estimates),
        registers_(query.variables, kUnbound), sources_(query.variables),
        atom_done_(query.atoms.size(), false), unbound_(shape.unbound),
        prim_missing_(shape.prim_missing), costs_(query.atoms.size(), kUnknown),
        listed_(query.atoms.size(), false), ready_prims_(shape.ready_prims) {
    for (std::uint32_t a = 0; a < query.atoms.size(); ++a)
      atom_done_[a] = shape.conditions[a].has_value();
    for (std::uint32_t v = 0; v < query.variables; ++v) {
      if (!shape.ground[v])
        continue;
      registers_[v] = static_cast<std::int32_t>(ground_register(*shape.ground[v]).value);
      for (std::uint32_t a : shape.atoms_of[v])
        reach(a);
    }
  }

  /// `focus` is the atom that takes the new rows (none for a plan over everything): atoms before it
  /// see old rows only.
  std::vector<PlanStep> order(std::optional<std::uint32_t> focus) {
    focus_ = focus;
    if (focus_ && !shape_.conditions[*focus_])
      take(*focus_, true);
    for (;;) {
      if (!ready_prims_.empty()) {
        std::uint32_t p = ready_prims_.back();
        ready_prims_.pop_back();
        take_prim(p);
        continue;
      }
      while (!ready_.empty() && atom_done_[ready_.back()])
        ready_.pop_back();
      if (!ready_.empty() && !selective()) {
        std::uint32_t a = ready_.back();
        ready_.pop_back();
        take(a, false);
        continue;
      }
      std::optional<std::uint32_t> best = cheapest();
      if (!best)
        break;
      take(*best, false);
    }
    cross();
    return std::move(steps_);
  }

  Operand operand(QueryTerm term) const {
    return term.is_const ? Operand{true, term.value}
                         : Operand{false, static_cast<std::uint32_t>(registers_[term.value])};
  }
  std::uint32_t registers() const { return next_register_; }
  /// What must hold of ground terms.
  std::vector<GroundCondition> conditions() const {
    std::vector<GroundCondition> out;
    for (std::uint32_t a = 0; a < query_.atoms.size(); ++a) {
      if (!shape_.conditions[a])
        continue;
      out.push_back(*shape_.conditions[a]);
      out.back().range = range(a);
    }
    return out;
  }

private:
  bool known(QueryTerm term) const { return term.is_const || registers_[term.value] != kUnbound; }

  RowRange range(std::uint32_t atom) const {
    if (!focus_)
      return RowRange::All;
    return atom == *focus_ ? RowRange::New : atom < *focus_ ? RowRange::Old : RowRange::All;
  }

  /// Rows expected in a column for what is known of its term.
  double fanout(QueryTerm term, TableColumn target) {
    if (std::optional<Value> value = constant(term))
      return estimates_.rows_found(*value, target);
    // What a primitive made is taken for a value that occurs.
    return estimates_.rows_found(sources_[term.value].value_or(target), target);
  }

  /// Rows expected from an atom, given what is bound; and the columns to look up.
  double cost(std::uint32_t a, std::vector<std::uint32_t>* columns) {
    const TableAtom& atom = query_.atoms[a];
    std::uint32_t function = static_cast<std::uint32_t>(atom.function);
    double rows = std::max(1u, engine_.tables[function].live());
    double best = rows, all = rows;
    std::uint32_t best_column = 0, bound = 0;
    for (std::uint32_t c = 0; c < atom.terms.size(); ++c) {
      if (!known(atom.terms[c]))
        continue;
      double f = fanout(atom.terms[c], {function, c});
      all *= f / rows;
      if (bound++ == 0 || f < best) {
        best = f;
        best_column = c;
      }
    }
    if (bound == 0)
      return rows;
    // An index on several columns pays where one column alone leaves many rows.
    bool several = bound > 1 && best > 8 && all < best / 4;
    if (columns) {
      for (std::uint32_t c = 0; c < atom.terms.size(); ++c) {
        if (several ? known(atom.terms[c]) : c == best_column)
          columns->push_back(c);
      }
    }
    return several ? std::max(all, 0.1) : bound > 1 ? std::max(0.1, best / 2) : best;
  }

  std::optional<std::uint32_t> cheapest() {
    constexpr std::size_t kMany =
        256; // beyond this, any connected atom will do: planning must stay linear
    std::erase_if(reached_, [&](std::uint32_t a) { return atom_done_[a]; });
    if (!reached_.empty() && query_.atoms.size() > kMany) {
      std::uint32_t a = reached_.back();
      reached_.pop_back();
      return a;
    }
    std::optional<std::uint32_t> best;
    double best_cost = std::numeric_limits<double>::infinity();
    auto consider = [&](std::uint32_t a) {
      if (cost_of(a) < best_cost) {
        best_cost = costs_[a];
        best = a;
      }
    };
    for (std::uint32_t a : reached_)
      consider(a);
    if (best)
      return best;
    for (std::uint32_t a = first_open_; a < query_.atoms.size(); ++a) {
      if (atom_done_[a]) {
        first_open_ += a == first_open_;
        continue;
      }
      consider(a);
    }
    return best;
  }

  /// Whether an index lookup seldom finds a row. It then comes before lookups of known keys, which
  /// mostly do.
  bool selective() {
    constexpr double kSeldom = 1.0 / 8;
    constexpr std::size_t kFew = 64; // planning must stay linear
    return reached_.size() <= kFew && std::any_of(reached_.begin(), reached_.end(), [&](auto a) {
             return !atom_done_[a] && cost_of(a) <= kSeldom;
           });
  }

  double cost_of(std::uint32_t a) {
    if (costs_[a] == kUnknown)
      costs_[a] = cost(a, nullptr);
    return costs_[a];
  }

  void bind(std::uint32_t variable) {
    registers_[variable] = next_register_++;
    forget_costs(variable);
    for (std::uint32_t p : shape_.prims_of[variable]) {
      if (--prim_missing_[p] == 0)
        ready_prims_.push_back(p);
    }
    for (std::uint32_t a : shape_.atoms_of[variable]) {
      if (atom_done_[a])
        continue;
      const auto& terms = query_.atoms[a].terms;
      for (std::size_t i = 0; i + 1 < terms.size(); ++i)
        unbound_[a] -= !terms[i].is_const && terms[i].value == variable;
      if (unbound_[a] == 0)
        ready_.push_back(a);
      else
        reach(a);
    }
  }

  /// An atom with something bound may come next.
  void reach(std::uint32_t a) {
    if (atom_done_[a] || listed_[a])
      return;
    listed_[a] = true;
    reached_.push_back(a);
  }

  /// The value of a constant or ground term, as of now.
  std::optional<Value> constant(QueryTerm term) const {
    return term.is_const ? std::optional<Value>(term.value) : shape_.constants[term.value];
  }

  /// The smallest table that holds a variable tells most about its values.
  void note_source(QueryTerm term, TableColumn at) {
    if (term.is_const)
      return;
    std::optional<TableColumn>& source = sources_[term.value];
    if (!source || engine_.tables[at.function].live() < engine_.tables[source->function].live()) {
      source = at;
      forget_costs(term.value);
    }
  }
  void forget_costs(std::uint32_t variable) {
    for (std::uint32_t a : shape_.atoms_of[variable])
      costs_[a] = kUnknown;
  }

  void take(std::uint32_t a, bool scan) {
    const TableAtom& atom = query_.atoms[a];
    atom_done_[a] = true;
    PlanStep step;
    step.target = static_cast<std::uint32_t>(atom.function);
    step.range = range(a);
    std::size_t keys = atom.terms.size() - 1;
    std::vector<bool> checked(atom.terms.size(), false);
    if (!scan && std::all_of(atom.terms.begin(), atom.terms.end() - 1,
                             [&](QueryTerm t) { return known(t); })) {
      step.kind = StepKind::Lookup;
      for (std::size_t i = 0; i < keys; ++i) {
        step.key.push_back(operand(atom.terms[i]));
        checked[i] = true;
      }
    } else {
      step.kind = StepKind::Scan;
      // New rows are looked up by a ground term that few rows hold.
      constexpr double kFew = 1.0 / 16;
      double rows = cost(a, nullptr);
      if (!scan || rows <= kFew * engine_.tables[step.target].live()) {
        cost(a, &step.index);
        if (!step.index.empty()) {
          step.kind = StepKind::Probe;
          if (rows >= kWide)
            wide_.push_back({steps_.size(), a, next_register_});
          for (std::uint32_t c : step.index) {
            step.key.push_back(operand(atom.terms[c]));
            checked[c] =
                step.index.size() == 1; // an index on several columns is by hash: compare again
          }
        }
      }
    }
    std::vector<std::uint32_t> bound_now;
    for (std::uint32_t c = 0; c < atom.terms.size(); ++c) {
      QueryTerm term = atom.terms[c];
      note_source(term, {step.target, c});
      if (checked[c])
        continue;
      if (known(term)) {
        step.columns.push_back({c, false, operand(term)});
      } else if (shape_.uses[term.value] > 1) { // else nobody asks for it
        auto at = std::find(bound_now.begin(), bound_now.end(), term.value);
        std::uint32_t reg = next_register_ + static_cast<std::uint32_t>(at - bound_now.begin());
        step.columns.push_back({c, at == bound_now.end(), {false, reg}});
        if (at == bound_now.end())
          bound_now.push_back(term.value);
      }
    }
    for (std::uint32_t variable : bound_now)
      bind(variable);
    // Checks first: a row that fails one need not be read further. Binds must precede checks
    // against what they bind.
    auto bound_here = [&](Operand operand) {
      return !operand.is_const && static_cast<std::int32_t>(operand.value) >= 0 &&
             operand.value >= next_register_ - bound_now.size();
    };
    std::stable_sort(step.columns.begin(), step.columns.end(),
                     [&](const ColumnOp& x, const ColumnOp& y) {
                       auto rank = [&](const ColumnOp& op) {
                         return op.bind ? 1 : bound_here(op.operand) ? 2 : 0;
                       };
                       return rank(x) < rank(y);
                     });
    steps_.push_back(std::move(step));
  }

  void take_prim(std::uint32_t p) {
    const PrimAtom& atom = query_.prims[p];
    PlanStep step;
    step.kind = StepKind::Prim;
    step.target = atom.primitive;
    for (QueryTerm term : atom.args)
      step.key.push_back(operand(term));
    step.binds_out = !known(atom.out);
    if (step.binds_out)
      bind(atom.out.value);
    step.out = operand(atom.out);
    steps_.push_back(std::move(step));
  }

  /// Gives probes that find many rows another way to them.
  void cross() {
    for (const Wide& wide : wide_) {
      std::vector<Operand> own;
      const auto& terms = query_.atoms[wide.atom].terms;
      for (std::size_t i = 0; i + 1 < terms.size() && known(terms[i]); ++i)
        own.push_back(operand(terms[i]));
      PlanStep& probe = steps_[wide.step];
      for (std::size_t i = wide.step + 1; i < steps_.size() && own.size() + 1 == terms.size() &&
                                          steps_[i].kind == StepKind::Lookup && !probe.crossing;
           ++i)
        probe.crossing = crossing_of(probe, own, steps_[i], wide.first);
    }
  }

  static constexpr double kUnknown = -1;
  static constexpr std::int64_t kUnbound = std::numeric_limits<std::int64_t>::min();
  const Engine& engine_;
  const Query& query_;
  const QueryShape& shape_;
  Estimates& estimates_;
  std::optional<std::uint32_t> focus_;
  std::vector<std::int64_t> registers_;             ///< per variable
  std::vector<std::optional<TableColumn>> sources_; ///< per variable: a column that holds it
  std::vector<bool> atom_done_;
  std::vector<std::size_t> unbound_, prim_missing_; ///< as in the shape, for what is left
  std::vector<double> costs_;                       ///< per atom, as last computed
  std::vector<bool> listed_;
  std::vector<std::uint32_t> ready_, ready_prims_, reached_;
  std::uint32_t first_open_ = 0;
  std::uint32_t next_register_ = 0;
  std::vector<PlanStep> steps_;
  struct Wide {
    std::size_t step;    ///< position in steps_
    std::uint32_t atom;  ///< that it probes
    std::uint32_t first; ///< register that it may bind
  };
  static constexpr double kWide = 8; ///< rows expected
  std::vector<Wide> wide_;
};

/// Adds a chain of steps to the trie; beginnings that are there already are shared. The node at its
/// end.
std::uint32_t insert(Forest& forest, std::vector<PlanStep> steps, PlanEmit emit) {
  std::vector<std::uint32_t>* level = &forest.roots;
  std::optional<std::uint32_t> node;
  for (PlanStep& step : steps) {
    auto at = std::find_if(level->begin(), level->end(),
                           [&](std::uint32_t n) { return forest.nodes[n].step == step; });
    if (at != level->end()) {
      node = *at;
    } else {
      const std::uint32_t added = static_cast<std::uint32_t>(forest.nodes.size());
      level->push_back(added);
      forest.nodes.push_back({std::move(step), node, {}, {}, 0});
      node = added;
    }
    ++forest.nodes[*node].rules_below;
    level = &forest.nodes[*node].children;
  }
  forest.nodes[*node].emits.push_back(std::move(emit));
  ++forest.emits;
  return *node;
}

/// Takes a rule's plans out of the trie. Nodes that lead to no plan any more stay until prune().
void drop_plans(Forest& forest, std::uint32_t rule) {
  Forest::RulePlans& plans = forest.plans[rule];
  for (std::uint32_t end : std::exchange(plans.nodes, {})) {
    auto& emits = forest.nodes[end].emits;
    auto at = std::find_if(emits.begin(), emits.end(),
                           [&](const PlanEmit& emit) { return emit.rule == rule; });
    emits.erase(at);
    --forest.emits;
    ++forest.dropped;
    for (std::optional<std::uint32_t> node = end; node; node = forest.nodes[*node].parent)
      --forest.nodes[*node].rules_below;
  }
  std::fill(plans.focused.begin(), plans.focused.end(), false);
  plans.awaited.reset();
}

/// Drops the nodes that lead to no plan where they are many. The others keep their order.
void prune(Forest& forest) {
  constexpr std::size_t kFew = 64;
  if (forest.dropped < kFew || forest.dropped < forest.emits / 2)
    return;
  forest.dropped = 0;
  std::vector<std::uint32_t> moved(forest.nodes.size(), 0);
  std::uint32_t kept = 0;
  for (std::uint32_t n = 0; n < forest.nodes.size(); ++n) {
    moved[n] = kept;
    kept += forest.nodes[n].rules_below != 0;
  }
  auto renumber = [&](std::vector<std::uint32_t>& list) {
    std::erase_if(list, [&](std::uint32_t n) { return forest.nodes[n].rules_below == 0; });
    for (std::uint32_t& n : list)
      n = moved[n];
  };
  renumber(forest.roots);
  for (PlanNode& node : forest.nodes) {
    renumber(node.children);
    if (node.parent)
      node.parent = moved[*node.parent];
  }
  for (Forest::RulePlans& plans : forest.plans) {
    for (std::uint32_t& n : plans.nodes)
      n = moved[n];
  }
  std::erase_if(forest.nodes, [](const PlanNode& node) { return node.rules_below == 0; });
}

std::uint8_t magnitude(std::uint32_t rows) {
  // Powers of four from 64 on; zero apart. In small tables any order of steps will do.
  constexpr std::uint32_t kSmall = 63;
  return static_cast<std::uint8_t>(rows == 0 ? 0 : (std::bit_width(rows | kSmall) - 1) / 2);
}

/// Plans one rule, for any of its atoms.
class RulePlanner {
public:
  RulePlanner(const Engine& engine, Forest& forest, Estimates& estimates, const Query& query,
              std::span<const QueryTerm> inputs, std::uint32_t rule)
      : engine_(engine), forest_(forest), estimates_(estimates), query_(query), inputs_(inputs),
        shape_(engine, forest, query, inputs), rule_(rule) {}

  /// A ground term without a row: without it there is no match.
  std::optional<std::uint32_t> missing() const { return shape_.missing; }

  /// The node at which the plan ends.
  std::uint32_t add(std::optional<std::uint32_t> focus, bool only_news = false) {
    Planner planner(engine_, query_, shape_, estimates_);
    std::vector<PlanStep> steps = planner.order(focus);
    if (steps.empty() || (steps[0].kind != StepKind::Scan && steps[0].kind != StepKind::Probe))
      steps.insert(steps.begin(),
                   PlanStep{}); // nothing to iterate over: starts from one empty match
    PlanEmit emit{rule_, only_news, {}, planner.conditions()};
    for (QueryTerm term : inputs_)
      emit.inputs.push_back(planner.operand(term));
    forest_.registers = std::max(forest_.registers, planner.registers());
    return insert(forest_, std::move(steps), std::move(emit));
  }

private:
  const Engine& engine_;
  Forest& forest_;
  Estimates& estimates_;
  const Query& query_;
  std::span<const QueryTerm> inputs_;
  QueryShape shape_;
  std::uint32_t rule_;
};

bool hopeless(const Engine& engine, const Query& query) {
  return query.impossible ||
         std::any_of(query.atoms.begin(), query.atoms.end(),
                     [&](const auto& a) { return engine.table(a.function).live() == 0; });
}

bool matched_whole(const Forest& forest, const Query& query) {
  return forest.naive || query.atoms.empty() || query.atoms.size() > kMostFocused;
}

/// A forest without plans.
Forest empty_forest(const Engine& engine, std::vector<std::uint32_t> rules, Evaluation evaluation) {
  Forest forest;
  forest.rules = std::move(rules);
  forest.naive = evaluation == Evaluation::Naive;
  for (std::uint32_t r : forest.rules) {
    for (const TableAtom& atom : engine.rules[r].query.atoms)
      forest.tables.push_back(static_cast<std::uint32_t>(atom.function));
  }
  std::sort(forest.tables.begin(), forest.tables.end());
  forest.tables.erase(std::unique(forest.tables.begin(), forest.tables.end()), forest.tables.end());
  forest.rules_of.resize(forest.tables.size());
  forest.plans.resize(forest.rules.size());
  for (std::uint32_t i = 0; i < forest.rules.size(); ++i) {
    const Query& query = engine.rules[forest.rules[i]].query;
    Forest::RulePlans& plans = forest.plans[i];
    if (forest.naive || query.atoms.empty())
      forest.always.push_back(i);
    for (const TableAtom& atom : query.atoms) {
      auto at = std::lower_bound(forest.tables.begin(), forest.tables.end(),
                                 static_cast<std::uint32_t>(atom.function));
      const auto table = static_cast<std::uint32_t>(at - forest.tables.begin());
      plans.tables.push_back(table);
      auto& of_table = forest.rules_of[table];
      if (!forest.naive && (of_table.empty() || of_table.back() != i))
        of_table.push_back(i);
    }
    plans.focused.assign(std::max<std::size_t>(1, query.atoms.size()), false);
  }
  return forest;
}

/// What tables hold while a forest is brought up to date.
struct TableNews {
  std::vector<bool> news;               ///< per table of the forest: has new rows
  std::vector<std::uint8_t> magnitudes; ///< and its size class
};

/// Brings the plans of one rule up to date. Samples are taken when the first plan is made.
void plan_rule(Engine& engine, Forest& forest, const TableNews& now, GroundRows& grounds,
               std::optional<Estimates>& estimates, std::uint32_t i) {
  const Rule& rule = engine.rules[forest.rules[i]];
  const auto& atoms = rule.query.atoms;
  Forest::RulePlans& plans = forest.plans[i];
  if (hopeless(engine, rule.query))
    return;
  std::vector<std::uint8_t> magnitudes;
  for (std::uint32_t table : plans.tables)
    magnitudes.push_back(now.magnitudes[table]);
  if (magnitudes != plans.magnitudes) {
    drop_plans(forest, i);
    plans.magnitudes = std::move(magnitudes);
  }
  if (plans.awaited && grounds.row(*plans.awaited) == Table::kNone)
    return;
  const bool whole = matched_whole(forest, rule.query);
  std::vector<std::optional<std::uint32_t>> wanted;
  for (std::uint32_t a = 0; a < atoms.size() && !whole; ++a) {
    if (now.news[plans.tables[a]] && !plans.focused[a])
      wanted.emplace_back(a);
  }
  if (whole && !plans.focused[0])
    wanted.emplace_back();
  if (wanted.empty())
    return;
  if (!estimates)
    estimates.emplace(engine);
  RulePlanner planner(engine, forest, *estimates, rule.query, rule.inputs, i);
  // A rule that has plans already gets the others too: it would get all of them once it need not
  // wait any more.
  plans.awaited = plans.nodes.empty() ? planner.missing() : std::nullopt;
  if (plans.awaited)
    return;
  for (std::optional<std::uint32_t> focus : wanted) {
    plans.nodes.push_back(planner.add(focus, whole && !forest.naive && !atoms.empty()));
    plans.focused[focus.value_or(0)] = true;
    ++engine.plans_made;
  }
}

} // namespace

Forest plan_rules(Engine& engine, std::vector<std::uint32_t> rules, Evaluation evaluation,
                  std::uint32_t seen) {
  Forest forest = empty_forest(engine, std::move(rules), evaluation);
  plan_news(engine, forest, seen);
  return forest;
}

void plan_news(Engine& engine, Forest& forest, std::uint32_t seen) {
  TableNews now;
  std::vector<bool> asked(forest.rules.size(), false);
  for (std::uint32_t i : forest.always)
    asked[i] = true;
  for (std::size_t t = 0; t < forest.tables.size(); ++t) {
    const Table& table = engine.tables[forest.tables[t]];
    now.news.push_back(table.since(seen) < table.rows());
    now.magnitudes.push_back(magnitude(table.live()));
    for (std::size_t i = 0; now.news[t] && i < forest.rules_of[t].size(); ++i)
      asked[forest.rules_of[t][i]] = true;
  }
  GroundRows grounds(engine, forest);
  std::optional<Estimates> estimates;
  for (std::uint32_t i = 0; i < forest.rules.size(); ++i) {
    if (asked[i])
      plan_rule(engine, forest, now, grounds, estimates, i);
  }
  prune(forest);
}

Forest plan_query(const Engine& engine, const Query& query, std::span<const QueryTerm> inputs) {
  Forest forest;
  Estimates estimates(engine);
  if (!query.impossible)
    RulePlanner(engine, forest, estimates, query, inputs, 0).add(std::nullopt);
  return forest;
}

} // namespace egret::egraph
