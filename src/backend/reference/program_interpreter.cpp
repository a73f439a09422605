#include "backend/reference/program_interpreter.h"

#include "backend/reference/number.h"
#include "backend/reference/program_code.h"
#include "backend/reference/program_memory.h"
#include "backend/reference/worker_turns.h"
#include "support/fail.h"

#include <algorithm>
#include <cmath>

namespace egret::backend::reference {

using kernel::ArgBlock;
using kernel::Bind;
using kernel::Inst;
using kernel::InstKind;
using kernel::KernelProgram;
using kernel::StmtKind;
using kernel::Type;

namespace {

/// The state of one worker: its registers and its place between barriers.
class Worker {
public:
  Worker(const ProgramCode& code, const ArgBlock& block, std::vector<std::int64_t> slots,
         ProgramMemory& memory, WorkerTurns& turns, int number, int workers)
      : code_(code), program_(code.program), block_(block), slots_(std::move(slots)),
        memory_(memory), turns_(turns), number_(number), workers_(workers),
        values_(static_cast<std::size_t>(code.value_offset.back())),
        variables_(static_cast<std::size_t>(code.variable_offset.back())) {}

  void run() { execute(code_.body); }

private:
  void execute(const std::vector<StmtCode>& block) {
    for (const StmtCode& stmt : block)
      execute(stmt);
  }

  void execute(const StmtCode& code) {
    const kernel::Stmt& stmt = *code.stmt;
    switch (stmt.kind) {
    case StmtKind::Let:
      return evaluate(code.inst, value(stmt.target));
    case StmtKind::Set:
      return set_variable(stmt.target, stmt.args.at(0));
    case StmtKind::Store:
      return store(code.inst, stmt.args.at(0));
    case StmtKind::For:
      return loop(code);
    case StmtKind::If:
      fill_symbols(code.inst, 0);
      return execute(code.inst.mask.holds(slots_.data()) ? code.body : code.otherwise);
    case StmtKind::Barrier:
      turns_.barrier(number_);
      ++phase_;
      return;
    case StmtKind::Prefetch:
      return;
    case StmtKind::GridBarrier:
    case StmtKind::Last:
      break;
    }
    ensure(false, "program {}: a statement of a GPU's program", program_.name);
  }

  void loop(const StmtCode& code) {
    const kernel::Stmt& stmt = *code.stmt;
    const std::int64_t extent = code.extent(slots_.data());
    std::int64_t begin = code.begin(slots_.data()), end = code.end(slots_.data());
    const std::int64_t step = code.step(slots_.data());
    ensure(step > 0, "program {}: loop d{} has step {}", program_.name, stmt.number, step);
    const bool shared = stmt.bind == Bind::Core;
    if (shared) {
      ensure(!in_core_loop_, "program {}: Core loop d{} stands within a Core loop", program_.name,
             stmt.number);
      const std::int64_t count = begin < end ? (end - begin + step - 1) / step : 0;
      const std::int64_t first = begin + count * number_ / workers_ * step;
      end = std::min(end, begin + count * (number_ + 1) / workers_ * step);
      begin = first;
      in_core_loop_ = true;
    }
    for (std::int64_t i = begin; i < end; i += step) {
      ensure(i >= 0 && i < extent, "program {}: loop variable d{} = {} is outside its extent {}",
             program_.name, stmt.number, i, extent);
      slots_[static_cast<std::size_t>(code.slot)] = i;
      execute(code.body);
    }
    if (shared)
      in_core_loop_ = false;
  }

  Number* value(kernel::ValueId id) {
    return values_.data() + code_.value_offset.at(static_cast<std::size_t>(id));
  }
  const Type& type_of(kernel::ValueId id) const {
    return program_.values.at(static_cast<std::size_t>(id));
  }
  /// Lane `lane` of an operand of an elementwise instruction.
  Number operand(kernel::ValueId id, int lane) {
    return value(id)[type_of(id).lanes == 1 ? 0 : lane];
  }

  void set_variable(int variable, kernel::ValueId source) {
    const Number* from = value(source);
    std::copy(from, from + type_of(source).lanes, variable_lanes(variable));
  }
  Number* variable_lanes(int variable) {
    return variables_.data() + code_.variable_offset.at(static_cast<std::size_t>(variable));
  }

  void fill_symbols(const InstCode& code, int lane) {
    slots_[static_cast<std::size_t>(code_.slots.lane())] = lane;
    for (const InstCode::Symbol& symbol : code.symbols)
      slots_[static_cast<std::size_t>(symbol.slot)] = operand(symbol.value, lane).i;
  }
  bool enabled(const InstCode& code, int lane) {
    fill_symbols(code, lane);
    return code.mask.holds(slots_.data());
  }

