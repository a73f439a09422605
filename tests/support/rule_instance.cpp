#include "support/rule_instance.h"

#include "ir/structure.h"
#include "support/fail.h"
#include "support/op_cases.h"

#include <algorithm>
#include <cmath>

namespace egret::testing {

using egraph::Sexp;
using ir::NodeId;
using saturate::Step;
using saturate::Steps;
using saturate::Type;

namespace {

bool is_term(const Sexp& sexp) {
  for (int i = 0; i < kOps; ++i)
    if (sexp.head() == saturate::form_of(static_cast<Op>(i)).head)
      return true;
  return false;
}

void variables_in(const Sexp& pattern, std::set<std::string>& found) {
  if (pattern.is_symbol())
    found.emplace(pattern.symbol());
  for (std::size_t i = 1; i < pattern.size(); ++i)
    variables_in(pattern[i], found);
}

} // namespace

Premises::Premises(const std::string& rule) {
  sexps_.emplace(sources_, sources_.add("rule", rule));
  const Sexp command = (*sexps_)[0];
  if (command.head() == "rewrite") {
    definitions_.push_back({"<root>", command[1]});
    for (std::size_t i = 3; i + 1 < command.size(); ++i)
      if (command[i].is_symbol(":when"))
        for (std::size_t j = 0; j < command[i + 1].size(); ++j)
          fact(command[i + 1][j]);
  } else {
    for (std::size_t i = 0; i < command[1].size(); ++i)
      fact(command[1][i]);
  }
  for (const auto& [value, term] : constant_of_)
    numbers_[term];
  for (std::size_t i = 0; i < (command.head() == "rule" ? command[1].size() : 0); ++i) {
    const Sexp fact = command[1][i];
    const std::string head(fact.head());
    if (fact.size() < 2 || !fact[1].is_symbol())
      continue;
    auto found = constant_of_.find(std::string(fact[1].symbol()));
    if (found == constant_of_.end())
      continue;
    auto& numbers = numbers_[found->second];
    if (head == "is")
      numbers = {fact[2].string()};
    else if (head == "is-unit")
      numbers = {"1", "-1"};
    else if (head == "is-zero")
      numbers = {"0", "-0", "false"};
    else if (head == "is-positive")
      numbers = {"0.5", "3", "1e-30", "7"};
    else if (head == "is-lowest" || head == "all-ones")
      numbers = {head};
  }
  for (const Definition& definition : definitions_) {
    bool inner = false;
    for (const Definition& other : definitions_) {
      std::set<std::string> variables;
      variables_in(other.pattern, variables);
      inner = inner || variables.contains(definition.variable);
    }
    if (!inner)
      roots_.push_back(definition.variable);
  }
}

void Premises::fact(Sexp fact) {
  asked_.emplace(fact.head());
  if (fact.head() != "=" || !fact[1].is_symbol() || !fact[2].is_list())
    return;
  const std::string variable(fact[1].symbol());
  if (is_term(fact[2]))
    definitions_.push_back({variable, fact[2]});
  else if (fact[2].head() == "value" && fact[2][1].is_symbol())
    constant_of_.emplace(variable, fact[2][1].symbol());
}

std::optional<Sexp> Premises::definition_of(const std::string& variable) const {
  for (const Definition& definition : definitions_)
    if (definition.variable == variable)
      return definition.pattern;
  return std::nullopt;
}

Instances::Instances(const Premises& premises, std::uint64_t seed, saturate::Tag tag)
    : premises_(premises), rng_(seed),
      tag_(tag), symbols_{Expr::symbol("N", 1, 4), Expr::symbol("Z", 0, 3)} {
  for (const Expr& symbol : symbols_) {
    terms_.attributes().declare_dim(symbol);
    input({DType::F32, {symbol}}); // gives the symbol its size
  }
}

bool Instances::make() {
  bound_.clear();
  moves_.clear();
  axes_.clear();
  dtypes_.clear();
  for (const std::string& root : premises_.roots()) {
    const auto pattern = premises_.definition_of(root);
    if (!bound_.contains(root)) {
      auto made = build(*pattern, random_type());
      if (!made)
        return false;
      bound_.emplace(root, *made);
    }
  }
  return true;
}

std::optional<Made> Instances::build(const Sexp& pattern, const Type& goal) {
  if (pattern.is_symbol())
    return variable(std::string(pattern.symbol()), goal);
  for (int i = 0; i < kOps; ++i) {
    const auto op = static_cast<Op>(i);
    if (pattern.head() != saturate::form_of(op).head)
      continue;
    if (is_elementwise(op))
      return elementwise(op, pattern, goal);
    if (info_of(op).cls == OpClass::Reduce)
      return reduction(op, pattern, goal);
    if (is_movement(op))
      return view(pattern, goal);
  }
  fail(ErrorKind::Value,
       "no instances of ({} ...) are known; teach tests/support/rule_instance.cpp", pattern.head());
}

std::optional<Made> Instances::variable(const std::string& name, const Type& goal) {
  if (auto found = bound_.find(name); found != bound_.end()) {
    const ir::Node& node = graph_[found->second.node];
    if (node.dtype != goal.dtype || node.shape != goal.shape)
      return std::nullopt;
    return found->second;
  }
  std::optional<Made> made;
  if (auto pattern = premises_.definition_of(name))
    made = build(*pattern, goal);
  else if (premises_.is_constant(name))
    made = constant(name, goal);
  else
    made = leaf(goal);
  if (made)
    bound_.emplace(name, *made);
  return made;
}

std::optional<Made> Instances::elementwise(Op op, const Sexp& pattern, const Type& goal) {
  const OpInfo& row = info_of(op);
  const std::size_t attributes = saturate::form_of(op).attributes.size();
  ir::Attrs attrs;
  Type operand = goal;
  if (row.cls == OpClass::Convert) {
    attrs.dtype = goal.dtype;
    auto remembered = [&](const Sexp& name, DType type) {
      return !name.is_symbol() ||
             dtypes_.emplace(std::string(name.symbol()), type).first->second == type;
    };
    if (!remembered(pattern[1], goal.dtype))
      return std::nullopt;
    operand.dtype = rng_.chance(0.3) ? goal.dtype : random_dtype();
    if (op == Op::Bitcast && size_of(operand.dtype) != size_of(goal.dtype))
      operand.dtype = goal.dtype;
  } else if (row.dtypes == DTypeRule::Compare) {
    if (goal.dtype != DType::Bool)
      return std::nullopt;
    operand.dtype = random_dtype();
  }
  if (op != Op::Select && row.cls != OpClass::Convert && !takes(op, operand.dtype))
    return std::nullopt;
  std::vector<Made> operands;
  for (int i = 0; i < row.arity; ++i) {
    const Type wanted = op == Op::Select && i == 0 ? Type{DType::Bool, goal.shape} : operand;
    auto made = build(pattern[1 + attributes + static_cast<std::size_t>(i)], wanted);
    if (!made)
      return std::nullopt;
    operands.push_back(*made);
  }
  return keep(term(op, attrs, operands));
}

std::optional<Made> Instances::reduction(Op op, const Sexp& pattern, const Type& goal) {
  DType dtype = goal.dtype;
  if (op == Op::ReduceArgMax) {
    if (goal.dtype != DType::I64)
      return std::nullopt;
    dtype = random_dtype();
  }
  if (!takes(op, dtype))
    return std::nullopt;
  const std::string name(pattern[1].symbol());
  Axes axes;
  axes.whole = goal.shape;
  const std::int64_t count = op == Op::ReduceArgMax ? 1 : 1 + rng_.below(2);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = rng_.below(static_cast<std::int64_t>(axes.whole.size()) + 1);
    axes.whole.insert(axes.whole.begin() + at, random_dim());
    const std::int64_t below = axes.mask & ((std::int64_t{1} << at) - 1);
    axes.mask = below | (axes.mask - below) << 1 | std::int64_t{1} << at;
  }
  if (auto found = axes_.find(name); found != axes_.end()) {
    axes = found->second;
    Shape left;
    for (std::size_t i = 0; i < axes.whole.size(); ++i)
      if ((axes.mask >> i & 1) == 0)
        left.push_back(axes.whole[i]);
    if (left != goal.shape)
      return std::nullopt;
  }
  axes_.emplace(name, axes);
  auto operand = build(pattern[2], {dtype, axes.whole});
  if (!operand)
    return std::nullopt;
  return keep(term(op, {.axes = saturate::axes_of(axes.mask)}, {*operand}));
}

