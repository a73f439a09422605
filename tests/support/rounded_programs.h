// Programs of one warp whose results are rounded to 16 bits, run with and without the rounding.
#pragma once

#include "backend/reference/program_interpreter.h"
#include "kernel/builder.h"
#include "kernel/program.h"

#include <bit>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace egret::testing {

/// Threads of a program, neighbours that each of them computes at once, how often, and the elements
/// of a buffer.
inline constexpr int kWarp = 32, kNeighbours = 2, kRounds = 2,
                     kElements = kWarp * kNeighbours * kRounds;

/// What a body is made with: f32 values of kNeighbours lanes.
struct RoundedBody {
  kernel::ProgramBuilder& b;
  std::vector<kernel::ValueId> inputs, scalars;

  kernel::ValueId number(double x) const {
    return b.splat(b.constant(Scalar::of(DType::F32, x)), kNeighbours);
  }
  kernel::ValueId op(Op op, std::vector<kernel::ValueId> args) const {
    return b.apply(op, DType::F32, std::move(args));
  }
  kernel::ValueId mul(kernel::ValueId x, kernel::ValueId y) const { return op(Op::Mul, {x, y}); }
  kernel::ValueId add(kernel::ValueId x, kernel::ValueId y) const { return op(Op::Add, {x, y}); }
};

/// A program with f32 inputs and scalars, and an output of type `stored` for each value that the
/// body returns. The body stands in a loop; what does not depend on inputs leaves it.
inline kernel::KernelProgram
rounded_program(int inputs, int scalars, int outputs, DType stored,
                const std::function<std::vector<kernel::ValueId>(const RoundedBody&)>& body) {
  kernel::ProgramBuilder b("rounded");
  std::vector<int> in, out;
  for (int i = 0; i < inputs; ++i)
    in.push_back(b.argument("in" + std::to_string(i), DType::F32, Expr(kElements), 64, false));
  for (int i = 0; i < outputs; ++i)
    out.push_back(b.argument("out" + std::to_string(i), stored, Expr(kElements), 64, true));
  RoundedBody with{b, {}, {}};
  for (int i = 0; i < scalars; ++i)
    with.scalars.push_back(b.splat(b.scalar(b.add_scalar(DType::F32)), kNeighbours));
  b.loop(
      Expr(0), Expr(kRounds), Expr(1), Expr(kRounds), kernel::Bind::Serial, [&](const Expr& round) {
        const Expr at = (round * Expr(kWarp) + kernel::thread_variable(kWarp)) * Expr(kNeighbours) +
                        kernel::lane_variable(kNeighbours);
        for (int i : in)
          with.inputs.push_back(b.load(i, at, kNeighbours));
        const std::vector<kernel::ValueId> results = body(with);
        for (std::size_t i = 0; i < results.size(); ++i)
          b.store(out[i], at, b.cast(results[i], stored));
      });
  kernel::Launch launch;
  launch.workers = 1;
  launch.threads = kWarp;
  return b.finish(launch);
}

/// The program with what is rounded before it is stored stored as it is.
inline kernel::KernelProgram without_rounding(kernel::KernelProgram program) {
  std::vector<kernel::ValueId> rounded(program.values.size(), -1);
  each_statement(program.body, [&](kernel::Stmt& s) {
    const auto* let = kernel::get_if<kernel::Let>(s);
    const auto* cast = kernel::made_by<kernel::inst::Apply>(s);
    if (cast && cast->op == Op::Cast)
      rounded[std::size_t(let->target)] = cast->args[0];
    auto* store = kernel::get_if<kernel::Store>(s);
    if (!store || rounded[std::size_t(store->value)] < 0)
      return;
    store->value = rounded[std::size_t(store->value)];
    program.buffers[std::size_t(store->to.buffer)].dtype = DType::F32;
  });
  return program;
}

/// The f32 outputs for inputs of kElements each.
inline std::vector<std::vector<float>> run_program(const kernel::KernelProgram& program,
                                                   std::vector<std::vector<float>> inputs,
                                                   std::span<const float> scalars) {
  std::vector<std::vector<float>> outputs(program.buffers.size() - inputs.size(),
                                          std::vector<float>(kElements));
  std::vector<void*> pointers;
  for (auto* buffers : {&inputs, &outputs})
    for (std::vector<float>& buffer : *buffers)
      pointers.push_back(buffer.data());
  std::vector<std::uint64_t> words;
  for (float s : scalars)
    words.push_back(std::bit_cast<std::uint32_t>(s));
  backend::reference::interpret(program,
                                {pointers.data(), nullptr, words.data(), nullptr, nullptr});
  return outputs;
}

/// Additions, multiplications and those that are both, of values of several lanes; a product with
/// -1 is none.
struct Operations {
  int adds = 0, muls = 0, fmas = 0;
  friend bool operator==(const Operations&, const Operations&) = default;
};
inline Operations operations_of(const kernel::KernelProgram& program) {
  Operations count;
  std::vector<bool> minus(program.values.size());
  each_statement(program.body, [&](const kernel::Stmt& s) {
    const auto* let = kernel::get_if<kernel::Let>(s);
    if (!let)
      return;
    if (const auto* constant = kernel::made_by<kernel::inst::Constant>(s))
      minus[std::size_t(let->target)] = constant->value.as_double() == -1;
    if (const auto* splat = kernel::made_by<kernel::inst::Splat>(s))
      minus[std::size_t(let->target)] = minus[std::size_t(splat->value)];
    if (let->inst.type.dtype != DType::F32 || let->inst.type.lanes == 1)
      return;
    count.fmas += kernel::made_by<kernel::inst::Fma>(s) != nullptr;
    if (const auto* op = kernel::made_by<kernel::inst::Apply>(s)) {
      count.adds += op->op == Op::Add;
      count.muls +=
          op->op == Op::Mul && !minus[std::size_t(op->args[0])] && !minus[std::size_t(op->args[1])];
    }
  });
  return count;
}

} // namespace egret::testing
