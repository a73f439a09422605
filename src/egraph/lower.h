// From typed expressions to what runs: facts become a conjunctive query, actions a register
// program.
#pragma once

#include "egraph/action.h"
#include "egraph/query.h"
#include "egraph/typecheck.h"

namespace egret::egraph {

/// A rule, lowered: register i of the action is given by `inputs[i]`, a term of the query.
struct LoweredRule {
  Query query;
  ActionProgram action;
  std::vector<QueryTerm> inputs;
};

class Lowering {
public:
  Lowering(const Signature& signature, const Sources& sources, const Typed& typed)
      : signature_(signature), sources_(sources), typed_(typed) {}

  /// Facts and actions. Throws SourceError where a variable is not bound by the facts; the message
  /// says where the `whole` begins, a rule or command, if that is on another line.
  LoweredRule rule(Span whole = {});
  /// An expression as a program over the given variables (registers 0, 1, ...), with its value as
  /// the result.
  ActionProgram expression(std::uint32_t node, const std::vector<std::uint32_t>& variables);

private:
  // Query side.
  std::uint32_t new_variable();
  QueryTerm resolve(QueryTerm term);
  /// True if that bound a variable. Two constants that differ make the query impossible.
  bool unify(QueryTerm a, QueryTerm b);
  void lower_facts();
  bool merge_duplicates();
  void simplify();
  void check_grounded(Span whole);
  void renumber(std::vector<QueryTerm>& inputs);
  // Action side.
  std::uint32_t constant(Value value, SortId sort);
  std::uint32_t variable_register(std::uint32_t variable);
  std::uint32_t emit(std::uint32_t node);
  std::uint32_t emit_step(ActionOp op, std::uint32_t target, const std::vector<std::uint32_t>& args,
                          Span span, bool reuse);
  void lower_actions();
  void finish_registers();

  const Signature& signature_;
  const Sources& sources_;
  const Typed& typed_;
  Query query_;
  std::vector<QueryTerm> bindings_; ///< per query variable: what it was unified with, or itself
  std::vector<std::optional<QueryTerm>> variable_terms_;
  ActionProgram program_;
  std::vector<QueryTerm> inputs_;
  std::vector<std::int64_t> variable_registers_; ///< per typed variable; -1 where there is none yet
  std::vector<std::int64_t> node_registers_;
  std::map<std::vector<std::uint32_t>, std::uint32_t> reused_;
  std::map<std::pair<std::uint32_t, Value>, std::uint32_t> constants_;
  std::uint32_t temporaries_ = 0;
};

} // namespace egret::egraph