std::optional<Made> Instances::view(const Sexp& pattern, const Type& goal) {
  const bool named = pattern[1].is_symbol();
  const std::string name(named ? pattern[1].symbol() : "");
  Moves moves;
  if (!named) // a literal: the view that moves nothing
    moves = {goal, {}, goal.shape};
  else if (auto found = moves_.find(name); found != moves_.end())
    moves = found->second;
  else
    moves = moves_to(goal);
  if (moves.result != goal.shape)
    return std::nullopt;
  if (named)
    moves_.emplace(name, moves);
  moves.source.dtype = goal.dtype;
  for (const Step& step : moves.steps)
    if (step.op == Op::Pad && step.attrs.value.dtype != goal.dtype)
      return std::nullopt;
  auto source = build(pattern[2], moves.source);
  return source ? std::optional(moved(*source, moves.steps)) : std::nullopt;
}

std::optional<Made> Instances::constant(const std::string& name, const Type& goal) {
  const auto& numbers = premises_.numbers_of(name);
  if (numbers.empty())
    return filled(goal, special(goal.dtype));
  const std::string& text = rng_.pick(numbers);
  if (text == "is-lowest")
    return filled(goal, identity_of(Monoid::Max, goal.dtype));
  if (text == "all-ones")
    return filled(goal, Scalar::from_bits(goal.dtype, goal.dtype == DType::Bool
                                                          ? 1
                                                          : ~std::uint64_t{0} >>
                                                                (64 - 8 * size_of(goal.dtype))));
  try {
    return filled(goal, parse_scalar(goal.dtype, text));
  } catch (const Error&) {
    return std::nullopt; // no number of this dtype
  }
}

