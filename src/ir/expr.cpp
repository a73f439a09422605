#include "egret/expr.h"

#include "ir/expr_poly.h"
#include "ir/format.h"
#include "support/fail.h"

#include <algorithm>

namespace egret {

using namespace expr_detail;

Expr::Expr(std::int64_t value) : node_(make_constant(value).node_) {}

Expr Expr::symbol(const std::string& name, std::int64_t lo, std::int64_t hi, std::int64_t divisor) {
  if (name.empty())
    fail(ErrorKind::Value, "symbol: the name is empty");
  if (lo > hi)
    fail(ErrorKind::Value, "symbol: '{}' has no value: its bounds are [{}, {}]", name, lo, hi);
  if (divisor < 1)
    fail(ErrorKind::Value, "symbol: '{}' has divisor {}, which is not positive", name, divisor);
  return make_symbol(name, lo, hi, divisor);
}

Expr Expr::axis(int number, const Expr& extent) {
  if (number < 0)
    fail(ErrorKind::Value, "axis: number {} is negative", number);
  return make_axis(number, extent);
}

bool Expr::is_constant() const noexcept {
  return node_->kind == ExprKind::Constant;
}

std::optional<std::int64_t> Expr::constant() const noexcept {
  return is_constant() ? std::optional(node_->value) : std::nullopt;
}

std::int64_t Expr::value() const {
  if (!is_constant())
    fail(ErrorKind::Value, "expression: {} is not a constant", str());
  return node_->value;
}

std::int64_t Expr::lower() const noexcept {
  return node_->lower;
}
std::int64_t Expr::upper() const noexcept {
  return node_->upper;
}
std::int64_t Expr::divisor() const noexcept {
  return node_->divisor;
}
bool Expr::is_symbol() const noexcept {
  return node_->kind == ExprKind::Symbol;
}
bool Expr::is_axis() const noexcept {
  return node_->kind == ExprKind::Axis;
}

int Expr::axis_number() const {
  ensure(is_axis(), "axis_number of {}", *this);
  return static_cast<int>(node_->value);
}

std::uint64_t Expr::hash() const noexcept {
  return node_->hash;
}

Expr Expr::operator-() const {
  if (is_constant())
    return make_constant(checked_negate(node_->value));
  Poly poly;
  poly.add(*this, -1);
  return std::move(poly).build();
}

Expr operator+(const Expr& a, const Expr& b) {
  const ExprNode &x = a.node(), &y = b.node();
  if (x.kind == ExprKind::Constant && x.value == 0)
    return b;
  if (y.kind == ExprKind::Constant && y.value == 0)
    return a;
  if (x.kind == ExprKind::Constant && y.kind == ExprKind::Constant)
    return make_constant(checked_add(x.value, y.value));
  Poly poly(a);
  poly.add(b, 1);
  return std::move(poly).build();
}

Expr operator-(const Expr& a, const Expr& b) {
  if (b.is_constant() && b.node().value == 0)
    return a;
  if (a == b)
    return make_constant(0);
  std::int64_t difference = 0;
  if (a.is_constant() && b.is_constant() &&
      !__builtin_sub_overflow(a.node().value, b.node().value, &difference))
    return make_constant(difference);
  Poly poly(a);
  poly.add(b, -1);
  return std::move(poly).build();
}

Expr operator*(const Expr& a, const Expr& b) {
  const auto scaled = [](const Expr& e, std::int64_t times) {
    if (times == 1)
      return e;
    Poly poly;
    poly.add(e, times);
    return std::move(poly).build();
  };
  if (a.is_constant() && b.is_constant())
    return make_constant(checked_multiply(a.node().value, b.node().value));
  if (a.is_constant())
    return scaled(b, a.node().value);
  if (b.is_constant())
    return scaled(a, b.node().value);
  return product_of_sums(a, b);
}

Expr element_count(const Shape& shape) {
  Expr count(1);
  std::int64_t known = 1;
  bool is_known = true;
  for (const Expr& dim : shape) {
    const ExprNode& size = dim.node();
    if (size.kind == ExprKind::Constant && size.value == 0)
      return 0;
    is_known = is_known && size.kind == ExprKind::Constant &&
               !__builtin_mul_overflow(known, size.value, &known);
  }
  if (is_known)
    return make_constant(known);
  for (const Expr& dim : shape)
    count = count * dim;
  return count;
}

} // namespace egret
