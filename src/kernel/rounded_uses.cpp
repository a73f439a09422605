#include "kernel/rounded_uses.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace egret::kernel {

namespace {

class UsesFinder {
public:
  explicit UsesFinder(const KernelProgram& program)
      : p_(program), asked_(program.values.size(), Asked::Narrow),
        used_(program.values.size(), false), made_by_(program.values.size()) {}

  RoundedUses run() {
    each_statement(p_.body, [&](const Stmt& s) {
      if (const auto* let = get_if<Let>(s))
        made_by_[static_cast<std::size_t>(let->target)] = &let->inst;
    });
    // A value's uses stand behind it: from the last statement to the first, all of them are known
    // when it is reached.
    block(p_.body);
    for (std::size_t v = 0; v < asked_.size(); ++v)
      if (!used_[v] || p_.values[v].dtype != DType::F32)
        asked_[v] = Asked::F32;
    return {std::move(asked_), std::move(tangents_)};
  }

private:
  void block(const Block& stmts) {
    for (auto s = stmts.rbegin(); s != stmts.rend(); ++s)
      std::visit(overloaded{[&](const Let& x) { instruction(x.target, x.inst); },
                            [&](const Assign& x) { use(x.value, Asked::F32); },
                            [&](const Store& x) { use(x.value, Asked::F32); },
                            [&](const For& x) { block(x.body); },
                            [&](const If& x) {
                              block(x.otherwise);
                              block(x.body);
                            },
                            [](const Barrier&) {},
                            [&](const Intrinsic& x) { uses(x.values, Asked::F32); },
                            [&](const Acquire& x) {
                              block(x.body);
                              uses(x.by.values, Asked::F32);
                            },
                            [&](const InProblem& x) { block(x.body); }},
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
    const bool is_f32 = inst.type.dtype == DType::F32;
    if (is_f32 && !used_[result] && !get_if<Intrinsic>(inst))
      return; // as a tangent is whose sums are made otherwise
    const Asked asked = is_f32 ? asked_[result] : Asked::F32;
    std::visit(overloaded{[&](const inst::Apply& x) { apply(target, x, inst.type.dtype, asked); },
                          [&](const inst::Splat& x) { use(x.value, asked); },
                          [&](const inst::Extract& x) { use(x.value, asked); },
                          [&](const inst::Fma& x) { uses(x.args, std::min(asked, Asked::Close)); },
                          [&](const inst::ReduceLanes& x) { use(x.value, Asked::F32); },
                          [&](const inst::Shuffle& x) { uses(x.args, Asked::F32); },
                          [&](const Intrinsic& x) { uses(x.values, Asked::F32); },
                          [](const inst::Constant&) {}, [](const inst::Argument&) {},
                          [](const inst::Index&) {}, [](const inst::Load&) {},
                          [](const inst::Read&) {}, [](const inst::Test&) {}},
               inst.op);
  }

  void apply(ValueId target, const inst::Apply& x, DType type, Asked asked) {
    if (asked >= Asked::Close)
      if (const auto form = tangent_form(x)) {
        use(form->operand, Asked::Rounded);
        tangents_.emplace(target, *form);
        return;
      }
    for (std::size_t a = 0; a < x.args.size(); ++a)
      use(x.args[a], of_operand(x, a, type, asked));
  }

  /// Exponentials ask for their operands as they are written: x - max(x) is to be 0 for the largest
  /// of numbers that are huge, as those are that a mask puts in a score's place.
  Asked of_operand(const inst::Apply& x, std::size_t operand, DType type, Asked asked) const {
    switch (x.op) {
    case Op::Cast:
      return type == DType::BF16 || type == DType::F16 ? Asked::Narrow : Asked::F32;
    case Op::Lt:
    case Op::Eq:
      return is_finite_test(x, operand) ? Asked::Narrow : Asked::F32;
    case Op::Select:
      return operand > 0 ? asked : Asked::F32;
    case Op::Mul:
    case Op::Div:
    case Op::Recip:
      return asked;
    case Op::Add:
      return std::min(asked, Asked::Close);
    case Op::Max:
    case Op::Sqrt:
    case Op::Log:
    case Op::Log2:
    case Op::Log1p:
    case Op::Sin:
    case Op::Cos:
    case Op::Tanh:
    case Op::Erf:
    case Op::Sigmoid:
    case Op::Pow:
      return std::min(asked, Asked::Rounded);
    default:
      return Asked::F32;
    }
  }

  const Inst* made_by(ValueId v) const { return made_by_[static_cast<std::size_t>(v)]; }
  ValueId without_splats(ValueId v) const {
    for (const Inst* inst = made_by(v); inst != nullptr; inst = made_by(v)) {
      const auto* splat = get_if<inst::Splat>(*inst);
      if (!splat)
        break;
      v = splat->value;
    }
    return v;
  }
  const inst::Apply* made(Op op, ValueId v) const {
    const Inst* inst = made_by(v);
    const auto* made = inst ? get_if<inst::Apply>(*inst) : nullptr;
    return made && made->op == op ? made : nullptr;
  }
  std::optional<double> number(ValueId v) const {
    const Inst* inst = made_by(without_splats(v));
    const auto* made = inst ? get_if<inst::Constant>(*inst) : nullptr;
    return made && is_float(made->value.dtype) ? std::optional(made->value.as_double())
                                               : std::nullopt;
  }

  /// 1 + tanh(u), or 1 + -1 tanh(u) tanh(u) in any order.
  std::optional<TangentForm> tangent_form(const inst::Apply& sum) const {
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
  bool is_finite_test(const inst::Apply& x, std::size_t operand) const {
    return std::isinf(number(x.args[1 - operand]).value_or(0));
  }

  const KernelProgram& p_;
  std::vector<Asked> asked_;
  std::vector<bool> used_;
  std::vector<const Inst*> made_by_; ///< by value
  std::map<ValueId, TangentForm> tangents_;
};

} // namespace

RoundedUses rounded_uses(const KernelProgram& program) {
  return UsesFinder(program).run();
}

} // namespace egret::kernel
