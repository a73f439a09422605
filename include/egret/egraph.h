// The e-graph engine: equality saturation with rules, functions with merges and extraction,
// programmed from C++ or in egglog's language. docs/egraph.md tells the language and shows this
// interface by example.
#pragma once

#include "egret/error.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace egret::egraph {

/// 32 bits whose meaning depends on the sort: an e-class, a number, an interned string or
/// container. Equal things of one sort have equal values once the e-graph is rebuilt; see
/// EGraph::canonical.
using Value = std::uint32_t;

enum class SortId : std::uint32_t {};
enum class FunctionId : std::uint32_t {};
enum class RulesetId : std::uint32_t {};
enum class RuleId : std::uint32_t {};

/// An error at a place of a program; what() holds "file:line:column: message" and shows the source
/// line.
class SourceError : public Error {
public:
  SourceError(ErrorKind kind, const std::string& message, std::uint32_t line, std::uint32_t column)
      : Error(kind, message), line_(line), column_(column) {}
  /// Counted from 1; 0 where the place is not in a text.
  std::uint32_t line() const noexcept { return line_; }
  std::uint32_t column() const noexcept { return column_; }

private:
  std::uint32_t line_;
  std::uint32_t column_;
};

/// Limits of a run; whatever is reached first ends it, also in the middle of an iteration, while
/// matches are found or acted on. Rebuilding is never cut short. The default has none.
struct Budget {
  static constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();
  double seconds = std::numeric_limits<double>::infinity();
  std::uint64_t rows = kNoLimit;       ///< live rows of all tables; the last match may exceed it
  std::uint64_t iterations = kNoLimit; ///< runs of a ruleset
  std::uint64_t matches = kNoLimit;    ///< that rules find in all
  std::uint64_t bytes = kNoLimit; ///< of tables, indexes, classes, values and matches that wait
  /// Ends the run soon after it became true. It may be set by another thread or a signal handler,
  /// and must outlive the run.
  const std::atomic<bool>* cancel = nullptr;
};

/// Why a run ended. All but Done: a limit cut it short, and rules may have more to find.
enum class StopReason : std::uint8_t { Done, Iterations, Rows, Time, Matches, Memory, Cancelled };

/// What one rule did in a run.
struct RuleReport {
  std::string name;
  std::uint64_t matches = 0;
  std::uint64_t rows_added = 0;
  double match_seconds = 0; ///< its share of the time spent matching
  double apply_seconds = 0;
  double idle_seconds = 0;        ///< match time in iterations in which it found nothing
  std::uint32_t times_banned = 0; ///< by the back-off scheduler
};

/// What a run did.
struct RunReport {
  bool updated = false; ///< anything changed
  StopReason stop = StopReason::Done;
  std::uint64_t iterations = 0;
  std::uint64_t rows = 0; ///< live rows at the end
  double seconds = 0;
  std::uint64_t match_steps = 0; ///< rows and primitives looked at while matching
  std::vector<RuleReport> rules; ///< those that matched or took time, by rows added, most first
};

/// What rules made and joined, in order, while it was kept (EGraph::keep_journal).
struct Journal {
  /// A constructor's node that was new, with its class and its arguments as they were then: later
  /// joins are in `joined`.
  struct Made {
    FunctionId function{};
    std::vector<Value> args;
    Value output = 0;
    RuleId rule{};
  };
  /// A class that became part of an older one.
  struct Joined {
    Value lost = 0, kept = 0;
    std::optional<RuleId> rule; ///< empty: two of its nodes had become equal
  };
  std::vector<Made> made;
  std::vector<Joined> joined;
};

/// A term or several that share parts. Nodes come after their children; equal nodes are one.
struct TermGraph {
  struct Node {
    bool is_literal = false;
    FunctionId function{}; ///< of a constructor's node
    SortId sort{};
    Value value = 0;       ///< the literal, or the class the node was taken from
    std::string container; ///< for a container: the primitive that builds it, such as vec-of
    std::vector<std::uint32_t> children;
  };
  std::vector<Node> nodes;
  std::vector<std::uint32_t> roots;
  double cost = 0; ///< of what was asked: tree cost, or DAG cost with shared classes paid once
};

