#include "kernel/tangent_forms.h"

#include <iterator>
#include <map>
#include <utility>

namespace egret::kernel {

namespace {

/// r and e r of one operand.
struct TangentParts {
  ValueId r, er;
};

class Expansion {
public:
  Expansion(KernelProgram& program, RoundedUses& uses) : p_(program), uses_(uses) {}

  void block(Block& stmts, std::map<ValueId, TangentParts> known) {
    Block made;
    made.reserve(stmts.size());
    for (Stmt& s : stmts) {
      const Let* let = get_if<Let>(s);
      const auto form = let ? uses_.tangents.find(let->target) : uses_.tangents.end();
      if (form != uses_.tangents.end()) {
        expand(made, form->first, form->second, known);
        continue;
      }
      each_block(s, [&](Block& inner) { block(inner, known); });
      made.push_back(std::move(s));
    }
    stmts = std::move(made);
  }

private:
  void expand(Block& to, ValueId target, const TangentForm& form,
              std::map<ValueId, TangentParts>& known) {
    const Type type = p_.values[std::size_t(target)];
    auto [found, is_new] = known.try_emplace(form.operand);
    if (is_new)
      found->second = parts(to, form.operand, type);
    const auto [r, er] = found->second;
    if (!form.squared) {
      to.push_back(Let{target, {type, inst::Apply{Op::Mul, {r, number(to, 2, type)}}}});
      return;
    }
    const ValueId scaled = apply(to, Asked::Rounded, type, Op::Mul, {er, number(to, 4, type)});
    to.push_back(Let{target, {type, inst::Apply{Op::Mul, {scaled, r}}}});
  }

  TangentParts parts(Block& to, ValueId u, Type type) {
    constexpr double kTwiceLog2E = 2.8853900817779268;
    // -max(2 u / log 2, -127.5) is the exponent: a maximum keeps NaN.
    const ValueId scaled =
                      apply(to, Asked::Rounded, type, Op::Mul, {u, number(to, kTwiceLog2E, type)}),
                  bounded =
                      apply(to, Asked::F32, type, Op::Max, {scaled, number(to, -127.5, type)}),
                  exponent = apply(to, Asked::F32, type, Op::Mul, {bounded, number(to, -1, type)}),
                  e = apply(to, Asked::F32, type, Op::Exp2, {exponent}, true),
                  sum = apply(to, Asked::F32, type, Op::Add, {e, number(to, 1, type)}),
                  r = apply(to, Asked::F32, type, Op::Recip, {sum}, true);
    // A value by itself: r r would be 0 long before e r r is.
    return {r, apply(to, Asked::F32, type, Op::Mul, {e, r})};
  }

  ValueId apply(Block& to, Asked asked, Type type, Op op, std::vector<ValueId> args,
                bool approximate = false) {
    return let(to, asked, {type, inst::Apply{op, std::move(args), approximate}});
  }
  ValueId number(Block& to, double x, Type type) {
    return let(to, Asked::F32, {type, inst::Constant{Scalar::of(DType::F32, x)}});
  }
  ValueId let(Block& to, Asked asked, Inst inst) {
    const auto id = ValueId(p_.values.size());
    p_.values.push_back(inst.type);
    uses_.asked.push_back(asked);
    to.push_back(Let{id, std::move(inst)});
    return id;
  }

  KernelProgram& p_;
  RoundedUses& uses_;
};

} // namespace

void expand_tangents(KernelProgram& program, RoundedUses& uses) {
  if (uses.tangents.empty())
    return;
  Expansion(program, uses).block(program.body, {});
  uses.tangents.clear();
}

} // namespace egret::kernel
