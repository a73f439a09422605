// How a ruleset is matched: for every rule and every atom that may hold the new row, an order of
// steps; the orders of all rules merged into a trie, so that shared beginnings run once.
#pragma once

#include "egraph/query.h"

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace egret::egraph {

struct Engine;
struct Rule;

enum class StepKind : std::uint8_t {
  Start,  ///< nothing: the root of rules without tables
  Scan,   ///< every row in range
  Probe,  ///< rows found by an index on some columns
  Lookup, ///< the row of a known key
  Prim    ///< a primitive
};

/// Which rows of a table a step may see.
enum class RowRange : std::uint8_t { All, New, Old };

/// A register or a constant. The values of ground terms are in registers of their own, which count
/// down from -1.
struct Operand {
  bool is_const = false;
  std::uint32_t value = 0; ///< of a register as if signed
  auto operator<=>(const Operand&) const = default;
};

/// What to do with one column of a row that was found.
struct ColumnOp {
  std::uint32_t column = 0;
  bool bind = false; ///< store it in register operand.value; else it must equal the operand
  Operand operand;
  bool operator==(const ColumnOp&) const = default;
};

/// Another way to the rows of a Probe, where an atom whose key follows from them is looked up next,
/// as in `(e a b) (e b c) (e c a)`: the rows of that atom with what is known before, from which the
/// probed atom's key follows. Going through the fewer of both in each case bounds the work as
/// worst-case optimal joins do (Ngo, Porat, Ré & Rudra 2012; free join, Wang et al. 2023).
struct Crossing {
  std::uint32_t target = 0;         ///< the other atom's function
  std::vector<std::uint32_t> index; ///< its columns that are known
  std::vector<Operand> key;         ///< their values
  std::vector<ColumnOp> binds;      ///< its columns that give what the probe would bind
  std::vector<Operand> whole;       ///< its key
  std::vector<Operand> own;         ///< the key of the probed atom
  bool operator==(const Crossing&) const = default;
};

struct PlanStep {
  StepKind kind{};
  RowRange range = RowRange::All;
  std::uint32_t target = 0;         ///< function or primitive
  std::vector<std::uint32_t> index; ///< Probe: columns of the index
  std::vector<Operand> key;         ///< Probe: their values; Lookup: the key; Prim: the arguments
  std::vector<ColumnOp> columns;    ///< Scan, Probe, Lookup: the other columns
  std::optional<Crossing> crossing; ///< Probe, where many rows are expected
  bool binds_out = false; ///< Prim: result goes to register out.value; else it must equal out
  Operand out;
  bool operator==(const PlanStep&) const = default;
};

/// A term without variables. Its row is looked up at most once in an iteration, whatever rules
/// mention it.
struct Ground {
  std::uint32_t function = 0;
  std::vector<Operand> key; ///< constants and earlier grounds
  auto operator<=>(const Ground&) const = default;
};

/// A plan leads to matches only if a ground term has a row in range with a certain output.
struct GroundCondition {
  std::uint32_t ground = 0; ///< position in Forest::grounds
  RowRange range = RowRange::All;
  Operand output;
};

/// The crossing of a probe of an atom with this key, which binds the registers from `first` on,
/// with a lookup after it; nothing if the one does not follow from the other.
std::optional<Crossing> crossing_of(const PlanStep& probe, std::vector<Operand> own_key,
                                    const PlanStep& lookup, std::uint32_t first);

/// The only column by which a step looks rows up.
inline std::optional<std::uint32_t> only_column(const PlanStep& step) {
  const bool looks_up = step.kind == StepKind::Probe || step.kind == StepKind::Lookup;
  if (!looks_up || step.key.size() != 1)
    return std::nullopt;
  return step.kind == StepKind::Probe ? step.index[0] : 0;
}

/// A rule matched here; its action's inputs are these operands.
struct PlanEmit {
  std::uint32_t rule = 0; ///< position in Forest::rules
  bool only_news = false; ///< a plan over all rows: a match counts if one of its rows is new
  std::vector<Operand> inputs;
  std::vector<GroundCondition> grounds;
};

struct PlanNode {
  PlanStep step;
  std::optional<std::uint32_t> parent;
  std::vector<std::uint32_t> children;
  std::vector<PlanEmit> emits;
  std::uint32_t rules_below = 0; ///< number of emits in the subtree
};

/// The merged plans of a set of rules.
struct Forest {
  std::vector<PlanNode> nodes;
  std::vector<std::uint32_t> roots;
  std::vector<std::uint32_t> rules; ///< indexes in Engine::rules
  std::vector<Ground> grounds;
  std::map<Ground, std::uint32_t> ground_positions;
  /// What was planned of one rule.
  struct RulePlans {
    std::vector<std::uint32_t> tables;    ///< per atom: position in Forest::tables
    std::vector<std::uint8_t> magnitudes; ///< per atom: of its table when this was planned
    std::vector<bool> focused; ///< per atom: a plan starts from its new rows; or one for all rows
    std::vector<std::uint32_t> nodes;     ///< where its plans end
    std::optional<std::uint32_t> awaited; ///< a ground term without which it has no plans
  };
  std::vector<RulePlans> plans; ///< per rule
  bool naive = false;           ///< all rows are matched by one plan for each rule
  std::uint32_t registers = 0;
  std::vector<std::uint32_t> tables;                ///< functions that the rules mention
  std::vector<std::vector<std::uint32_t>> rules_of; ///< of them: the rules, as positions
  std::vector<std::uint32_t> always; ///< rules that are matched also where no table has new rows
  std::size_t emits = 0;             ///< plans in all nodes
  std::size_t dropped = 0;           ///< plans that were taken out since the last pruning
};

/// Forests by their sets of rules. They are kept from run to run, and mended where table sizes have
/// shifted.
struct PlanCache {
  struct Entry {
    std::vector<std::uint32_t> rules;
    bool naive = false;
    Forest forest;
  };
  std::vector<Entry> entries;
};

enum class Evaluation : std::uint8_t { Naive, SemiNaive };

/// A plan for each atom that may hold the new row takes a number of steps quadratic in the atoms.
/// Longer premises get one plan over all rows, whose matches are asked for a new row at the end.
inline constexpr std::size_t kMostFocused = 128;

/// The register that holds the value of a ground term.
inline Operand ground_register(std::uint32_t ground) {
  return {false, ~ground};
}

/// Plans the rules, as plan_news() does from an empty forest.
Forest plan_rules(Engine& engine, std::vector<std::uint32_t> rules, Evaluation evaluation,
                  std::uint32_t seen = 0);
/// Brings the plans up to date with the tables for matching rows newer than `seen`. Only rules that
/// mention a table with such rows are looked at (in a naive forest: all). Of these, a rule whose
/// tables left their size classes (powers of four) loses its plans; then plans are made from each
/// table that has new rows and none yet. A rule that asks a table without rows, or a ground term
/// without a row, gets none: it cannot match until that changes, which is news.
void plan_news(Engine& engine, Forest& forest, std::uint32_t seen);
/// The plan of one query over all rows, subsumed ones included where asked.
Forest plan_query(const Engine& engine, const Query& query, std::span<const QueryTerm> inputs);

} // namespace egret::egraph
