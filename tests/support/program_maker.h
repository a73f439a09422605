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
    const auto target = static_cast<int>(program.values.size());
    program.values.push_back(inst.type);
    blocks_.back()->push_back(kernel::Let{target, std::move(inst)});
    return target;
  }
  kernel::ValueId apply(Op op, kernel::Type type, std::vector<kernel::ValueId> args) {
    return let({type, kernel::inst::Apply{op, std::move(args)}});
  }
  kernel::ValueId load(int buffer, int lanes, Expr index, std::vector<Guard> mask = {}) {
    return let(
        {{dtype(buffer), lanes}, kernel::inst::Load{{buffer, std::move(index)}, std::move(mask)}});
  }
  kernel::ValueId constant(Scalar value, int lanes) {
    return let({{value.dtype, lanes}, kernel::inst::Constant{value}});
  }
  kernel::ValueId index(Expr e, kernel::Type type) {
    return let({type, kernel::inst::Index{std::move(e)}});
  }
  kernel::ValueId splat(kernel::Type type, kernel::ValueId value) {
    return let({type, kernel::inst::Splat{value}});
  }
  kernel::ValueId fma(kernel::ValueId a, kernel::ValueId b, kernel::ValueId c) {
    return let({program.values[static_cast<std::size_t>(a)], kernel::inst::Fma{{a, b, c}}});
  }
  kernel::ValueId read(int variable) {
    return let(
        {program.variables[static_cast<std::size_t>(variable)], kernel::inst::Read{variable}});
  }
  void set(int variable, kernel::ValueId value) {
    blocks_.back()->push_back(kernel::Assign{variable, value});
  }
  void store(int buffer, Expr index, kernel::ValueId value, std::vector<Guard> mask = {},
             kernel::CachePolicy policy = kernel::CachePolicy::Default) {
    blocks_.back()->push_back(
        kernel::Store{{buffer, std::move(index)}, value, std::move(mask), policy});
  }
  void barrier() {
    program.uses_barrier = true;
    blocks_.back()->push_back(kernel::Barrier{});
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
    kernel::For stmt;
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
    kernel::If stmt;
    stmt.condition = std::move(mask);
    blocks_.push_back(&stmt.body);
    then();
    blocks_.back() = &stmt.otherwise;
    otherwise();
    blocks_.pop_back();
    blocks_.back()->push_back(std::move(stmt));
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
