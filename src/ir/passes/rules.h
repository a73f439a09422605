// Exact identities: one line each, in tables by subject (rules_*.cpp), applied by simplify.
#pragma once

#include "egret/ir.h"
#include "ir/structure.h"

#include <span>
#include <string_view>

namespace egret::passes {

using ir::Graph;
using ir::NodeId;

inline constexpr NodeId kNo = ir::kNoNode;

/// A node about to be added to `out`.
struct Site {
  Graph& out;
  Op op;
  std::span<const NodeId> in;
  const ir::Attrs& attrs;
  DType dtype;
  Shape shape;

  const ir::Node& operand(std::size_t i) const { return out[in[i]]; }
  /// The value of all elements of an operand, if it is a known one.
  std::optional<Scalar> known(std::size_t i) const { return ir::known_value(out, in[i]); }
  /// Whether all elements of operand i are this value in its dtype (by bits: 0 is not -0).
  bool is(std::size_t i, double value) const {
    auto s = known(i);
    return s && s->bits == Scalar::of(s->dtype, value).bits;
  }
  bool operand_is(std::size_t i, Op op) const { return operand(i).op == op; }
  NodeId filled(const Scalar& value) const { return out.broadcast(out.constant(value), shape); }
  NodeId filled(double value) const { return filled(Scalar::of(dtype, value)); }
};

/// The operands' one node, where both are the same.
inline NodeId same(const Site& s) {
  return s.in[0] == s.in[1] ? s.in[0] : kNo;
}
/// The operand beside a constant `value` of a commutative op.
inline NodeId beside(const Site& s, double value) {
  return s.is(1, value) ? s.in[0] : s.is(0, value) ? s.in[1] : kNo;
}

struct Rule {
  Op op;
  std::string_view name; ///< the identity, as reports and docs/graph.md show it
  /// The node that has the same value as the site's in every element, NaN patterns and signs of
  /// zeros included; kNo when the rule does not fit.
  NodeId (*apply)(const Site& site);
};

/// The value of all the site's elements when what is known of its operands tells it.
std::optional<Scalar> folded_value(const Site& site);

std::span<const Rule> arithmetic_rules();
std::span<const Rule> logic_rules();
std::span<const Rule> conversion_rules();
std::span<const Rule> reduction_rules();
std::span<const Rule> movement_rules();

} // namespace egret::passes