Made Instances::leaf(const Type& goal) {
  if (rng_.chance(0.1))
    return filled(goal, special(goal.dtype));
  if (rng_.chance(0.1))
    for (const Made& other : leaves_)
      if (graph_[other.node].dtype == goal.dtype && graph_[other.node].shape == goal.shape)
        return other;
  if (rng_.chance(0.5)) {
    Shape ones = goal.shape;
    for (Expr& dim : ones)
      if (rng_.chance(0.5))
        dim = 1;
    if (ones != goal.shape) {
      Step expand{Op::Expand, {}};
      expand.attrs.shape = goal.shape;
      return moved(input({goal.dtype, ones}), {expand});
    }
  }
  Made made = input(goal);
  leaves_.push_back(made);
  if (leaves_.size() > 8)
    leaves_.erase(leaves_.begin());
  return made;
}

Made Instances::input(const Type& type) {
  const NodeId node =
      graph_.input(fmt::format("x{}", graph_.inputs().size()), type.dtype, type.shape);
  const saturate::Term made = saturate::term_of(graph_, node, terms_.attributes());
  return keep({terms_.add(Op::Input, made, {}), node});
}

Made Instances::moved(const Made& source, const Steps& steps) {
  const Type type{graph_[source.node].dtype, graph_[source.node].shape};
  saturate::Term view;
  view.form = &saturate::form_of(Op::Reshape);
  view.attributes = {terms_.attributes().canonical_moves(saturate::to_text(type), steps)};
  const egraph::Value operands[] = {source.value};
  return keep({terms_.add(Op::Reshape, view, operands),
               saturate::add_movements(graph_, source.node, steps)});
}

Made Instances::filled(const Type& type, const Scalar& number) {
  saturate::Term fill;
  fill.form = &saturate::form_of(Op::Constant);
  fill.attributes = {saturate::to_text(type), saturate::to_text(number)};
  return keep(
      {terms_.add(Op::Constant, fill, {}), graph_.broadcast(graph_.constant(number), type.shape)});
}

Made Instances::term(Op op, const ir::Attrs& attrs, const std::vector<Made>& operands) {
  std::vector<NodeId> nodes;
  std::vector<egraph::Value> values;
  for (const Made& operand : operands) {
    nodes.push_back(operand.node);
    values.push_back(operand.value);
  }
  const NodeId node = graph_.add(op, nodes, attrs);
  const saturate::Term made = saturate::term_of(graph_, node, terms_.attributes());
  return {terms_.add(op, made, values), node};
}

Instances::Moves Instances::moves_to(const Type& goal) {
  Moves moves{goal, {}, goal.shape};
  for (std::int64_t count = 1 + rng_.below(2); count > 0; --count) {
    const Step step = step_to(moves.source.shape, goal.dtype);
    moves.steps.insert(moves.steps.begin(), step);
  }
  return moves;
}

