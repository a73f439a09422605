// Launches of several threads on one machine's workers.
#include "backend/common/host_workers.h"
#include "support/scale.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <set>
#include <thread>
#include <vector>

namespace egret::backend {
namespace {

constexpr std::int64_t kMemory = 256; // of each worker

/// `meets`: workers meet at a barrier, which are fewer while threads are late on a busy machine.
kernel::KernelProgram program_for(int workers, bool meets = false) {
  kernel::KernelProgram program;
  program.launch.workers = Expr(workers);
  program.uses_barrier = meets;
  kernel::Buffer memory;
  memory.space = kernel::Space::Worker;
  memory.dtype = DType::U8;
  memory.elements = Expr(kMemory);
  program.buffers.push_back(memory);
  return program;
}

// Waits until `all` have come; false when they do not.
bool meets(std::atomic<int>& come, int all) {
  ++come;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60) * test::scale();
  while (come.load() < all)
    if (std::chrono::steady_clock::now() > end)
      return false;
    else
      std::this_thread::yield();
  return true;
}

struct Seen {
  bool met = false;
  int workers = 0;
  std::vector<void*> memory;
};

// `threads` launches that go on at the same time.
std::vector<Seen> overlapping(HostWorkers& all, const kernel::KernelProgram& program, int threads) {
  const HostLaunch launch(program);
  std::vector<Seen> seen(static_cast<std::size_t>(threads));
  std::atomic<int> come{0};
  std::vector<std::thread> list;
  for (Seen& own : seen)
    list.emplace_back([&] {
      all.launch(launch, kernel::ArgBlock{}, 0,
                 [&](const kernel::ArgBlock& block, int worker, int workers) {
                   if (worker == 0) {
                     own.workers = workers;
                     own.memory.assign(block.worker_memory, block.worker_memory + workers);
                     own.met = meets(come, threads);
                   }
                   if (block.barrier)
                     static_cast<Barrier*>(block.barrier)->wait();
                 });
    });
  for (std::thread& thread : list)
    thread.join();
  return seen;
}

int workers_of_one(HostWorkers& all, const kernel::KernelProgram& program) {
  std::atomic<int> workers{0};
  all.launch(HostLaunch(program), kernel::ArgBlock{}, 0,
             [&](const kernel::ArgBlock&, int, int count) { workers = count; });
  return workers;
}

TEST(HostWorkers, LaunchesOfSeveralThreadsDoNotWaitForEachOther) {
  for (const int workers : {1, 2, 4}) {
    HostWorkers all(workers);
    for (const int threads : {2, 3}) {
      // A launch that found a team taken while the workers were divided may wait once.
      const std::vector<Seen> seen = overlapping(all, program_for(1), threads);
      std::set<void*> memory;
      std::size_t count = 0;
      for (const Seen& own : seen) {
        EXPECT_TRUE(own.met) << workers << " " << threads;
        EXPECT_EQ(own.workers, 1);
        memory.insert(own.memory.begin(), own.memory.end());
        count += own.memory.size();
      }
      EXPECT_EQ(memory.size(), count) << "memory of two workers";
    }
  }
}

TEST(HostWorkers, OverlappingLaunchesShareTheWorkers) {
  for (const int workers : {2, 4, 5}) {
    HostWorkers all(workers);
    EXPECT_EQ(workers_of_one(all, program_for(workers)), workers);
    const std::vector<Seen> seen = overlapping(all, program_for(workers), 2);
    std::set<void*> memory;
    std::size_t count = 0;
    for (const Seen& own : seen) {
      EXPECT_TRUE(own.met) << workers;
      memory.insert(own.memory.begin(), own.memory.end());
      count += own.memory.size();
    }
    EXPECT_EQ(memory.size(), count);
    EXPECT_EQ(std::min(seen[0].workers, seen[1].workers), workers / 2);
    EXPECT_EQ(workers_of_one(all, program_for(workers)), workers / 2) << "for a while";
    int last = 0;
    for (int i = 0; i < 2000 && last != workers; ++i)
      last = workers_of_one(all, program_for(workers));
    EXPECT_EQ(last, workers) << "put together again";
  }
}

TEST(HostWorkers, WorkersMeetAtTheBarrierOfALaunch) {
  HostWorkers all(3);
  const kernel::KernelProgram program = program_for(3, true);
  const HostLaunch launch(program);
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> before{0};
    std::atomic<bool> met{true};
    int count = 0;
    all.launch(launch, kernel::ArgBlock{}, 0,
               [&](const kernel::ArgBlock& block, int worker, int workers) {
                 ++before;
                 if (block.barrier)
                   static_cast<Barrier*>(block.barrier)->wait();
                 if (before.load() != workers || (workers > 1) != (block.barrier != nullptr))
                   met = false;
                 if (worker == 0)
                   count = workers;
               });
    EXPECT_TRUE(met);
    EXPECT_GE(count, 1);
    EXPECT_LE(count, 3);
  }
}

TEST(HostWorkers, ALaunchInsideALaunchRunsAlone) {
  HostWorkers all(2);
  const kernel::KernelProgram program = program_for(2);
  const HostLaunch launch(program);
  std::atomic<int> inner{0};
  all.launch(launch, kernel::ArgBlock{}, 0, [&](const kernel::ArgBlock&, int worker, int) {
    if (worker == 0)
      all.launch(launch, kernel::ArgBlock{}, 0,
                 [&](const kernel::ArgBlock&, int, int workers) { inner = workers; });
  });
  EXPECT_EQ(inner.load(), 1);
}

TEST(HostWorkers, CopiesAreWholeWhateverTheirSizeAndTheWorkers) {
  for (const int workers : {1, 2, 3, 5}) {
    HostWorkers all(workers);
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{(512 << 10) - 1},
                                    std::size_t{512 << 10}, std::size_t{(2 << 20) + 13}}) {
      std::vector<std::byte> from(bytes + 1), to(bytes + 1);
      for (std::size_t i = 0; i < bytes; ++i)
        from[i] = static_cast<std::byte>(i * 31 + i / 4096 + 1);
      all.copy(to.data(), from.data(), bytes);
      EXPECT_EQ(to, from) << workers << " " << bytes;
      std::ranges::fill(to, std::byte{0});
      all.copy(to.data(), from.data(), bytes, 1);
      EXPECT_EQ(to, from);
    }
  }
}

TEST(HostWorkers, AWorkerCopiesAlone) {
  HostWorkers all(2);
  constexpr std::size_t kBytes = 1 << 20;
  const std::vector<std::byte> from(kBytes, std::byte{7});
  std::vector<std::byte> to(2 * kBytes);
  all.launch(HostLaunch(program_for(2)), kernel::ArgBlock{}, 0,
             [&](const kernel::ArgBlock&, int worker, int workers) {
               for (int part = worker; part < 2; part += workers)
                 all.copy(to.data() + kBytes * static_cast<std::size_t>(part), from.data(), kBytes);
             });
  EXPECT_EQ(std::ranges::count(to, std::byte{7}), std::ptrdiff_t{2 * kBytes});
}

} // namespace
} // namespace egret::backend
