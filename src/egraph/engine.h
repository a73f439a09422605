// The e-graph: declarations, tables, classes, rules. Plain data that can be copied; what happens to
// it is in the functions below and in match.h, plan.h and schedule.h.
#pragma once

#include "egraph/action.h"
#include "egraph/plan.h"
#include "egraph/pools.h"
#include "egraph/query.h"
#include "egraph/signature.h"
#include "egraph/source.h"
#include "egraph/table.h"
#include "egraph/union_find.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace egret {
class ThreadPool;
}

namespace egret::egraph {

/// What a rule cost and found so far.
struct RuleStats {
  std::uint64_t matches = 0;
  std::uint64_t runs = 0;   ///< iterations in which it was asked
  double match_seconds = 0; ///< its share of the time spent matching
  double apply_seconds = 0;
  double idle_seconds = 0; ///< match time in iterations in which it found nothing
  std::uint64_t rows_added = 0;
};

struct Rule {
  std::string name;
  Span span;
  Query query;
  ActionProgram action;
  std::vector<QueryTerm> inputs; ///< what each input register of the action is
  bool naive = false;
  bool include_subsumed = false;  ///< matches subsumed rows too
  std::uint32_t seen = 0;         ///< rows newer than this time were not matched yet; 0: never run
  std::uint32_t banned_until = 0; ///< back-off: first time at which it may run again
  std::uint32_t times_banned = 0;
  RuleStats stats;
};

struct Ruleset {
  std::string name;
  std::vector<RuleId> rules;
  std::vector<RulesetId> parts; ///< of a combined ruleset
  bool combined = false;
  PlanCache plans;
};

/// Bounds of the run in progress, looked at now and then while matching and acting.
struct Limits {
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  std::uint64_t rows = Budget::kNoLimit;
  std::uint64_t matches = Budget::kNoLimit; ///< that may still be found
  std::uint64_t bytes = Budget::kNoLimit;
  const std::atomic<bool>* cancel = nullptr;
  std::optional<StopReason> reached; ///< what cut the run short

  /// Whether time is up or the run was cancelled.
  std::optional<StopReason> late() const {
    if (cancel != nullptr && cancel->load(std::memory_order_relaxed))
      return StopReason::Cancelled;
    if (deadline != std::chrono::steady_clock::time_point::max() &&
        std::chrono::steady_clock::now() > deadline)
      return StopReason::Time;
    return std::nullopt;
  }
  /// Notes why the run is cut short; the first reason stays. True if there is one.
  bool cut(std::optional<StopReason> reason) {
    if (reason && !reached)
      reached = reason;
    return reason.has_value();
  }
};

/// The journal, and what is needed to go on with it.
struct JournalState {
  Journal journal;
  std::vector<bool> joined; ///< by class: its join is noted
};

/// A time after that of every row.
inline constexpr std::uint32_t kNow = std::numeric_limits<std::uint32_t>::max();

/// The most threads an engine may be given.
inline constexpr int kMostThreads = 64;

struct Engine {
  Engine();

  Limits limits;

  Sources sources;
  Signature signature;
  Pools pools;
  UnionFind classes;
  std::vector<Table> tables; ///< by FunctionId
  /// Functions that are not globals. Programs may have thousands of globals, so what is done in
  /// every iteration goes over these.
  std::vector<std::uint32_t> ordinary;
  /// The globals with their values, which are also in their tables.
  std::vector<std::pair<FunctionId, Value>> globals;
  /// Those of equality sorts by their class.
  std::unordered_multimap<Value, std::uint32_t> globals_of_class;
  /// Those of other sorts whose values change.
  std::vector<std::uint32_t> container_globals;
  std::vector<Rule> rules;
  std::vector<Ruleset> rulesets; ///< 0 is the unnamed one
  std::uint32_t now = 1;         ///< time of the rows that are appended now
  bool seminaive = true;
  int threads = 1; ///< for matching
  std::optional<JournalState> journal;
  /// A pool of so many threads, made when it is first asked for; null where there is to be but one.
  ThreadPool* pool();
  double search_seconds = 0, apply_seconds = 0, rebuild_seconds = 0;
  std::uint64_t match_steps = 0;   ///< rows and primitives looked at while matching
  std::uint64_t rebuild_steps = 0; ///< rows and index entries looked at while rebuilding
  std::uint64_t plans_made = 0;    ///< orders of steps found for a rule
  /// Words of matches that are stored before they are acted on (Matcher::drain).
  std::size_t batch_words = std::size_t{1} << 24;