/// A movement with the result `shape`, which becomes that of its source.
Step Instances::step_to(Shape& shape, DType dtype) {
  const std::size_t rank = shape.size();
  Step step;
  const Shape result = shape;
  switch (rank == 0 ? 0 : rng_.below(6)) {
  case 0: { // reshape: neighbours were apart, or ones stood between
    step.op = Op::Reshape;
    step.attrs.shape = result;
    if (rank > 1 && rng_.chance(0.5)) {
      const auto at = static_cast<std::size_t>(rng_.below(static_cast<std::int64_t>(rank) - 1));
      shape[at] = shape[at] * shape[at + 1];
      shape.erase(shape.begin() + static_cast<long>(at) + 1);
    } else {
      shape.insert(shape.begin() + rng_.below(static_cast<std::int64_t>(rank) + 1), Expr(1));
    }
    return step;
  }
  case 1: {
    step.op = Op::Permute;
    for (std::size_t i = 0; i < rank; ++i)
      step.attrs.axes.insert(step.attrs.axes.begin() + rng_.below(static_cast<std::int64_t>(i) + 1),
                             static_cast<std::int64_t>(i));
    for (std::size_t i = 0; i < rank; ++i)
      shape[static_cast<std::size_t>(step.attrs.axes[i])] = result[i];
    return step;
  }
  case 2:
  case 3: {
    step.op = Op::Expand;
    step.attrs.shape = result;
    for (Expr& dim : shape)
      if (rng_.chance(0.5))
        dim = 1;
    return step;
  }
  case 4: { // a part of something larger, or a frame around something smaller
    const bool pad = rng_.chance(0.4);
    step.op = pad ? Op::Pad : Op::Shrink;
    for (std::size_t i = 0; i < rank; ++i) {
      const Expr more = rng_.below(2);
      if (pad) {
        const Expr cut = shape[i].lower() > 1 ? more : Expr(0);
        step.attrs.before.push_back(cut);
        step.attrs.after.emplace_back(0);
        shape[i] = shape[i] - cut;
      } else {
        step.attrs.before.push_back(more);
        step.attrs.shape.push_back(more + shape[i]);
        shape[i] = shape[i] + more + rng_.below(2);
      }
    }
    if (pad)
      step.attrs.value = special(dtype);
    return step;
  }
  default:
    step.op = Op::Flip;
    step.attrs.axes = {rng_.below(static_cast<std::int64_t>(rank))};
    return step;
  }
}

Scalar Instances::special(DType dtype) {
  if (dtype == DType::Bool)
    return Scalar::from_bits(dtype, rng_.bits() & 1);
  if (!is_float(dtype))
    return Scalar::of(dtype, rng_.below(7) - (is_signed(dtype) ? 3 : 0));
  if (tag_ == saturate::Tag::Exact && rng_.chance(0.5))
    return Scalar::of(dtype, rng_.pick(std::vector<double>{0.0, -0.0, 1.0, -1.0, INFINITY,
                                                           -INFINITY, NAN, 1e-30, 1e30}));
  return Scalar::of(dtype, rng_.uniform(-2, 2));
}

DType Instances::random_dtype() {
  std::vector<DType> dtypes{DType::F32, DType::F64, DType::I32, DType::Bool, DType::I64, DType::U8};
  if (tag_ == saturate::Tag::Exact)
    dtypes.insert(dtypes.end(), {DType::F16, DType::BF16});
  if (premises_.asks("is-integer") && rng_.chance(0.7))
    std::erase_if(dtypes, [](DType d) { return !is_integer(d); });
  if (premises_.asks("is-float") && rng_.chance(0.9))
    std::erase_if(dtypes, [](DType d) { return !is_float(d); });
  return rng_.pick(dtypes);
}

Expr Instances::random_dim() {
  if (rng_.chance(0.08))
    return rng_.pick(symbols_);
  if (rng_.chance(0.05))
    return 0;
  return rng_.chance(0.15) ? 1 : 2 + rng_.below(2);
}

Type Instances::random_type() {
  Type type{random_dtype(), {}};
  for (std::int64_t rank = rng_.below(4); rank > 0; --rank)
    type.shape.push_back(random_dim());
  return type;
}

} // namespace egret::testing