/// What a user primitive sees: literals by value. It must not outlive the call.
class PrimitiveCall {
public:
  std::int64_t to_i64(Value v) const;
  double to_f64(Value v) const;
  bool to_bool(Value v) const { return v != 0; }
  std::string to_string(Value v) const;
  Value from_i64(std::int64_t x);
  Value from_f64(double x);
  Value from_bool(bool x) { return x; }
  Value from_string(std::string_view x);

private:
  friend class EGraph;
  explicit PrimitiveCall(void* pools) : pools_(pools) {}
  void* pools_;
};

/// Computes a primitive; an empty result means that it has none (the query does not match).
using PrimitiveBody = std::function<std::optional<Value>(PrimitiveCall&, std::span<const Value>)>;

/// Whether a primitive depends on its arguments alone. Equal pure calls in one rule are computed
/// once.
enum class Purity : std::uint8_t { Pure, Impure };

struct ConstructorOptions {
  std::uint64_t cost = 1; ///< of a node, for extraction
  bool unextractable = false;
};

/// What happens when a function gets a second value for the same arguments: an error that names
/// both facts, an expression over `old` and `new`, or a C++ function of (old, new), which must be
/// pure.
struct Merge {
  static Merge none() { return {}; }
  static Merge expression(std::string text) { return {std::move(text), {}}; }
  static Merge function(std::function<Value(PrimitiveCall&, Value, Value)> body) {
    return {{}, std::move(body)};
  }
  std::string text;
  std::function<Value(PrimitiveCall&, Value, Value)> body;
};

struct RuleOptions {
  std::string name = {};
  RulesetId ruleset{};
  bool naive = false; ///< match all rows every time; functions may then be read in actions
};

/// A rule built from C++: facts over terms, then actions. Terms belong to the builder that made
/// them.
class RuleBuilder {
public:
  struct Term {
    std::uint32_t node = 0;
  };
  explicit RuleBuilder(const class EGraph& egraph);
  RuleBuilder(RuleBuilder&&) noexcept;
  RuleBuilder& operator=(RuleBuilder&&) noexcept;
  ~RuleBuilder();

  /// A variable; a second call with the same name gives the same variable.
  Term var(const std::string& name, SortId sort);
  Term constant(SortId sort, Value value);
  /// A constructor, relation or function applied to terms. Throws Error where number or sorts do
  /// not fit.
  Term call(FunctionId function, const std::vector<Term>& args);
  /// A primitive, its overload chosen by the sorts of the arguments (and by `result` where those do
  /// not decide).
  Term primitive(std::string_view name, const std::vector<Term>& args,
                 std::optional<SortId> result = std::nullopt);

