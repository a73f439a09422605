// What threads and blocks of a GPU tell each other within a launch: scans over threads, posts
// between blocks, and atomic updates.
#include "backend/reference/program_interpreter.h"
#include "kernel/builder.h"

#include "egret/error.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace egret::kernel {
namespace {

constexpr int kPostThreads = 64;

Launch post_launch(int blocks, bool resident) {
  Launch l;
  l.workers = Expr(blocks);
  l.threads = kPostThreads;
  l.resident = resident;
  return l;
}

std::vector<float> run(const KernelProgram& p, std::vector<float> in, std::size_t out, int blocks) {
  std::vector<float> result(out), work(1024);
  std::vector<void*> pointers{in.data(), result.data(), work.data()};
  backend::reference::interpret(p, {pointers.data(), nullptr, nullptr, nullptr, nullptr},
                                {.workers = blocks});
  return result;
}

std::vector<float> counted(std::size_t n) {
  std::vector<float> v(n);
  for (std::size_t i = 0; i < n; ++i)
    v[i] = float(i % 5 + 1);
  return v;
}

TEST(ScanThreads, EachGetsWhatThoseBeforeItInItsGroupHave) {
  for (const int group : {2, 8, 32}) {
    ProgramBuilder b("scan");
    const int in = b.argument("in", DType::F32, Expr(kPostThreads), 64, false),
              out = b.argument("out", DType::F32, Expr(kPostThreads), 64, true);
    const Expr t = thread_variable(kPostThreads);
    b.store(out, t, b.scan_threads(Monoid::Sum, b.load(in, t, 1), group));
    const KernelProgram p = b.finish(post_launch(1, false));
    EXPECT_NE(print(p).find(fmt::format("sum, threads={})", group)), std::string::npos);
    const auto x = counted(kPostThreads), y = run(p, x, kPostThreads, 1);
    float sum = 0;
    for (int i = 0; i < kPostThreads; ++i) {
      sum = i % group == 0 ? 0 : sum + x[std::size_t(i - 1)];
      EXPECT_EQ(y[std::size_t(i)], sum) << i << " of " << group;
    }
  }
}

TEST(ScanThreads, GroupsThatAreNoneAreRefused) {
  for (const int group : {1, 3, 64}) {
    ProgramBuilder b("scan");
    const int in = b.argument("in", DType::F32, Expr(kPostThreads), 64, false),
              out = b.argument("out", DType::F32, Expr(kPostThreads), 64, true);
    const Expr t = thread_variable(kPostThreads);
    b.store(out, t, b.scan_threads(Monoid::Sum, b.load(in, t, 1), group));
    EXPECT_THROW(b.finish(post_launch(1, false)), InternalError) << group;
  }
}

struct Chain {
  bool waits = true, posts = true, clears = true, resident = true;
};

/// Item i gives 1 + what item i - 1 has, for 6 items that blocks draw.
KernelProgram chain(const Chain& c) {
  constexpr int kItems = 6;
  ProgramBuilder b("chain");
  const int in = b.argument("in", DType::F32, Expr(kPostThreads), 64, false),
            out = b.argument("out", DType::F32, Expr(kItems), 64, true),
            work = b.workspace("work", DType::F32, Expr(kItems));
  const int draws = b.counter("draws", 2), posts = b.counter("posts", kItems),
            ended = b.counter("ended", 1);
  const Expr t = thread_variable(kPostThreads);
  b.grid_loop(
      Expr(kItems),
      [&](const Expr& i) {
        const VarId sum = b.variable({DType::F32, 1});
        b.set(sum, b.constant(Scalar::of(DType::F32, 1.0)));
        const auto take = [&] {
          b.when({{i, Expr(1), Expr(kItems)}}, [&] {
            b.set(sum, b.apply(Op::Add, DType::F32,
                               {b.read(sum), b.load(work, max(i - Expr(1), Expr(0)), 1)}));
          });
        };
        if (c.waits)
          b.wait_flags(posts, max(i - Expr(1), Expr(0)), i, take);
        else
          take();
        b.when({{t, Expr(0), Expr(1)}}, [&] {
          b.store(work, i, b.read(sum));
          b.store(out, i, b.apply(Op::Add, DType::F32, {b.read(sum), b.load(in, t, 1)}));
          if (c.posts)
            b.publish_flag(posts, i);
        });
      },
      draws);
  if (c.clears)
    b.clear_flags(posts, kItems, ended);
  return b.finish(post_launch(kItems, c.resident));
}

struct Words {
  bool posts = true, clears = true, resident = true;
  std::int64_t step = 1; ///< of the item that is awaited
};

/// The same by words: each thread awaits for itself.
KernelProgram chain_of_words(const Words& c) {
  constexpr int kItems = 6;
  ProgramBuilder b("words");
  b.argument("in", DType::F32, Expr(kPostThreads), 64, false);
  const int out = b.argument("out", DType::F32, Expr(kItems * kPostThreads), 64, true);
  const int words = b.counter("words", 2 * kItems), ended = b.counter("ended", 1);
  const Expr t = thread_variable(kPostThreads);
  b.grid_loop(Expr(kItems), [&](const Expr& i) {
    const ValueId before =
        b.await_word(words, max(i - Expr(c.step), Expr(0)), {{i, Expr(1), Expr(kItems)}});
    const ValueId sum = b.apply(
        Op::Add, DType::F32,
        {b.apply(Op::Bitcast, DType::F32, {before}), b.constant(Scalar::of(DType::F32, 1.0))});
    b.store(out, i * Expr(kPostThreads) + t, sum);
    if (c.posts)
      b.when({{t, Expr(0), Expr(1)}},
             [&] { b.publish_word(words, i, b.apply(Op::Bitcast, DType::U32, {sum})); });
  });
  if (c.clears)
    b.clear_flags(words, 2 * kItems, ended);
  return b.finish(post_launch(kItems, c.resident));
}

TEST(Posts, WordsComeWithTheirFlags) {
  const KernelProgram p = chain_of_words({});
  EXPECT_NE(print(p).find("await_word("), std::string::npos) << print(p);
  for (const int blocks : {1, 2, 6}) {
    const auto y = run(p, std::vector<float>(kPostThreads, 0), 6 * kPostThreads, blocks);
    for (std::size_t i = 0; i < y.size(); ++i)
      EXPECT_EQ(y[i], float(i / kPostThreads + 1)) << i << " by " << blocks;
  }
}

TEST(Posts, WordsThatCannotComeAreFound) {
  EXPECT_THROW(chain_of_words({.resident = false}), InternalError);
  const std::vector<float> in(kPostThreads, 0);
  for (const Words& c : {Words{.posts = false}, Words{.clears = false}, Words{.step = 0}})
    EXPECT_THROW(run(chain_of_words(c), in, 6 * kPostThreads, 2), InternalError);
}

TEST(Posts, BlocksWaitForWhatOthersWrote) {
  const KernelProgram p = chain({});
  EXPECT_NE(print(p).find("behind wait_flags(begin=posts["), std::string::npos) << print(p);
  for (const int blocks : {1, 2, 6})
    EXPECT_EQ(run(p, std::vector<float>(kPostThreads, 0), 6, blocks),
              (std::vector<float>{1, 2, 3, 4, 5, 6}));
}

TEST(Posts, MistakesAreTold) {
  const std::vector<float> zeros(kPostThreads, 0);
  EXPECT_THROW(run(chain({.waits = false}), zeros, 6, 3), InternalError);  // a race
  EXPECT_THROW(run(chain({.posts = false}), zeros, 6, 3), InternalError);  // nobody can go on
  EXPECT_THROW(run(chain({.clears = false}), zeros, 6, 3), InternalError); // posts are left
  EXPECT_THROW(chain({.resident = false}), InternalError);
}

/// Item i of each cluster of two blocks gets what item 1 - i of the same one, or of the next one,
/// stored before the barrier.
KernelProgram exchange(bool waits, bool other_cluster) {
  ProgramBuilder b("exchange");
  b.argument("in", DType::F32, Expr(1), 64, false);
  const int out = b.argument("out", DType::F32, Expr(4), 64, true),
            work = b.workspace("work", DType::F32, Expr(4));
  const Expr t = thread_variable(kPostThreads);
  b.grid_loop(Expr(4), [&](const Expr& i) {
    const std::vector<Guard> first{{t, Expr(0), Expr(1)}};
    b.store(work, i, b.index(i, DType::F32, 1), first);
    if (waits)
      b.intrinsic({.id = IntrinsicId::GridBarrier, .numbers = {2}});
    const Expr cluster = floordiv(i, Expr(2)), from = other_cluster ? Expr(1) - cluster : cluster;
    b.store(out, i, b.load(work, from * Expr(2) + Expr(1) - floormod(i, Expr(2)), 1), first);
  });
  return b.finish(post_launch(4, false));
}

TEST(Clusters, BlocksSeeWhatTheirClusterWrote) {
  for (const int blocks : {1, 2, 3, 4}) // of which whole clusters run
    EXPECT_EQ(run(exchange(true, false), {0}, 4, blocks), (std::vector<float>{1, 0, 3, 2}));
}

TEST(Clusters, RacesAreTold) {
  EXPECT_THROW(run(exchange(false, false), {0}, 4, 4), InternalError);
  EXPECT_THROW(run(exchange(true, true), {0}, 4, 4), InternalError);
}

struct Update {
  DType dtype = DType::I32;
  Monoid monoid = Monoid::Sum;
  bool meets = true; ///< blocks, behind the store of what the updates begin with
};

/// Each thread of each of 3 blocks updates one of two elements by its number.
KernelProgram updates(const Update& u) {
  ProgramBuilder b("updates");
  b.argument("in", DType::F32, Expr(1), 64, false);
  const int out = b.argument("out", u.dtype, Expr(2), 64, true);
  const int blocks = b.counter("blocks", 2);
  const Expr t = thread_variable(kPostThreads);
  b.grid_loop(Expr(1), [&](const Expr&) {
    b.store(out, t, b.constant(identity_of(u.monoid, u.dtype)), {{t, Expr(0), Expr(2)}});
  });
  if (u.meets)
    b.grid_barrier(blocks, Expr(0));
  b.grid_loop(Expr(3), [&](const Expr& block) {
    const Expr number = block * Expr(kPostThreads) + t;
    b.atomic_combine(u.monoid, out, floormod(number, Expr(2)), b.index(number, u.dtype, 1),
                     {{number, Expr(0), Expr(100)}});
  });
  return b.finish(post_launch(3, true));
}

TEST(AtomicUpdates, OfManyThreadsAllCount) {
  for (const DType dtype : {DType::I32, DType::U32, DType::I64, DType::U64})
    for (const Monoid monoid : {Monoid::Sum, Monoid::Max})
      for (const int blocks : {1, 3}) {
        std::vector<std::int64_t> out(2, -1);
        float in = 0;
        std::vector<void*> pointers{&in, out.data()};
        backend::reference::interpret(updates({dtype, monoid}),
                                      {pointers.data(), nullptr, nullptr, nullptr, nullptr},
                                      {.workers = blocks});
        const bool sum = monoid == Monoid::Sum;
        if (size_of(dtype) == 8)
          EXPECT_EQ(out, sum ? (std::vector<std::int64_t>{2450, 2500})
                             : (std::vector<std::int64_t>{98, 99}));
        else
          EXPECT_EQ(out[0],
                    sum ? 2450 + (std::int64_t(2500) << 32) : 98 + (std::int64_t(99) << 32));
      }
}

/// Threads of 3 blocks take elements of an array from the second on, those whose number is even.
KernelProgram taken_elements() {
  constexpr std::int64_t kElements = 3 * kPostThreads / 2 + 1;
  ProgramBuilder b("taken");
  b.argument("in", DType::F32, Expr(1), 64, false);
  const int out = b.argument("out", DType::I32, Expr(kElements), 64, true);
  const int used = b.workspace("used", DType::I32, Expr(1));
  const int blocks = b.counter("blocks", 2);
  const Expr t = thread_variable(kPostThreads);
  const ValueId one = b.constant(Scalar::of(DType::I32, std::int64_t(1)));
  b.grid_loop(Expr(1), [&](const Expr&) {
    b.store(used, Expr(0), one, {{t, Expr(0), Expr(1)}});
    b.store(out, Expr(0), one, {{t, Expr(0), Expr(1)}});
  });
  b.grid_barrier(blocks, Expr(0));
  b.grid_loop(Expr(3), [&](const Expr& block) {
    const Expr number = block * Expr(kPostThreads) + t;
    const std::vector<Guard> even{{floormod(number, Expr(2)), Expr(0), Expr(1)}};
    const ValueId at = b.atomic_fetch_add(used, Expr(0), one, even);
    b.store(out, value_symbol(at), b.index(number, DType::I32, 1), even);
  });
  return b.finish(post_launch(3, true));
}

TEST(AtomicUpdates, FetchedElementsAreOfOneThreadEach) {
  for (const int blocks : {1, 3}) {
    std::vector<std::int32_t> out(3 * kPostThreads / 2 + 1, -1);
    float in = 0;
    std::vector<void*> pointers{&in, out.data()};
    backend::reference::interpret(taken_elements(),
                                  {pointers.data(), nullptr, nullptr, nullptr, nullptr},
                                  {.workers = blocks});
    std::sort(out.begin() + 1, out.end());
    for (std::size_t i = 1; i < out.size(); ++i)
      EXPECT_EQ(out[i], 2 * (std::int32_t(i) - 1));
  }
}

TEST(AtomicUpdates, MistakesAreTold) {
  const std::vector<float> zeros(kPostThreads, 0);
  EXPECT_THROW(run(updates({.meets = false}), zeros, 6, 3), InternalError); // a race with a store
  EXPECT_THROW(updates({.monoid = Monoid::Prod}), InternalError);
  EXPECT_THROW(updates({.dtype = DType::F32}), InternalError);
  EXPECT_THROW(updates({.dtype = DType::I16}), InternalError);
}

} // namespace
} // namespace egret::kernel
