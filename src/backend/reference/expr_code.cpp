#include "backend/reference/expr_code.h"

#include "support/fail.h"

#include <algorithm>

namespace egret::backend::reference {

namespace {

std::int64_t checked_add(std::int64_t a, std::int64_t b) {
  std::int64_t result;
  ensure(!__builtin_add_overflow(a, b, &result), "overflow in {} + {}", a, b);
  return result;
}

std::int64_t checked_mul(std::int64_t a, std::int64_t b) {
  std::int64_t result;
  ensure(!__builtin_mul_overflow(a, b, &result), "overflow in {} * {}", a, b);
  return result;
}

std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  ensure(b != 0, "division of {} by 0", a);
  if (b == -1)
    return checked_mul(a, -1);
  std::int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

std::int64_t floor_mod(std::int64_t a, std::int64_t b) {
  ensure(b != 0, "remainder of {} by 0", a);
  if (b == -1)
    return 0;
  std::int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

bool is_variable(const Expr& e) {
  return e.is_symbol() || e.is_axis();
}

} // namespace

ExprCode::ExprCode(const Expr& expr, const SlotOf& slot_of) {
  const ExprNode& node = expr.node();
  affine_ = node.kind == ExprKind::Constant || is_variable(expr) ||
            (node.kind == ExprKind::Sum &&
             std::all_of(node.operands.begin(), node.operands.end(), is_variable));
  if (!affine_) {
    translate(expr, slot_of);
  } else if (is_variable(expr)) {
    terms_.push_back({slot_of(expr), 1});
  } else {
    constant_ = node.value;
    for (std::size_t i = 0; i < node.operands.size(); ++i)
      terms_.push_back({slot_of(node.operands[i]), node.coefficients[i]});
  }
  for (const Term& term : terms_)
    reads_.push_back(term.slot);
  int depth = 0, deepest = 0;
  for (const Step& step : steps_) {
    if (step.kind == Kind::Slot)
      reads_.push_back(static_cast<int>(step.value));
    if (step.kind == Kind::Slot || step.kind == Kind::Constant)
      deepest = std::max(deepest, ++depth);
    else if (step.kind != Kind::Scale)
      --depth;
  }
  ensure(deepest <= kMaxDepth, "expression nested more than {} deep: {}", kMaxDepth, expr.str());
  std::sort(reads_.begin(), reads_.end());
  reads_.erase(std::unique(reads_.begin(), reads_.end()), reads_.end());
}

void ExprCode::translate(const Expr& expr, const SlotOf& slot_of) {
  const ExprNode& node = expr.node();
  auto fold = [&](Kind kind) {
    for (std::size_t i = 0; i < node.operands.size(); ++i) {
      translate(node.operands[i], slot_of);
      if (i > 0)
        steps_.push_back({kind});
    }
  };
  switch (node.kind) {
  case ExprKind::Constant:
    steps_.push_back({Kind::Constant, node.value});
    break;
  case ExprKind::Symbol:
  case ExprKind::Axis:
    steps_.push_back({Kind::Slot, slot_of(expr)});
    break;
  case ExprKind::Sum:
    steps_.push_back({Kind::Constant, node.value});
    for (std::size_t i = 0; i < node.operands.size(); ++i) {
      translate(node.operands[i], slot_of);
      steps_.push_back({Kind::Scale, node.coefficients[i]});
      steps_.push_back({Kind::Add});
    }
    break;
  case ExprKind::Product:
    return fold(Kind::Mul);
  case ExprKind::FloorDiv:
    return fold(Kind::FloorDiv);
  case ExprKind::FloorMod:
    return fold(Kind::FloorMod);
  case ExprKind::Min:
    return fold(Kind::Min);
  case ExprKind::Max:
    return fold(Kind::Max);
  }
}

std::int64_t ExprCode::operator()(const std::int64_t* slots) const {
  if (!affine_)
    return run(slots);
  std::int64_t sum = constant_;
  for (const Term& term : terms_)
    sum = checked_add(sum, checked_mul(term.coefficient, slots[term.slot]));
  return sum;
}

std::int64_t ExprCode::run(const std::int64_t* slots) const {
  std::int64_t stack[kMaxDepth];
  int top = -1;
  for (const Step& step : steps_) {
    if (step.kind == Kind::Constant) {
      stack[++top] = step.value;
    } else if (step.kind == Kind::Slot) {
      stack[++top] = slots[step.value];
    } else if (step.kind == Kind::Scale) {
      stack[top] = checked_mul(stack[top], step.value);
    } else {
      std::int64_t b = stack[top--];
      stack[top] = binary(step.kind, stack[top], b);
    }
  }
  return stack[top];
}

std::int64_t ExprCode::binary(Kind kind, std::int64_t a, std::int64_t b) {
  switch (kind) {
  case Kind::Add:
    return checked_add(a, b);
  case Kind::Mul:
    return checked_mul(a, b);
  case Kind::FloorDiv:
    return floor_div(a, b);
  case Kind::FloorMod:
    return floor_mod(a, b);
  case Kind::Min:
    return std::min(a, b);
  default:
    return std::max(a, b);
  }
}

GuardCode::GuardCode(const std::vector<Guard>& guards, const ExprCode::SlotOf& slot_of) {
  for (const Guard& guard : guards)
    conditions_.push_back(
        {ExprCode(guard.value, slot_of), ExprCode(guard.lo, slot_of), ExprCode(guard.hi, slot_of)});
}

bool GuardCode::holds(const std::int64_t* slots) const {
  return std::all_of(conditions_.begin(), conditions_.end(), [&](const Condition& c) {
    std::int64_t value = c.value(slots);
    return c.lo(slots) <= value && value < c.hi(slots);
  });
}

std::vector<int> GuardCode::reads() const {
  std::vector<int> all;
  for (const Condition& c : conditions_)
    for (const ExprCode* code : {&c.value, &c.lo, &c.hi})
      all.insert(all.end(), code->reads().begin(), code->reads().end());
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

} // namespace egret::backend::reference
