// The heap behind a device's memory: blocks, joined ranges, what is given back and when.
#include "runtime/heap.h"

#include "egret/error.h"
#include "runtime/storage.h"
#include "support/address_sanitizer.h"
#include "support/memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <random>
#include <vector>

namespace egret::runtime {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

// Memory for a heap, with a bound on what there is.
class Machine final : public backend::Device {
public:
  Machine(bool host, std::size_t most) : host_(host), most_(most) { target_.device = "test"; }
  const kernel::Target& target() const override { return target_; }
  bool host_memory() const override { return host_; }
  void* allocate(std::size_t bytes) override {
    if (bytes > most_ - held_)
      throw Error(ErrorKind::Memory, "the machine has no more");
    held_ += bytes;
    return ::operator new(bytes, kGpuBlock);
  }
  void release(void* memory, std::size_t bytes) noexcept override {
    held_ -= bytes;
    ::operator delete(memory, kGpuBlock);
  }
  std::shared_ptr<const backend::Artifact> compile(const kernel::KernelProgram&) override {
    return nullptr;
  }
  void launch(const backend::Artifact&, const kernel::KernelProgram&, const kernel::ArgBlock&,
              int) override {}
  void synchronize() override {}
  std::size_t held() const { return held_; }

private:
  kernel::Target target_;
  static constexpr std::align_val_t kGpuBlock{256};
  bool host_;
  std::size_t most_, held_ = 0;
};

struct Kind {
  const char* name;
  bool host;
};
class HeapOf : public testing::TestWithParam<Kind> {
protected:
  Machine machine_{GetParam().host, std::size_t{8} << 30};
  Heap heap_{machine_};
};
INSTANTIATE_TEST_SUITE_P(Devices, HeapOf, testing::Values(Kind{"Host", true}, Kind{"Gpu", false}),
                         [](const auto& info) { return std::string(info.param.name); });

// Its next owner would find it changed, or a kernel read what is no more.
TEST(Heap, TheAddressSanitizerSeesUseOfWhatWasLetGo) {
#if defined(EGRET_ADDRESS_SANITIZER)
  Machine machine(true, kMiB << 10);
  Heap heap(machine);
  auto* const block = static_cast<char*>(heap.allocate(1000, 0));
  block[0] = 1;
  heap.release(block, 1000);
  EXPECT_DEATH(block[0] = 2, "use-after-poison");
  EXPECT_EQ(heap.allocate(1000, 0), block);
  block[0] = 3; // again somebody's
  heap.release(block, 1000);
#else
  GTEST_SKIP() << "it does not watch this build";
#endif
}

TEST(Pool, LivesForAsLongAsAnyOfItsBlocks) {
  Machine machine(false, kMiB << 6);
  auto pool = std::make_shared<Pool>(machine);
  const std::weak_ptr<Pool> seen = pool;
  StoragePtr one = pool->allocate(100), other = pool->allocate(2000);
  one = nullptr;
  pool = nullptr;
  EXPECT_FALSE(seen.expired());
  EXPECT_EQ(seen.lock()->stats().in_use, 2000u);
  other = nullptr;
  EXPECT_TRUE(seen.expired());
  EXPECT_EQ(machine.held(), 0u);
}

TEST(HeapSizes, WasteAtMostASixteenthOrAUnit) {
  for (std::size_t bytes = 1; bytes < (std::size_t{1} << 40); bytes += 1 + bytes / 7) {
    const std::size_t size = Heap::rounded(bytes, 64);
    EXPECT_GE(size, bytes);
    EXPECT_EQ(size % 64, 0u);
    EXPECT_LE(size - bytes, std::max<std::size_t>(63, bytes / 16));
    EXPECT_EQ(Heap::rounded(size, 64), size);
  }
}

TEST_P(HeapOf, RandomBlocksAreAlignedAndDoNotOverlap) {
  std::mt19937 random(7);
  std::map<std::byte*, std::pair<std::size_t, int>> live; // bytes, filling
  for (int i = 0; i < 4000; ++i) {
    if (live.size() < 60 && random() % 5 < 3) {
      const std::size_t bytes = random() % 3 == 0 ? random() % (3 * kMiB) : random() % 5000;
      auto* block = static_cast<std::byte*>(heap_.allocate(bytes, 0));
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % (GetParam().host ? 64 : 256), 0u);
      const auto next = live.lower_bound(block);
      if (next != live.end()) {
        ASSERT_LE(block + bytes, next->first);
      }
      if (next != live.begin()) {
        ASSERT_LE(std::prev(next)->first + std::prev(next)->second.first, block);
      }
      std::memset(block, i % 251, bytes);
      live[block] = {bytes, i % 251};
    } else if (!live.empty()) {
      auto one = std::next(live.begin(), static_cast<std::ptrdiff_t>(random() % live.size()));
      const auto [bytes, filling] = one->second;
      if (bytes > 0) {
        ASSERT_EQ(one->first[0], static_cast<std::byte>(filling));
        ASSERT_EQ(one->first[bytes - 1], static_cast<std::byte>(filling));
      }
      heap_.release(one->first, bytes);
      live.erase(one);
    }
  }
  for (const auto& [block, what] : live)
    heap_.release(block, what.first);
  EXPECT_EQ(heap_.in_use(), 0u);
  heap_.trim();
  EXPECT_EQ(heap_.reserved(), 0u);
  EXPECT_EQ(machine_.held(), 0u);
}

