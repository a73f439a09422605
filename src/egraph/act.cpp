// Running action programs: building terms, setting functions, joining classes.
#include "egraph/engine.h"
#include "egraph/print.h"

#include "support/fail.h"
#include "support/printable.h"

#include <utility>

namespace egret::egraph {

Value merged(Engine& engine, FunctionId id, const Value* key, Value old_value, Value new_value,
             Span span) {
  const Function& function = engine.signature.function(id);
  if (!function.merge) {
    std::string call = "(" + function.name;
    for (std::size_t i = 0; i < function.inputs.size(); ++i)
      call += " " + show_value(engine, function.inputs[i], key[i]);
    std::string message =
        fmt::format("Illegal merge attempted for function {}: {}) = {} and {}", function.name, call,
                    show_value(engine, function.output, old_value),
                    show_value(engine, function.output, new_value));
    engine.sources.fail(ErrorKind::Value, span.end != 0 ? span : function.span, message);
  }
  Actor actor(engine);
  Value* registers = actor.prepare(*function.merge);
  registers[0] = old_value;
  registers[1] = new_value;
  actor.run(*function.merge);
  return engine.canonical(function.output, actor.result(*function.merge));
}

Value* Actor::prepare(const ActionProgram& program) {
  if (registers_.size() < program.registers)
    registers_.resize(program.registers);
  for (auto [reg, value] : program.constants)
    registers_[reg] = value;
  return registers_.data();
}

Value Actor::construct(FunctionId id, const Value* args) {
  return construct(id, args, engine_.table(id).hash_key(args));
}

Value Actor::construct(FunctionId id, const Value* args, std::uint32_t hash) {
  Table& table = engine_.table(id);
  std::uint32_t row = table.find(args, hash);
  if (row != Table::kNone)
    return table.output(row);
  const Function& function = engine_.signature.function(id);
  Value output = function.kind == FunctionKind::Constructor ? engine_.classes.make() : 0;
  table.append(args, hash, output, RowState::Live);
  ++appended_;
  return output;
}

void Actor::construct_into(FunctionId id, const Value* args, std::uint32_t hash, Value target) {
  Table& table = engine_.table(id);
  std::uint32_t row = table.find(args, hash);
  if (row == Table::kNone) {
    table.append(args, hash, engine_.classes.find(target), RowState::Live);
    ++appended_;
  } else
    engine_.classes.join(table.output(row), target);
}

void Actor::set(FunctionId id, const Value* args, Value value, Span span) {
  Table& table = engine_.table(id);
  std::uint32_t row = table.find(args);
  if (row == Table::kNone) {
    table.append(args, value);
    ++appended_;
    return;
  }
  const Function& function = engine_.signature.function(id);
  Value old = engine_.canonical(function.output, table.output(row));
  if (old == value) {
    note_rewritten(id, row);
    return;
  }
  std::vector<Value> key(args, args + function.inputs.size());
  Value result = merged(engine_, id, key.data(), old, value, span);
  // The merge may have built terms, but never rows of this key; still, look again rather than rely
  // on it.
  Table& current = engine_.table(id);
  row = current.find(key.data());
  if (row != Table::kNone && current.output(row) == result) {
    note_rewritten(id, row);
    return;
  }
  if (row != Table::kNone)
    current.kill(row);
  current.append(key.data(), result);
}

void Actor::subsume(FunctionId id, const Value* args) {
  construct(id, args);
  Table& table = engine_.table(id);
  table.subsume(table.find(args));
}

void Actor::begin_phase(std::span<const ActionProgram* const> programs) {
  deleting_.clear();
  for (const ActionProgram* program : programs) {
    for (const ActionStep& step : program->steps) {
      if (step.op == ActionOp::Delete && deleting(FunctionId{step.target}) == nullptr)
        deleting_.push_back({step.target, engine_.tables[step.target].rows(), {}, {}});
    }
  }
}

Actor::Deleting* Actor::deleting(FunctionId function) {
  for (Deleting& table : deleting_) {
    if (FunctionId{table.function} == function)
      return &table;
  }
  return nullptr;
}

void Actor::note_rewritten(FunctionId function, std::uint32_t row) {
  Deleting* table = deleting_.empty() ? nullptr : deleting(function);
  if (table != nullptr && row < table->rows)
    table->rewritten.insert(row);
}

void Actor::end_phase() {
  for (const Deleting& deleting : std::exchange(deleting_, {})) {
    Table& table = engine_.tables[deleting.function];
    for (std::uint32_t row : deleting.doomed) {
      const RowState state = table.state(row);
      if (state == RowState::Dead || deleting.rewritten.contains(row))
        continue; // deleted before, replaced or written again
      table.kill(row);
    }
  }
}

void Actor::primitive_failed(const Primitive& primitive, const ActionStep& step) {
  std::string call = "(" + primitive.name;
  for (std::uint32_t i = 0; i < step.count && !primitive.any; ++i)
    call += " " + printable(show_value(engine_, primitive.param(i), args_[i]));
  engine_.sources.fail(ErrorKind::Value, step.span, fmt::format("primitive failed: {})", call));
}

void Actor::run(const ActionProgram& program) {
  Engine& engine = engine_;
  for (const ActionStep& step : program.steps) {
    args_.resize(step.count);
    const std::uint32_t* from = program.args.data() + step.first;
    for (std::uint32_t i = 0; i < step.count; ++i)
      args_[i] = registers_[from[i]];
    if (step.op == ActionOp::Primitive) {
      const Primitive& primitive = engine.signature.primitive(step.target);
      PrimContext context{engine.pools, &engine, true};
      Value out = 0;
      // Impure primitives may run actions of their own: they get an engine, not this actor.
      if (!primitive.body(context, args_.data(), args_.size(), out))
        primitive_failed(primitive, step);
      registers_[step.dst] = out;
      continue;
    }
    if (step.op == ActionOp::Panic)
      engine.sources.fail(ErrorKind::Value, step.span, "Panic: " + program.messages[step.target]);
    if (step.op == ActionOp::Union) {
      engine.classes.join(args_[0], args_[1]);
      continue;
    }
    FunctionId id{step.target};
    const Function& function = engine.signature.function(id);
    for (std::size_t i = 0; i < function.inputs.size(); ++i)
      args_[i] = engine.canonical(function.inputs[i], args_[i]);
    switch (step.op) {
    case ActionOp::Construct:
      registers_[step.dst] = construct(id, args_.data());
      break;
    case ActionOp::Lookup: {
      std::uint32_t row = engine.table(id).find(args_.data());
      if (row == Table::kNone) {
        std::string call = "(" + function.name;
        for (std::size_t i = 0; i < function.inputs.size(); ++i)
          call += " " + show_value(engine, function.inputs[i], args_[i]);
        engine.sources.fail(ErrorKind::Value, step.span,
                            fmt::format("lookup of function failed: {}) has no value", call));
      }
      registers_[step.dst] = engine.table(id).output(row);
      break;
    }
    case ActionOp::Set: {
      Value value = engine.canonical(function.output, args_[function.inputs.size()]);
      set(id, args_.data(), value, step.span);
      break;
    }
    case ActionOp::UnionInto:
      construct_into(id, args_.data(), engine.table(id).hash_key(args_.data()),
                     args_[function.inputs.size()]);
      break;
    case ActionOp::Delete: {
      Deleting* table = deleting(id);
      std::uint32_t row = engine.table(id).find(args_.data());
      if (row < table->rows) // neither absent nor written since
        table->doomed.push_back(row);
      break;
    }
    case ActionOp::Subsume:
      subsume(id, args_.data());
      break;
    default:
      break;
    }
  }
}

} // namespace egret::egraph
