#include "kernel/narrow_values.h"

#include <algorithm>
#include <cmath>

namespace egret::kernel {

namespace {

/// Types whose numbers all have at most 8 significant bits, and exponents of bf16.
bool fits_bf16(DType type) {
  return type == DType::BF16 || type == DType::F8E4M3 || type == DType::F8E5M2 ||
         type == DType::Bool || type == DType::U8 || type == DType::I8;
}

class Finder {
public:
  explicit Finder(const KernelProgram& program)
      : p_(program), values_(program.values.size()), variables_(program.variables.size()),
        factors_(program.values.size()) {
    for (std::size_t v = 0; v < values_.size(); ++v)
      values_[v] = p_.values[v].dtype == DType::F32;
    for (std::size_t v = 0; v < variables_.size(); ++v)
      variables_[v] = p_.variables[v].dtype == DType::F32;
  }

  /// A variable is read before a loop's later assignments: what is said of it is taken back until
  /// nothing changes.
  std::vector<bool> run() {
    for (bool changed = true; changed;) {
      changed = false;
      const auto take_back = [&](std::vector<bool>& of, std::size_t i) {
        changed = changed || of[i];
        of[i] = false;
      };
      each_statement(p_.body, [&](const Stmt& s) {
        if (const auto* let = get_if<Let>(s)) {
          const auto target = static_cast<std::size_t>(let->target);
          if (!keeps(*let) && values_[target])
            take_back(values_, target);
        } else if (const auto* assign = get_if<Assign>(s)) {
          if (!is_narrow(assign->value))
            take_back(variables_, static_cast<std::size_t>(assign->variable));
        }
      });
    }
    return std::move(values_);
  }

private:
  bool is_narrow(ValueId v) const { return values_[static_cast<std::size_t>(v)]; }
  /// Of the values from the `first` one on.
  bool are_narrow(const std::vector<ValueId>& values, std::ptrdiff_t first = 0) const {
    return std::all_of(values.begin() + first, values.end(),
                       [&](ValueId v) { return is_narrow(v); });
  }

  /// Whether what is said of the operands makes the result such a value.
  bool keeps(const Let& let) {
    const auto target = static_cast<std::size_t>(let.target);
    return std::visit(overloaded{[&](const inst::Constant& x) {
                                   factors_[target] = x.value.as_double();
                                   return (x.value.bits & 0xffff) == 0;
                                 },
                                 [&](const inst::Apply& x) { return keeps(x, target); },
                                 [&](const inst::Read& x) {
                                   return bool(variables_[static_cast<std::size_t>(x.variable)]);
                                 },
                                 [&](const inst::Splat& x) {
                                   factors_[target] = factor(x.value);
                                   return is_narrow(x.value);
                                 },
                                 [&](const inst::Extract& x) { return is_narrow(x.value); },
                                 [&](const inst::ReduceLanes& x) {
                                   return x.monoid == Monoid::Max && is_narrow(x.value);
                                 },
                                 [&](const inst::Shuffle& x) { return are_narrow(x.args); },
                                 [](const auto&) { return false; }},
                      let.inst.op);
  }

  bool keeps(const inst::Apply& x, std::size_t target) {
    switch (x.op) {
    case Op::Cast:
      if (is_float(type_of(x.args[0])) && is_float(p_.values[target].dtype))
        factors_[target] = factor(x.args[0]);
      return fits_bf16(type_of(x.args[0]));
    case Op::Max:
    case Op::Floor:
    case Op::Trunc:
      return are_narrow(x.args);
    case Op::Select:
      return are_narrow(x.args, 1);
    case Op::Mul:
      return are_narrow(x.args) &&
             std::ranges::any_of(x.args, [&](ValueId v) { return std::abs(factor(v)) == 1; });
    default:
      return false;
    }
  }

  DType type_of(ValueId v) const { return p_.values[static_cast<std::size_t>(v)].dtype; }
  double factor(ValueId v) const { return factors_[static_cast<std::size_t>(v)]; }

  const KernelProgram& p_;
  std::vector<bool> values_, variables_;
  std::vector<double> factors_; ///< of values that are constants; else 0
};

} // namespace

std::vector<bool> bf16_values(const KernelProgram& program) {
  return Finder(program).run();
}

} // namespace egret::kernel
