#include "ir/expr_walk.h"

#include "ir/expr_poly.h"
#include "ir/format.h"
#include "support/fail.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace egret {

namespace expr_detail {

namespace {

bool is_leaf(const ExprNode& node) noexcept {
  return node.kind == ExprKind::Constant || node.kind == ExprKind::Symbol ||
         node.kind == ExprKind::Axis;
}

/// A set of nodes that is a list while it is small.
class Seen {
public:
  bool insert(const ExprNode* node) {
    if (few_.size() < 24) {
      if (std::find(few_.begin(), few_.end(), node) != few_.end())
        return false;
      few_.push_back(node);
      if (few_.size() == 24)
        many_.insert(few_.begin(), few_.end());
      return true;
    }
    return many_.insert(node).second;
  }

private:
  std::vector<const ExprNode*> few_;
  std::unordered_set<const ExprNode*> many_;
};

} // namespace

std::vector<const ExprNode*> nodes_of(const Expr& e) {
  std::vector<const ExprNode*> order;
  if (is_leaf(e.node())) {
    order.push_back(&e.node());
    return order;
  }
  Seen seen;
  struct Visit {
    const ExprNode* node;
    std::size_t next;
  };
  std::vector<Visit> stack{{&e.node(), 0}};
  seen.insert(&e.node());
  while (!stack.empty()) {
    Visit& top = stack.back();
    if (is_leaf(*top.node) || top.next == top.node->operands.size()) {
      order.push_back(top.node);
      stack.pop_back();
      continue;
    }
    const ExprNode* const operand = &top.node->operands[top.next++].node();
    if (seen.insert(operand))
      stack.push_back({operand, 0});
  }
  return order;
}

namespace {

/// Values by node, for the few nodes of usual expressions and for many.
template <class T>
class ByNode {
public:
  explicit ByNode(const std::vector<const ExprNode*>& nodes) : nodes_(nodes) {
    values_.reserve(nodes.size());
    if (nodes.size() > 24)
      for (std::size_t i = 0; i < nodes.size(); ++i)
        places_.emplace(nodes[i], i);
  }
  void push_back(T value) { values_.push_back(std::move(value)); }
  const T& operator[](const Expr& e) const {
    const ExprNode* const node = &e.node();
    if (!places_.empty())
      return values_[places_.find(node)->second];
    return values_[static_cast<std::size_t>(std::find(nodes_.begin(), nodes_.end(), node) -
                                            nodes_.begin())];
  }
  const T& back() const { return values_.back(); }

private:
  const std::vector<const ExprNode*>& nodes_;
  std::vector<T> values_;
  std::unordered_map<const ExprNode*, std::size_t> places_;
};

Expr shared(const ExprNode* node) {
  return Expr(node->shared_from_this());
}

} // namespace

} // namespace expr_detail

using namespace expr_detail;

Expr substitute(const Expr& e, const std::function<std::optional<Expr>(const Expr&)>& replace) {
  const auto nodes = nodes_of(e);
  ByNode<Expr> made(nodes);
  for (const ExprNode* node : nodes) {
    const bool kept = node->kind != ExprKind::Symbol && node->kind != ExprKind::Axis &&
                      std::all_of(node->operands.begin(), node->operands.end(),
                                  [&](const Expr& operand) { return made[operand] == operand; });
    if (kept) {
      made.push_back(shared(node));
      continue;
    }
    switch (node->kind) {
    case ExprKind::Symbol: {
      const Expr self = shared(node);
      made.push_back(replace(self).value_or(self));
      break;
    }
    case ExprKind::Axis: {
      const Expr self = shared(node);
      auto value = replace(self);
      if (!value && !node->operands[0].is_constant())
        value = make_axis(static_cast<int>(node->value), substitute(node->operands[0], replace));
      made.push_back(value.value_or(self));
      break;
    }
    case ExprKind::Sum: {
      Poly poly;
      poly.constant = node->value;
      for (std::size_t i = 0; i < node->operands.size(); ++i)
        poly.add(made[node->operands[i]], node->coefficients[i]);
      made.push_back(std::move(poly).build());
      break;
    }
    case ExprKind::Product: {
      Expr product(1);
      for (const Expr& operand : node->operands)
        product = product * made[operand];
      made.push_back(std::move(product));
      break;
    }
    default: {
      const Expr a = made[node->operands[0]], b = made[node->operands[1]];
      made.push_back(node->kind == ExprKind::FloorDiv   ? floordiv(a, b)
                     : node->kind == ExprKind::FloorMod ? floormod(a, b)
                     : node->kind == ExprKind::Min      ? min(a, b)
                                                        : max(a, b));
    }
    }
  }
  return made.back();
}

std::int64_t evaluate(const Expr& e, const std::function<std::int64_t(const Expr&)>& value_of) {
  const auto nodes = nodes_of(e);
  ByNode<std::int64_t> values(nodes);
  for (const ExprNode* node : nodes) {
    switch (node->kind) {
    case ExprKind::Constant:
      values.push_back(node->value);
      break;
    case ExprKind::Symbol:
    case ExprKind::Axis:
      values.push_back(value_of(shared(node)));
      break;
    case ExprKind::Sum: {
      std::int64_t sum = node->value;
      for (std::size_t i = 0; i < node->operands.size(); ++i)
        sum = checked_add(sum, checked_multiply(node->coefficients[i], values[node->operands[i]]));
      values.push_back(sum);
      break;
    }
    case ExprKind::Product: {
      std::int64_t product = 1;
      for (const Expr& operand : node->operands)
        product = checked_multiply(product, values[operand]);
      values.push_back(product);
      break;
    }
    default: {
      const std::int64_t a = values[node->operands[0]], b = values[node->operands[1]];
      const bool divides = node->kind == ExprKind::FloorDiv || node->kind == ExprKind::FloorMod;
      if (divides && b == 0)
        fail(ErrorKind::Value, "evaluate: {} is divided by 0", a);
      values.push_back(node->kind == ExprKind::FloorDiv   ? floor_quotient(a, b)
                       : node->kind == ExprKind::FloorMod ? floor_remainder(a, b)
                       : node->kind == ExprKind::Min      ? std::min(a, b)
                                                          : std::max(a, b));
    }
    }
  }
  return values.back();
}

std::vector<Expr> variables_of(const Expr& e) {
  std::vector<Expr> variables;
  for (const ExprNode* node : nodes_of(e))
    if (node->kind == ExprKind::Symbol || node->kind == ExprKind::Axis)
      variables.push_back(shared(node));
  std::sort(variables.begin(), variables.end(), before);
  return variables;
}

std::optional<Expr> coefficient_of(const Expr& e, const Expr& variable) {
  if (variable.is_constant()) // an axis of size 1, or of an empty box
    return Expr(0);
  ensure(variable.is_symbol() || variable.is_axis(), "coefficient_of: {} is no variable", variable);
  const auto mentions = [&](const Expr& part) {
    const auto nodes = nodes_of(part);
    return std::find(nodes.begin(), nodes.end(), &variable.node()) != nodes.end();
  };
  Poly coefficient;
  for (const Term& term : Poly(e).terms) {
    const auto rest = divide_monomials(term.monomial, variable);
    if (rest ? mentions(*rest) : mentions(term.monomial))
      return std::nullopt;
    if (rest)
      coefficient.add(*rest, term.coefficient);
  }
  return std::move(coefficient).build();
}

} // namespace egret
