// Values that reach memory only through a rounding to 16 bits need not be as exact as the op table
// asks of f32: a relative error of 2^-17 is nothing beside the 2^-9 of bf16, or the 2^-12 of f16.
// Divisions among them, exponentials, logistic functions and hyperbolic tangents take a quarter to
// a third of the instructions.
#include "backend/cuda/renderer.h"

#include <cmath>
#include <set>

namespace egret::backend::cuda {

using kernel::Block;
using kernel::Inst;
using kernel::Stmt;
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
    each_statement(stmts, [&](const Stmt& s) {
      const auto* number = made_by<kernel::inst::Constant>(s);
      if (number && is_float(number->value.dtype) && std::isinf(number->value.as_double()))
        infinities_.insert(get_if<kernel::Let>(s)->target);
    });
  }

  void block(const Block& stmts) {
    for (auto s = stmts.rbegin(); s != stmts.rend(); ++s)
      std::visit(overloaded{[&](const kernel::Let& x) { instruction(x.target, x.inst); },
                            [&](const kernel::Assign& x) { use(x.value, false); },
                            [&](const kernel::Store& x) { use(x.value, false); },
                            [&](const kernel::For& x) { block(x.body); },
                            [&](const kernel::If& x) {
                              block(x.otherwise);
                              block(x.body);
                            },
                            [](const kernel::Barrier&) {},
                            [&](const kernel::Intrinsic& x) { uses(x.values, false); },
                            [&](const kernel::Acquire& x) {
                              block(x.body);
                              uses(x.by.values, false);
                            },
                            [&](const kernel::InProblem& x) { block(x.body); }},
                 s->node);
  }

  void use(ValueId v, bool narrow) {
    const auto i = static_cast<std::size_t>(v);
    used_[i] = true;
    narrow_[i] = narrow_[i] && narrow;
  }
  template <class L>
  void uses(const L& values, bool narrow) {
    for (ValueId v : values)
      use(v, narrow);
  }

  /// A relative error of an operand becomes about the same one of a product, a quotient or a
  /// choice; of a sum it could become anything.
  void instruction(ValueId target, const Inst& inst) {
    const auto result = static_cast<std::size_t>(target);
    const bool passes = narrow_[result] && used_[result] && inst.type.dtype == DType::F32;
    std::visit(overloaded{[&](const kernel::inst::Apply& x) { apply(x, inst.type.dtype, passes); },
                          [&](const kernel::inst::Splat& x) { use(x.value, passes); },
                          [&](const kernel::inst::Extract& x) { use(x.value, passes); },
                          [&](const kernel::inst::Fma& x) { uses(x.args, false); },
                          [&](const kernel::inst::ReduceLanes& x) { use(x.value, false); },
                          [&](const kernel::inst::Shuffle& x) { uses(x.args, false); },
                          [&](const kernel::Intrinsic& x) { uses(x.values, false); },
                          [](const kernel::inst::Constant&) {},
                          [](const kernel::inst::Argument&) {}, [](const kernel::inst::Index&) {},
                          [](const kernel::inst::Load&) {}, [](const kernel::inst::Read&) {},
                          [](const kernel::inst::Test&) {}},
               inst.op);
  }

  void apply(const kernel::inst::Apply& x, DType type, bool passes) {
    const bool rounds = x.op == Op::Cast && (type == DType::BF16 || type == DType::F16);
    for (std::size_t a = 0; a < x.args.size(); ++a)
      use(x.args[a], rounds || is_finite_test(x, a) ||
                         (passes && (x.op == Op::Mul || x.op == Op::Div || x.op == Op::Recip ||
                                     (x.op == Op::Select && a > 0))));
  }

  /// Whether the operand is only compared with an infinity.
  bool is_finite_test(const kernel::inst::Apply& x, std::size_t operand) const {
    return (x.op == Op::Lt || x.op == Op::Eq) && infinities_.contains(x.args[1 - operand]);
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
  case Op::Tanh:
    return fmt::format("eg_narrow_tanh({})", args[0]);
  default:
    return "";
  }
}

} // namespace egret::backend::cuda
