#include "backend/reference/program_code.h"

#include "support/fail.h"

#include <algorithm>

namespace egret::backend::reference {

using kernel::Block;
using kernel::Inst;
using kernel::KernelProgram;
using kernel::Stmt;
using kernel::Type;

namespace {

class Translator {
public:
  Translator(const KernelProgram& program, SlotTable& slots) : program_(program), slots_(slots) {}

  ExprCode expr(const Expr& e) {
    return ExprCode(e, [this](const Expr& variable) { return slots_.of(variable); });
  }

  std::vector<StmtCode> block(const Block& block) {
    std::vector<StmtCode> result;
    for (const Stmt& stmt : block)
      result.push_back(statement(stmt));
    return result;
  }

private:
  StmtCode statement(const Stmt& stmt) {
    StmtCode code;
    code.stmt = &stmt;
    std::visit(overloaded{[&](const kernel::Let& x) { code.inst = instruction(x.inst); },
                          [](const kernel::Assign&) {},
                          [&](const kernel::Store& x) {
                            code.inst.lanes =
                                program_.values.at(static_cast<std::size_t>(x.value)).lanes;
                            access(x.to.index, x.mask, code.inst);
                          },
                          [&](const kernel::For& x) { loop(x, code); },
                          [&](const kernel::If& x) {
                            guards(x.condition, code.inst);
                            code.body = block(x.body);
                            code.otherwise = block(x.otherwise);
                          },
                          [](const kernel::Barrier&) {},
                          [&](const kernel::Intrinsic& x) { intrinsic(x, code.inst); },
                          [&](const kernel::Acquire& x) {
                            intrinsic(x.by, code.inst);
                            code.body = block(x.body);
                          },
                          [&](const kernel::InProblem& x) { problem(x, code); }},
               stmt.node);
    return code;
  }

  void loop(const kernel::For& x, StmtCode& code) {
    code.slot = slots_.loop(x.number);
    code.extent = expr(x.extent);
    code.begin = operand(x.begin, code.inst);
    code.end = operand(x.end, code.inst);
    code.step = operand(x.step, code.inst);
    code.body = block(x.body);
  }

  void problem(const kernel::InProblem& x, StmtCode& code) {
    const kernel::ProblemGroup& group = program_.groups.at(static_cast<std::size_t>(x.group));
    code.inst.index = operand(x.item, code.inst);
    code.slot = slots_.symbol(group.item);
    for (const Expr& size : group.sizes)
      code.sizes.push_back(slots_.symbol(size));
    code.body = block(x.body);
  }

  InstCode instruction(const Inst& inst) {
    InstCode code;
    code.lanes = inst.type.lanes;
    std::visit(overloaded{[&](const kernel::inst::Index& x) { access(x.expr, {}, code); },
                          [&](const kernel::inst::Load& x) { access(x.from.index, x.mask, code); },
                          [&](const kernel::inst::Test& x) { guards(x.mask, code); },
                          [&](const kernel::Intrinsic& x) { intrinsic(x, code); },
                          [](const kernel::inst::Constant&) {},
                          [](const kernel::inst::Argument&) {}, [](const kernel::inst::Apply&) {},
                          [](const kernel::inst::Fma&) {}, [](const kernel::inst::Read&) {},
                          [](const kernel::inst::Splat&) {}, [](const kernel::inst::Extract&) {},
                          [](const kernel::inst::ReduceLanes&) {},
                          [](const kernel::inst::Shuffle&) {}},
               inst.op);
    return code;
  }

  ExprCode operand(const Expr& e, InstCode& code) {
    collect_symbols(e, code);
    return expr(e);
  }

  void access(const Expr& index, const std::vector<Guard>& mask, InstCode& code) {
    code.index = operand(index, code);
    guards(mask, code);
  }

  void guards(const std::vector<Guard>& mask, InstCode& code) {
    code.mask = GuardCode(mask, [this](const Expr& variable) { return slots_.of(variable); });
    for (const Guard& guard : mask)
      for (const Expr* e : {&guard.value, &guard.lo, &guard.hi})
        collect_symbols(*e, code);
  }

  void intrinsic(const kernel::Intrinsic& use, InstCode& code) {
    for (const kernel::Address& at : use.memory)
      code.memory.push_back(operand(at.index, code));
    for (const Expr& e : use.indices)
      code.indices.push_back(operand(e, code));
    guards(use.mask, code);
  }

  void collect_symbols(const Expr& e, InstCode& code) {
    for (const Expr& variable : variables_of(e))
      if (auto value = kernel::value_of(variable)) {
        int slot = slots_.value(*value);
        bool known = std::any_of(code.symbols.begin(), code.symbols.end(),
                                 [&](const InstCode::Symbol& s) { return s.slot == slot; });
        if (!known)
          code.symbols.push_back({slot, *value});
      }
  }

  const KernelProgram& program_;
  SlotTable& slots_;
};

std::vector<int> offsets_of(const std::vector<Type>& types) {
  std::vector<int> offsets{0};
  for (const Type& type : types)
    offsets.push_back(offsets.back() + type.lanes);
  return offsets;
}

} // namespace

SlotTable::SlotTable(const KernelProgram& program)
    : program_(program), lane_(static_cast<int>(program.dims.size())), count_(lane_ + 2) {}

int SlotTable::loop(int number) {
  auto [it, fresh] = loops_.try_emplace(number, count_);
  count_ += fresh;
  return it->second;
}

int SlotTable::value(kernel::ValueId value) {
  auto [it, fresh] = values_.try_emplace(value, count_);
  count_ += fresh;
  return it->second;
}

int SlotTable::symbol(const Expr& symbol) {
  const auto known = std::find_if(symbols_.begin(), symbols_.end(),
                                  [&](const auto& entry) { return entry.first == symbol; });
  if (known != symbols_.end())
    return known->second;
  symbols_.emplace_back(symbol, count_);
  return count_++;
}

int SlotTable::of(const Expr& variable) {
  if (kernel::lanes_of(variable))
    return lane_;
  if (kernel::threads_of(variable))
    return lane_ + 1;
  if (auto value = kernel::value_of(variable))
    return this->value(*value);
  if (variable.is_axis())
    return loop(variable.axis_number());
  for (const auto& [symbol, slot] : symbols_)
    if (symbol == variable)
      return slot;
  auto dim = std::find(program_.dims.begin(), program_.dims.end(), variable);
  ensure(dim != program_.dims.end(), "program {}: `{}` is not among its dims", program_.name,
         variable.str());
  return static_cast<int>(dim - program_.dims.begin());
}

ProgramCode::ProgramCode(const KernelProgram& p)
    : program(p), slots(p), value_offset(offsets_of(p.values)),
      variable_offset(offsets_of(p.variables)) {
  Translator translate(p, slots);
  for (const kernel::Buffer& buffer : p.buffers)
    buffer_elements.push_back(
        translate.expr(buffer.space == kernel::Space::Problem ? Expr(0) : buffer.elements));
  for (const kernel::TensorMap& m : p.tensor_maps) {
    Map map;
    map.offset = translate.expr(m.offset);
    for (const Expr& e : m.extents)
      map.extents.push_back(translate.expr(e));
    for (const Expr& e : m.strides)
      map.strides.push_back(translate.expr(e));
    tensor_maps.push_back(std::move(map));
  }
  workers = translate.expr(p.launch.workers);
  body = translate.block(p.body);
}

} // namespace egret::backend::reference
