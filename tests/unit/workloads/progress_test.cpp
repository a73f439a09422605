// The line that tells how far a search is.
#include "console.h"

#include <gtest/gtest.h>

namespace egret::tool {
namespace {

TEST(Progress, CountsNoFurtherThanThereIs) {
  EXPECT_EQ(progress_text({"k", 0, 2, 3, 9, 1, 60, 0}),
            "search: kernel 1 of 2 (k), candidate 4 of 9, 59.0 s of 1 min 00 s left");
  EXPECT_EQ(
      progress_text({"program", 1, 1, 44, 44, 2, 30, 1e-4}),
      "search: kernel 1 of 1 (program), candidate 44 of 44, best 0.1 ms, 28.0 s of 30.0 s left");
}

TEST(Progress, ShowsNoEscapeCharacters) {
  EXPECT_NE(progress_text({"k\x1b[31m", 0, 1, 0, 1, 0, 1, 0}).find("(k\\x1b[31m)"),
            std::string::npos);
}

} // namespace
} // namespace egret::tool
