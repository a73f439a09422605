// Constant folding: what a node's value is when its operands are known, by the definitions of the
// op table.
#include "ir/passes/rules.h"

#include <algorithm>

namespace egret::passes {
namespace {

bool has_no_elements(const Shape& shape) {
  return std::ranges::any_of(shape, [](const Expr& dim) { return dim == Expr(0); });
}

Expr elements_along(const Shape& shape, const std::vector<std::int64_t>& axes) {
  Shape along;
  for (std::int64_t axis : axes)
    along.push_back(shape[static_cast<std::size_t>(axis)]);
  return element_count(along);
}

/// `count` equal values combined, where that is exact in any order.
std::optional<Scalar> total(Monoid monoid, const Scalar& value, const Expr& count) {
  Scalar identity = identity_of(monoid, value.dtype);
  if (value == identity || (monoid == Monoid::Sum && value.as_double() == 0))
    return identity;
  if (monoid == Monoid::Max && count.lower() >= 1)
    return value;
  if (monoid == Monoid::Sum && is_integer(value.dtype) && count.is_constant()) {
    Scalar both[] = {value, Scalar::of(value.dtype, count.value())};
    return egret::apply(Op::Mul, value.dtype, both);
  }
  return std::nullopt;
}

std::optional<Scalar> reduced(const Site& site) {
  if (site.op == Op::ReduceArgMax) {
    bool first = site.known(0) ||
                 site.operand(0).shape[static_cast<std::size_t>(site.attrs.axes[0])] == Expr(0);
    return first ? std::optional(Scalar::of(DType::I64, std::int64_t{0})) : std::nullopt;
  }
  Expr count = elements_along(site.operand(0).shape, site.attrs.axes);
  if (count == Expr(0))
    return identity_of(monoid_of(site.op), site.dtype);
  auto value = site.known(0);
  return value ? total(monoid_of(site.op), *value, count) : std::nullopt;
}

std::optional<Scalar> applied(const Site& site) {
  Scalar operands[3];
  for (std::size_t i = 0; i < site.in.size(); ++i) {
    auto value = site.known(i);
    if (!value)
      return std::nullopt;
    operands[i] = *value;
  }
  return egret::apply(site.op, site.dtype, {operands, site.in.size()});
}

} // namespace

std::optional<Scalar> folded_value(const Site& site) {
  const OpInfo& row = info_of(site.op);
  if (site.op == Op::Constant)
    return std::nullopt;
  if (has_no_elements(site.shape))
    return Scalar::of(site.dtype, std::int64_t{0});
  if (site.op == Op::Iota)
    return site.shape[0] == Expr(1) ? std::optional(Scalar::of(site.dtype, std::int64_t{0}))
                                    : std::nullopt;
  if (is_elementwise(site.op))
    return applied(site);
  if (row.cls == OpClass::Reduce)
    return reduced(site);
  auto first = site.known(0);
  if (!first)
    return std::nullopt;
  if (site.op == Op::ScanLinear) // unless the factors are all finite, 0 is not kept
    return std::nullopt;
  if (row.cls == OpClass::Scan)
    return site.op == Op::ScanMax || *first == identity_of(monoid_of(site.op), first->dtype)
               ? first
               : std::nullopt;
  if (row.cls == OpClass::Gather)
    return first->bits == 0 ? first : std::nullopt;
  if (site.op == Op::Pad)
    return *first == site.attrs.value ? first : std::nullopt;
  return row.cls == OpClass::Movement ? first : std::nullopt;
}

} // namespace egret::passes
