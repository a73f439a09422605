#include "backend/reference/program_code.h"

#include "support/fail.h"

#include <algorithm>

namespace egret::backend::reference {

using kernel::Block;
using kernel::Inst;
using kernel::InstKind;
using kernel::KernelProgram;
using kernel::Stmt;
using kernel::StmtKind;
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
    code.inst = instruction(stmt.inst, lanes_of_statement(stmt));
    if (stmt.kind == StmtKind::Barrier || stmt.kind == StmtKind::Last ||
        stmt.kind == StmtKind::AwaitPosts)
      code.end = expr(stmt.end);
    if (stmt.kind == StmtKind::For) {
      code.slot = slots_.loop(stmt.number);
      code.extent = expr(stmt.extent);
      code.begin = expr(stmt.begin);
      code.end = expr(stmt.end);
      code.step = expr(stmt.step);
    }
    code.body = block(stmt.body);
    code.otherwise = block(stmt.otherwise);
    return code;
  }

  int lanes_of_statement(const Stmt& stmt) const {
    if (stmt.kind == StmtKind::Store)
      return program_.values.at(static_cast<std::size_t>(stmt.args.at(0))).lanes;
    return stmt.kind == StmtKind::Let ? stmt.inst.type.lanes : 1;
  }

  InstCode instruction(const Inst& inst, int lanes) {
    InstCode code;
    code.inst = &inst;
    code.lanes = lanes;
    auto slot_of = [this](const Expr& variable) { return slots_.of(variable); };
    code.index = ExprCode(inst.expr, slot_of);
    code.mask = GuardCode(inst.mask, slot_of);
    collect_symbols(inst.expr, code);
    code.source = ExprCode(inst.source_expr, slot_of);
    collect_symbols(inst.source_expr, code);
    for (const Expr& e : inst.at) {
      code.at.emplace_back(e, slot_of);
      collect_symbols(e, code);
    }
    for (const Guard& guard : inst.mask)
      for (const Expr* e : {&guard.value, &guard.lo, &guard.hi})
        collect_symbols(*e, code);
    return code;
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

int SlotTable::of(const Expr& variable) {
  if (kernel::lanes_of(variable))
    return lane_;
  if (kernel::threads_of(variable))
    return lane_ + 1;
  if (auto value = kernel::value_of(variable))
    return this->value(*value);
  if (variable.is_axis())
    return loop(variable.axis_number());
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
    buffer_elements.push_back(translate.expr(buffer.elements));
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
