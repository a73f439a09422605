// What the program builder promises: values once, and outside of the loops they do not need.
#include "kernel/builder.h"
#include "kernel/nest.h"
#include "kernel/transpose.h"

#include "backend/reference/program_interpreter.h"

#include <gtest/gtest.h>

#include <numeric>

namespace egret::kernel {
namespace {

/// Statements, or instructions, of a kind in a block and below.
template <class T>
int count_of(const Block& block) {
  int n = 0;
  each_statement(block, [&](const Stmt& s) { n += get_if<T>(s) != nullptr; });
  return n;
}
template <class T>
int count_made(const Block& block) {
  int n = 0;
  each_statement(block, [&](const Stmt& s) { n += made_by<T>(s) != nullptr; });
  return n;
}

TEST(Builder, InvariantValuesStandBeforeTheLoop) {
  ProgramBuilder b("k");
  int x = b.argument("x", DType::F32, 16, 64, false), y = b.argument("y", DType::F32, 16, 64, true);
  b.loop(0, 16, 1, 16, Bind::Serial, [&](const Expr& i) {
    ValueId s = b.apply(Op::Mul, DType::F32, {b.load(x, 0, 1), b.load(x, 1, 1)});
    b.store(y, i, b.apply(Op::Add, DType::F32, {s, b.load(x, i, 1)}));
  });
  KernelProgram p = b.finish(1);
  ASSERT_EQ(p.body.size(), 4u);
  EXPECT_NE(get_if<For>(p.body[3]), nullptr);
  EXPECT_EQ(count_made<inst::Load>(get_if<For>(p.body[3])->body), 1);
}

TEST(Builder, LoadsStayInsideWhatMayNotRun) {
  Expr n = Expr::symbol("n", 0, 16);
  ProgramBuilder b("k");
  int x = b.argument("x", DType::F32, n, 64, false), y = b.argument("y", DType::F32, n, 64, true);
  b.loop(0, n, 1, n, Bind::Serial, [&](const Expr& i) { b.store(y, i, b.load(x, 0, 1)); });
  b.when({{n, 5, 6}}, [&] { b.store(y, 1, b.load(x, 1, 1)); });
  KernelProgram p = b.finish(1);
  ASSERT_EQ(p.body.size(), 2u);
  EXPECT_EQ(count_made<inst::Load>(get_if<For>(p.body[0])->body), 1);
  EXPECT_EQ(count_made<inst::Load>(get_if<If>(p.body[1])->body), 1);
  ASSERT_EQ(p.dims.size(), 1u);
  EXPECT_EQ(p.dims[0], n);
}

TEST(Builder, WrittenMemoryIsReadWhereItIsAskedFor) {
  ProgramBuilder b("k");
  int w = b.worker_memory("w", DType::F32, 4);
  int y = b.argument("y", DType::F32, 4, 64, true);
  (void)y;
  KernelProgram p;
  ValueId one = b.constant(Scalar::of(DType::F32, 1.0));
  b.store(w, 0, one);
  ValueId first = b.load(w, 0, 1);
  EXPECT_EQ(b.load(w, 0, 1), first) << "nothing was stored in between";
  b.loop(0, 4, 1, 4, Bind::Serial, [&](const Expr&) {
    ValueId again = b.load(w, 0, 1);
    EXPECT_NE(again, first) << "an iteration may see what the one before it stored";
    b.store(w, 0, b.apply(Op::Add, DType::F32, {again, again}));
  });
  EXPECT_NE(b.load(w, 0, 1), first);
}

TEST(Builder, LoopsThatRunOnceOrNeverAreNoLoops) {
  ProgramBuilder b("k");
  int y = b.argument("y", DType::F32, 16, 64, true);
  ValueId one = b.constant(Scalar::of(DType::F32, 1.0));
  b.loop(0, 0, 1, 1, Bind::Serial, [&](const Expr& i) { b.store(y, i, one); });
  b.loop(5, 8, 4, 8, Bind::Serial, [&](const Expr& i) { b.store(y, i, one); });
  KernelProgram p = b.finish(1);
  EXPECT_EQ(count_of<For>(p.body), 0);
  EXPECT_EQ(count_of<Store>(p.body), 1);
}

TEST(Builder, GuardsThatHoldAreDropped) {
  ProgramBuilder b("k");
  int x = b.argument("x", DType::F32, 16, 64, false);
  ValueId v = b.load(x, lane_variable(8), 8, {{lane_variable(8), 0, 8}});
  EXPECT_EQ(b.load(x, lane_variable(8), 8), v);
}

TEST(Nest, VectorLoopCoversEveryElementOnce) {
  for (int n = 0; n <= 70; ++n)
    for (int lanes : {1, 4})
      for (int copies : {1, 3}) {
        ProgramBuilder b("k");
        int y = b.argument("y", DType::I32, 80, 64, true);
        ValueId one = b.constant(Scalar::of(DType::I32, std::int64_t(1)));
        vector_loop(b, 0, n, std::max(n, 1), lanes, copies, [&](std::span<const Position> at) {
          for (const Position& p : at)
            b.store(y, p.at, b.apply(Op::Add, DType::I32, {b.load(y, p.at, lanes, p.mask), one}),
                    p.mask);
        });
        KernelProgram p = b.finish(1);
        std::vector<std::int32_t> memory(80, 0);
        void* pointer = memory.data();
        backend::reference::interpret(p, {&pointer, nullptr, nullptr, nullptr, nullptr},
                                      {.check_uninitialized = false});
        for (int i = 0; i < 80; ++i)
          ASSERT_EQ(memory[i], i < n) << n << " lanes " << lanes << " copies " << copies;
      }
}

TEST(Nest, CoreLoopGivesRowMajorCoordinates) {
  ProgramBuilder b("k");
  int y = b.argument("y", DType::I32, 24, 64, true);
  std::vector<Expr> extents{2, 3, 4};
  core_loop(b, extents, [&](std::span<const Expr> at) {
    b.store(y, at[0] * Expr(12) + at[1] * Expr(4) + at[2],
            b.index(at[0] * Expr(100) + at[1] * Expr(10) + at[2], DType::I32, 1));
  });
  KernelProgram p = b.finish(3);
  std::vector<std::int32_t> memory(24, -1);
  void* pointer = memory.data();
  backend::reference::interpret(p, {&pointer, nullptr, nullptr, nullptr, nullptr}, {.workers = 3});
  for (int i = 0; i < 24; ++i)
    EXPECT_EQ(memory[i], i / 12 * 100 + i / 4 % 3 * 10 + i % 4);
}

TEST(Transpose, TurnsABlock) {
  for (int n : {2, 4, 8, 16}) {
    ProgramBuilder b("k");
    int x = b.argument("x", DType::I32, n * n, 64, false);
    int y = b.argument("y", DType::I32, n * n, 64, true);
    std::vector<ValueId> rows;
    for (int i = 0; i < n; ++i)
      rows.push_back(b.load(x, lane_variable(n) + Expr(i * n), n));
    rows = transpose_block(b, rows);
    for (int i = 0; i < n; ++i)
      b.store(y, lane_variable(n) + Expr(i * n), rows[i]);
    KernelProgram p = b.finish(1);
    std::vector<std::int32_t> in(n * n), out(n * n);
    std::iota(in.begin(), in.end(), 0);
    void* pointers[] = {in.data(), out.data()};
    backend::reference::interpret(p, {pointers, nullptr, nullptr, nullptr, nullptr});
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < n; ++j)
        ASSERT_EQ(out[i * n + j], j * n + i) << n;
  }
}

} // namespace
} // namespace egret::kernel
