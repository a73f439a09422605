#include "egraph/plan.h"

#include "egraph/engine.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>

namespace egret::egraph {
namespace {

/// Orders the steps of one query greedily: what is free first (primitives, known keys), then the
/// cheapest way to a new atom.
class Planner {
public:
  Planner(Engine& engine, const Query& query, std::span<const QueryTerm> inputs,
          std::map<std::pair<std::uint32_t, std::uint32_t>, double>& fanouts)
      : engine_(engine), query_(query), fanouts_(fanouts), uses_(query.variables, 0),
        registers_(query.variables, -1), atom_done_(query.atoms.size(), false),
        unbound_(query.atoms.size(), 0), prim_missing_(query.prims.size(), 0),
        atoms_of_(query.variables), prims_of_(query.variables), listed_(query.atoms.size(), false) {
    for (std::uint32_t a = 0; a < query.atoms.size(); ++a) {
      const auto& terms = query.atoms[a].terms;
      for (std::size_t i = 0; i < terms.size(); ++i) {
        if (terms[i].is_const)
          continue;
        ++uses_[terms[i].value];
        if (atoms_of_[terms[i].value].empty() || atoms_of_[terms[i].value].back() != a)
          atoms_of_[terms[i].value].push_back(a);
        unbound_[a] += i + 1 < terms.size();
      }
      if (unbound_[a] == 0)
        ready_.push_back(a);
    }
    std::reverse(ready_.begin(), ready_.end());
    for (std::uint32_t p = 0; p < query.prims.size(); ++p) {
      for (QueryTerm term : query.prims[p].args) {
        if (!term.is_const) {
          prims_of_[term.value].push_back(p);
          ++prim_missing_[p];
          ++uses_[term.value];
        }
      }
      if (!query.prims[p].out.is_const)
        ++uses_[query.prims[p].out.value];
      if (prim_missing_[p] == 0)
        ready_prims_.push_back(p);
    }
    std::reverse(ready_prims_.begin(), ready_prims_.end());
    for (QueryTerm term : inputs) {
      if (!term.is_const)
        ++uses_[term.value];
    }
  }

