#include "backend/clike/index_text.h"

#include "support/fail.h"

#include <algorithm>
#include <bit>

namespace egret::backend::clike {

using kernel::KernelProgram;

namespace {

__extension__ typedef __int128 Big;
constexpr Big kLow = INT32_MIN, kHigh = INT32_MAX;

bool within(Big low, Big high) {
  return low >= kLow && high <= kHigh;
}

std::string literal(std::int64_t v, bool wide) {
  if (v == INT64_MIN)
    return "(-9223372036854775807LL - 1)";
  std::string text = fmt::format("{}{}", v, wide ? "LL" : "");
  return v < 0 ? "(" + text + ")" : text;
}

} // namespace

IndexText::IndexText(const KernelProgram& program, const Language& language, ValueText value_text)
    : program_(program), language_(language), value_text_(std::move(value_text)) {}

bool IndexText::fits(const Expr& e) {
  return within(e.lower(), e.upper());
}

const char* IndexText::type_of(const Expr& bound) {
  return bound.lower() >= -(std::int64_t{1} << 30) && bound.upper() <= (std::int64_t{1} << 30)
             ? "int"
             : "long long";
}

Expr IndexText::at_lane(const Expr& e, int lane) {
  if (lane == kEachLane)
    return e;
  return substitute(e, [&](const Expr& v) -> std::optional<Expr> {
    return kernel::lanes_of(v) ? std::optional<Expr>(Expr(lane)) : std::nullopt;
  });
}

std::string IndexText::text(const Expr& e, int lane) const {
  return render(at_lane(e, lane), lane).text;
}

std::string IndexText::wide_text(const Expr& e, int lane) const {
  return widened(render(at_lane(e, lane), lane));
}

std::string IndexText::condition(const std::vector<Guard>& guards, int lane) const {
  std::string out;
  auto add = [&](const std::string& part) { out += (out.empty() ? "" : " && ") + part; };
  for (const Guard& g : guards) {
    Expr value = at_lane(g.value, lane), lo = at_lane(g.lo, lane), hi = at_lane(g.hi, lane);
    if (!proves_less_equal(lo, value))
      add(render(lo, lane).text + " <= " + render(value, lane).text);
    if (!proves_less(value, hi))
      add(render(value, lane).text + " < " + render(hi, lane).text);
  }
  return out;
}

std::string IndexText::widened(const Text& t) {
  return t.wide ? t.text : "(long long)" + t.text;
}

IndexText::Text IndexText::render(const Expr& e, int lane) const {
  const ExprNode& n = e.node();
  switch (n.kind) {
  case ExprKind::Constant:
    return {literal(n.value, !fits(e)), !fits(e)};
  case ExprKind::Symbol:
    return symbol(e, lane);
  case ExprKind::Axis:
    return {fmt::format("i{}", n.value), std::string_view(type_of(n.operands[0])) != "int"};
  case ExprKind::Sum:
    return sum(e, lane);
  case ExprKind::Product:
    return product(e, lane);
  case ExprKind::FloorDiv:
  case ExprKind::FloorMod:
    return division(e, lane);
  case ExprKind::Min:
  case ExprKind::Max:
    return call(n.kind == ExprKind::Min ? "min" : "max", render(n.operands[0], lane),
                render(n.operands[1], lane));
  }
  return {};
}

IndexText::Text IndexText::call(std::string_view name, const Text& a, const Text& b) const {
  const bool wide = a.wide || b.wide;
  return {language_.call(name, wide ? DType::I64 : DType::I32,
                         wide ? widened(a) + ", " + widened(b) : a.text + ", " + b.text),
          wide};
}

IndexText::Text IndexText::symbol(const Expr& e, int lane) const {
  if (kernel::lanes_of(e))
    return {"l", false};
  if (kernel::threads_of(e))
    return {"t", false};
  if (auto value = kernel::value_of(e)) {
    const kernel::Type& type = program_.values.at(static_cast<std::size_t>(*value));
    return {value_text_(*value, type.lanes == 1 ? 0 : lane), type.dtype == DType::I64};
  }
  for (const auto& [symbol, name] : bound_)
    if (symbol == e)
      return {name, !fits(e)};
  auto dim = std::find(program_.dims.begin(), program_.dims.end(), e);
  ensure(dim != program_.dims.end(), "renderer: {} is no dim of kernel {}", e.str(), program_.name);
  return {fmt::format("d{}", dim - program_.dims.begin()), !fits(e)};
}

IndexText::Text IndexText::sum(const Expr& e, int lane) const {
  const ExprNode& n = e.node();
  bool wide = !fits(e);
  Big low = 0, high = 0;
  std::vector<Text> parts;
  for (std::size_t i = 0; i < n.operands.size(); ++i) {
    parts.push_back(render(n.operands[i], lane));
    const Big c = n.coefficients[i];
    Big a = c * n.operands[i].lower(), b = c * n.operands[i].upper();
    if (a > b)
      std::swap(a, b);
    low += a;
    high += b;
    wide = wide || parts.back().wide || !within(a, b) || !within(low, high);
  }
  std::string out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    std::int64_t c = n.coefficients[i];
    const char* sign = c < 0 ? (i ? " - " : "-") : (i ? " + " : "");
    const std::string part = wide ? widened(parts[i]) : parts[i].text;
    if (c == INT64_MIN)
      out += fmt::format("{}{} * {}", i ? " + " : "", part, literal(c, true));
    else if (c == 1 || c == -1)
      out += sign + part;
    else
      out += fmt::format("{}{} * {}", sign, part, literal(c < 0 ? -c : c, wide));
  }
  if (n.value != 0)
    out += n.value < 0 && n.value != INT64_MIN ? " - " + literal(-n.value, wide)
                                               : " + " + literal(n.value, wide);
  return {"(" + out + ")", wide};
}

