#include "egret/functional.h"
#include "egret/io.h"
#include "support/files.h"

#include <gtest/gtest.h>
#include <random>

namespace egret::io {
namespace {

struct Archive {
  explicit Archive(bool compressed = false) {
    save_npz(folder / "a.npz", {{"w", arange(100)}, {"x", ones({3})}}, compressed);
    bytes = test::read_file(folder / "a.npz");
    directory = bytes.find("PK\1\2");
    end = bytes.size() - 22;
  }
  /// Expects that these bytes are refused.
  void bad(const std::string& changed, std::string_view part) {
    test::write_file(folder / "bad.npz", changed);
    test::expect_refused(
        folder / "bad.npz", [&] { load_npz(folder / "bad.npz"); }, part);
  }
  /// The archive with other bytes at a place.
  std::string with(std::size_t at, std::string_view other) const {
    std::string changed = bytes;
    changed.replace(at, other.size(), other);
    return changed;
  }
  test::TempFolder folder;
  std::string bytes;
  std::size_t directory, end;
};

TEST(ZipErrors, WhatIsNoArchive) {
  Archive a;
  a.bad("", "not a ZIP archive");
  a.bad("PK\5\6", "not a ZIP archive");
  a.bad(a.bytes + "x", "not a ZIP archive");
  a.bad(a.bytes.substr(0, a.bytes.size() - 1), "not a ZIP archive");
  test::expect_refused(
      a.folder / "none.npz", [&] { load_npz(a.folder / "none.npz"); }, "cannot open");
}

TEST(ZipErrors, DirectoriesThatLie) {
  Archive a;
  a.bad(a.with(a.end + 4, "\1"), "in several parts");
  a.bad(a.with(a.end + 10, "\3"), "3 members in a directory");
  a.bad(a.with(a.end + 10, "\1"), "goes on after its 1 entries");
  a.bad(a.with(a.end + 10, "\xfe\xff"), "65534 members in a directory");
  a.bad(a.with(a.end + 12, "\xff\xff\xff\x7f"), "a directory of 2147483647 bytes");
  a.bad(a.with(a.end + 16, "\xff\xff\xff\xff"), "64-bit end of the directory is missing");
  a.bad(a.with(a.directory, "QK"), "no entry 0 of 2");
  a.bad(a.with(a.directory + 28, "\xff\xff"), "ends within entry 0");
}

TEST(ZipErrors, MembersThatLie) {
  Archive a;
  a.bad(a.with(a.directory + 8, "\1"), "is encrypted");
  a.bad(a.with(a.directory + 10, "\14"), "packed by method 12");
  a.bad(a.with(a.directory + 20, "\1\2\3\4"), "lies outside");
  a.bad(a.with(a.directory + 24, "\1"), "cannot hold");
  a.bad(a.with(a.directory + 42, "\xff\xff\xff\x7f"), "lies outside");
  a.bad(a.with(a.directory + 42, "\4"), "does not start here");
  a.bad(a.with(a.directory + 46, "v"), "is 'v.npy' in the directory");
  a.bad(a.with(a.directory + 48, "N"), "is 'w.Npy' in the directory");
  a.bad(a.with(120, "!"), "is damaged: its checksum");
  // Twice the same member: two entries of one place.
  const std::size_t second = a.bytes.find("PK\1\2", a.directory + 4);
  a.bad(a.with(second, a.bytes.substr(a.directory, second - a.directory)),
        "two members are named 'w.npy'");
}

TEST(ZipErrors, MembersThatOverlap) {
  Archive a;
  std::string changed = a.bytes;
  const std::size_t second = a.bytes.find("PK\3\4", 4);
  const std::string size = test::little_endian(second - 35 + 10, 4);
  for (std::size_t at : {a.directory + 20, a.directory + 24})
    changed.replace(at, 4, size);
  a.bad(changed, "overlap");
}

TEST(ZipErrors, NamesThatAreNoArrays) {
  Archive a;
  std::string changed = a.bytes;
  for (std::size_t at = 0; (at = changed.find("x.npy", at)) != std::string::npos;)
    changed.replace(at, 5, "x.txt");
  a.bad(changed, "member 'x.txt' is no NPY file");
}

TEST(ZipErrors, DamagedDeflate) {
  Archive a(true);
  a.bad(a.with(40, "\xff\xff\xff"), "is damaged");
  std::string more = a.bytes, less = a.bytes;
  const auto size = static_cast<unsigned char>(a.bytes[a.directory + 24]);
  more[a.directory + 24] = static_cast<char>(size - 8);
  a.bad(more, "unpacks to more");
  less[a.directory + 24] = static_cast<char>(size + 8);
  a.bad(less, "unpacks to");
}

TEST(ZipErrors, Limits) {
  Archive a;
  EXPECT_NO_THROW(load_npz(a.folder / "a.npz", 2000));
  test::expect_refused(
      a.folder / "a.npz", [&] { load_npz(a.folder / "a.npz", 1000); },
      "more than the limit of 1000");
}

// Whatever is cut off or changed: the right arrays or an Error(File).
TEST(ZipErrors, CutsAndFlipsAreRefused) {
  for (bool compressed : {false, true}) {
    Archive a(compressed);
    auto good = load_npz(a.folder / "a.npz");
    for (std::size_t cut = 0; cut < a.bytes.size(); cut += 7) {
      test::write_file(a.folder / "bad.npz", a.bytes.substr(0, cut));
      EXPECT_THROW(load_npz(a.folder / "bad.npz"), Error) << cut;
    }
    std::mt19937 random(1);
    for (int i = 0; i < 300; ++i) {
      std::string changed = a.bytes;
      changed[random() % changed.size()] ^= static_cast<char>(1U << random() % 8);
      test::write_file(a.folder / "bad.npz", changed);
      try {
        for (const auto& [name, value] : load_npz(a.folder / "bad.npz")) {
          ASSERT_TRUE(good.contains(name)); // names are compared with the local header's
          EXPECT_EQ(value.to_bytes(), good.at(name).to_bytes());
        }
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::File) << error.what();
      }
    }
  }
}

} // namespace
} // namespace egret::io