  /// `focus` is the atom that takes the new rows (none for a plan over everything): atoms before it
  /// see old rows only.
  std::vector<PlanStep> order(std::optional<std::uint32_t> focus) {
    focus_ = focus;
    if (focus_)
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
      if (!ready_.empty()) {
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
    return std::move(steps_);
  }

  Operand operand(QueryTerm term) const {
    return term.is_const ? Operand{true, term.value}
                         : Operand{false, static_cast<std::uint32_t>(registers_[term.value])};
  }
  std::uint32_t registers() const { return next_register_; }

private:
  bool known(QueryTerm term) const { return term.is_const || registers_[term.value] >= 0; }

  RowRange range(std::uint32_t atom) const {
    if (!focus_)
      return RowRange::All;
    return atom == *focus_ ? RowRange::New : atom < *focus_ ? RowRange::Old : RowRange::All;
  }

  double fanout(std::uint32_t function, std::uint32_t column) {
    auto [at, added] = fanouts_.try_emplace({function, column}, 0);
    if (added)
      at->second = engine_.tables[function].rows_per_value(column);
    return at->second;
  }

  /// Rows expected from an atom, given what is bound; and the columns to look up.
  double cost(std::uint32_t a, std::vector<std::uint32_t>* columns) {
    const TableAtom& atom = query_.atoms[a];
    std::uint32_t function = static_cast<std::uint32_t>(atom.function);
    double rows = std::max(1u, engine_.tables[function].live());
    double best = rows, all = rows;
    std::vector<std::uint32_t> bound;
    std::uint32_t best_column = 0;
    for (std::uint32_t c = 0; c < atom.terms.size(); ++c) {
      if (!known(atom.terms[c]))
        continue;
      bound.push_back(c);
      double f = fanout(function, c);
      all *= f / rows;
      if (f < best || bound.size() == 1) {
        best = f;
        best_column = c;
      }
    }
    if (bound.empty())
      return rows;
    // An index on several columns pays where one column alone leaves many rows.
    bool several = bound.size() > 1 && best > 8 && all < best / 4;
    if (columns)
      *columns = several ? bound : std::vector<std::uint32_t>{best_column};
    return several ? std::max(all, 0.1) : bound.size() > 1 ? std::max(0.1, best / 2) : best;
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
      double c = cost(a, nullptr);
      if (c < best_cost) {
        best_cost = c;
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

  void bind(std::uint32_t variable) {
    registers_[variable] = next_register_++;
    for (std::uint32_t p : prims_of_[variable]) {
      if (--prim_missing_[p] == 0)
        ready_prims_.push_back(p);
    }
    for (std::uint32_t a : atoms_of_[variable]) {
      if (atom_done_[a])
        continue;
      const auto& terms = query_.atoms[a].terms;
      for (std::size_t i = 0; i + 1 < terms.size(); ++i)
        unbound_[a] -= !terms[i].is_const && terms[i].value == variable;
      if (unbound_[a] == 0)
        ready_.push_back(a);
      else if (!listed_[a]) {
        listed_[a] = true;
        reached_.push_back(a);
      }
    }
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
      if (!scan) {
        cost(a, &step.index);
        if (!step.index.empty()) {
          step.kind = StepKind::Probe;
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
      if (checked[c])
        continue;
      if (known(term)) {
        step.columns.push_back({c, false, operand(term)});
      } else if (uses_[term.value] > 1) { // else nobody asks for it
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
    std::stable_sort(
        step.columns.begin(), step.columns.end(), [&](const ColumnOp& x, const ColumnOp& y) {
          auto rank = [&](const ColumnOp& op) {
            return op.bind ? 1
                   : !op.operand.is_const && op.operand.value >= next_register_ - bound_now.size()
                       ? 2
                       : 0;
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

  Engine& engine_;
  const Query& query_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, double>& fanouts_;
  std::vector<std::uint32_t> uses_; ///< per variable: how often the query and the action mention it
  std::optional<std::uint32_t> focus_;
  std::vector<std::int64_t> registers_; ///< per variable, -1 while unbound
  std::vector<bool> atom_done_;
  std::vector<std::size_t> unbound_; ///< per atom: key positions that are not bound yet
  std::vector<std::size_t> prim_missing_;
  std::vector<std::vector<std::uint32_t>> atoms_of_, prims_of_; ///< per variable
  std::vector<bool> listed_;
  std::vector<std::uint32_t> ready_, ready_prims_, reached_;
  std::uint32_t first_open_ = 0;
  std::uint32_t next_register_ = 0;
  std::vector<PlanStep> steps_;
};

/// Adds a chain of steps to the trie; beginnings that are there already are shared.
void insert(Forest& forest, std::vector<PlanStep> steps, PlanEmit emit) {
  std::vector<std::uint32_t>* level = &forest.roots;
  std::uint32_t node = 0;
  for (PlanStep& step : steps) {
    auto at = std::find_if(level->begin(), level->end(),
                           [&](std::uint32_t n) { return forest.nodes[n].step == step; });
    if (at != level->end()) {
      node = *at;
    } else {
      node = static_cast<std::uint32_t>(forest.nodes.size());
      level->push_back(node);
      forest.nodes.push_back({std::move(step), {}, {}, 0});
    }
    ++forest.nodes[node].rules_below;
    level = &forest.nodes[node].children;
  }
  forest.nodes[node].emits.push_back(std::move(emit));
}

std::uint8_t magnitude(std::uint32_t rows) {
  // Powers of four; zero apart.
  return static_cast<std::uint8_t>(rows == 0 ? 0 : 1 + (std::bit_width(rows) - 1) / 2);
}

void add_plan(Engine& engine, Forest& forest, const Query& query,
              std::optional<std::uint32_t> focus, bool only_news, std::uint32_t rule,
              std::span<const QueryTerm> inputs,
              std::map<std::pair<std::uint32_t, std::uint32_t>, double>& fanouts) {
  Planner planner(engine, query, inputs, fanouts);
  std::vector<PlanStep> steps = planner.order(focus);
  if (steps.empty() || (steps[0].kind != StepKind::Scan && steps[0].kind != StepKind::Probe))
    steps.insert(steps.begin(), PlanStep{}); // nothing to iterate over: starts from one empty match
  PlanEmit emit{rule, only_news, {}};
  for (QueryTerm term : inputs)
    emit.inputs.push_back(planner.operand(term));
  forest.registers = std::max(forest.registers, planner.registers());
  insert(forest, std::move(steps), std::move(emit));
}

} // namespace

Forest plan_rules(Engine& engine, std::vector<std::uint32_t> rules, Evaluation evaluation) {
  Forest forest;
  forest.rules = std::move(rules);
  std::map<std::pair<std::uint32_t, std::uint32_t>, double> fanouts;
  for (std::uint32_t r : forest.rules) {
    for (const TableAtom& atom : engine.rules[r].query.atoms)
      forest.tables.push_back(static_cast<std::uint32_t>(atom.function));
  }
  std::sort(forest.tables.begin(), forest.tables.end());
  forest.tables.erase(std::unique(forest.tables.begin(), forest.tables.end()), forest.tables.end());
  for (std::uint32_t f : forest.tables)
    forest.magnitudes.push_back(magnitude(engine.tables[f].live()));
  for (std::uint32_t i = 0; i < forest.rules.size(); ++i) {
    const Rule& rule = engine.rules[forest.rules[i]];
    bool hopeless = rule.query.impossible;
    for (const TableAtom& atom : rule.query.atoms)
      hopeless |= engine.table(atom.function).live() == 0;
    if (hopeless)
      continue;
    const std::size_t atoms = rule.query.atoms.size();
    if (evaluation == Evaluation::Naive || atoms == 0 || atoms > kMostFocused) {
      bool only_news = evaluation == Evaluation::SemiNaive && atoms != 0;
      add_plan(engine, forest, rule.query, std::nullopt, only_news, i, rule.inputs, fanouts);
      continue;
    }
    for (std::uint32_t a = 0; a < atoms; ++a)
      add_plan(engine, forest, rule.query, a, false, i, rule.inputs, fanouts);
  }
  return forest;
}

bool still_fits(const Engine& engine, const Forest& forest) {
  for (std::size_t i = 0; i < forest.tables.size(); ++i) {
    if (magnitude(engine.tables[forest.tables[i]].live()) != forest.magnitudes[i])
      return false;
  }
  return true;
}

Forest plan_query(Engine& engine, const Query& query, std::span<const QueryTerm> inputs) {
  Forest forest;
  std::map<std::pair<std::uint32_t, std::uint32_t>, double> fanouts;
  if (!query.impossible)
    add_plan(engine, forest, query, std::nullopt, false, 0, inputs, fanouts);
  return forest;
}

} // namespace egret::egraph
