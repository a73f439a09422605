// Identities of comparisons, bits and selections.
#include "ir/passes/rules.h"

namespace egret::passes {
namespace {

/// Every bit of the dtype.
bool is_ones(const Site& s, std::size_t i) {
  return s.known(i) == Scalar::from_bits(s.dtype, s.dtype == DType::Bool ? 1 : ~std::uint64_t{0});
}

bool has_known(const Site& s, double value) {
  return s.is(0, value) || s.is(1, value);
}

/// x in xor(x, true), for a bool.
NodeId negated(const Site& s, NodeId id) {
  const ir::Node& node = s.out[id];
  if (node.op != Op::Xor || node.dtype != DType::Bool)
    return kNo;
  for (std::size_t i : {0u, 1u})
    if (auto known = ir::known_value(s.out, node.inputs[1 - i]); known && known->bits == 1)
      return node.inputs[i];
  return kNo;
}

NodeId negation(const Site& s, NodeId id) {
  return s.out.binary(Op::Xor, id,
                      s.out.broadcast(s.out.constant(Scalar::from_bits(DType::Bool, 1)), s.shape));
}

/// y in x ^ (x ^ y).
NodeId xor_undone(const Site& s) {
  for (std::size_t i : {0u, 1u}) {
    if (!s.operand_is(i, Op::Xor))
      continue;
    const auto& inner = s.operand(i).inputs;
    for (std::size_t j : {0u, 1u})
      if (inner[j] == s.in[1 - i])
        return inner[1 - j];
  }
  return kNo;
}

constexpr Rule kLogicRules[] = {
    {Op::And, "x & x = x", same},
    {Op::And, "x & 0 = 0", [](const Site& s) { return has_known(s, 0) ? s.filled(0) : kNo; }},
    {Op::And, "x & ones = x",
     [](const Site& s) { return is_ones(s, 1)   ? s.in[0]
                                : is_ones(s, 0) ? s.in[1]
                                                : kNo; }},
    {Op::Or, "x | x = x", same},
    {Op::Or, "x | 0 = x", [](const Site& s) { return beside(s, 0); }},
    {Op::Or, "x | ones = ones",
     [](const Site& s) { return is_ones(s, 1)   ? s.in[1]
                                : is_ones(s, 0) ? s.in[0]
                                                : kNo; }},
    {Op::Xor, "x ^ x = 0", [](const Site& s) { return same(s) != kNo ? s.filled(0) : kNo; }},
    {Op::Xor, "x ^ 0 = x", [](const Site& s) { return beside(s, 0); }},
    {Op::Xor, "x ^ (x ^ y) = y", xor_undone},
    {Op::Shl, "x << 0 = x", [](const Site& s) { return s.is(1, 0) ? s.in[0] : kNo; }},
    {Op::Shr, "x >> 0 = x", [](const Site& s) { return s.is(1, 0) ? s.in[0] : kNo; }},
    {Op::Lt, "x < x = false", [](const Site& s) { return same(s) != kNo ? s.filled(0) : kNo; }},
    {Op::Eq, "x == x = true (not floats)",
     [](const Site& s) {
       return same(s) != kNo && !is_float(s.operand(0).dtype) ? s.filled(1) : kNo;
     }},
    {Op::Eq, "(b == true) = b, (b == false) = !b",
     [](const Site& s) {
       if (s.operand(0).dtype != DType::Bool)
         return kNo;
       NodeId against_true = beside(s, 1), against_false = beside(s, 0);
       return against_true != kNo    ? against_true
              : against_false != kNo ? negation(s, against_false)
                                     : kNo;
     }},
    {Op::Select, "select(true, a, b) = a, select(false, a, b) = b",
     [](const Site& s) {
       auto condition = s.known(0);
       return !condition ? kNo : condition->bits != 0 ? s.in[1] : s.in[2];
     }},
    {Op::Select, "select(c, a, a) = a",
     [](const Site& s) { return s.in[1] == s.in[2] ? s.in[1] : kNo; }},
    {Op::Select, "select(c, true, false) = c, select(c, false, true) = !c",
     [](const Site& s) {
       if (s.dtype != DType::Bool)
         return kNo;
       return s.is(1, 1) && s.is(2, 0)   ? s.in[0]
              : s.is(1, 0) && s.is(2, 1) ? negation(s, s.in[0])
                                         : kNo;
     }},
    {Op::Select, "select(!c, a, b) = select(c, b, a)",
     [](const Site& s) {
       NodeId c = negated(s, s.in[0]);
       return c != kNo ? s.out.select(c, s.in[2], s.in[1]) : kNo;
     }},
};

} // namespace

std::span<const Rule> logic_rules() {
  return kLogicRules;
}

} // namespace egret::passes
