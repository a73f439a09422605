// Actions to register programs. Equal calls within one rule are computed once.
#include "egraph/lower.h"

#include "support/fail.h"

#include <algorithm>

namespace egret::egraph {
namespace {
// Until all inputs are known, registers are numbered in three spaces that finish_registers() lays
// out one after another.
constexpr std::uint32_t kConstantSpace = 0x40000000u;
constexpr std::uint32_t kTemporarySpace = 0x80000000u;
constexpr std::uint32_t kSpaceMask = 0xC0000000u;
} // namespace

std::uint32_t Lowering::constant(Value value, SortId sort) {
  auto [at, added] = constants_.try_emplace({static_cast<std::uint32_t>(sort), value},
                                            static_cast<std::uint32_t>(program_.constants.size()));
  if (added)
    program_.constants.emplace_back(at->second, value);
  return kConstantSpace | at->second;
}

std::uint32_t Lowering::variable_register(std::uint32_t variable) {
  if (variable_registers_[variable] >= 0)
    return static_cast<std::uint32_t>(variable_registers_[variable]);
  ensure(variable < variable_terms_.size() && variable_terms_[variable].has_value(),
         "a variable without a value");
  QueryTerm term = resolve(*variable_terms_[variable]);
  std::uint32_t reg = 0;
  if (term.is_const) {
    reg = constant(term.value, typed_.variables[variable].sort);
  } else {
    auto at = std::find(inputs_.begin(), inputs_.end(), term);
    reg = static_cast<std::uint32_t>(at - inputs_.begin());
    if (at == inputs_.end())
      inputs_.push_back(term);
  }
  variable_registers_[variable] = reg;
  return reg;
}

std::uint32_t Lowering::emit_step(ActionOp op, std::uint32_t target,
                                  const std::vector<std::uint32_t>& args, Span span, bool reuse) {
  std::vector<std::uint32_t> key;
  if (reuse) {
    key = args;
    key.push_back(target);
    key.push_back(static_cast<std::uint32_t>(op));
    if (auto at = reused_.find(key); at != reused_.end())
      return at->second;
  }
  ActionStep step;
  step.op = op;
  step.target = target;
  step.dst = kTemporarySpace | temporaries_++;
  step.first = static_cast<std::uint32_t>(program_.args.size());
  step.count = static_cast<std::uint32_t>(args.size());
  step.span = span;
  program_.args.insert(program_.args.end(), args.begin(), args.end());
  program_.steps.push_back(step);
  if (reuse)
    reused_.emplace(std::move(key), step.dst);
  return step.dst;
}

std::uint32_t Lowering::emit(std::uint32_t root) {
  node_registers_.resize(typed_.nodes.size(), -1);
  std::vector<std::uint32_t> stack{root};
  while (!stack.empty()) {
    std::uint32_t index = stack.back();
    const ExprNode& node = typed_.nodes[index];
    std::int64_t& reg = node_registers_[index];
    if (reg >= 0) {
      stack.pop_back();
      continue;
    }
    if (node.kind == ExprKind::Variable || node.kind == ExprKind::Constant) {
      reg = node.kind == ExprKind::Variable ? variable_register(node.target)
                                            : constant(node.target, node.sort);
      stack.pop_back();
      continue;
    }
    std::span<const std::uint32_t> children = typed_.args(node);
    std::size_t waiting = stack.size();
    for (std::size_t i = children.size(); i-- > 0;) {
      if (node_registers_[children[i]] < 0)
        stack.push_back(children[i]);
    }
    if (stack.size() > waiting)
      continue;
    std::vector<std::uint32_t> args;
    for (std::uint32_t child : children)
      args.push_back(static_cast<std::uint32_t>(node_registers_[child]));
    bool call = node.kind == ExprKind::Call;
    bool reads =
        call && (signature_.function(FunctionId{node.target}).kind == FunctionKind::Function ||
                 signature_.function(FunctionId{node.target}).hidden);
    ActionOp op = !call ? ActionOp::Primitive : reads ? ActionOp::Lookup : ActionOp::Construct;
    bool reuse = call ? !reads || signature_.function(FunctionId{node.target}).hidden
                      : signature_.primitive(node.target).pure;
    reg = emit_step(op, node.target, args, node.span, reuse);
    stack.pop_back();
  }
  return static_cast<std::uint32_t>(node_registers_[root]);
}

void Lowering::lower_actions() {
  variable_registers_.assign(typed_.variables.size(), -1);
  node_registers_.assign(typed_.nodes.size(), -1);
  auto emit_args = [&](std::uint32_t call) {
    std::vector<std::uint32_t> args;
    for (std::uint32_t child : typed_.args(typed_.nodes[call]))
      args.push_back(emit(child));
    return args;
  };
  auto constructs = [&](std::uint32_t index) {
    const ExprNode& node = typed_.nodes[index];
    return node.kind == ExprKind::Call && node_registers_[index] < 0 &&
           signature_.function(FunctionId{node.target}).kind == FunctionKind::Constructor &&
           !signature_.function(FunctionId{node.target}).hidden;
  };
  for (const TypedAction& action : typed_.actions) {
    switch (action.kind) {
    case ActionKind::Let:
      variable_registers_[action.variable] = emit(action.a);
      break;
    case ActionKind::Expr:
      program_.result = emit(action.a);
      break;
    case ActionKind::Set: {
      std::vector<std::uint32_t> args = emit_args(action.a);
      args.push_back(emit(action.b));
      emit_step(ActionOp::Set, typed_.nodes[action.a].target, args, action.span, false);
      break;
    }
    case ActionKind::Union: {
      // A term that is built only to be joined takes the class it joins.
      std::uint32_t made = action.b, other = action.a;
      if (!constructs(made))
        std::swap(made, other);
      if (!constructs(made)) {
        std::uint32_t a = emit(action.a), b = emit(action.b);
        emit_step(ActionOp::Union, 0, {a, b}, action.span, false);
        break;
      }
      std::uint32_t target = emit(other);
      std::vector<std::uint32_t> args = emit_args(made);
      args.push_back(target);
      emit_step(ActionOp::UnionInto, typed_.nodes[made].target, args, action.span, false);
      break;
    }
    case ActionKind::Delete:
    case ActionKind::Subsume: {
      bool deletes = action.kind == ActionKind::Delete;
      program_.deletes |= deletes;
      emit_step(deletes ? ActionOp::Delete : ActionOp::Subsume, typed_.nodes[action.a].target,
                emit_args(action.a), action.span, false);
      break;
    }
    case ActionKind::Panic:
      program_.messages.push_back(action.message);
      emit_step(ActionOp::Panic, static_cast<std::uint32_t>(program_.messages.size() - 1), {},
                action.span, false);
      break;
    }
  }
  finish_registers();
}

void Lowering::finish_registers() {
  std::uint32_t inputs = static_cast<std::uint32_t>(inputs_.size());
  std::uint32_t constants = static_cast<std::uint32_t>(program_.constants.size());
  auto place = [&](std::uint32_t& reg) {
    std::uint32_t number = reg & ~kSpaceMask;
    std::uint32_t space = reg & kSpaceMask;
    reg = space == kConstantSpace    ? inputs + number
          : space == kTemporarySpace ? inputs + constants + number
                                     : number;
  };
  for (std::uint32_t& arg : program_.args)
    place(arg);
  for (ActionStep& step : program_.steps)
    place(step.dst);
  for (auto& [reg, value] : program_.constants)
    reg += inputs;
  place(program_.result);
  program_.inputs = inputs;
  program_.registers = inputs + constants + temporaries_;
}

ActionProgram Lowering::expression(std::uint32_t node,
                                   const std::vector<std::uint32_t>& variables) {
  variable_registers_.assign(typed_.variables.size(), -1);
  for (std::size_t i = 0; i < variables.size(); ++i) {
    variable_registers_[variables[i]] = static_cast<std::int64_t>(i);
    inputs_.push_back({false, static_cast<std::uint32_t>(i)});
  }
  program_.result = emit(node);
  finish_registers();
  return std::move(program_);
}

} // namespace egret::egraph
