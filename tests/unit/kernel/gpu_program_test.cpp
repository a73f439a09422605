// Programs of a GPU: what the builder writes and what verification refuses.
#include "kernel/builder.h"

#include "egret/error.h"
#include "kernel/clusters.h"

#include <gtest/gtest.h>

namespace egret::kernel {
namespace {

constexpr int kThreads = 64;

Launch launch_of(const Expr& blocks) {
  Launch l;
  l.workers = blocks;
  l.threads = kThreads;
  return l;
}

/// A builder with one input and one output of `n` f32.
struct Draft {
  ProgramBuilder b{"draft"};
  Expr t = thread_variable(kThreads);
  int in = b.argument("in", DType::F32, Expr(1024), 64, false);
  int out = b.argument("out", DType::F32, Expr(1024), 64, true);
};

TEST(GpuProgram, ThreadsSumARowPerWarpAndPrint) {
  Draft d;
  Expr warp = floordiv(d.t, Expr(32)), lane = floormod(d.t, Expr(32));
  d.b.grid_loop(Expr(16), [&](const Expr& i) {
    Expr row = i * Expr(2) + warp;
    ValueId sum = d.b.reduce_threads(Monoid::Sum, d.b.load(d.in, row * Expr(32) + lane, 1), 32);
    d.b.store(d.out, row, sum, {{lane, Expr(0), Expr(1)}});
  });
  KernelProgram p = d.b.finish(launch_of(Expr(16)));
  std::string text = print(p);
  EXPECT_NE(text.find("16 blocks of 64 threads"), std::string::npos) << text;
  EXPECT_NE(text.find("over the grid"), std::string::npos) << text;
  EXPECT_NE(text.find("reduce_threads(value=v0, sum, threads=32)"), std::string::npos) << text;
  EXPECT_TRUE(p.dims.empty());
}

TEST(GpuProgram, GridLoopOfOneIterationStaysALoop) {
  Draft d;
  d.b.grid_loop(Expr(1), [&](const Expr&) { d.b.store(d.out, d.t, d.b.load(d.in, d.t, 1)); });
  KernelProgram p = d.b.finish(launch_of(Expr(1)));
  ASSERT_NE(get_if<For>(p.body.back()), nullptr);
  EXPECT_EQ(get_if<For>(p.body.back())->bind, Bind::Grid);
}

TEST(GpuProgram, RegistersMoveTwiceOnlyWithABarrierBetween) {
  const auto program = [](bool barrier) {
    ProgramBuilder b("roles");
    const Expr warp_group = floordiv(thread_variable(256), 128);
    const auto move = [&](int first, int second) {
      b.either(
          {{warp_group, Expr(0), Expr(1)}}, [&] { b.reallocate_registers(first, first > 100); },
          [&] { b.reallocate_registers(second, second > 100); });
    };
    move(40, 232);
    if (barrier)
      b.barrier();
    move(136, 136);
    Launch launch = launch_of(Expr(1));
    launch.threads = 256;
    return b.finish(launch);
  };
  EXPECT_NO_THROW(program(true));
  EXPECT_THROW(program(false), InternalError);
}

/// Reads of `early` before any wait, behind one for settled buffers, or behind a full one.
TEST(GpuProgram, OnlySettledBuffersAreReadBeforeTheLaunchBeforeHasEnded) {
  enum class Behind { Nothing, Settled, Full };
  const auto made = [](Behind behind, bool settled, bool full) {
    ProgramBuilder b("early");
    const Expr t = thread_variable(32);
    const int early = b.argument("early", DType::F32, Expr(32), 64, false),
              weights = b.argument("weights", DType::F32, Expr(32), 64, false),
              out = b.argument("out", DType::F32, Expr(32), 64, true);
    b.mark_settled(settled ? early : weights);
    ValueId v = -1;
    if (behind == Behind::Settled)
      b.grid_dependency_wait(true);
    if (behind != Behind::Full)
      v = b.load(early, t, 1);
    if (full)
      b.grid_dependency_wait(false);
    if (behind == Behind::Full)
      v = b.load(early, t, 1);
    b.store(out, t, v);
    Launch launch;
    launch.threads = 32;
    launch.workers = Expr(1);
    return b.finish(launch);
  };
  EXPECT_NO_THROW(made(Behind::Settled, true, true));
  EXPECT_NO_THROW(made(Behind::Full, true, true));
  EXPECT_NO_THROW(made(Behind::Full, false, true));
  EXPECT_THROW(made(Behind::Settled, false, true), InternalError); // it may still be written
  EXPECT_THROW(made(Behind::Nothing, true, true), InternalError);
  EXPECT_THROW(made(Behind::Settled, true, false), InternalError); // what is stored comes too early
}

TEST(GpuProgram, AWaitInOneBranchIsNoneBehindIt) {
  const auto made = [](bool both) {
    ProgramBuilder b("branches");
    const Expr t = thread_variable(64);
    const int in = b.argument("in", DType::F32, Expr(64), 64, false),
              out = b.argument("out", DType::F32, Expr(64), 64, true);
    b.mark_settled(in);
    b.either(
        {{t, Expr(0), Expr(32)}}, [&] { b.grid_dependency_wait(false); },
        [&] { b.grid_dependency_wait(!both); });
    b.store(out, t, b.load(in, t, 1));
    Launch launch;
    launch.threads = 64;
    launch.workers = Expr(1);
    return b.finish(launch);
  };
  EXPECT_NO_THROW(made(true));
  EXPECT_THROW(made(false), InternalError);
}

TEST(GpuProgram, BulkCopiesAreOfWholeUnitsAtAlignedPlaces) {
  const auto made = [](std::int64_t elements, std::int64_t from) {
    ProgramBuilder b("bulk");
    const Expr t = thread_variable(32);
    const int in = b.argument("in", DType::BF16, Expr(64), 64, false),
              out = b.argument("out", DType::BF16, Expr(64), 64, true);
    const int to = b.shared("to", DType::BF16, 64, 128), full = b.shared("full", DType::U64, 1);
    b.when({{t, Expr(0), Expr(1)}},
           [&] { b.bulk_copy(to, Expr(0), in, Expr(from), elements, full, Expr(0)); });
    b.store(out, t, b.load(in, t, 1));
    Launch launch;
    launch.threads = 32;
    launch.workers = Expr(1);
    return b.finish(launch);
  };
  EXPECT_NO_THROW(made(16, 8));
  EXPECT_THROW(made(12, 8), InternalError); // 24 bytes
  EXPECT_THROW(made(16, 4), InternalError); // 8 bytes behind a unit
}

TEST(GpuProgram, BarrierWhereThreadsPartIsRefused) {
  Draft d;
  EXPECT_THROW(
      {
        d.b.when({{d.t, Expr(0), Expr(8)}}, [&] { d.b.barrier(); });
        d.b.finish(launch_of(Expr(1)));
      },
      InternalError);
}

TEST(GpuProgram, BarrierUnderALoadedConditionIsRefused) {
  ProgramBuilder b("draft");
  int in = b.argument("in", DType::I32, Expr(1), 64, false);
  Expr loaded = value_symbol(b.load(in, Expr(0), 1));
  b.when({{loaded, Expr(0), Expr(8)}}, [&] { b.barrier(); });
  EXPECT_THROW(b.finish(launch_of(Expr(1))), InternalError);
}

TEST(GpuProgram, BarrierInsideOfGridLoopIsTaken) {
  Draft d;
  int s = d.b.shared("tile", DType::F32, kThreads);
  d.b.grid_loop(Expr(16), [&](const Expr& i) {
    Expr at = i * Expr(kThreads) + d.t;
    d.b.store(s, d.t, d.b.load(d.in, at, 1));
    d.b.barrier();
    d.b.store(d.out, at, d.b.load(s, Expr(kThreads - 1) - d.t, 1));
    d.b.barrier();
  });
  EXPECT_NO_THROW(d.b.finish(launch_of(Expr(16))));
}

TEST(GpuProgram, CombinationWithinAWarpWhereWarpsPartIsTakenOverTheBlockNot) {
  for (int threads : {32, kThreads}) {
    Draft d;
    ValueId v = d.b.load(d.in, d.t, 1);
    VarId kept = d.b.variable({DType::F32, 1});
    d.b.set(kept, v);
    d.b.when({{floordiv(d.t, Expr(32)), Expr(0), Expr(1)}}, [&] {
      ValueId sum = d.b.reduce_threads(Monoid::Sum, d.b.read(kept), threads);
      d.b.store(d.out, Expr(0), sum, {{d.t, Expr(0), Expr(1)}});
    });
    if (threads == 32)
      EXPECT_NO_THROW(d.b.finish(launch_of(Expr(1))));
    else
      EXPECT_THROW(d.b.finish(launch_of(Expr(1))), InternalError);
  }
}

TEST(GpuProgram, GridLoopInAGridLoopIsRefused) {
  Draft d;
  d.b.grid_loop(Expr(2), [&](const Expr&) {
    d.b.grid_loop(Expr(2), [&](const Expr& i) { d.b.store(d.out, i, d.b.load(d.in, i, 1)); });
  });
  EXPECT_THROW(d.b.finish(launch_of(Expr(2))), InternalError);
}

/// The first warp's first thread leads, so many lanes of the second follow.
KernelProgram relayed(int lanes, const std::function<int(ProgramBuilder&)>& relay_of) {
  Draft d;
  const int counter = d.b.counter("next", 2), relay = relay_of(d.b);
  d.b.when({{d.t, Expr(0), Expr(1)}}, [&] { d.b.prepare_relay(relay, 1); });
  d.b.barrier();
  d.b.either(
      {{floordiv(d.t, lanes), Expr(32 / lanes), Expr(32 / lanes + 1)}},
      [&] {
        d.b.relayed_loop(Expr(9), counter, relay, false, [&](const Expr& i) {
          d.b.store(d.out, i, d.b.load(d.in, i, 1), {{d.t, Expr(32), Expr(33)}});
        });
      },
      [&] {
        d.b.when({{d.t, Expr(0), Expr(1)}},
                 [&] { d.b.relayed_loop(Expr(9), counter, relay, true, [](const Expr&) {}); });
      });
  return d.b.finish(launch_of(Expr(9)));
}

TEST(GpuProgram, SubgroupsFollowOneThreadThroughAQueue) {
  const auto words = [](DType type, std::int64_t count) {
    return [=](ProgramBuilder& b) { return b.shared("tiles", type, count); };
  };
  const KernelProgram p = relayed(32, [](ProgramBuilder& b) { return b.relay("tiles"); });
  const std::string text = print(p);
  EXPECT_NE(text.find("from the queue next[0], leading by tiles[0]"), std::string::npos) << text;
  EXPECT_NE(text.find("from the queue next[0], following by tiles[0]"), std::string::npos) << text;
  EXPECT_NE(hash_of(p), hash_of(relayed(32, words(DType::U64, Relay::kWords + 1))));
  EXPECT_THROW(relayed(16, words(DType::U64, Relay::kWords)), InternalError);
  EXPECT_THROW(relayed(32, words(DType::U64, Relay::kWords - 1)), InternalError);
  EXPECT_THROW(relayed(32, words(DType::F32, Relay::kWords)), InternalError);
}

TEST(GpuProgram, GridBarrierAsksForResidentBlocks) {
  for (bool resident : {false, true}) {
    Draft d;
    int c = d.b.counter("arrived", 2);
    d.b.grid_barrier(c, Expr(0));
    d.b.store(d.out, d.t, d.b.load(d.in, d.t, 1));
    Launch l = launch_of(Expr(2));
    l.resident = resident;
    if (resident)
      EXPECT_NO_THROW(d.b.finish(l));
    else
      EXPECT_THROW(d.b.finish(l), InternalError);
  }
}

TEST(GpuProgram, ClustersAreOfEqualNumbersOfBlocks) {
  struct Case {
    std::vector<std::int64_t> barriers;
    int blocks;
    bool fits;
  };
  for (const Case& c : {Case{{4}, 8, true}, Case{{4, 4}, 8, true}, Case{{4}, 6, false},
                        Case{{17}, 17, false}, Case{{2, 4}, 8, false}}) {
    Draft d;
    d.b.grid_loop(Expr(c.blocks), [&](const Expr& i) {
      d.b.store(d.out, i * Expr(kThreads) + d.t, d.b.load(d.in, d.t, 1));
      for (const std::int64_t blocks : c.barriers)
        d.b.intrinsic({.id = IntrinsicId::GridBarrier, .numbers = {blocks}});
    });
    if (c.fits) {
      const KernelProgram p = d.b.finish(launch_of(Expr(c.blocks)));
      EXPECT_EQ(cluster_blocks(p), 4);
      EXPECT_EQ(requirements_of(p), std::vector{Capability::BlockClusters});
    } else {
      EXPECT_THROW(cluster_blocks(d.b.finish(launch_of(Expr(c.blocks)))), InternalError);
    }
  }
}

TEST(GpuProgram, BarriersOfTheGridStandOutsideOfItsLoops) {
  Draft d;
  const int c = d.b.counter("arrived", 2);
  d.b.grid_loop(Expr(2), [&](const Expr& i) {
    d.b.store(d.out, i, d.b.load(d.in, i, 1));
    d.b.grid_barrier(c, Expr(0));
  });
  Launch l = launch_of(Expr(2));
  l.resident = true;
  EXPECT_THROW(d.b.finish(l), InternalError);
}

TEST(GpuProgram, ThreadsOnACpuAreRefused) {
  Draft d;
  d.b.store(d.out, d.t, d.b.load(d.in, d.t, 1));
  EXPECT_THROW(d.b.finish(Expr(1)), InternalError);
}

TEST(GpuProgram, CoreLoopOnAGpuIsRefused) {
  Draft d;
  d.b.loop(Expr(0), Expr(4), Expr(1), Expr(4), Bind::Core,
           [&](const Expr& i) { d.b.store(d.out, i, d.b.load(d.in, i, 1)); });
  EXPECT_THROW(d.b.finish(launch_of(Expr(1))), InternalError);
}

TEST(GpuProgram, HashTellsLaunchesAndOrdersApart) {
  auto make = [](int per_core, bool drawn) {
    Draft d;
    int c = d.b.counter("next", 2);
    d.b.grid_loop(
        Expr(4), [&](const Expr& i) { d.b.store(d.out, i, d.b.load(d.in, i, 1)); }, drawn ? c : -1);
    Launch l = launch_of(Expr(4));
    l.blocks_per_core = per_core;
    return hash_of(d.b.finish(l));
  };
  EXPECT_EQ(make(0, false), make(0, false));
  EXPECT_NE(make(0, false), make(1, false));
  EXPECT_NE(make(0, false), make(0, true));
}

} // namespace
} // namespace egret::kernel
