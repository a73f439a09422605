#include "support/memory.h"

#include "egret/error.h"
#include "support/checked.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

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

TEST(Pages, AreAlignedAndUsableAgainOnceTheyWereDiscarded) {
  constexpr std::size_t kBytes = std::size_t{5} << 20;
  for (const bool huge : {false, true}) {
    auto* p = static_cast<unsigned char*>(allocate_pages(kBytes, huge));
    EXPECT_TRUE(is_aligned(p, std::size_t{2} << 20));
    EXPECT_EQ(p[kBytes - 1], 0);
    std::memset(p, 7, kBytes);
    discard_pages(p, std::size_t{2} << 20);
    p[5] = 3; // it can be used again
    EXPECT_EQ(p[std::size_t{2} << 20], 7);
    release_pages(p, kBytes);
  }
  EXPECT_THROW(allocate_pages(~std::size_t{0}, false), Error);
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
