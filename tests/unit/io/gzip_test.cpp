#include "egret/io.h"
#include "support/files.h"
#include "support/gzip.h"

#include <gtest/gtest.h>

namespace egret::io {
namespace {

std::string unpacked(const std::filesystem::path& path, std::uint64_t most = kMostUnpackedBytes) {
  auto bytes = read_gzip(path, most);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string numbers(int n) {
  std::string text;
  for (int i = 0; i < n; ++i)
    text += std::to_string(i * 7919) + ' ';
  return text;
}

TEST(Gzip, UnpacksWhatWasPacked) {
  test::TempFolder folder;
  for (int n : {0, 1, 1000, 200000}) {
    test::write_file(folder / "a.gz", test::gzip(numbers(n)));
    EXPECT_EQ(unpacked(folder / "a.gz"), numbers(n)) << n;
  }
}

TEST(Gzip, JoinsMembers) {
  test::TempFolder folder;
  test::write_file(folder / "a.gz", test::gzip("one ") + test::gzip("") + test::gzip("two"));
  EXPECT_EQ(unpacked(folder / "a.gz"), "one two");
}

TEST(Gzip, TheLimitIsInclusive) {
  test::TempFolder folder;
  test::write_file(folder / "a.gz", test::gzip(std::string(100000, 'x')));
  EXPECT_EQ(unpacked(folder / "a.gz", 100000).size(), 100000U);
  test::expect_refused(
      folder / "a.gz", [&] { read_gzip(folder / "a.gz", 99999); },
      "more than the limit of 99999 bytes");
}

} // namespace
} // namespace egret::io