TEST_P(HeapOf, ASteadyLoopAsksTheSystemForNothing) {
  // Phases of other sizes, so that ranges are cut and joined in each round.
  const auto round = [&] {
    std::vector<std::pair<void*, std::size_t>> blocks;
    for (const std::size_t bytes : {40 * kMiB, 900 * std::size_t{1}, 3 * kMiB})
      blocks.emplace_back(heap_.allocate(bytes, 0), bytes);
    for (auto [block, bytes] : blocks)
      heap_.release(block, bytes);
    blocks.clear();
    for (int i = 0; i < 10; ++i)
      blocks.emplace_back(heap_.allocate(4 * kMiB, 0), 4 * kMiB);
    for (auto [block, bytes] : blocks)
      heap_.release(block, bytes);
  };
  for (int i = 0; i < 3; ++i)
    round();
  const std::uint64_t before = heap_.system_allocations();
  for (int i = 0; i < 50; ++i)
    round();
  EXPECT_EQ(heap_.system_allocations(), before);
  EXPECT_LE(heap_.reserved(), 43 * kMiB * 5 / 4 + Heap::slack());
}

TEST(Heap, ReservesAtMostAQuarterMoreThanThePeakOfChangingSizesOnTheHost) {
  Machine machine(true, 0);
  Heap heap(machine);
  std::mt19937 random(3);
  std::size_t peak = 0;
  for (int i = 0; i < 300; ++i) {
    std::vector<std::pair<void*, std::size_t>> blocks;
    const std::size_t size = kMiB + random() % (24 * kMiB);
    for (const std::size_t bytes : {size, size / 2, 2 * size}) {
      blocks.emplace_back(heap.allocate(bytes, 0), bytes);
      peak = std::max(peak, heap.in_use());
    }
    for (auto [block, bytes] : blocks)
      heap.release(block, bytes);
    ASSERT_LE(heap.reserved(), peak + peak / 4 + Heap::slack()) << i;
  }
}

TEST(Heap, ASmallSurvivorDoesNotKeepALargeRangeOfTheHost) {
  Machine machine(true, 0);
  Heap heap(machine);
  std::vector<void*> held;
  for (int i = 0; i < 20; ++i) { // one 2 MiB block is left of each 32 MiB
    void* large = heap.allocate(30 * kMiB, 0);
    held.push_back(heap.allocate(2 * kMiB, 0));
    heap.release(large, 30 * kMiB);
  }
  EXPECT_LE(heap.reserved(), 70 * kMiB * 5 / 4 + Heap::slack());
  heap.trim();
  EXPECT_LE(heap.reserved(), 42 * kMiB + Heap::slack());
  for (void* block : held)
    heap.release(block, 2 * kMiB);
}

TEST_P(HeapOf, ALimitIsATypedErrorAndWhatIsFreeIsGivenBackForIt) {
  void* a = heap_.allocate(20 * kMiB, 32 * kMiB);
  try {
    heap_.allocate(20 * kMiB, 32 * kMiB);
    FAIL() << "beyond the limit";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Memory);
    EXPECT_NE(std::string(error.what()).find("the limit is 33554432"), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(heap_.in_use(), 20 * kMiB);
  heap_.release(a, 20 * kMiB);
  a = heap_.allocate(30 * kMiB, 32 * kMiB); // not of the size that was freed
  EXPECT_LE(heap_.reserved(), 32 * kMiB);
  void* small = heap_.allocate(1000, 32 * kMiB); // a page for it is no larger than what is left
  EXPECT_LE(heap_.reserved(), 32 * kMiB);
  heap_.release(small, 1000);
  heap_.release(a, 30 * kMiB);
}

TEST(Heap, GivesFreeMemoryBackWhenTheDeviceHasNoMore) {
  Machine machine(false, 64 * kMiB);
  Heap heap(machine);
  std::vector<void*> blocks;
  for (int i = 0; i < 4; ++i)
    blocks.push_back(heap.allocate(15 * kMiB, 0));
  for (void* block : blocks)
    heap.release(block, 15 * kMiB);
  // 78 MiB are within 1.25 times the peak, and not on the machine.
  void* other = heap.allocate(18 * kMiB, 0);
  EXPECT_EQ(machine.held(), 18 * kMiB);
  EXPECT_THROW(heap.allocate(50 * kMiB, 0), Error);
  EXPECT_EQ(heap.in_use(), 18 * kMiB);
  heap.release(other, 18 * kMiB);
}

TEST_P(HeapOf, GivesBackWhatWasNotUsedForTwoWindows) {
  heap_.release(heap_.allocate(100 * kMiB, 0), 100 * kMiB);
  EXPECT_GE(heap_.reserved(), 100 * kMiB);
  for (std::uint64_t i = 0; i < 3 * Heap::kWindow; ++i)
    heap_.release(heap_.allocate(1000, 0), 1000);
  EXPECT_LE(heap_.reserved(), Heap::slack());
}

} // namespace
} // namespace egret::runtime
