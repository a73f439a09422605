// Texts from files, and texts fit to be shown.
#include "support/files.h"
#include "support/printable.h"
#include "support/read_text.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

namespace egret {
namespace {

TEST(ReadText, GivesWhatIsThere) {
  test::TempFolder folder;
  const std::string text(200000, 'x');
  test::write_file(folder / "a", text);
  EXPECT_EQ(read_text(folder / "a"), text);
  test::write_file(folder / "b", "");
  EXPECT_EQ(read_text(folder / "b"), "");
  if (std::filesystem::exists("/proc/self/cmdline")) {
    EXPECT_FALSE(read_text("/proc/self/cmdline").empty()) << "a file that says it has no bytes";
  }
}

TEST(ReadText, EndsWhereNothingEnds) {
  test::expect_refused(
      "/dev/zero", [] { read_text("/dev/zero", 1 << 20); }, "it has more than 1048576 bytes");
  test::expect_refused(
      "/dev/zero", [] { read_text("/dev/zero", UINT64_MAX); }, "it has more than 268435456 bytes");
}

TEST(ReadText, NamesWhatCannotBeRead) {
  test::TempFolder folder;
  test::expect_refused(
      folder / "none", [&] { read_text(folder / "none"); }, "No such file");
  test::expect_refused(
      folder.path(), [&] { read_text(folder.path()); }, "Is a directory");
  test::write_file(folder / "a", "12345");
  test::expect_refused(
      folder / "a", [&] { read_text(folder / "a", 4); }, "it has more than 4 bytes");
  EXPECT_EQ(read_text(folder / "a", 5), "12345");
  if (std::filesystem::exists("/proc/self/mem"))
    test::expect_refused(
        "/proc/self/mem", [] { read_text("/proc/self/mem"); }, "cannot read it");
}

TEST(TerminalText, ShowsWhatWouldMoveTheCursor) {
  EXPECT_EQ(terminal_text("a\x1b[31mred\nb\tc\r\x7f"), "a\\x1b[31mred\nb\tc\\x0d\\x7f");
  EXPECT_EQ(terminal_text("caf\u00e9 \u65e5"), "caf\u00e9 \u65e5");
  EXPECT_EQ(terminal_text("\xc2\x9b"), "\\xc2\\x9b") << "C1: a sequence begins";
  EXPECT_EQ(terminal_text("\xe9\x80"), "\\xe9\\x80");
  EXPECT_EQ(terminal_text(std::string(5000, 'x')).size(), 5000U);
}

} // namespace
} // namespace egret
