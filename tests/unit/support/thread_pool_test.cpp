#include "support/thread_pool.h"

#include "support/sanitized.h"
#include "support/scale.h"

#include <gtest/gtest.h>

#include <chrono>
#include <ctime>
#include <functional>
#include <numeric>
#include <sched.h>
#include <stdexcept>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace egret {
namespace {

TEST(ThreadPool, RunsEachWorkerOnce) {
  ThreadPool pool(4);
  for (int workers : {1, 2, 3, 4, 9}) {
    std::vector<std::atomic<int>> calls(4);
    int seen = 0;
    pool.run(workers, [&](int worker, int all) {
      ++calls[static_cast<std::size_t>(worker)];
      if (worker == 0)
        seen = all;
    });
    EXPECT_EQ(seen, std::min(workers, 4));
    for (int i = 0; i < 4; ++i)
      EXPECT_EQ(calls[static_cast<std::size_t>(i)], i < seen ? 1 : 0);
  }
}

// Calls of a run that need not go on together are made once each, by whichever thread is there.
TEST(ThreadPool, RunsApartCallEachWorkerOnce) {
  ThreadPool pool(9); // more than there are cores, on most machines
  for (int round = 0; round < 2000; ++round) {
    const int workers = 1 + round % 9;
    std::vector<std::atomic<int>> calls(9);
    std::int64_t plain[9] = {};
    const auto call = [&](int worker, int all) {
      EXPECT_EQ(all, workers);
      ++calls[static_cast<std::size_t>(worker)];
      plain[worker] = round;
    };
    if (round % 3 == 0)
      pool.run(workers, call);
    else
      pool.run_apart(workers, call);
    for (int i = 0; i < 9; ++i) {
      ASSERT_EQ(calls[static_cast<std::size_t>(i)], i < workers ? 1 : 0) << round;
      ASSERT_EQ(plain[i], i < workers ? round : 0);
    }
  }
}

#if defined(__linux__)
// A thread that gets no core, as it may only run on one where nobody else wants to: the caller, who
// never sleeps there, makes its call too.
TEST(ThreadPool, TheCallerMakesTheCallOfAThreadThatGetsNoCore) {
  std::thread([] { // whose settings end with it
    ThreadPool pool(2);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    std::atomic<int> refused{0};
    pool.run(2, [&](int worker, int) {
      const sched_param none{};
      refused += sched_setaffinity(0, sizeof one, &one) != 0;
      if (worker == 1)
        refused += sched_setscheduler(0, SCHED_IDLE, &none) != 0;
    });
    if (refused > 0)
      GTEST_SKIP() << "this machine does not let a thread give up its share";
    const std::thread::id caller = std::this_thread::get_id();
    std::atomic<int> made{0};
    for (int round = 0; round < 200; ++round) {
      std::atomic<int> calls{0};
      pool.run_apart(2, [&](int worker, int) {
        ++calls;
        made += worker == 1 && std::this_thread::get_id() == caller;
      });
      ASSERT_EQ(calls, 2);
    }
    EXPECT_GT(made.load(), 0);
  })
      .join();
}
#endif

TEST(ThreadPool, RunsApartThrowWhatAnyCallThrew) {
  ThreadPool pool(4);
  for (int round = 0; round < 100; ++round)
    EXPECT_THROW(pool.run_apart(4,
                                [&](int worker, int) {
                                  if (worker == round % 4)
                                    throw std::runtime_error("a call");
                                }),
                 std::runtime_error);
  std::atomic<int> calls{0};
  pool.run_apart(4, [&](int, int) { ++calls; });
  EXPECT_EQ(calls, 4);
}

TEST(ThreadPool, PromptWorkersAreAtLeastOneAndAtMostAll) {
  ThreadPool pool(6);
  for (int round = 0; round < 200; ++round) {
    pool.run(6, [](int, int) {});
    for (int workers : {1, 2, 6}) {
      const int prompt = pool.prompt(workers);
      EXPECT_GE(prompt, 1);
      EXPECT_LE(prompt, workers);
    }
  }
}

TEST(ThreadPool, CallingThreadIsWorkerZero) {
  ThreadPool pool(3);
  std::thread::id zero;
  pool.run(3, [&](int worker, int) {
    if (worker == 0)
      zero = std::this_thread::get_id();
  });
  EXPECT_EQ(zero, std::this_thread::get_id());
}

TEST(ThreadPool, WhatWorkersWroteIsVisibleAfterTheRun) {
  ThreadPool pool(4);
  std::vector<std::int64_t> sums(4);
  for (int round = 0; round < 300; ++round) {
    pool.run(4, [&](int worker, int) { sums[static_cast<std::size_t>(worker)] += worker + round; });
    std::int64_t expected = 0;
    for (int r = 0; r <= round; ++r)
      expected += r;
    ASSERT_EQ(sums[3], expected + 3 * (round + 1));
  }
}

TEST(ThreadPool, WorkersMeetAtABarrier) {
  constexpr int kWorkers = 3, kRounds = 100;
  ThreadPool pool(kWorkers);
  Barrier barrier(kWorkers);
  std::vector<int> value(kWorkers);
  std::atomic<int> wrong{0};
  pool.run(kWorkers, [&](int worker, int all) {
    for (int round = 0; round < kRounds; ++round) {
      value[static_cast<std::size_t>(worker)] = round;
      barrier.wait();
      for (int i = 0; i < all; ++i)
        wrong += value[static_cast<std::size_t>(i)] != round;
      barrier.wait();
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST(ThreadPool, FirstExceptionIsThrownOnAndThePoolGoesOn) {
  ThreadPool pool(4);
  for (int thrower = 0; thrower < 4; ++thrower) {
    std::atomic<int> ended{0};
    try {
      pool.run(4, [&](int worker, int) {
        if (worker == thrower)
          throw std::runtime_error("worker " + std::to_string(worker));
        ++ended;
      });
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& e) {
      EXPECT_EQ(e.what(), "worker " + std::to_string(thrower));
    }
    EXPECT_EQ(ended, 3);
  }
  int ran = 0;
  pool.run(1, [&](int, int) { ++ran; });
  EXPECT_EQ(ran, 1);
}

TEST(ThreadPool, NestedRunHappensOnTheCallingThreadAlone) {
  ThreadPool pool(4);
  std::atomic<int> inner{0};
  EXPECT_FALSE(pool.inside());
  pool.run(4, [&](int, int) {
    EXPECT_TRUE(pool.inside());
    pool.run(4, [&](int worker, int all) {
      EXPECT_EQ(worker, 0);
      EXPECT_EQ(all, 1);
      ++inner;
    });
  });
  EXPECT_EQ(inner, 4);
  EXPECT_FALSE(pool.inside());
}

TEST(ThreadPool, AnotherPoolCanRunInside) {
  ThreadPool outer(2), other(2);
  std::atomic<int> calls{0};
  outer.run(2, [&](int, int) { other.run(2, [&](int, int) { ++calls; }); });
  EXPECT_EQ(calls, 4);
}

TEST(ThreadPool, RunsFromManyThreadsDoNotMix) {
  ThreadPool pool(3);
  std::atomic<int> inside{0}, mixed{0};
  std::vector<std::thread> callers;
  std::vector<std::vector<int>> order(4);
  for (int c = 0; c < 4; ++c)
    callers.emplace_back([&, c] {
      for (int round = 0; round < 60; ++round)
        pool.run(1 + round % 3, [&, c, round](int worker, int) {
          if (worker == 0) {
            mixed += inside.fetch_add(1) != 0;
            order[static_cast<std::size_t>(c)].push_back(round);
            inside.fetch_sub(1);
          }
        });
    });
  for (std::thread& t : callers)
    t.join();
  EXPECT_EQ(mixed, 0);
  std::vector<int> expected(60);
  std::iota(expected.begin(), expected.end(), 0);
  for (const auto& own : order)
    EXPECT_EQ(own, expected);
}

double process_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

TEST(ThreadPool, IdleWorkersSleep) {
  ThreadPool pool(4);
  pool.run(4, [](int, int) {});
  // Workers spin for a while before they sleep; on a busy machine it takes long until each of them
  // had its time for that.
  bool asleep = false;
  for (int tries = 0; tries < 600 && !asleep; ++tries) {
    const double before = process_seconds();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    asleep = process_seconds() - before < 0.005;
  }
  EXPECT_TRUE(asleep) << "idle workers still use the processor";
  // And wake again.
  std::atomic<int> calls{0};
  pool.run(4, [&](int, int) { ++calls; });
  EXPECT_EQ(calls, 4);
}

// Threads that spin keep cores from those that they wait for. Whoever spins does so for 60 us of
// its own time, whatever else the machine does.
TEST(ThreadPool, ManyMoreThreadsThanCoresDoNotSpin) {
  constexpr int kThreads = 512;
  if (std::thread::hardware_concurrency() >= kThreads)
    GTEST_SKIP() << "each thread has a core";
  if (test::kSanitized)
    GTEST_SKIP() << "the instructions of a thread that sleeps at once take as long as its spinning";
  ThreadPool pool(kThreads);
  Barrier barrier(kThreads);
  auto run = [&] { pool.run(kThreads, [&](int, int) { barrier.wait(); }); };
  run();
  double least = 1;
  for (int tries = 0; tries < 50 && least > kThreads * 30e-6; ++tries) {
    const double before = process_seconds();
    run();
    least = std::min(least, process_seconds() - before);
  }
  EXPECT_LE(least, kThreads * 30e-6);
}

TEST(ThreadPool, PoolsComeAndGo) {
  for (int i = 0; i < 50; ++i) {
    ThreadPool pool(1 + i % 4);
    std::atomic<int> calls{0};
    if (i % 3 != 0) // some never start their threads
      pool.run(4, [&](int, int) { ++calls; });
    EXPECT_EQ(calls, i % 3 != 0 ? 1 + i % 4 : 0);
  }
}

#if !defined(__SANITIZE_THREAD__) // which lets no forked process start threads
// What `body` gives in a forked process, as the status of its exit; one that hangs is ended.
int status_of_forked(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(static_cast<unsigned>(60 * test::scale()));
    _exit(body());
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

TEST(ThreadPool, StartsItsThreadsAnewInAForkedProcess) {
  ThreadPool pool(3);
  const auto calls = [&] {
    std::atomic<int> count = 0;
    pool.run(3, [&](int, int) { ++count; });
    return count.load();
  };
  EXPECT_EQ(calls(), 3);
  EXPECT_EQ(status_of_forked([&] {
              const int own = calls(), in_its_child = status_of_forked([&] { return calls() - 3; });
              return own == 3 && in_its_child == 0 ? 0 : 1;
            }),
            0);
  EXPECT_EQ(calls(), 3);
}

TEST(ThreadPool, IsDestroyedInAForkedProcess) {
  auto pool = std::make_unique<ThreadPool>(3);
  pool->run(3, [](int, int) {});
  EXPECT_EQ(status_of_forked([&] {
              pool.reset();
              return 0;
            }),
            0);
}
#endif

} // namespace
} // namespace egret
