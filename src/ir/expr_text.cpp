// The text of expressions, written and read.
#include "ir/expr_poly.h"
#include "ir/expr_walk.h"
#include "support/fail.h"

#include <cctype>
#include <charconv>
#include <unordered_map>

namespace egret {

namespace expr_detail {

namespace {

constexpr std::size_t kLongest = 1 << 20;
constexpr int kDeepestText = 1000;

class Writer {
public:
  std::string write(const Expr& e) {
    for (const ExprNode* node : nodes_of(e)) {
      std::string text = text_of(*node);
      if (text.size() > kLongest)
        fail(ErrorKind::Value, "expression: its text has more than {} characters", kLongest);
      texts_.emplace(node, std::move(text));
    }
    return texts_.at(&e.node());
  }

private:
  const std::string& text(const Expr& e) const { return texts_.at(&e.node()); }

  /// Where a factor stands: sums and negative numbers need parentheses, and so do quotients when
  /// they are not the first factor.
  std::string factor(const Expr& e, bool first) const {
    const ExprKind kind = e.node().kind;
    const bool divides = kind == ExprKind::FloorDiv || kind == ExprKind::FloorMod;
    const bool bare = kind == ExprKind::Symbol || kind == ExprKind::Axis || kind == ExprKind::Min ||
                      kind == ExprKind::Max ||
                      (kind == ExprKind::Constant && e.node().value >= 0) ||
                      (first && (divides || kind == ExprKind::Product));
    return bare ? text(e) : "(" + text(e) + ")";
  }

  std::string text_of(const ExprNode& node) const {
    switch (node.kind) {
    case ExprKind::Constant:
      return fmt::format("{}", node.value);
    case ExprKind::Symbol:
      return node.name;
    case ExprKind::Axis:
      return fmt::format("d{}", node.value);
    case ExprKind::Sum:
      return sum(node);
    case ExprKind::Product: {
      std::string product;
      for (std::size_t i = 0; i < node.operands.size(); ++i)
        product += (i == 0 ? "" : "*") + factor(node.operands[i], i == 0);
      return product;
    }
    case ExprKind::FloorDiv:
      return factor(node.operands[0], true) + "//" + factor(node.operands[1], false);
    case ExprKind::FloorMod:
      return factor(node.operands[0], true) + "%" + factor(node.operands[1], false);
    default:
      return fmt::format("{}({},{})", node.kind == ExprKind::Min ? "min" : "max",
                         text(node.operands[0]), text(node.operands[1]));
    }
  }

  std::string sum(const ExprNode& node) const {
    std::string sum;
    for (std::size_t i = 0; i < node.operands.size(); ++i) {
      const std::int64_t c = node.coefficients[i];
      if (c > 0 && i > 0)
        sum += '+';
      if (c == -1)
        sum += '-';
      else if (c != 1)
        sum += fmt::format("{}*", c);
      const Expr& operand = node.operands[i];
      if (c == 1)
        sum += text(operand);
      else if (operand.node().kind == ExprKind::Product)
        sum += atoms_after_number(operand);
      else
        sum += factor(operand, false);
    }
    if (node.value != 0)
      sum += fmt::format("{:+}", node.value);
    return sum;
  }

  std::string atoms_after_number(const Expr& product) const {
    std::string text;
    for (const Expr& atom : product.node().operands)
      text += (text.empty() ? "" : "*") + factor(atom, false);
    return text;
  }

  std::unordered_map<const ExprNode*, std::string> texts_;
};

class Reader {
public:
  Reader(std::string_view text, const std::function<std::optional<Expr>(std::string_view)>& named,
         int column)
      : text_(text), named_(named), column_(column) {}

  Expr whole() {
    Expr e = sum();
    skip();
    if (place_ < text_.size())
      wrong(fmt::format("unexpected '{}'", text_[place_]));
    return e;
  }

private:
  [[noreturn]] void wrong(const std::string& what) const {
    fail(ErrorKind::Parse, "expression: column {}: {}", column_ + static_cast<int>(place_), what);
  }