  /// Demands that the term (a call, a relation's fact, a boolean primitive) exists or holds.
  RuleBuilder& where(Term holds);
  /// Demands that both terms are equal; Error(Value) for different sorts.
  RuleBuilder& where_equal(Term a, Term b);
  /// Adds the term, or the fact of a relation.
  RuleBuilder& then_add(Term term);
  /// Joins the classes of two terms.
  RuleBuilder& then_union(Term a, Term b);
  /// Sets a function's value; its merge decides where it has one.
  RuleBuilder& then_set(Term call, Term value);
  /// Removes a row at the end of the iteration.
  RuleBuilder& then_delete(Term call);
  /// Hides a row of a constructor or relation from rules and extraction.
  RuleBuilder& then_subsume(Term call);

private:
  friend class EGraph;
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

/// Postpones rules that match too much: one with more than `match_limit` matches is left out for
/// `ban_length` iterations, and both double each time (the scheme of egg).
struct BackOff {
  std::uint64_t match_limit = 1000;
  std::uint32_t ban_length = 5;
};

/// When to run which rules.
struct Plan {
  enum class Kind : std::uint8_t { Run, Sequence, Repeat, Saturate } kind = Kind::Sequence;
  RulesetId ruleset{};
  std::uint64_t times = 1;
  std::vector<Plan> parts;
  std::optional<BackOff> back_off; ///< of a Run
  static Plan run(RulesetId ruleset, std::uint64_t times = 1) {
    return {Kind::Run, ruleset, times, {}, {}};
  }
  static Plan run(RulesetId ruleset, std::uint64_t times, BackOff back_off) {
    return {Kind::Run, ruleset, times, {}, back_off};
  }
  static Plan sequence(std::vector<Plan> parts) {
    return {Kind::Sequence, {}, 1, std::move(parts), {}};
  }
  static Plan repeat(std::uint64_t times, std::vector<Plan> parts) {
    return {Kind::Repeat, {}, times, std::move(parts), {}};
  }
  static Plan saturate(std::vector<Plan> parts) {
    return {Kind::Saturate, {}, 1, std::move(parts), {}};
  }
};

/// The cost of one node by itself, not negative; its children are paid apart.
using CostModel = std::function<double(FunctionId, std::span<const Value> args)>;

enum class CostKind : std::uint8_t {
  Tree, ///< every use of a class is paid
  Dag   ///< a class is paid once, however many use it
};

struct ExtractOptions {
  CostKind kind = CostKind::Dag;
  CostModel cost = {};               ///< the declared costs where empty
  std::size_t count = 1;             ///< at most this many different results, best first
  std::uint64_t exact_steps = 20000; ///< Dag: search steps for each independent group of choices
};

/// A value with its sort.
struct Root {
  SortId sort{};
  Value value = 0;
};

/// One row of a function.
struct Row {
  std::span<const Value> args;
  Value output = 0;
  bool subsumed = false;
};

/// An e-graph with its rules. Copying copies everything: a copy is a snapshot that goes its own
/// way. One object is used by one thread at a time; different objects are independent.
class EGraph {
public:
  EGraph();
  EGraph(const EGraph& other);
  EGraph(EGraph&&) noexcept;
  EGraph& operator=(const EGraph& other);
  EGraph& operator=(EGraph&&) noexcept;
  ~EGraph();
  EGraph clone() const { return *this; }

  /// Runs a program in egglog's language (docs/egraph.md) and returns what it prints. Throws
  /// SourceError.
  std::string run_program(std::string_view text, std::string name = "program");
  /// The same for a file; Error(File) where it cannot be read.
  std::string run_file(const std::string& path);
  /// Where (input ...) looks for relative names.
  void set_fact_directory(std::string path);
  /// Limit of every run that a program asks for.
  void set_budget(const Budget& budget);
  /// How many runs that programs asked for were cut short by that limit so far.
  std::uint64_t cut_runs() const;
  /// How many threads may match rules (1 at first), where there is enough to match. Results do not
  /// depend on it. Error(Value) outside of 1 to 64.
  void set_threads(int threads);

  // Declarations. Error(Value) for a name that is declared already; sorts, constructors, relations
  // and functions also need one that is not empty.

  SortId declare_sort(const std::string& name);
  /// Error(Value) unless `output` is an equality sort.
  FunctionId declare_constructor(const std::string& name, std::vector<SortId> inputs, SortId output,
                                 ConstructorOptions options = {});
  FunctionId declare_relation(const std::string& name, std::vector<SortId> inputs);
  FunctionId declare_function(const std::string& name, std::vector<SortId> inputs, SortId output,
                              Merge merge);
  /// Primitives of one name are told apart by the sorts of their arguments.
  void declare_primitive(const std::string& name, std::vector<SortId> params, SortId result,
                         PrimitiveBody body, Purity purity = Purity::Pure);
  RulesetId declare_ruleset(const std::string& name);
  /// Throw Error where there is none of that name.
  SortId sort(std::string_view name) const;
  FunctionId function(std::string_view name) const;
  RulesetId ruleset(std::string_view name) const;
  const std::string& name(FunctionId function) const;
  const std::string& name(SortId sort) const;
  const std::string& name(RuleId rule) const;
  std::span<const SortId> inputs(FunctionId function) const;
  SortId output(FunctionId function) const;

