// Values that reach memory only through a rounding to 16 bits need not be as exact as the op table
// asks of f32: a relative error of 2^-17 is nothing beside the 2^-9 of bf16, or the 2^-12 of f16.
// Divisions among them, exponentials, logistic functions and hyperbolic tangents take a quarter to
// a third of the instructions.
//
// Where sums are on the way too, a value is to be about as exact as f32. 1 + tanh(u) and
// 1 - tanh(u)^2, of gelu and of gradients of tangents, are then made from exp(-2 |u|): nothing
// cancels in it, so that they are more exact than the sums, in half the instructions.
#include "backend/cuda/renderer.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace egret::backend::cuda {

using kernel::Block;
using kernel::Inst;
using kernel::Stmt;
using kernel::ValueId;

namespace {

/// What the uses of a value ask of it, from the most to the least.
enum class Asked : std::uint8_t {
  F32,   ///< the op table's error
  Close, ///< 2^-18 of itself: it is rounded to 16 bits behind sums
  Narrow ///< 2^-17 of itself: it is rounded to 16 bits behind products, quotients and choices
};

class RoundedUses {
public:
  explicit RoundedUses(const kernel::KernelProgram& program)
      : p_(program), asked_(program.values.size(), Asked::Narrow),
        used_(program.values.size(), false), made_by_(program.values.size()) {}

  NarrowValues run() {
    each_statement(p_.body, [&](const Stmt& s) {
      if (const auto* let = get_if<kernel::Let>(s))
        made_by_[static_cast<std::size_t>(let->target)] = &let->inst;
    });
    // A value's uses stand behind it: from the last statement to the first, all of them are known
    // when it is reached.
    block(p_.body);
    NarrowValues found{std::vector<bool>(asked_.size()), std::move(tangents_)};
    for (std::size_t v = 0; v < asked_.size(); ++v)
      found.narrow[v] = used_[v] && asked_[v] == Asked::Narrow && p_.values[v].dtype == DType::F32;
    return found;
  }

private:
  void block(const Block& stmts) {
    for (auto s = stmts.rbegin(); s != stmts.rend(); ++s)
      std::visit(overloaded{[&](const kernel::Let& x) { instruction(x.target, x.inst); },
                            [&](const kernel::Assign& x) { use(x.value, Asked::F32); },
                            [&](const kernel::Store& x) { use(x.value, Asked::F32); },
                            [&](const kernel::For& x) { block(x.body); },
                            [&](const kernel::If& x) {
                              block(x.otherwise);
                              block(x.body);
                            },
                            [](const kernel::Barrier&) {},
                            [&](const kernel::Intrinsic& x) { uses(x.values, Asked::F32); },
                            [&](const kernel::Acquire& x) {
                              block(x.body);
                              uses(x.by.values, Asked::F32);
                            },
                            [&](const kernel::InProblem& x) { block(x.body); }},
                 s->node);
  }

  void use(ValueId v, Asked what) {
    const auto i = static_cast<std::size_t>(v);
    used_[i] = true;
    asked_[i] = std::min(asked_[i], what);
  }
  template <class L>
  void uses(const L& values, Asked what) {
    for (ValueId v : values)
      use(v, what);
  }

  /// A relative error of an operand becomes about the same one of a product, a quotient or a
  /// choice; of a sum it could become anything.
  void instruction(ValueId target, const Inst& inst) {
    const auto result = static_cast<std::size_t>(target);
    const Asked asked =
        used_[result] && inst.type.dtype == DType::F32 ? asked_[result] : Asked::F32;
    std::visit(
        overloaded{[&](const kernel::inst::Apply& x) { apply(target, x, inst.type.dtype, asked); },
                   [&](const kernel::inst::Splat& x) { use(x.value, asked); },
                   [&](const kernel::inst::Extract& x) { use(x.value, asked); },
                   [&](const kernel::inst::Fma& x) { uses(x.args, std::min(asked, Asked::Close)); },
                   [&](const kernel::inst::ReduceLanes& x) { use(x.value, Asked::F32); },
                   [&](const kernel::inst::Shuffle& x) { uses(x.args, Asked::F32); },
                   [&](const kernel::Intrinsic& x) { uses(x.values, Asked::F32); },
                   [](const kernel::inst::Constant&) {}, [](const kernel::inst::Argument&) {},
                   [](const kernel::inst::Index&) {}, [](const kernel::inst::Load&) {},
                   [](const kernel::inst::Read&) {}, [](const kernel::inst::Test&) {}},
        inst.op);
  }

