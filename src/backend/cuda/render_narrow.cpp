// Values that reach memory only through a rounding to 16 bits need not be as exact as the op table
// asks of f32: a relative error of 2^-17 is nothing beside the 2^-9 of bf16, or the 2^-12 of f16.
// Divisions among them, exponentials and logistic functions take a quarter of the instructions.
#include "backend/cuda/renderer.h"

#include <cmath>
#include <set>

namespace egret::backend::cuda {

using kernel::Block;
using kernel::Inst;
using kernel::InstKind;
using kernel::Stmt;
using kernel::StmtKind;
using kernel::ValueId;

namespace {

class NarrowUses {
public:
  explicit NarrowUses(const kernel::KernelProgram& program)
      : p_(program), narrow_(program.values.size(), true), used_(program.values.size(), false) {}

  std::vector<bool> run() {
    find_infinities(p_.body);
    // A value's uses stand behind it: from the last statement to the first, all of them are known
    // when it is reached.
    block(p_.body);
    for (std::size_t v = 0; v < narrow_.size(); ++v)
      narrow_[v] = narrow_[v] && used_[v] && p_.values[v].dtype == DType::F32;
    return std::move(narrow_);
  }

private:
  void find_infinities(const Block& stmts) {
    for (const Stmt& s : stmts) {
      if (s.kind == StmtKind::Let && s.inst.kind == InstKind::Constant &&
          is_float(s.inst.type.dtype) && std::isinf(s.inst.constant.as_double()))
        infinities_.insert(s.target);
      find_infinities(s.body);
      find_infinities(s.otherwise);
    }
  }

  void block(const Block& stmts) {
    for (auto s = stmts.rbegin(); s != stmts.rend(); ++s) {
      block(s->otherwise);
      block(s->body);
      for (ValueId v : s->args)
        use(v, false);
      if (s->kind == StmtKind::Let)
        instruction(s->target, s->inst);
      else
        for (ValueId v : s->inst.args)
          use(v, false);
    }
  }

  void use(ValueId v, bool narrow) {
    const auto i = static_cast<std::size_t>(v);
    used_[i] = true;
    narrow_[i] = narrow_[i] && narrow;
  }

  /// A relative error of an operand becomes about the same one of a product, a quotient or a
  /// choice; of a sum it could become anything.
  void instruction(ValueId target, const Inst& inst) {
    const auto result = static_cast<std::size_t>(target);
    const bool rounds = inst.kind == InstKind::Apply && inst.op == Op::Cast &&
                        (inst.type.dtype == DType::BF16 || inst.type.dtype == DType::F16);
    const bool passes = narrow_[result] && used_[result] && inst.type.dtype == DType::F32;
    for (std::size_t a = 0; a < inst.args.size(); ++a) {
      bool narrow = rounds;
      if (inst.kind == InstKind::Apply)
        narrow = narrow || is_finite_test(inst, a) ||
                 (passes && (inst.op == Op::Mul || inst.op == Op::Div || inst.op == Op::Recip ||
                             (inst.op == Op::Select && a > 0)));
      else if (inst.kind == InstKind::Splat || inst.kind == InstKind::Extract)
        narrow = passes;
      use(inst.args[a], narrow);
    }
  }

  /// Whether the operand is only compared with an infinity.
  bool is_finite_test(const Inst& inst, std::size_t operand) const {
    return (inst.op == Op::Lt || inst.op == Op::Eq) && infinities_.contains(inst.args[1 - operand]);
  }

  const kernel::KernelProgram& p_;
  std::vector<bool> narrow_, used_;
  std::set<ValueId> infinities_;
};

} // namespace

std::vector<bool> narrow_values(const kernel::KernelProgram& program) {
  return NarrowUses(program).run();
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
  default:
    return "";
  }
}

} // namespace egret::backend::cuda
