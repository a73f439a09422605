#include "kernel/builder.h"
#include "kernel/phases.h"

#include <gtest/gtest.h>

namespace egret::kernel {
namespace {

TEST(Phases, AreOneMoreThanTheBarriersThatARunPasses) {
  ProgramBuilder none("none");
  EXPECT_EQ(phases_of(none.finish(Expr(1))), 1);

  ProgramBuilder two("two");
  two.barrier();
  two.barrier();
  EXPECT_EQ(phases_of(two.finish(Expr(4))), 3);

  ProgramBuilder looped("looped");
  looped.loop(Expr(0), Expr(10), Expr(2), Expr(10), Bind::Serial, [&](const Expr&) {
    looped.barrier();
    looped.loop(Expr(0), Expr(3), Expr(1), Expr(3), Bind::Serial,
                [&](const Expr&) { looped.barrier(); });
  });
  EXPECT_EQ(phases_of(looped.finish(Expr(4))), 1 + 5 * (1 + 3));
}

TEST(Phases, OfSymbolicLoopsAreTheMostThatCanBe) {
  Expr n = Expr::symbol("n", 1, 12);
  ProgramBuilder b("symbolic");
  b.loop(Expr(0), n, Expr(1), n, Bind::Serial, [&](const Expr&) { b.barrier(); });
  EXPECT_EQ(phases_of(b.finish(Expr(2))), 13);
}

TEST(Phases, OfAGpuProgramDoNotCountTheBarriersOfABlock) {
  ProgramBuilder b("block");
  b.barrier();
  KernelProgram program = b.finish(Expr(4));
  EXPECT_EQ(phases_of(program), 2);
  program.launch.threads = 128;
  EXPECT_EQ(phases_of(program), 1);
}

} // namespace
} // namespace egret::kernel
