#include "egraph/typecheck.h"

#include "egraph/engine.h"

#include "support/fail.h"

#include <algorithm>
#include <utility>

namespace egret::egraph {

void TypeChecker::fail(Span span, const std::string& message) const {
  sources_.fail(ErrorKind::Parse, span, message);
}

std::uint32_t TypeChecker::fresh_type() {
  type_parents_.push_back(static_cast<std::uint32_t>(type_parents_.size()));
  sorts_.emplace_back();
  return type_parents_.back();
}

std::uint32_t TypeChecker::find_type(std::uint32_t type) {
  while (type_parents_[type] != type)
    type = type_parents_[type] = type_parents_[type_parents_[type]];
  return type;
}

/// What is wrong about a sort. Digits that do not fit i64 are read as f64, which needs saying.
std::string TypeChecker::misfit(Span span, SortId expected, SortId found) const {
  if (expected == sorts::kI64 && found == sorts::kF64) {
    std::string_view text = sources_.text(span);
    std::string_view digits = text.substr(!text.empty() && (text[0] == '-' || text[0] == '+'));
    if (!digits.empty() && digits.find_first_not_of("0123456789") == std::string_view::npos)
      return fmt::format("{} does not fit i64", text);
  }
  return fmt::format("expected {}, found {}", sort_name(expected), sort_name(found));
}

void TypeChecker::assign(std::uint32_t type, SortId sort, Span span, const std::string& what) {
  std::optional<SortId>& known = sorts_[find_type(type)];
  if (known && *known != sort)
    fail(span, fmt::format("{}: {}", what, misfit(span, sort, *known)));
  known = sort;
}

void TypeChecker::unify(std::uint32_t a, std::uint32_t b, Span span) {
  a = find_type(a);
  b = find_type(b);
  if (a == b)
    return;
  if (sorts_[a] && sorts_[b] && *sorts_[a] != *sorts_[b])
    fail(span, fmt::format("the two sides have different sorts: {} and {}", sort_name(*sorts_[a]),
                           sort_name(*sorts_[b])));
  if (!sorts_[a])
    sorts_[a] = sorts_[b];
  type_parents_[b] = a;
}

std::uint32_t TypeChecker::add(ExprNode node, std::uint32_t type) {
  typed_.nodes.push_back(node);
  node_types_.push_back(type);
  return static_cast<std::uint32_t>(typed_.nodes.size() - 1);
}

std::uint32_t TypeChecker::new_variable(std::string name, Span span) {
  typed_.variables.push_back({std::move(name), {}, span});
  variable_types_.push_back(fresh_type());
  return static_cast<std::uint32_t>(typed_.variables.size() - 1);
}

std::uint32_t TypeChecker::declare(std::string name, SortId sort, Span span) {
  std::uint32_t variable = new_variable(name, span);
  assign(variable_types_[variable], sort, span, name);
  scope_.emplace(std::move(name), variable);
  return variable;
}

void TypeChecker::expect(std::uint32_t node, SortId sort) {
  assign(node_types_[node], sort, typed_.nodes[node].span, "this expression");
}

std::uint32_t TypeChecker::leaf(Sexp sexp, bool in_query) {
  ExprNode node;
  node.span = sexp.span();
  node.kind = ExprKind::Constant;
  auto constant = [&](SortId sort, Value value) {
    node.target = value;
    std::uint32_t type = fresh_type();
    sorts_[type] = sort;
    return add(node, type);
  };
  switch (sexp.kind()) {
  case SexpKind::Int:
    return constant(sorts::kI64, pools_.from_i64(sexp.node().integer));
  case SexpKind::Float:
    return constant(sorts::kF64, pools_.from_f64(sexp.node().real));
  case SexpKind::String:
    return constant(sorts::kString, pools_.from_string(sexp.string()));
  case SexpKind::List: // ()
    return constant(sorts::kUnit, 0);
  case SexpKind::Symbol:
    break;
  }
  std::string name(sexp.symbol());
  if (name == "true" || name == "false")
    return constant(sorts::kBool, name == "true");
  if (name.starts_with(':'))
    fail(sexp.span(), fmt::format("unexpected option {}", name));
  node.kind = ExprKind::Variable;
  if (name == "_") {
    if (!in_query)
      fail(sexp.span(), "the wildcard _ has no value here");
    node.target = new_variable("_", sexp.span());
    return add(node, variable_types_[node.target]);
  }
  if (auto at = scope_.find(name); at != scope_.end()) {
    node.target = at->second;
    return add(node, variable_types_[node.target]);
  }
  if (auto global = signature_.find_function(name); global && signature_.function(*global).hidden) {
    if (in_query && signature_.sort(signature_.function(*global).output).kind == SortKind::Row)
      fail(sexp.span(), fmt::format("{} is a fact, which a query cannot look up by a global: write "
                                    "the relation with its arguments",
                                    name));
    node.kind = ExprKind::Call;
    node.target = static_cast<std::uint32_t>(*global);
    std::uint32_t type = fresh_type();
    sorts_[type] = signature_.function(*global).output;
    return add(node, type);
  }
  if (!in_query) {
    std::string hint = signature_.find_function(name)
                           ? fmt::format(" (the call is written ({}))", name)
                           : suggestion(signature_, name);
    fail(sexp.span(), fmt::format("unbound variable {}{}", name, hint));
  }
  not_a_global(name, sexp.span());
  node.target = new_variable(name, sexp.span());
  scope_.emplace(std::move(name), node.target);
  return add(node, variable_types_[node.target]);
}

/// A variable x beside a global $x would be taken for it by readers.
void TypeChecker::not_a_global(std::string_view name, Span span) const {
  auto global = signature_.find_function("$" + std::string(name));
  if (global && signature_.function(*global).hidden)
    fail(span, fmt::format("{} shadows the global ${}, which is declared at {}", name, name,
                           sources_.where(signature_.function(*global).span)));
}

std::uint32_t TypeChecker::call(Sexp sexp, std::span<const std::uint32_t> children, bool in_query) {
  Sexp head = sexp[0];
  if (!head.is_symbol())
    fail(head.span(), "expected the name of a function or primitive");
  std::string name(head.symbol());
  ExprNode node;
  node.span = sexp.span();
  node.first = static_cast<std::uint32_t>(typed_.children.size());
  node.count = static_cast<std::uint32_t>(children.size());
  typed_.children.insert(typed_.children.end(), children.begin(), children.end());
  std::uint32_t type = fresh_type();
  if (auto id = signature_.find_function(name); id && !signature_.function(*id).hidden) {
    const Function& function = signature_.function(*id);
    node.kind = ExprKind::Call;
    node.target = static_cast<std::uint32_t>(*id);
    if (function.inputs.size() != children.size())
      fail(sexp.span(),
           fmt::format("{} takes {} argument{}, found {}", name, function.inputs.size(),
                       function.inputs.size() == 1 ? "" : "s", children.size()));
    if (!in_query && !reads_allowed_ && function.kind == FunctionKind::Function)
      fail(sexp.span(),
           fmt::format("the function {} cannot be read in an action: bind its value in "
                       "the query, or mark the rule :naive",
                       name));
    sorts_[type] = function.output;
    for (std::size_t i = 0; i < children.size(); ++i)
      assign(node_types_[children[i]], function.inputs[i], typed_.nodes[children[i]].span,
             fmt::format("argument {} of {}", i + 1, name));
    return add(node, type);
  }
  const std::vector<PrimId>& overloads = signature_.find_primitives(name);
  if (overloads.empty())
    fail(head.span(), fmt::format("unknown function {}{}", name, suggestion(signature_, name)));
  node.kind = ExprKind::Primitive;
  std::uint32_t index = add(node, type);
  Pending pending{index, {}};
  for (PrimId id : overloads) {
    if (signature_.primitive(id).accepts(children.size()))
      pending.candidates.push_back(id);
  }
  if (pending.candidates.empty())
    fail(sexp.span(), fmt::format("no form of {} takes {} argument{}", name, children.size(),
                                  children.size() == 1 ? "" : "s"));
  if (narrow(pending))
    pending_.push_back(std::move(pending));
  return index;
}

std::uint32_t TypeChecker::expression(Sexp root, bool in_query) {
  // An explicit stack instead of recursion: terms may be 100,000 levels deep.
  struct Frame {
    Sexp sexp;
    std::size_t next;
    std::size_t results;
  };
  auto is_call = [](Sexp sexp) { return sexp.is_list() && sexp.size() > 0; };
  if (!is_call(root))
    return leaf(root, in_query);
  std::vector<Frame> stack{{root, 1, 0}};
  std::vector<std::uint32_t> results;
  while (true) {
    Frame& frame = stack.back();
    if (frame.next < frame.sexp.size()) {
      Sexp child = frame.sexp[frame.next++];
      if (is_call(child))
        stack.push_back({child, 1, results.size()});
      else
        results.push_back(leaf(child, in_query));
      continue;
    }
    std::span<const std::uint32_t> children(results.data() + frame.results,
                                            results.size() - frame.results);
    std::uint32_t node = frame.sexp.head() == "unstable-fn" ? unstable_fn(frame.sexp, children)
                                                            : call(frame.sexp, children, in_query);
    results.resize(frame.results);
    stack.pop_back();
    if (stack.empty())
      return node;
    results.push_back(node);
  }
}

void TypeChecker::fact(Sexp sexp) {
  if (sexp.head() != "=") {
    std::uint32_t node = expression(sexp, true);
    typed_.facts.push_back({node, node, sexp.span()});
    return;
  }
  if (sexp.size() < 3)
    fail(sexp.span(), "= takes two or more expressions");
  std::uint32_t first = expression(sexp[1], true);
  for (std::size_t i = 2; i < sexp.size(); ++i) {
    std::uint32_t other = expression(sexp[i], true);
    unify(node_types_[first], node_types_[other], sexp.span());
    typed_.facts.push_back({first, other, sexp.span()});
  }
}

/// A list of facts or actions. One that begins with what can only be called is itself a call: its
/// outer parentheses are missing.
void TypeChecker::expect_list(Sexp list, const char* of, const char* example) const {
  if (!list.is_list())
    fail(list.span(), fmt::format("expected a list of {}", of));
  std::string_view head = list.head();
  auto function = signature_.find_function(head);
  const bool called = function ? !signature_.function(*function).hidden
                               : !head.empty() && (!signature_.find_primitives(head).empty() ||
                                                   head == "=" || is_action(head));
  if (called)
    fail(list.span(),
         fmt::format("expected a list of {}: each has parentheses of its own, as in {}", of,
                     example));
}

bool is_action(std::string_view head) {
  for (const char* name : {"let", "set", "union", "delete", "subsume", "panic"}) {
    if (head == name)
      return true;
  }
  return false;
}

void TypeChecker::actions(Sexp list) {
  expect_list(list, "actions", "((union a b))");
  for (std::size_t i = 0; i < list.size(); ++i)
    action(list[i]);
}

void TypeChecker::facts(Sexp list) {
  expect_list(list, "facts", "((= a b))");
  for (std::size_t i = 0; i < list.size(); ++i)
    fact(list[i]);
}

std::uint32_t TypeChecker::target_call(Sexp sexp, const char* action) {
  if (!sexp.is_list() || sexp.size() == 0 || !sexp[0].is_symbol())
    fail(sexp.span(), fmt::format("{} takes a call of a function", action));
  auto id = signature_.find_function(sexp[0].symbol());
  if (!id || signature_.function(*id).hidden)
    fail(sexp[0].span(), fmt::format("{}: {} is not a function{}", action, sexp[0].symbol(),
                                     suggestion(signature_, sexp[0].symbol())));
  bool reads = reads_allowed_;
  std::vector<std::uint32_t> children;
  for (std::size_t i = 1; i < sexp.size(); ++i)
    children.push_back(expression(sexp[i], false));
  reads_allowed_ = true; // the call names a row, it does not read it
  std::uint32_t node = call(sexp, children, false);
  reads_allowed_ = reads;
  return node;
}

void TypeChecker::action(Sexp sexp) {
  TypedAction action;
  action.span = sexp.span();
  std::string_view head = sexp.head();
  auto arity = [&](std::size_t count, const char* form) {
    if (sexp.size() != count + 1)
      fail(sexp.span(), fmt::format("expected {}", form));
  };
  if (head == "let") {
    arity(2, "(let name expression)");
    if (!sexp[1].is_symbol())
      fail(sexp[1].span(), "let: expected a name");
    std::string name(sexp[1].symbol());
    action.kind = ActionKind::Let;
    action.a = expression(sexp[2], false);
    if (scope_.contains(name))
      fail(sexp[1].span(), fmt::format("{} is already bound here", name));
    if (signature_.find_function(name) || signature_.find_sort(name))
      fail(sexp[1].span(), fmt::format("{} shadows a name that is already declared{}", name,
                                       declared_at(signature_, sources_, name)));
    not_a_global(name, sexp[1].span());
    action.variable = new_variable(name, sexp[1].span());
    typed_.variables[action.variable].bound_by_let = true;
    unify(variable_types_[action.variable], node_types_[action.a], sexp.span());
    scope_.emplace(std::move(name), action.variable);
  } else if (head == "set") {
    arity(2, "(set (function arguments) value)");
    action.kind = ActionKind::Set;
    action.a = target_call(sexp[1], "set");
    const Function& function = signature_.function(FunctionId{typed_.nodes[action.a].target});
    if (function.kind != FunctionKind::Function)
      fail(sexp[1].span(),
           fmt::format("{} is a {}: only functions can be set", function.name,
                       function.kind == FunctionKind::Relation ? "relation" : "constructor"));
    action.b = expression(sexp[2], false);
    assign(node_types_[action.b], function.output, sexp[2].span(),
           fmt::format("value of {}", function.name));
  } else if (head == "union") {
    arity(2, "(union expression expression)");
    action.kind = ActionKind::Union;
    action.a = expression(sexp[1], false);
    action.b = expression(sexp[2], false);
    unify(node_types_[action.a], node_types_[action.b], sexp.span());
  } else if (head == "delete" || head == "subsume") {
    arity(1, head == "delete" ? "(delete (function arguments))" : "(subsume (function arguments))");
    action.kind = head == "delete" ? ActionKind::Delete : ActionKind::Subsume;
    action.a = target_call(sexp[1], head == "delete" ? "delete" : "subsume");
    const Function& function = signature_.function(FunctionId{typed_.nodes[action.a].target});
    if (head == "subsume" && function.kind == FunctionKind::Function)
      fail(sexp[1].span(),
           fmt::format("only constructors and relations can be subsumed, and {} is a function",
                       function.name));
  } else if (head == "panic") {
    arity(1, "(panic \"message\")");
    if (sexp[1].kind() != SexpKind::String)
      fail(sexp[1].span(), "panic: expected a string");
    action.kind = ActionKind::Panic;
    action.message = sexp[1].string();
  } else if (head == "extract") {
    fail(sexp.span(), "extract is a command, not an action");
  } else {
    if (!sexp.is_list() || sexp.size() == 0)
      fail(sexp.span(), "expected an action");
    action.kind = ActionKind::Expr;
    // A bare call of a relation inserts its row; of a function, it would be a read.
    action.a = expression(sexp, false);
  }
  typed_.actions.push_back(std::move(action));
}

void TypeChecker::rewrite(Sexp lhs, Sexp rhs, const std::vector<Sexp>& conditions, bool subsume) {
  std::uint32_t left = expression(lhs, true);
  std::uint32_t root = new_variable("the rewritten term", lhs.span());
  ExprNode node;
  node.kind = ExprKind::Variable;
  node.span = lhs.span();
  node.target = root;
  std::uint32_t variable = add(node, variable_types_[root]);
  unify(node_types_[variable], node_types_[left], lhs.span());
  typed_.facts.push_back({variable, left, lhs.span()});
  for (Sexp condition : conditions)
    fact(condition);
  TypedAction action;
  action.span = rhs.span();
  if (subsume)
    subsume_matched(left, lhs.span());
  std::uint32_t use = add(node, variable_types_[root]);
  action.kind = ActionKind::Union;
  action.a = use;
  action.b = expression(rhs, false);
  unify(node_types_[use], node_types_[action.b], rhs.span());
  typed_.actions.push_back(std::move(action));
}

/// Hides the row that a call in the query matched. What its arguments matched is named, so that
/// they need not be looked up again, and may be wildcards.
void TypeChecker::subsume_matched(std::uint32_t matched, Span span) {
  const ExprNode call = typed_.nodes[matched];
  if (call.kind != ExprKind::Call || signature_.function(FunctionId{call.target}).hidden ||
      signature_.function(FunctionId{call.target}).kind == FunctionKind::Function)
    fail(span, "rewrite with :subsume: expected a call of a constructor or relation");
  std::vector<std::uint32_t> args;
  for (std::uint32_t i = 0; i < call.count; ++i) {
    const std::uint32_t child = typed_.children[call.first + i];
    const ExprNode& arg = typed_.nodes[child];
    if (arg.kind == ExprKind::Variable || arg.kind == ExprKind::Constant) {
      args.push_back(child);
      continue;
    }
    args.push_back(name_of(child, fmt::format("argument {}", i + 1)));
  }
  TypedAction hide;
  hide.kind = ActionKind::Subsume;
  hide.span = span;
  ExprNode target = call;
  target.first = static_cast<std::uint32_t>(typed_.children.size());
  typed_.children.insert(typed_.children.end(), args.begin(), args.end());
  hide.a = add(target, node_types_[matched]);
  typed_.actions.push_back(std::move(hide));
}

/// A variable that equals a node of the query.
std::uint32_t TypeChecker::name_of(std::uint32_t node, std::string name) {
  ExprNode variable;
  variable.kind = ExprKind::Variable;
  variable.span = typed_.nodes[node].span;
  variable.target = new_variable(std::move(name), variable.span);
  std::uint32_t named = add(variable, variable_types_[variable.target]);
  unify(node_types_[named], node_types_[node], variable.span);
  typed_.facts.push_back({named, node, variable.span});
  return named;
}

void TypeChecker::ask(Sexp sexp) {
  TypedAction action;
  action.kind = ActionKind::Expr;
  action.span = sexp.span();
  action.a = name_of(expression(sexp, true), "the value");
  typed_.actions.push_back(std::move(action));
}

std::string declared_at(const Signature& signature, const Sources& sources, std::string_view name) {
  auto id = signature.find_function(name);
  auto sort = signature.find_sort(name);
  const Span span = id ? signature.function(*id).span : sort ? signature.sort(*sort).span : Span{};
  return span.end == 0 ? "" : " at " + sources.where(span);
}

bool Nearest::consider(std::string_view other) {
  if (name_.size() < 2 || other.size() < 2 || name_.size() > 64 ||
      other.size() > name_.size() + distance_ || other.size() + distance_ < name_.size())
    return false;
  // Edit distance in which two letters that changed places count once (Damerau, Levenshtein).
  std::vector<std::size_t> before, above, row(other.size() + 1);
  for (std::size_t j = 0; j <= other.size(); ++j)
    row[j] = j;
  for (std::size_t i = 1; i <= name_.size(); ++i) {
    before = std::exchange(above, row);
    row[0] = i;
    for (std::size_t j = 1; j <= other.size(); ++j) {
      row[j] =
          std::min({above[j - 1] + (name_[i - 1] != other[j - 1]), above[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && name_[i - 1] == other[j - 2] && name_[i - 2] == other[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  if (row.back() >= distance_)
    return false;
  distance_ = row.back();
  best_ = other;
  return true;
}

namespace {

/// Which container sorts would declare a primitive of this name, as an example of a declaration.
std::string container_hint(std::string_view name) {
  struct Kind {
    SortKind kind;
    std::vector<SortId> args;
    const char* example;
  };
  static const Kind kKinds[] = {
      {SortKind::Vec, {sorts::kI64}, "(sort V (Vec i64))"},
      {SortKind::Set, {sorts::kI64}, "(sort S (Set i64))"},
      {SortKind::Map, {sorts::kI64, sorts::kI64}, "(sort M (Map i64 i64))"},
      {SortKind::MultiSet, {sorts::kI64}, "(sort M (MultiSet i64))"},
      {SortKind::Pair, {sorts::kI64, sorts::kI64}, "(sort P (Pair i64 i64))"},
      {SortKind::Either, {sorts::kI64, sorts::kI64}, "(sort E (Either i64 i64))"},
      {SortKind::Maybe, {sorts::kI64}, "(sort M (Maybe i64))"},
      {SortKind::Fn, {sorts::kI64, sorts::kI64}, "(sort F (UnstableFn (i64) i64))"}};
  for (const Kind& kind : kKinds) {
    Engine scratch;
    SortId id = scratch.signature.add_sort({"scratch", kind.kind, kind.args, false, {}, {}});
    add_container_primitives(scratch.signature, id);
    if (!scratch.signature.find_primitives(name).empty())
      return fmt::format(" (it takes a sort of containers: declare one first, such as {})",
                         kind.example);
  }
  return "";
}

} // namespace

std::string suggestion(const Signature& signature, std::string_view name) {
  if (signature.find_primitives(name).empty()) {
    if (std::string hint = container_hint(name); !hint.empty())
      return hint;
  }
  Nearest nearest(name);
  for (const Function& function : signature.functions())
    nearest.consider(function.name);
  return nearest.best().empty() ? "" : fmt::format(" (did you mean {}?)", nearest.best());
}

} // namespace egret::egraph
