// Rules from C++: the builder makes the same typed nodes as the type checker does from text.
#include "egraph/api_impl.h"
#include "egraph/lower.h"
#include "support/fail.h"

namespace egret::egraph {

RuleBuilder::RuleBuilder(const EGraph& egraph) : parts_(std::make_unique<Parts>()) {
  parts_->engine = &egraph.impl_->engine();
}
RuleBuilder::RuleBuilder(RuleBuilder&&) noexcept = default;
RuleBuilder& RuleBuilder::operator=(RuleBuilder&&) noexcept = default;
RuleBuilder::~RuleBuilder() = default;

namespace {

std::uint32_t add_node(Typed& typed, ExprKind kind, SortId sort, std::uint32_t target,
                       const std::vector<RuleBuilder::Term>& args) {
  ExprNode node;
  node.kind = kind;
  node.sort = sort;
  node.target = target;
  node.span.file = 0xFFFFFFFFu;
  node.first = static_cast<std::uint32_t>(typed.children.size());
  node.count = static_cast<std::uint32_t>(args.size());
  for (RuleBuilder::Term arg : args) {
    if (arg.node >= typed.nodes.size())
      fail(ErrorKind::Value, "a term of another rule builder was used");
    typed.children.push_back(arg.node);
  }
  typed.nodes.push_back(node);
  return static_cast<std::uint32_t>(typed.nodes.size() - 1);
}

} // namespace

RuleBuilder::Term RuleBuilder::var(const std::string& name, SortId sort) {
  Typed& typed = parts_->typed;
  auto [at, added] =
      parts_->variables.try_emplace(name, static_cast<std::uint32_t>(typed.variables.size()));
  if (added)
    typed.variables.push_back({name, sort, {0xFFFFFFFFu, 0, 0}});
  else if (typed.variables[at->second].sort != sort)
    fail(ErrorKind::Value, "the variable {} has sort {}, not {}", name,
         parts_->engine->signature.sort(typed.variables[at->second].sort).name,
         parts_->engine->signature.sort(sort).name);
  return {add_node(typed, ExprKind::Variable, sort, at->second, {})};
}

RuleBuilder::Term RuleBuilder::constant(SortId sort, Value value) {
  return {add_node(parts_->typed, ExprKind::Constant, sort, value, {})};
}

RuleBuilder::Term RuleBuilder::call(FunctionId id, const std::vector<Term>& args) {
  const Signature& signature = parts_->engine->signature;
  const Function& function = signature.function(id);
  if (args.size() != function.inputs.size())
    fail(ErrorKind::Value, "{} takes {} arguments, found {}", function.name, function.inputs.size(),
         args.size());
  for (std::size_t i = 0; i < args.size(); ++i) {
    SortId found = parts_->typed.nodes.at(args[i].node).sort;
    if (found != function.inputs[i])
      fail(ErrorKind::Value, "argument {} of {}: expected {}, found {}", i + 1, function.name,
           signature.sort(function.inputs[i]).name, signature.sort(found).name);
  }
  return {add_node(parts_->typed, ExprKind::Call, function.output, static_cast<std::uint32_t>(id),
                   args)};
}

RuleBuilder::Term RuleBuilder::primitive(std::string_view name, const std::vector<Term>& args,
                                         std::optional<SortId> result) {
  const Signature& signature = parts_->engine->signature;
  const Typed& typed = parts_->typed;
  for (PrimId id : signature.find_primitives(name)) {
    const Primitive& primitive = signature.primitive(id);
    if (!primitive.accepts(args.size()))
      continue;
    bool fits = true;
    for (std::size_t i = 0; i < args.size(); ++i) {
      SortId sort = typed.nodes.at(args[i].node).sort;
      fits &= sort == (primitive.any ? typed.nodes.at(args[0].node).sort : primitive.param(i));
    }
    SortId out = primitive.result_is_arg ? typed.nodes.at(args[0].node).sort : primitive.result;
    if (fits && (!result || *result == out))
      return {add_node(parts_->typed, ExprKind::Primitive, out, id, args)};
  }
  fail(ErrorKind::Value, "no primitive {} takes these {} arguments", name, args.size());
}

RuleBuilder& RuleBuilder::where(Term holds) {
  parts_->typed.facts.push_back({holds.node, holds.node, {0xFFFFFFFFu, 0, 0}});
  return *this;
}

RuleBuilder& RuleBuilder::where_equal(Term a, Term b) {
  if (parts_->typed.nodes.at(a.node).sort != parts_->typed.nodes.at(b.node).sort)
    fail(ErrorKind::Value, "where_equal: the two sides have different sorts");
  parts_->typed.facts.push_back({a.node, b.node, {0xFFFFFFFFu, 0, 0}});
  return *this;
}

namespace {
TypedAction make_action(ActionKind kind, std::uint32_t a, std::uint32_t b) {
  TypedAction action;
  action.kind = kind;
  action.span.file = 0xFFFFFFFFu;
  action.a = a;
  action.b = b;
  return action;
}
} // namespace

RuleBuilder& RuleBuilder::then_add(Term term) {
  parts_->typed.actions.push_back(make_action(ActionKind::Expr, term.node, 0));
  return *this;
}

RuleBuilder& RuleBuilder::then_union(Term a, Term b) {
  SortId sort = parts_->typed.nodes.at(a.node).sort;
  if (sort != parts_->typed.nodes.at(b.node).sort || !parts_->engine->signature.sort(sort).is_eq())
    fail(ErrorKind::Value, "then_union joins two terms of one equality sort");
  parts_->typed.actions.push_back(make_action(ActionKind::Union, a.node, b.node));
  return *this;
}

RuleBuilder& RuleBuilder::then_set(Term call, Term value) {
  const ExprNode& node = parts_->typed.nodes.at(call.node);
  if (node.kind != ExprKind::Call ||
      parts_->engine->signature.function(FunctionId{node.target}).kind != FunctionKind::Function ||
      node.sort != parts_->typed.nodes.at(value.node).sort)
    fail(ErrorKind::Value, "then_set takes the call of a function and a value of its sort");
  parts_->typed.actions.push_back(make_action(ActionKind::Set, call.node, value.node));
  return *this;
}

RuleBuilder& RuleBuilder::then_delete(Term call) {
  if (parts_->typed.nodes.at(call.node).kind != ExprKind::Call)
    fail(ErrorKind::Value, "then_delete takes a call");
  parts_->typed.actions.push_back(make_action(ActionKind::Delete, call.node, 0));
  return *this;
}

RuleBuilder& RuleBuilder::then_subsume(Term call) {
  const ExprNode& node = parts_->typed.nodes.at(call.node);
  if (node.kind != ExprKind::Call ||
      parts_->engine->signature.function(FunctionId{node.target}).kind == FunctionKind::Function)
    fail(ErrorKind::Value, "then_subsume takes the call of a constructor or relation");
  parts_->typed.actions.push_back(make_action(ActionKind::Subsume, call.node, 0));
  return *this;
}

RuleId EGraph::add_rule(RuleBuilder builder, RuleOptions options) {
  Engine& engine = impl_->engine();
  if (builder.parts_->engine != &engine)
    fail(ErrorKind::Value, "add_rule: the rule was built for another e-graph");
  if (Signature::index(options.ruleset) >= engine.rulesets.size() ||
      engine.rulesets[Signature::index(options.ruleset)].combined)
    fail(ErrorKind::Value, "add_rule: no ruleset that takes rules has the number {}",
         Signature::index(options.ruleset));
  LoweredRule lowered = Lowering(engine.signature, engine.sources, builder.parts_->typed).rule();
  for (const ActionStep& step : lowered.action.steps) {
    if (step.op == ActionOp::Lookup && !options.naive)
      fail(ErrorKind::Value,
           "add_rule: the function {} cannot be read in an action unless the rule is naive",
           engine.signature.function(FunctionId{step.target}).name);
  }
  Rule rule;
  rule.name = options.name.empty() ? fmt::format("rule {}", engine.rules.size()) : options.name;
  rule.span.file = 0xFFFFFFFFu;
  rule.query = std::move(lowered.query);
  rule.action = std::move(lowered.action);
  rule.inputs = std::move(lowered.inputs);
  rule.naive = options.naive;
  RuleId id{static_cast<std::uint32_t>(engine.rules.size())};
  engine.rulesets[Signature::index(options.ruleset)].rules.push_back(id);
  engine.rules.push_back(std::move(rule));
  return id;
}

} // namespace egret::egraph
