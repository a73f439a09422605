// Programs: identity, text, and each promise that verify checks.
#include "kernel/program.h"

#include "egret/error.h"
#include "support/program_maker.h"

#include <gtest/gtest.h>

#include <functional>

namespace egret::kernel {
namespace {

using testing::ProgramMaker;

/// y[i] = x[i] + 1 in vectors of 4.
KernelProgram increments() {
  ProgramMaker m("increments");
  int x = m.buffer(DType::F32, 64, true, false), y = m.buffer(DType::F32, 64, false, true);
  ValueId one = m.constant(Scalar::of(DType::F32, 1.0), 4);
  m.loop(64, 4, [&](const Expr& i) {
    Expr at = i + lane_variable(4);
    m.store(y, at, m.apply(Op::Add, {DType::F32, 4}, {m.load(x, 4, at, {{at, 0, 63}}), one}));
  });
  return m.program;
}

For& loop_of(KernelProgram& p) {
  return *get_if<For>(p.body[1]);
}
Inst& first(KernelProgram& p) {
  return get_if<Let>(p.body[0])->inst;
}
inst::Load& load_in(Block& body) {
  return *made_by<inst::Load>(body[0]);
}
inst::Apply& apply_in(Block& body) {
  return *made_by<inst::Apply>(body[1]);
}

TEST(Program, Prints) {
  EXPECT_EQ(print(increments()), "kernel increments, at most 1 workers\n"
                                 "  argument b0: f32[64] read\n"
                                 "  argument b1: f32[64] written\n"
                                 "  v0: f32x4 = 1\n"
                                 "  for i0 from 0 to 64 step 4\n"
                                 "    v1: f32x4 = load b0[lane + i0] where 0 <= lane + i0 < 63\n"
                                 "    v2: f32x4 = add v1, v0\n"
                                 "    store b1[lane + i0] = v2\n");
}

TEST(Program, NamesAreNoPartOfItsIdentity) {
  KernelProgram a = increments(), b = increments();
  b.name = "other";
  b.buffers[0].name = "weights";
  EXPECT_EQ(hash_of(a), hash_of(b));
  apply_in(loop_of(b).body).op = Op::Mul;
  EXPECT_NE(hash_of(a), hash_of(b));
  b = increments();
  loop_of(b).bind = Bind::Core;
  EXPECT_NE(hash_of(a), hash_of(b));
}

TEST(Program, SymbolsOfLanesAndValuesReadBack) {
  EXPECT_EQ(lanes_of(lane_variable(16)), 16);
  EXPECT_EQ(value_of(value_symbol(7)), 7);
  EXPECT_FALSE(lanes_of(value_symbol(7)));
  EXPECT_FALSE(value_of(Expr::axis(0, 4)));
}

void expect_broken(const std::function<void(KernelProgram&)>& change, const std::string& part) {
  KernelProgram p = increments();
  verify(p);
  change(p);
  try {
    verify(p);
    ADD_FAILURE() << "accepted; expected: " << part;
  } catch (const InternalError& e) {
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

TEST(Program, VerifyNamesTheBrokenPromise) {
  auto inner = [](KernelProgram& p) -> Block& { return loop_of(p).body; };
  expect_broken([&](KernelProgram& p) { apply_in(inner(p)).args[0] = 2; },
                "value 2 is not visible");
  expect_broken([&](KernelProgram& p) { p.body.push_back(inner(p)[2]); }, "value 2 is not visible");
  expect_broken([&](KernelProgram& p) { inner(p).insert(inner(p).begin(), p.body[0]); },
                "value 0 is set twice");
  expect_broken([&](KernelProgram& p) { apply_in(inner(p)).args = {1}; }, "add has 1 operands");
  expect_broken([&](KernelProgram& p) { apply_in(inner(p)).op = Op::ReduceSum; },
                "not elementwise");
  expect_broken([&](KernelProgram& p) { p.values[0].lanes = 3; }, "3 lanes are not a power of two");
  expect_broken([&](KernelProgram& p) { first(p).type.lanes = 8; }, "value 0 has another type");
  expect_broken(
      [&](KernelProgram& p) {
        made_by<inst::Constant>(p.body[0])->value = Scalar::of(DType::F64, 1.0);
      },
      "constant of another dtype");
  expect_broken([&](KernelProgram& p) { load_in(inner(p)).from.buffer = 1; }, "buffer b1 is read");
  expect_broken([&](KernelProgram& p) { get_if<Store>(inner(p)[2])->to.buffer = 0; },
                "buffer b0 is written");
  expect_broken([&](KernelProgram& p) { load_in(inner(p)).from.buffer = 2; }, "no buffer 2");
  expect_broken([&](KernelProgram& p) { p.buffers[0].dtype = DType::I32; },
                "load of another dtype");
  expect_broken([&](KernelProgram& p) { load_in(inner(p)).from.index = Expr::axis(5, 64); },
                "no enclosing loop's");
  expect_broken([&](KernelProgram& p) { load_in(inner(p)).from.index = lane_variable(8); },
                "is used with 4 lanes");
  expect_broken([&](KernelProgram& p) { load_in(inner(p)).from.index = Expr::symbol("n", 0, 9); },
                "symbol n is not among the dims");
  expect_broken([&](KernelProgram& p) { load_in(inner(p)).from.index = value_symbol(0); },
                "is no i32 or i64");
  expect_broken([&](KernelProgram& p) { loop_of(p).step = 0; }, "has step 0");
  expect_broken([&](KernelProgram& p) { p.body.push_back(p.body[1]); }, "is used twice");
  expect_broken([&](KernelProgram& p) { p.buffers[1].argument = 5; }, "has argument number 5");
  expect_broken([&](KernelProgram& p) { p.body.push_back(Barrier{}); },
                "a barrier in a program that says it has none");
  expect_broken(
      [&](KernelProgram& p) {
        p.uses_barrier = true;
        loop_of(p).bind = Bind::Core;
        inner(p).push_back(Barrier{});
      },
      "a barrier that not all workers reach");
  expect_broken(
      [&](KernelProgram& p) {
        For loop;
        loop.number = 9;
        loop.extent = loop.end = loop.step = 1;
        loop.bind = Bind::Core;
        loop_of(p).bind = Bind::Core;
        inner(p).push_back(loop);
      },
      "a core loop in a core loop");
  expect_broken(
      [&](KernelProgram& p) {
        for (Type& t : p.values)
          t.dtype = DType::BF16;
        for (Buffer& b : p.buffers)
          b.dtype = DType::BF16;
        first(p).type.dtype = DType::BF16;
        made_by<inst::Constant>(p.body[0])->value = Scalar::of(DType::BF16, 1.0);
        for (Stmt& s : inner(p))
          if (Let* let = get_if<Let>(s))
            let->inst.type.dtype = DType::BF16;
      },
      "low precision is computed in f32");
}

} // namespace
} // namespace egret::kernel
