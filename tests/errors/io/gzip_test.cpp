#include "egret/io.h"
#include "support/files.h"
#include "support/gzip.h"

#include <gtest/gtest.h>
#include <random>

namespace egret::io {
namespace {

void expect_bad_gzip(std::string_view bytes, std::string_view part) {
  test::TempFolder folder;
  test::write_file(folder / "bad.gz", bytes);
  test::expect_refused(
      folder / "bad.gz", [&] { read_gzip(folder / "bad.gz", 1 << 20); }, part);
}

TEST(GzipErrors, NotGzip) {
  expect_bad_gzip("", "does not start with 1f 8b");
  expect_bad_gzip("hello", "at byte 0: no gzip file");
}

TEST(GzipErrors, TruncatedAnywhere) {
  std::string whole = test::gzip("some text that is long enough to be cut at many places");
  for (std::size_t n = 2; n < whole.size(); ++n)
    expect_bad_gzip(whole.substr(0, n), "the file ends in the middle");
}

TEST(GzipErrors, DamagedChecksum) {
  std::string bytes = test::gzip("some text");
  bytes[bytes.size() - 6] ^= 1;
  expect_bad_gzip(bytes, "damaged: incorrect data check");
}

TEST(GzipErrors, BytesAfterTheEnd) {
  expect_bad_gzip(test::gzip("text") + "x", "bytes after the end");
}

TEST(GzipErrors, BombIsStoppedAtTheLimit) {
  std::string bomb = test::gzip(std::string(64 << 20, '\0'), 9);
  ASSERT_LT(bomb.size(), 100000U);
  expect_bad_gzip(bomb, "holds more than the limit of 1048576 bytes");
}

TEST(GzipErrors, RandomDamageIsRefusedOrUnpacksToTheSame) {
  std::string text(5000, ' ');
  std::mt19937 random(3);
  for (char& c : text)
    c = static_cast<char>('a' + random() % 20);
  std::string whole = test::gzip(text);
  test::TempFolder folder;
  int refused = 0;
  for (int round = 0; round < 200; ++round) {
    std::string bytes = whole;
    bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
    test::write_file(folder / "a.gz", bytes);
    try {
      auto got = read_gzip(folder / "a.gz");
      EXPECT_EQ(std::string(reinterpret_cast<const char*>(got.data()), got.size()), text);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::File);
      ++refused;
    }
  }
  EXPECT_GT(refused, 160); // only the name, time and flag bytes of the head may change unseen
}

} // namespace
} // namespace egret::io
