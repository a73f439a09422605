#include "support/memory.h"

#include "egret/error.h"
#include "support/checked.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <thread>

namespace egret {
namespace {

bool is_aligned(const void* p, std::size_t to) {
  return reinterpret_cast<std::uintptr_t>(p) % to == 0;
}

TEST(AlignedMemory, BlocksAreAligned) {
  for (std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{4097}, std::size_t{3} << 20}) {
    void* p = allocate_aligned(bytes);
    EXPECT_TRUE(is_aligned(p, kBlockAlignment));
    if (bytes >= std::size_t{2} << 20) {
      EXPECT_TRUE(is_aligned(p, std::size_t{2} << 20)) << "huge pages need it";
    }
    std::memset(p, 1, bytes);
    release_aligned(p, bytes);
  }
  release_aligned(nullptr, 5);
}

TEST(AlignedMemory, WhatCannotBeHadIsAnErrorThatNamesTheBytes) {
  try {
    allocate_aligned(std::size_t{1} << 45);
    FAIL() << "35 TB were given";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Memory);
    EXPECT_NE(std::string(e.what()).find("35184372088832 bytes"), std::string::npos) << e.what();
  }
  EXPECT_THROW(allocate_aligned(~std::size_t{0}), Error);
}

TEST(MemoryPool, SizeClassesWasteAtMostAFifth) {
  std::size_t last = 0;
  for (std::size_t bytes = 1; bytes < (std::size_t{1} << 40); bytes += 1 + bytes / 7) {
    std::size_t block = MemoryPool::block_size(bytes);
    EXPECT_GE(block, bytes);
    EXPECT_GE(block, last);
    EXPECT_EQ(block % kBlockAlignment, 0u);
    if (bytes > 256) {
      EXPECT_LE(block, bytes + bytes / 4);
    }
    EXPECT_EQ(MemoryPool::block_size(block), block);
    last = block;
  }
}

TEST(MemoryPool, SteadyLoopAsksTheSystemForNothing) {
  MemoryPool pool(std::size_t{1} << 30);
  auto step = [&] {
    void* a = pool.allocate(1000);
    void* b = pool.allocate(5 << 20);
    void* c = pool.allocate(1010);
    pool.release(a, 1000);
    void* d = pool.allocate(990);
    pool.release(b, 5 << 20);
    pool.release(c, 1010);
    pool.release(d, 990);
  };
  step();
  auto before = pool.stats();
  for (int i = 0; i < 100; ++i)
    step();
  auto after = pool.stats();
  EXPECT_EQ(after.driver_allocations, before.driver_allocations);
  EXPECT_EQ(after.allocations, before.allocations + 400);
  EXPECT_EQ(after.in_use, 0u);
}

TEST(MemoryPool, KeepsNoMoreThanItsCacheLimit) {
  MemoryPool pool(1 << 20);
  std::vector<void*> blocks;
  for (int i = 0; i < 64; ++i)
    blocks.push_back(pool.allocate(1 << 16));
  EXPECT_EQ(pool.stats().in_use, std::size_t{64} << 16);
  for (void* p : blocks)
    pool.release(p, 1 << 16);
  EXPECT_LE(pool.stats().cached, std::size_t{1} << 20);
  EXPECT_EQ(pool.stats().driver_releases, 48u);
  pool.trim();
  EXPECT_EQ(pool.stats().cached, 0u);
  EXPECT_EQ(pool.stats().driver_releases, 64u);
}

TEST(MemoryPool, LimitIsATypedErrorAndTheProgramGoesOn) {
  MemoryPool pool(1 << 20, 1 << 20);
  void* a = pool.allocate(900'000);
  try {
    pool.allocate(500'000);
    FAIL() << "beyond the limit";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Memory);
    EXPECT_NE(std::string(e.what()).find("500000 bytes"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("limit is 1048576"), std::string::npos) << e.what();
  }
  pool.release(a, 900'000);
  void* b = pool.allocate(500'000);
  pool.release(b, 500'000);
}

TEST(MemoryPool, GivesItsCacheBackBeforeItFails) {
  MemoryPool pool(std::size_t{1} << 40);
  pool.release(pool.allocate(1 << 22), 1 << 22);
  EXPECT_GT(pool.stats().cached, 0u);
  EXPECT_THROW(pool.allocate(std::size_t{1} << 45), Error);
  EXPECT_EQ(pool.stats().cached, 0u);
  EXPECT_EQ(pool.stats().in_use, 0u);
}

TEST(MemoryPool, BlocksOfManyThreadsDoNotOverlap) {
  MemoryPool pool(std::size_t{64} << 20);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      std::vector<std::pair<unsigned char*, std::size_t>> held;
      for (int i = 0; i < 3000; ++i) {
        if (held.size() < 8 && random() % 2 == 0) {
          std::size_t bytes = 1 + random() % 20000;
          auto* p = static_cast<unsigned char*>(pool.allocate(bytes));
          std::memset(p, static_cast<int>(t), bytes);
          held.emplace_back(p, bytes);
        } else if (!held.empty()) {
          auto [p, bytes] = held.back();
          held.pop_back();
          wrong += p[0] != t || p[bytes - 1] != t;
          pool.release(p, bytes);
        }
      }
      for (auto [p, bytes] : held)
        pool.release(p, bytes);
    });
  for (std::thread& t : threads)
    t.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(pool.stats().in_use, 0u);
}

TEST(CheckedArithmetic, NoticesOverflow) {
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(checked_add<std::int64_t>(kMost - 1, 1, "x"), kMost);
  EXPECT_EQ(checked_mul<std::uint8_t>(15, 17, "x"), 255);
  EXPECT_EQ((checked_cast<std::int8_t>(-128, "x")), -128);
  EXPECT_EQ(round_up(65, 64), 128);
  auto message = [](auto f) -> std::string {
    try {
      f();
    } catch (const Error& e) {
      return e.what();
    }
    return "nothing was thrown";
  };
  EXPECT_EQ(message([] { checked_add<std::int64_t>(kMost, 1, "offset"); }),
            "offset: 9223372036854775807 + 1 overflows 64 bits");
  EXPECT_EQ(message([] { checked_sub<std::uint32_t>(1, 2, "length"); }),
            "length: 1 - 2 overflows 32 bits");
  EXPECT_EQ(message([] { checked_mul<std::int64_t>(kMost, 2, "bytes"); }),
            "bytes: 9223372036854775807 * 2 overflows 64 bits");
  EXPECT_EQ(message([] { checked_cast<std::uint32_t>(std::int64_t{-1}, "count"); }),
            "count: -1 does not fit 32 bits");
  EXPECT_EQ(message([] { checked_cast<std::int32_t>(std::uint64_t{1} << 31, "count"); }),
            "count: 2147483648 does not fit 32 bits");
}

} // namespace
} // namespace egret