  void apply(ValueId target, const kernel::inst::Apply& x, DType type, Asked asked) {
    if (asked != Asked::F32)
      if (const auto form = tangent_form(x)) {
        use(form->operand, Asked::F32);
        tangents_.emplace(target, *form);
        return;
      }
    const bool rounds = x.op == Op::Cast && (type == DType::BF16 || type == DType::F16);
    for (std::size_t a = 0; a < x.args.size(); ++a) {
      Asked of = Asked::F32;
      if (rounds || is_finite_test(x, a))
        of = Asked::Narrow;
      else if (x.op == Op::Mul || x.op == Op::Div || x.op == Op::Recip ||
               (x.op == Op::Select && a > 0))
        of = asked;
      else if (x.op == Op::Add)
        of = std::min(asked, Asked::Close);
      use(x.args[a], of);
    }
  }

  const Inst* made_by(ValueId v) const { return made_by_[static_cast<std::size_t>(v)]; }
  ValueId without_splats(ValueId v) const {
    for (const Inst* inst = made_by(v); inst != nullptr; inst = made_by(v)) {
      const auto* splat = get_if<kernel::inst::Splat>(*inst);
      if (!splat)
        break;
      v = splat->value;
    }
    return v;
  }
  const kernel::inst::Apply* made(Op op, ValueId v) const {
    const Inst* inst = made_by(v);
    const auto* made = inst ? get_if<kernel::inst::Apply>(*inst) : nullptr;
    return made && made->op == op ? made : nullptr;
  }
  std::optional<double> number(ValueId v) const {
    const Inst* inst = made_by(without_splats(v));
    const auto* made = inst ? get_if<kernel::inst::Constant>(*inst) : nullptr;
    return made && is_float(made->value.dtype) ? std::optional(made->value.as_double())
                                               : std::nullopt;
  }

  /// 1 + tanh(u), or 1 + -1 tanh(u) tanh(u) in any order.
  std::optional<TangentForm> tangent_form(const kernel::inst::Apply& sum) const {
    for (std::size_t k = 0; sum.op == Op::Add && k < 2; ++k) {
      if (number(sum.args[1 - k]) != 1)
        continue;
      if (const auto* tangent = made(Op::Tanh, sum.args[k]))
        return TangentForm{tangent->args[0], false};
      std::vector<ValueId> factors{sum.args[k]};
      for (std::size_t f = 0; f < factors.size() && factors.size() < 4;)
        if (const auto* product = made(Op::Mul, factors[f])) {
          factors.insert(factors.end(), product->args.begin(), product->args.end());
          factors.erase(factors.begin() + std::ptrdiff_t(f));
        } else {
          ++f;
        }
      const auto minus =
          std::find_if(factors.begin(), factors.end(), [&](ValueId v) { return number(v) == -1; });
      if (minus == factors.end())
        continue;
      factors.erase(minus);
      if (factors.size() == 2 && factors[0] == factors[1])
        if (const auto* tangent = made(Op::Tanh, factors[0]))
          return TangentForm{tangent->args[0], true};
    }
    return std::nullopt;
  }

  /// Whether the operand is only compared with an infinity.
  bool is_finite_test(const kernel::inst::Apply& x, std::size_t operand) const {
    return (x.op == Op::Lt || x.op == Op::Eq) &&
           std::isinf(number(x.args[1 - operand]).value_or(0));
  }

  const kernel::KernelProgram& p_;
  std::vector<Asked> asked_;
  std::vector<bool> used_;
  std::vector<const Inst*> made_by_; ///< by value
  std::map<ValueId, TangentForm> tangents_;
};

} // namespace

NarrowValues narrow_values(const kernel::KernelProgram& program) {
  return RoundedUses(program).run();
}

std::string narrow_text(Op op, const std::vector<std::string>& args) {
  switch (op) {
  case Op::Div:
    return fmt::format("eg_narrow_div({}, {})", args[0], args[1]);
  case Op::Recip:
    return fmt::format("eg_narrow_div(1.0f, {})", args[0]);
  case Op::Exp:
    return fmt::format("__expf({})", args[0]);
  case Op::Sigmoid:
    return fmt::format("eg_narrow_sigmoid({})", args[0]);
  case Op::Tanh:
    return fmt::format("eg_narrow_tanh({})", args[0]);
  default:
    return "";
  }
}

} // namespace egret::backend::cuda
