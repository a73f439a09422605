// Images of PNG and Netpbm files.
#include "egret/image.h"
#include "support/files.h"

#include <gtest/gtest.h>
#include <zlib.h>

namespace egret::io {
namespace {

std::string big_endian(std::uint32_t x) {
  return {static_cast<char>(x >> 24U), static_cast<char>(x >> 16U), static_cast<char>(x >> 8U),
          static_cast<char>(x)};
}

std::string part(const std::string& name, const std::string& body) {
  const std::string all = name + body;
  const auto crc =
      crc32(0, reinterpret_cast<const Bytef*>(all.data()), static_cast<uInt>(all.size()));
  return big_endian(static_cast<std::uint32_t>(body.size())) + all +
         big_endian(static_cast<std::uint32_t>(crc));
}

std::string header(std::uint32_t width, std::uint32_t height, char depth, char kind,
                   char interlaced = 0) {
  return part("IHDR", big_endian(width) + big_endian(height) +
                          std::string({depth, kind, 0, 0, interlaced}));
}

std::string packed(const std::string& rows) {
  std::string out(compressBound(rows.size()), '\0');
  uLongf size = out.size();
  compress(reinterpret_cast<Bytef*>(out.data()), &size, reinterpret_cast<const Bytef*>(rows.data()),
           rows.size());
  return out.substr(0, size);
}

const std::string kMagic("\x89PNG\r\n\x1a\n", 8);

std::string png(const std::string& first, const std::string& rows, const std::string& more = "") {
  return kMagic + first + more + part("IDAT", packed(rows)) + part("IEND", "");
}

class Image : public ::testing::Test {
protected:
  std::vector<int> load(const std::string& content) {
    test::write_file(folder_ / "a", content);
    return load_image(folder_ / "a").to_vector<int>();
  }
  test::TempFolder folder_;
};

TEST_F(Image, EachFilterOfPngIsUndone) {
  // Three columns of grey; a row for each filter: none, left, up, their mean, Paeth's.
  const std::string rows = std::string("\0\x0a\x14\x1e", 4) + std::string("\1\x01\x02\x03", 4) +
                           std::string("\2\x05\x05\x05", 4) + std::string("\3\x04\x04\x04", 4) +
                           std::string("\4\x01\x01\x01", 4);
  const auto pixels = load(png(header(3, 5, 8, 0), rows));
  const std::vector<int> grey = {10, 20, 30, 1, 3, 6, 6, 8, 11, 7, 11, 15, 8, 12, 16};
  ASSERT_EQ(pixels.size(), 3 * grey.size());
  for (std::size_t i = 0; i < grey.size(); ++i)
    for (std::size_t c = 0; c < 3; ++c)
      EXPECT_EQ(pixels[3 * i + c], grey[i]) << i;
}

TEST_F(Image, EachKindOfColourIsRead) {
  EXPECT_EQ(load(png(header(1, 1, 8, 2), std::string("\0\x01\x02\x03", 4))),
            (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(load(png(header(1, 1, 8, 6), std::string("\0\x01\x02\x03\x80", 5))),
            (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(load(png(header(1, 1, 16, 2), std::string("\0\x01\xff\x02\xff\x03\xff", 7))),
            (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(load(png(header(1, 1, 8, 4), std::string("\0\x09\x80", 3))),
            (std::vector<int>{9, 9, 9}));
  EXPECT_EQ(load(png(header(3, 1, 1, 0), std::string("\0\xa0", 2))),
            (std::vector<int>{255, 255, 255, 0, 0, 0, 255, 255, 255}));
  EXPECT_EQ(load(png(header(2, 1, 4, 3), std::string("\0\x10", 2),
                     part("PLTE", std::string("\x01\x02\x03\x04\x05\x06", 6)) + part("tEXt", "a"))),
            (std::vector<int>{4, 5, 6, 1, 2, 3}));
}

TEST_F(Image, NetpbmIsRead) {
  EXPECT_EQ(load("P6 # a comment\n1 2\n255\nabcdef"),
            (std::vector<int>{'a', 'b', 'c', 'd', 'e', 'f'}));
  EXPECT_EQ(load("P5 1 1 1023\n" + std::string("\x03\xff", 2)), (std::vector<int>{255, 255, 255}));
}

TEST_F(Image, DamagedFilesAreRefusedWithTheReason) {
  const std::string row("\0\x01\x02\x03", 4);
  const std::string good = png(header(1, 1, 8, 2), row);
  const auto refused = [&](const std::string& content, const char* why) {
    const std::string message = test::error_of(ErrorKind::File, [&] { load(content); });
    EXPECT_NE(message.find(why), std::string::npos) << message;
    EXPECT_NE(message.find("at byte "), std::string::npos) << message;
  };
  refused("GIF89a", "neither a PNG nor");
  refused("\xff\xd8\xff\xe0", "a JPEG, which egret does not read");
  refused(good.substr(0, good.size() - 6), "bytes are needed");
  std::string flipped = good;
  flipped[20] ^= 1;
  refused(flipped, "its checksum does not fit");
  refused(kMagic + part("IDAT", "a"), "the first part is 'IDAT'");
  refused(png(header(0, 1, 8, 2), row), "an image of 0 x 1");
  refused(png(header(1U << 30U, 1U << 30U, 8, 2), row), "pixels at most");
  refused(png(header(1, 1, 3, 2), row), "pixels of kind 2 and 3 bits");
  refused(png(header(1, 1, 8, 2, 1), row), "interlaced");
  refused(png(header(1, 1, 8, 2), row, part("HIST", "")), "does not know the part 'HIST'");
  refused(png(header(2, 1, 8, 2), row), "4 bytes of 7 could be unpacked");
  refused(png(header(1 << 14, 1 << 14, 8, 2), row), "cannot be packed in");
  refused(png(header(1, 1, 8, 2), std::string("\5\x01\x02\x03", 4)), "filtered by method 5");
  refused(png(header(1, 1, 8, 3), std::string("\0\x02", 2), part("PLTE", "abcdef")),
          "colour 2 of a palette of 2");
  refused(kMagic + header(1, 1, 8, 2) + part("IEND", ""), "IDAT is missing");
  refused("P6 1 x", "there is no number for the height");
  refused("P6 2 2 255\nabc", "12 bytes are needed, 3 are left");
  refused("P5 1 1 0\na", "a largest value of 0");
}

} // namespace
} // namespace egret::io
