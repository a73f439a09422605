// From read text to typed expressions. Everything is checked before anything runs: names, arities,
// sorts, scopes.
#pragma once

#include "egraph/containers.h"
#include "egraph/sexp.h"
#include "egraph/signature.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace egret::egraph {

enum class ExprKind : std::uint8_t { Variable, Constant, Call, Primitive };

/// A typed expression. Nodes are stored children first, so that passes are loops, however deep a
/// term is.
struct ExprNode {
  ExprKind kind{};
  Span span;
  SortId sort{};
  std::uint32_t target = 0; ///< variable, constant's value, function or primitive
  std::uint32_t first = 0;  ///< where its children start in Typed::children
  std::uint32_t count = 0;
};

enum class ActionKind : std::uint8_t { Let, Set, Union, Delete, Subsume, Panic, Expr };

/// An action over expression nodes: Let binds `variable`; Set, Delete and Subsume take the call
/// `a`; Union takes both.
struct TypedAction {
  ActionKind kind{};
  Span span;
  std::uint32_t a = 0;
  std::uint32_t b = 0;
  std::uint32_t variable = 0;
  std::string message;
};

/// A fact: a equals b, or (a == b) that a holds.
struct TypedFact {
  std::uint32_t a = 0;
  std::uint32_t b = 0;
  Span span;
};

struct TypedVariable {
  std::string name;
  SortId sort{};
  Span span;
  bool bound_by_let = false;
};

struct Typed {
  std::vector<ExprNode> nodes;
  std::vector<std::uint32_t> children;
  std::vector<TypedVariable> variables;
  std::vector<TypedFact> facts;
  std::vector<TypedAction> actions;
  std::span<const std::uint32_t> args(const ExprNode& node) const {
    return {children.data() + node.first, node.count};
  }
};

/// Collects facts, actions and expressions of one scope, then infers and checks their sorts.
class TypeChecker {
public:
  TypeChecker(const Signature& signature, const Sources& sources, Pools& pools)
      : signature_(signature), sources_(sources), pools_(pools) {}

  /// Functions may be read in actions (at top level and in :naive rules).
  void allow_reads(bool allowed) { reads_allowed_ = allowed; }
  void facts(Sexp list);
  void actions(Sexp list);
  void fact(Sexp sexp);
  void action(Sexp sexp);
  /// A free-standing expression; returns its node. In a query, unknown names become variables.
  std::uint32_t expression(Sexp sexp, bool in_query);
  /// A variable that is bound from outside, such as old and new in :merge.
  std::uint32_t declare(std::string name, SortId sort, Span span);
  /// lhs -> rhs, as facts and actions.
  /// The left side may have wildcards also where it is subsumed.
  void rewrite(Sexp lhs, Sexp rhs, const std::vector<Sexp>& conditions, bool subsume);
  /// The value of an expression of a query, as an action.
  void ask(Sexp sexp);
  /// Demands a sort of a node.
  void expect(std::uint32_t node, SortId sort);
  /// Solves for every sort; throws SourceError where that is impossible or ambiguous.
  Typed finish();

private:
  /// A primitive whose overload is still open.
  struct Pending {
    std::uint32_t node;
    std::vector<PrimId> candidates;
    std::vector<FnTarget> targets; ///< of (unstable-fn "name" ...): one for each candidate
  };
  std::uint32_t add(ExprNode node, std::uint32_t type);
  std::uint32_t leaf(Sexp sexp, bool in_query);
  std::uint32_t call(Sexp sexp, std::span<const std::uint32_t> children, bool in_query);
  std::uint32_t unstable_fn(Sexp sexp, std::span<const std::uint32_t> children);
  std::uint32_t new_variable(std::string name, Span span);
  void subsume_matched(std::uint32_t matched, Span span);
  std::uint32_t name_of(std::uint32_t node, std::string name);
  std::uint32_t target_call(Sexp sexp, const char* action);
  std::string misfit(Span span, SortId expected, SortId found) const;
  void expect_list(Sexp list, const char* of, const char* example) const;
  void not_a_global(std::string_view name, Span span) const;

  std::uint32_t fresh_type();
  std::uint32_t find_type(std::uint32_t type);
  std::optional<SortId> sort_of(std::uint32_t type) { return sorts_[find_type(type)]; }
  void assign(std::uint32_t type, SortId sort, Span span, const std::string& what);
  void unify(std::uint32_t a, std::uint32_t b, Span span);
  bool narrow(Pending& pending);
  bool narrow_fn(Pending& pending);
  bool contradicts(const Pending& pending, PrimId id);
  void settle(const Pending& pending, PrimId chosen);
  [[noreturn]] void no_overload(const Pending& pending);
  [[noreturn]] void fail(Span span, const std::string& message) const;
  std::string sort_name(SortId sort) const { return signature_.sort(sort).name; }

  const Signature& signature_;
  const Sources& sources_;
  Pools& pools_;
  Typed typed_;
  std::vector<std::uint32_t> node_types_;
  std::vector<std::uint32_t> variable_types_;
  std::vector<std::uint32_t> type_parents_;
  std::vector<std::optional<SortId>> sorts_;
  std::vector<Pending> pending_;
  std::unordered_map<std::string, std::uint32_t> scope_;
  bool reads_allowed_ = false;
};

/// Whether a name is that of an action.
bool is_action(std::string_view head);

/// The nearest of some names to a misspelt one, if any is near. Names of one letter are near to
/// everything and so to nothing.
class Nearest {
public:
  explicit Nearest(std::string_view name)
      : name_(name), distance_(std::max<std::size_t>(1, name.size() / 3) + 1) {}
  /// Whether this is the nearest so far.
  bool consider(std::string_view other);
  const std::string& best() const { return best_; }

private:
  std::string_view name_;
  std::size_t distance_;
  std::string best_;
};

/// The nearest function to a misspelt name, as ` (did you mean x?)`; where the name is that of a
/// primitive of containers, how to declare one; or "".
std::string suggestion(const Signature& signature, std::string_view name);

/// " at file:line:column" of a function's declaration, or "" where it has none.
std::string declared_at(const Signature& signature, const Sources& sources, std::string_view name);

} // namespace egret::egraph