IndexText::Text IndexText::product(const Expr& e, int lane) const {
  const ExprNode& n = e.node();
  Big largest = 1;
  bool wide = !fits(e);
  std::vector<Text> parts;
  for (const Expr& o : n.operands) {
    parts.push_back(render(o, lane));
    Big a = o.lower(), b = o.upper();
    const Big magnitude = std::max<Big>({a < 0 ? -a : a, b < 0 ? -b : b, 1});
    wide = wide || parts.back().wide || magnitude > kHigh;
    largest = wide ? 1 : largest * magnitude;
    wide = wide || largest > kHigh;
  }
  std::string out;
  for (const Text& p : parts)
    out += (out.empty() ? "" : " * ") + (wide ? widened(p) : p.text);
  return {"(" + out + ")", wide};
}

IndexText::Text IndexText::division(const Expr& e, int lane) const {
  const ExprNode& n = e.node();
  const Expr &a = n.operands[0], &b = n.operands[1];
  Text x = render(a, lane), y = render(b, lane);
  const bool wide = x.wide || y.wide;
  const char* op = n.kind == ExprKind::FloorDiv ? "/" : "%";
  if (wide) {
    x.text = widened(x);
    y.text = widened(y);
  }
  // Unsigned division is the cheaper one, and by powers of two a shift or a mask.
  if (a.lower() >= 0)
    return {wide ? fmt::format("(long long)((unsigned long long){} {} (unsigned long long){})",
                               x.text, op, y.text)
                 : fmt::format("(int)((unsigned){} {} (unsigned){})", x.text, op, y.text),
            wide};
  // Both round down, as shifts and masks of negative numbers do.
  if (const auto d = b.constant(); d && *d > 0 && std::has_single_bit(std::uint64_t(*d)))
    return {n.kind == ExprKind::FloorDiv
                ? fmt::format("({} >> {})", x.text, std::countr_zero(std::uint64_t(*d)))
                : fmt::format("({} & {})", x.text, literal(*d - 1, wide)),
            wide};
  return call(n.kind == ExprKind::FloorDiv ? "floordiv" : "floormod", {x.text, wide},
              {y.text, wide});
}

} // namespace egret::backend::clike