  Table& table(FunctionId id) { return tables[Signature::index(id)]; }
  const Table& table(FunctionId id) const { return tables[Signature::index(id)]; }
  FunctionId add_function(Function function);
  FunctionId add_global(Function function, Value value);
  std::optional<RulesetId> find_ruleset(std::string_view name) const;

  /// The value that stands for `value` now: the class it was joined into, the container with its
  /// contents joined.
  Value canonical(SortId sort, Value value);
  Value canonical(SortId sort, Value value) const;

  /// Sum of the changes of every table and of all unions; equal before and after means that nothing
  /// happened.
  std::uint64_t changes() const;
  std::uint64_t live_rows() const;
  std::size_t bytes() const;
  /// Which limit of time, rows or memory is exceeded when `waiting` bytes of matches are stored.
  std::optional<StopReason> exceeded(std::size_t waiting = 0) const;
  /// batch_words, or a sixteenth of the limit of memory if that is less.
  std::size_t batch() const {
    constexpr std::uint64_t kShare = 16 * sizeof(Value);
    return static_cast<std::size_t>(
        std::min<std::uint64_t>(batch_words, limits.bytes / kShare + 1));
  }

private:
  std::shared_ptr<ThreadPool> pool_; ///< shared with the copies
};

/// Runs an action program once. `registers` are scratch space of at least program.registers words
/// with the inputs set.
class Actor {
public:
  explicit Actor(Engine& engine) : engine_(engine) {}
  /// Sets the constants; the inputs are the first words of the result.
  Value* prepare(const ActionProgram& program);
  void run(const ActionProgram& program);
  /// Runs the program for each of `count` matches of `width` words. False if a limit of the engine
  /// cut that short, which engine.limits.reached then tells.
  bool run_all(const ActionProgram& program, const Value* words, std::size_t width,
               std::uint64_t count);
  Value result(const ActionProgram& program) const { return registers_[program.result]; }
  /// Rows appended by this actor so far.
  std::uint64_t appended() const { return appended_; }
  /// Carries out the deletions that were asked for since begin_phase(): rows that were written
  /// since stay. `programs` are those that may run in between.
  void begin_phase(std::span<const ActionProgram* const> programs);
  void end_phase();

  Value construct(FunctionId function, const Value* args);
  void set(FunctionId function, const Value* args, Value value, Span span);
  void subsume(FunctionId function, const Value* args);

private:
  void canonical_args(const Function& function, const ActionProgram& program,
                      const ActionStep& step);
  Value construct(FunctionId function, const Value* args, std::uint32_t hash);
  void construct_into(FunctionId function, const Value* args, std::uint32_t hash, Value target);
  [[noreturn]] void primitive_failed(const Primitive& primitive, const ActionStep& step);
  bool runs_in_blocks(const ActionProgram& program) const;
  void run_block(const ActionProgram& program, std::size_t count);
  std::size_t block_size(const ActionProgram& program, std::uint64_t left);
  void primitive_block(const ActionProgram& program, const ActionStep& step, std::size_t count);
  void table_block(const ActionProgram& program, const ActionStep& step, std::size_t count);
  Engine& engine_;
  std::vector<Value> registers_;
  std::vector<Value> args_;
  std::uint64_t appended_ = 0;
  std::vector<Value> block_;          ///< registers of a block of matches, register by register
  std::vector<Value> keys_;           ///< of a block, match by match
  std::vector<std::uint32_t> hashes_; ///< of those
  /// A table that programs of the phase delete from.
  struct Deleting {
    std::uint32_t function = 0;
    std::uint32_t rows = 0;                      ///< at the start of the phase
    std::vector<std::uint32_t> doomed;           ///< of those, what is to be deleted
    std::unordered_set<std::uint32_t> rewritten; ///< of those, what was written again
  };
  Deleting* deleting(FunctionId function);
  void note_rewritten(FunctionId function, std::uint32_t row);
  std::vector<Deleting> deleting_;
  std::uint64_t since_look_ = 0; ///< matches acted on since all limits were looked at
};

/// The value of a :merge of two different outputs of one key. Throws where there is no merge.
Value merged(Engine& engine, FunctionId function, const Value* key, Value old_value,
             Value new_value, Span span);

/// Restores congruence: joins classes of equal terms, merges functions whose keys became equal, and
/// brings every row and container to canonical values.
void rebuild(Engine& engine);

/// Throws InternalError where a table, class or container breaks an invariant of a rebuilt e-graph.
void check_invariants(const Engine& engine);

} // namespace egret::egraph