  void skip() {
    while (place_ < text_.size() && (text_[place_] == ' ' || text_[place_] == '\t'))
      ++place_;
  }

  bool take(std::string_view token) {
    skip();
    if (!text_.substr(place_).starts_with(token))
      return false;
    place_ += token.size();
    return true;
  }

  void expect(std::string_view token) {
    if (!take(token))
      wrong(place_ < text_.size() ? fmt::format("expected '{}' before '{}'", token, text_[place_])
                                  : fmt::format("expected '{}' at the end", token));
  }

  /// Errors of arithmetic (a divisor that may be 0, overflow) get the column.
  template <class Operation>
  Expr made(Operation operation) const {
    try {
      return operation();
    } catch (const Error& error) {
      wrong(error.what());
    }
  }

  Expr sum() {
    if (++depth_ > kDeepestText)
      wrong("nested too deeply");
    Expr e = product();
    for (;;) {
      if (take("+"))
        e = made([&, b = product()] { return e + b; });
      else if (take("-"))
        e = made([&, b = product()] { return e - b; });
      else
        break;
    }
    --depth_;
    return e;
  }

  Expr product() {
    Expr e = unary();
    for (;;) {
      if (take("*"))
        e = made([&, b = unary()] { return e * b; });
      else if (take("//"))
        e = made([&, b = unary()] { return floordiv(e, b); });
      else if (take("%"))
        e = made([&, b = unary()] { return floormod(e, b); });
      else
        return e;
    }
  }

  Expr unary() {
    bool negative = false;
    while (take("-"))
      negative = !negative;
    skip();
    if (place_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[place_])) != 0)
      return number(negative);
    const Expr e = primary();
    return negative ? made([&] { return -e; }) : e;
  }

  Expr number(bool negative) {
    std::size_t end = place_;
    while (end < text_.size() && std::isdigit(static_cast<unsigned char>(text_[end])) != 0)
      ++end;
    const std::string digits =
        (negative ? "-" : "") + std::string(text_.substr(place_, end - place_));
    std::int64_t value = 0;
    if (std::from_chars(digits.data(), digits.data() + digits.size(), value).ec != std::errc{})
      wrong(fmt::format("{} does not fit 64 bits", digits.substr(0, 40)));
    place_ = end;
    return value;
  }

  Expr primary() {
    if (take("(")) {
      Expr e = sum();
      expect(")");
      return e;
    }
    const std::size_t start = place_;
    while (place_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[place_])) != 0 || text_[place_] == '_' ||
            text_[place_] == '.' || text_[place_] == '$'))
      ++place_;
    const auto name = text_.substr(start, place_ - start);
    if (name.empty())
      wrong(place_ < text_.size()
                ? fmt::format("expected a number, a name or '(' before '{}'", text_[place_])
                : "expected a number, a name or '(' at the end");
    if ((name == "min" || name == "max") && take("(")) {
      const Expr a = sum();
      expect(",");
      const Expr b = sum();
      expect(")");
      return made([&] { return name == "min" ? min(a, b) : max(a, b); });
    }
    if (auto variable = named_(name))
      return *variable;
    place_ = start;
    wrong(fmt::format("unknown name '{}'", name.substr(0, 40)));
  }

  std::string_view text_;
  const std::function<std::optional<Expr>(std::string_view)>& named_;
  int column_;
  std::size_t place_ = 0;
  int depth_ = 0;
};

} // namespace

} // namespace expr_detail

std::string Expr::str() const {
  const ExprNode& n = *node_;
  if (n.kind == ExprKind::Constant)
    return fmt::format("{}", n.value);
  return expr_detail::Writer().write(*this);
}

Expr parse_expr(std::string_view text,
                const std::function<std::optional<Expr>(std::string_view)>& variable_named,
                int column) {
  return expr_detail::Reader(text, variable_named, column).whole();
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i)
    text += (i == 0 ? "" : ",") + shape[i].str();
  return text + "]";
}

} // namespace egret