  /// Error(Value) for a rule that was built for another e-graph, for a combined ruleset, and where
  /// an action reads a function though the rule is not naive.
  RuleId add_rule(RuleBuilder builder, RuleOptions options = {});

  // Literals as values, and back.
  Value i64(std::int64_t x);
  Value f64(double x);
  Value string(std::string_view x);
  static Value boolean(bool x) { return x; }
  std::int64_t to_i64(Value v) const;
  double to_f64(Value v) const;
  const std::string& to_string(Value v) const;

  /// The class of a constructor's term, made if absent; for a relation, inserts the fact and
  /// returns unit. Error(Value) for a function (use set()) or a wrong number of arguments.
  Value add(FunctionId function, std::span<const Value> args);
  Value add(FunctionId function, std::initializer_list<Value> args) {
    return add(function, std::span<const Value>(args.begin(), args.size()));
  }
  /// Sets a function's value; its merge decides where it has one. Error(Value) for anything but a
  /// function (use add()) or a wrong number of arguments.
  void set(FunctionId function, std::span<const Value> args, Value value);
  void set(FunctionId function, std::initializer_list<Value> args, Value value) {
    set(function, std::span<const Value>(args.begin(), args.size()), value);
  }
  /// Joins two classes. Call rebuild() before asking anything; runs do it by themselves.
  /// Error(Value) unless both are classes.
  void unite(Value a, Value b);
  void rebuild();
  /// The value of a term that exists, or nothing.
  std::optional<Value> lookup(FunctionId function, std::span<const Value> args) const;
  std::optional<Value> lookup(FunctionId function, std::initializer_list<Value> args) const {
    return lookup(function, std::span<const Value>(args.begin(), args.size()));
  }
  /// The value that stands for `value` after what was joined.
  Value canonical(SortId sort, Value value) const;
  bool equal(SortId sort, Value a, Value b) const {
    return canonical(sort, a) == canonical(sort, b);
  }

  /// Runs the ruleset up to `times` times or until nothing changes; the report says why it ended.
  RunReport run(RulesetId ruleset, std::uint64_t times = 1, const Budget& budget = {});
  RunReport run(const Plan& plan, const Budget& budget = {});

  /// From now on runs note what rules make and join. Costs time for every rule and iteration, so it
  /// is for people who look at an e-graph.
  void keep_journal();
  /// Empty where none is kept.
  const Journal& journal() const;

  /// Throws Error where a root has no term.
  TermGraph extract(std::span<const Root> roots, const ExtractOptions& options = {}) const;
  TermGraph extract(Root root, const ExtractOptions& options = {}) const {
    return extract(std::span(&root, 1), options);
  }
  /// options.count results, best first.
  std::vector<TermGraph> extract_best(std::span<const Root> roots,
                                      const ExtractOptions& options) const;
  /// Results drawn at random, cheaper ones more often; `heat` spreads the choice (0: always the
  /// cheapest tree).
  std::vector<TermGraph> sample(std::span<const Root> roots, std::size_t count, std::uint64_t seed,
                                double heat = 1, const CostModel& cost = {}) const;
  /// A root of a term graph as text: a tree while that is short, else with (let ...) for what is
  /// shared.
  std::string show(const TermGraph& graph, std::size_t root = 0) const;

  /// Number of rows of a function; of all functions.
  std::size_t size(FunctionId function) const;
  std::size_t size() const;
  /// Calls `visit` for every row, oldest first.
  void for_each_row(FunctionId function, const std::function<void(const Row&)>& visit) const;
  /// Bytes held by tables, indexes, classes and values.
  std::size_t bytes() const;

  /// The e-graph in the form of egraph-serialize, and as a Graphviz graph. Globals are marked:
  /// their classes are the root_eclasses of the former.
  void write_json(std::ostream& out) const;
  void write_dot(std::ostream& out) const;
  std::string to_json() const;
  std::string to_dot() const;
  /// Throws InternalError where an invariant is broken. The developer build calls it after every
  /// step.
  void check() const;

private:
  friend class RuleBuilder;
  friend struct EGraphAccess;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace egret::egraph
