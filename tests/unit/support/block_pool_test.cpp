// Blocks of memory that a thread keeps, and the lock that spins.
#include "support/block_pool.h"
#include "support/spin_lock.h"

#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace egret {
namespace {

struct Item {
  std::uint64_t words[9] = {};
};

TEST(BlockPool, GivesOutTheLastBlockThatWasFreedFirst) {
  if (!kBlockPools)
    GTEST_SKIP() << "a sanitizer watches each block";
  using Pool = BlockPool<72>;
  void* const a = Pool::take();
  void* const b = Pool::take();
  EXPECT_NE(a, b);
  Pool::give(a);
  Pool::give(b);
  EXPECT_EQ(Pool::take(), b);
  EXPECT_EQ(Pool::take(), a);
  Pool::give(a);
  Pool::give(b);
}

TEST(BlockPool, KeepsNoMoreThanItsBound) {
  using Pool = BlockPool<std::size_t{1} << 20>; // two of them
  std::vector<void*> blocks;
  for (int i = 0; i < 5; ++i)
    blocks.push_back(Pool::take());
  for (void* block : blocks)
    Pool::give(block);
  std::set<void*> again;
  for (int i = 0; i < 5; ++i)
    again.insert(Pool::take());
  EXPECT_EQ(again.size(), 5u);
  for (void* block : again)
    Pool::give(block);
}

TEST(BlockPool, ObjectsMayBeDroppedByOtherThreadsAndAfterTheirThread) {
  std::vector<std::shared_ptr<Item>> items;
  std::thread([&] {
    for (int i = 0; i < 1000; ++i)
      items.push_back(std::allocate_shared<Item>(BlockAllocator<Item>()));
    for (int i = 0; i < 500; ++i)
      items.pop_back();
  }).join();
  for (const auto& item : items)
    item->words[8] = 7;
  std::thread([given = std::move(items)]() mutable { given.clear(); }).join();
  const auto last = std::allocate_shared<Item>(BlockAllocator<Item>());
  EXPECT_EQ(last->words[8], 0u);
}

TEST(SpinLock, OneThreadAtATimeHasIt) {
  SpinLock lock;
  std::uint64_t count = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 20000; ++i) {
        std::lock_guard guard(lock);
        ++count;
      }
    });
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(count, 80000u);
}

} // namespace
} // namespace egret