  void store(const InstCode& code, kernel::ValueId source) {
    for (int lane = 0; lane < code.lanes; ++lane)
      if (enabled(code, lane))
        memory_.store(code.inst->buffer, code.index(slots_.data()), value(source)[lane], number_,
                      phase_);
  }

  void evaluate(const InstCode& code, Number* result) {
    for (int lane = 0; lane < code.lanes; ++lane)
      result[lane] = evaluate(code, lane);
  }

  Number evaluate(const InstCode& code, int lane) {
    const Inst& inst = *code.inst;
    const DType dtype = inst.type.dtype;
    switch (inst.kind) {
    case InstKind::Constant:
      return number_of(inst.constant);
    case InstKind::Scalar:
      return read_number(program_.scalars.at(static_cast<std::size_t>(inst.number)),
                         &block_.scalars[inst.number]);
    case InstKind::Index:
      fill_symbols(code, lane);
      return convert({.i = code.index(slots_.data())}, DType::I64, dtype);
    case InstKind::Apply:
      return apply_op(inst, lane);
    case InstKind::Fma:
      return fma(inst, lane);
    case InstKind::Load:
      return enabled(code, lane)
                 ? memory_.load(inst.buffer, code.index(slots_.data()), number_, phase_)
                 : Number{};
    case InstKind::ReadVar:
      return variable_lanes(inst.number)[lane];
    case InstKind::Splat:
      return value(inst.args.at(0))[0];
    case InstKind::Extract:
      return value(inst.args.at(0))[inst.number];
    case InstKind::ReduceLanes:
      return reduce_lanes(inst);
    case InstKind::Shuffle:
      return shuffled(inst, inst.lanes_from.at(static_cast<std::size_t>(lane)));
    case InstKind::Test:
      return {.i = enabled(code, lane)};
    case InstKind::ReduceThreads:
      ensure(false, "program {}: an instruction of a GPU's program", program_.name);
    }
    return {};
  }

  Number apply_op(const Inst& inst, int lane) {
    Number args[3];
    for (std::size_t i = 0; i < inst.args.size() && i < 3; ++i)
      args[i] = operand(inst.args[i], lane);
    return apply(inst.op, inst.type.dtype, type_of(inst.args.back()).dtype, args[0], args[1],
                 args[2]);
  }

  Number fma(const Inst& inst, int lane) {
    double a = operand(inst.args.at(0), lane).f, b = operand(inst.args.at(1), lane).f,
           c = operand(inst.args.at(2), lane).f;
    if (inst.type.dtype == DType::F32) // rounding f64's result again would round twice
      return {.f = std::fma(static_cast<float>(a), static_cast<float>(b), static_cast<float>(c))};
    return round_to(inst.type.dtype, {.f = std::fma(a, b, c)});
  }

  /// Halves are combined until one lane is left: lane i with lane i + lanes/2.
  Number reduce_lanes(const Inst& inst) {
    const Type& type = type_of(inst.args.at(0));
    const Number* from = value(inst.args[0]);
    std::vector<Number> lanes(from, from + type.lanes);
    for (std::size_t half = lanes.size() / 2; half > 0; half /= 2)
      for (std::size_t i = 0; i < half; ++i)
        lanes[i] = combine(inst.monoid, type.dtype, lanes[i], lanes[i + half]);
    return lanes[0];
  }

  Number shuffled(const Inst& inst, int from) {
    const int first = type_of(inst.args.at(0)).lanes;
    return from < first ? value(inst.args[0])[from] : value(inst.args.at(1))[from - first];
  }

  const ProgramCode& code_;
  const KernelProgram& program_;
  const ArgBlock& block_;
  std::vector<std::int64_t> slots_;
  ProgramMemory& memory_;
  WorkerTurns& turns_;
  int number_, workers_;
  int phase_ = 0;
  bool in_core_loop_ = false;
  std::vector<Number> values_, variables_;
};

} // namespace

void interpret(const KernelProgram& program, const ArgBlock& block,
               const InterpreterOptions& options) {
  kernel::verify(program);
  const ProgramCode code(program);
  std::vector<std::int64_t> slots(static_cast<std::size_t>(code.slots.size()));
  std::copy(block.dims, block.dims + program.dims.size(), slots.begin());
  const auto useful = std::max<std::int64_t>(1, code.workers(slots.data()));
  const int workers = static_cast<int>(std::clamp<std::int64_t>(options.workers, 1, useful));

  ProgramMemory memory(code, block, slots.data(), workers, options);
  WorkerTurns turns(workers);
  turns.run([&](int number) { Worker(code, block, slots, memory, turns, number, workers).run(); });
}

} // namespace egret::backend::reference
