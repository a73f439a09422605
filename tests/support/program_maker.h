// Kernel programs by hand, for tests of renderers.
#pragma once

#include "backend/common/device.h"
#include "kernel/program.h"

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace egret::testing {

/// Builds a program statement by statement. Buffers are arguments in the order in which they are
/// added.
class ProgramMaker {
public:
  explicit ProgramMaker(std::string name) {
    program.name = std::move(name);
    program.launch.workers = 1;
    blocks_.push_back(&program.body);
  }

  int buffer(DType type, Expr elements, bool read, bool written,
             kernel::Space space = kernel::Space::Argument) {
    kernel::Buffer b;
    b.name = "b" + std::to_string(program.buffers.size());
    b.dtype = type;
    b.space = space;
    if (space == kernel::Space::Argument)
      for (const kernel::Buffer& other : program.buffers)
        b.argument = std::max(b.argument, other.argument);
    if (space == kernel::Space::Argument)
      ++b.argument;
    b.elements = std::move(elements);
    b.read = read;
    b.written = written;
    program.buffers.push_back(b);
    return static_cast<int>(program.buffers.size()) - 1;
  }
  Expr dim(const std::string& name, std::int64_t lo, std::int64_t hi, std::int64_t divisor = 1) {
    program.dims.push_back(Expr::symbol(name, lo, hi, divisor));
    return program.dims.back();
  }
  int variable(kernel::Type type) {
    program.variables.push_back(type);
    return static_cast<int>(program.variables.size()) - 1;
  }
  int scalar(DType type) {
    program.scalars.push_back(type);
    return static_cast<int>(program.scalars.size()) - 1;
  }

  kernel::ValueId let(kernel::Inst inst) {
    kernel::Stmt stmt;
    stmt.kind = kernel::StmtKind::Let;
    stmt.target = static_cast<int>(program.values.size());
    program.values.push_back(inst.type);
    stmt.inst = std::move(inst);
    blocks_.back()->push_back(std::move(stmt));
    return static_cast<int>(program.values.size()) - 1;
  }
  kernel::ValueId apply(Op op, kernel::Type type, std::vector<kernel::ValueId> args) {
    kernel::Inst inst = of(kernel::InstKind::Apply, type);
    inst.op = op;
    inst.args = std::move(args);
    return let(inst);
  }
  kernel::ValueId load(int buffer, int lanes, Expr index, std::vector<Guard> mask = {}) {
    kernel::Inst inst = of(kernel::InstKind::Load, {dtype(buffer), lanes});
    inst.buffer = buffer;
    inst.expr = std::move(index);
    inst.mask = std::move(mask);
    return let(inst);
  }
  kernel::ValueId constant(Scalar value, int lanes) {
    kernel::Inst inst = of(kernel::InstKind::Constant, {value.dtype, lanes});
    inst.constant = value;
    return let(inst);
  }
  kernel::ValueId index(Expr e, kernel::Type type) {
    kernel::Inst inst = of(kernel::InstKind::Index, type);
    inst.expr = std::move(e);
    return let(inst);
  }
  kernel::ValueId unary(kernel::InstKind kind, kernel::Type type, kernel::ValueId arg) {
    kernel::Inst inst = of(kind, type);
    inst.args = {arg};
    return let(inst);
  }
  kernel::ValueId fma(kernel::ValueId a, kernel::ValueId b, kernel::ValueId c) {
    kernel::Inst inst = of(kernel::InstKind::Fma, program.values[static_cast<std::size_t>(a)]);
    inst.args = {a, b, c};
    return let(inst);
  }
  kernel::ValueId read(int variable) {
    kernel::Inst inst =
        of(kernel::InstKind::ReadVar, program.variables[static_cast<std::size_t>(variable)]);
    inst.number = variable;
    return let(inst);
  }
  void set(int variable, kernel::ValueId value) {
    kernel::Stmt stmt;
    stmt.kind = kernel::StmtKind::Set;
    stmt.target = variable;
    stmt.args = {value};
    blocks_.back()->push_back(std::move(stmt));
  }
  void store(int buffer, Expr index, kernel::ValueId value, std::vector<Guard> mask = {},
             kernel::CachePolicy policy = kernel::CachePolicy::Default) {
    kernel::Stmt stmt;
    stmt.kind = kernel::StmtKind::Store;
    stmt.inst.type = program.values[static_cast<std::size_t>(value)];
    stmt.inst.buffer = buffer;
    stmt.inst.expr = std::move(index);
    stmt.inst.mask = std::move(mask);
    stmt.inst.policy = policy;
    stmt.args = {value};
    blocks_.back()->push_back(std::move(stmt));
  }
  void barrier() {
    kernel::Stmt stmt;
    stmt.kind = kernel::StmtKind::Barrier;
    program.uses_barrier = true;
    blocks_.back()->push_back(std::move(stmt));
  }

  /// Fills the body of a loop from 0 while below `end`; `body` gets the loop variable.
  template <class F>
  void loop(const Expr& end, const Expr& step, F body, kernel::Bind bind = kernel::Bind::Serial,
            int unroll = 1) {
    range(0, end, step, body, bind, unroll);
  }
  template <class F>
  void range(const Expr& begin, const Expr& end, const Expr& step, F body,
             kernel::Bind bind = kernel::Bind::Serial, int unroll = 1) {
    kernel::Stmt stmt;
    stmt.kind = kernel::StmtKind::For;
    stmt.number = loops_++;
    stmt.extent = end;
    stmt.begin = begin;
    stmt.end = end;
    stmt.step = step;
    stmt.bind = bind;
    stmt.unroll = unroll;
    blocks_.push_back(&stmt.body);
    body(Expr::axis(stmt.number, end));
    blocks_.pop_back();
    blocks_.back()->push_back(std::move(stmt));
  }
  template <class F, class G>
  void when(std::vector<Guard> mask, F then, G otherwise) {
    kernel::Stmt stmt;
    stmt.kind = kernel::StmtKind::If;
    stmt.inst.mask = std::move(mask);
    blocks_.push_back(&stmt.body);
    then();
    blocks_.back() = &stmt.otherwise;
    otherwise();
    blocks_.pop_back();
    blocks_.back()->push_back(std::move(stmt));
  }

  static kernel::Inst of(kernel::InstKind kind, kernel::Type type) {
    kernel::Inst inst;
    inst.kind = kind;
    inst.type = type;
    return inst;
  }
  DType dtype(int buffer) const { return program.buffers[static_cast<std::size_t>(buffer)].dtype; }

  kernel::KernelProgram program;

private:
  std::vector<kernel::Block*> blocks_;
  int loops_ = 0;
};

/// Compiles and runs on the device; `pointers` by argument, workspaces last.
inline void run_program(backend::Device& device, const kernel::KernelProgram& program,
                        std::vector<void*> pointers, std::vector<std::int64_t> dims = {},
                        std::vector<std::uint64_t> scalars = {}, int workers = 0) {
  kernel::verify(program);
  kernel::ArgBlock block{pointers.data(), dims.data(), scalars.data(), nullptr, nullptr};
  device.launch(*device.compile(program), program, block, workers);
}

} // namespace egret::testing
