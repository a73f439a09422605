#include "support/sizes.h"

#include "support/files.h"

#include <gtest/gtest.h>

namespace egret {
namespace {

TEST(Sizes, AreReadWithUnits) {
  EXPECT_EQ(parse_bytes("4096", "x"), 4096);
  EXPECT_EQ(parse_bytes("1B", "x"), 1);
  EXPECT_EQ(parse_bytes("64MB", "x"), std::int64_t{64} << 20);
  EXPECT_EQ(parse_bytes("64 MiB", "x"), std::int64_t{64} << 20);
  EXPECT_EQ(parse_bytes("64m", "x"), std::int64_t{64} << 20);
  EXPECT_EQ(parse_bytes("1.5gb", "x"), std::int64_t{3} << 29);
  EXPECT_EQ(parse_bytes("0.5K", "x"), 512);
  EXPECT_EQ(parse_bytes("2T", "x"), std::int64_t{1} << 41);
}

TEST(Sizes, RefuseWhatIsNone) {
  for (const char* text : {"",     "0",     "0GB",  "-1",          "-64MB",  "+5",    "MB",
                           "64XB", "64BB",  "64Bi", "64MBs",       "64 M B", "nan",   "inf",
                           "1e9",  "1e9GB", "0.1",  "9999999999T", "1,5GB",  " 64MB", "five"}) {
    const std::string message =
        test::error_of(ErrorKind::Value, [&] { parse_bytes(text, "--memory-limit"); });
    EXPECT_TRUE(message.starts_with("--memory-limit: `" + std::string(text) + "`")) << message;
  }
  EXPECT_EQ(checked_bytes(1, "x"), 1);
  for (const std::int64_t bytes : {std::int64_t{0}, std::int64_t{-5}, INT64_MIN})
    EXPECT_TRUE(test::error_of(ErrorKind::Value, [&] {
                  checked_bytes(bytes, "compile: memory_limit");
                }).starts_with("compile: memory_limit: " + std::to_string(bytes) + " "));
}

} // namespace
} // namespace egret
