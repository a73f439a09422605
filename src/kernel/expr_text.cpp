#include "kernel/expr_text.h"

#include <fmt/format.h>

namespace egret::kernel {

namespace {

using Names = std::function<std::string(const Expr&)>;

std::string atom(const Expr& e, const Names& names) {
  std::string text = text_of(e, names);
  return e.node().kind == ExprKind::Sum ? "(" + text + ")" : text;
}

std::string sum(const ExprNode& n, const Names& names) {
  std::string out;
  for (std::size_t i = 0; i < n.operands.size(); ++i) {
    std::int64_t c = n.coefficients[i];
    bool negative = c < 0;
    out += out.empty() ? (negative ? "-" : "") : (negative ? " - " : " + ");
    auto magnitude = negative ? std::uint64_t(0) - std::uint64_t(c) : std::uint64_t(c);
    if (magnitude != 1)
      out += fmt::format("{}*", magnitude);
    out += atom(n.operands[i], names);
  }
  if (n.value != 0 || out.empty())
    out += out.empty() ? fmt::format("{}", n.value)
                       : fmt::format(" {} {}", n.value < 0 ? "-" : "+",
                                     n.value < 0 ? std::uint64_t(0) - std::uint64_t(n.value)
                                                 : std::uint64_t(n.value));
  return out;
}

} // namespace

std::string text_of(const Expr& e, const Names& names) {
  const ExprNode& n = e.node();
  auto binary = [&](const char* op) {
    return fmt::format("({} {} {})", text_of(n.operands[0], names), op, atom(n.operands[1], names));
  };
  switch (n.kind) {
  case ExprKind::Constant:
    return std::to_string(n.value);
  case ExprKind::Symbol:
  case ExprKind::Axis:
    return names(e);
  case ExprKind::Sum:
    return sum(n, names);
  case ExprKind::Product: {
    std::string out;
    for (const Expr& o : n.operands)
      out += (out.empty() ? "" : "*") + atom(o, names);
    return out;
  }
  case ExprKind::FloorDiv:
    return binary("//");
  case ExprKind::FloorMod:
    return binary("%");
  case ExprKind::Min:
  case ExprKind::Max:
    return fmt::format("{}({}, {})", n.kind == ExprKind::Min ? "min" : "max",
                       text_of(n.operands[0], names), text_of(n.operands[1], names));
  }
  return "?";
}

} // namespace egret::kernel
