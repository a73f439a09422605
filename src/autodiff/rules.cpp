#include "autodiff/rules.h"

#include "autodiff/guards.h"
#include "autodiff/long_rules.h"

#include <array>
#include <numbers>

namespace egret::autodiff {

namespace {

constexpr double kLn2 = std::numbers::ln2;
constexpr double kErf = 2 * std::numbers::inv_sqrtpi;

Value zeros(Value like) {
  return full_like(like, 0);
}
std::int64_t axis(const Site& s) {
  return s.attrs.axes[0];
}

struct Row {
  Op op;
  Rule of_a = nullptr, of_b = nullptr, of_c = nullptr;
};

#define D(formula) [](const Site& s) -> Value { return formula; }

// clang-format off
constexpr Row kRules[] = {
  {Op::Cast,       D(cast(s.g, s.a.dtype()))},

  {Op::Exp2,       D(s.g * finite_exp(s) * kLn2)},
  {Op::Log2,       D(s.g / (positive(s.a) * kLn2))},
  {Op::Sin,        D(s.g * finite_or(unary(Op::Cos, s.a), 0))},
  {Op::Sqrt,       D(s.g * 0.5 / positive(s.y))},
  {Op::Recip,      D(-(s.g * square(finite(s.y))))},

  {Op::Exp,        D(s.g * finite_exp(s))},
  {Op::Log,        D(s.g / positive(s.a))},
  {Op::Cos,        D(-(s.g * finite_or(unary(Op::Sin, s.a), 0)))},
  {Op::Tanh,       D(s.g * (-square(s.y) + 1))},
  {Op::Erf,        D(s.g * unary(Op::Exp, -square(s.a)) * kErf)},
  {Op::Log1p,      D(s.g / positive(s.a + 1))},
  {Op::Expm1,      D(s.g * (finite_or(s.y, -1) + 1))},
  {Op::Sigmoid,    D(s.g * (s.y * (-s.y + 1)))},

  {Op::Add,        D(s.g), D(s.g)},
  {Op::Mul,        D(s.g * s.b), D(s.g * s.a)},
  {Op::Div,        D(s.g / nonzero(s.b)), D(-(s.g / nonzero(s.b) * s.a / nonzero(s.b)))},
  {Op::Mod,        D(s.g), D(-(s.g * finite(unary(Op::Floor, (s.a - s.y) / s.b + 0.5))))},
  {Op::Max,        D(max_share(s.g, s.a, s.b)), D(max_share(s.g, s.b, s.a))},
  {Op::Pow,        D(s.g * (finite(s.b) * finite(binary(Op::Pow, s.a, s.b + -1)))),
                   D(s.g * (finite(s.y) * unary(Op::Log, positive_or(s.a, 1))))},
  {Op::Select,     nullptr, D(select(s.a, s.g, zeros(s.g))), D(select(s.a, zeros(s.g), s.g))},

  {Op::ReduceSum,  D(unreduce(s.g, s.a.shape(), s.attrs.axes))},
  {Op::ReduceMax,  reduce_max_rule},
  {Op::ReduceProd, reduce_prod_rule},
  {Op::ScanSum,    D(flip(scan(Op::ScanSum, flip(s.g, s.attrs.axes), axis(s)), s.attrs.axes))},
  {Op::ScanMax,    scan_max_rule},
  {Op::ScanProd,   scan_prod_rule},
  {Op::ScanLinear, scan_linear_term_rule, scan_linear_factor_rule},

  {Op::Gather,     D(scatter(Op::ScatterAdd, zeros(s.a), s.b, s.g, axis(s)))},
  {Op::ScatterSet, D(scatter(Op::ScatterSet, s.g, s.b, zeros(s.c), axis(s))), nullptr,
                   scatter_set_rule},
  {Op::ScatterAdd, D(s.g), nullptr, D(gather(s.g, s.b, axis(s)))},
  {Op::ScatterMax, scatter_max_data_rule, nullptr, scatter_max_updates_rule},

  {Op::Reshape,    D(reshape(s.g, s.a.shape()))},
  {Op::Permute,    permute_rule},
  {Op::Expand,     expand_rule},
  {Op::Pad,        pad_rule},
  {Op::Shrink,     shrink_rule},
  {Op::Flip,       D(flip(s.g, s.attrs.axes))},
};
// clang-format on

#undef D

constexpr std::array<Row, kOps> by_op() {
  std::array<Row, kOps> table{};
  for (const Row& row : kRules)
    table[static_cast<std::size_t>(row.op)] = row;
  return table;
}
constexpr std::array<Row, kOps> kByOp = by_op();

} // namespace

Rule rule_of(Op op, std::size_t operand) noexcept {
  const Row& row = kByOp[static_cast<std::size_t>(op)];
  return operand == 0 ? row.of_a : operand == 1 ? row.of_b : row.of_c;
}

} // namespace egret::autodiff
