#include "io/npy_header.h"
#include "support/files.h"

#include <gtest/gtest.h>
#include <random>

namespace egret::io {
namespace {

std::string npy(std::string_view header, std::string_view data, int version = 1) {
  std::string out("\x93NUMPY", 6);
  out += static_cast<char>(version);
  out += '\0';
  out += test::little_endian(header.size(), version == 1 ? 2 : 4);
  out += header;
  out += data;
  return out;
}

NpyHeader read(std::string_view bytes) {
  test::TempFolder folder;
  test::write_file(folder / "a.npy", bytes);
  return read_npy_header(InputFile("npy", folder / "a.npy"));
}

void expect_bad_npy(std::string_view bytes, std::string_view part) {
  test::TempFolder folder;
  test::write_file(folder / "bad.npy", bytes);
  test::expect_refused(
      folder / "bad.npy", [&] { read_npy_header(InputFile("npy", folder / "bad.npy")); }, part);
}

TEST(NpyHeader, ReadsAllVersions) {
  for (int version : {1, 2, 3}) {
    NpyHeader header = read(npy("{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }\n",
                                std::string(12, 'x'), version));
    EXPECT_EQ(header.dtype, DType::I16);
    EXPECT_TRUE(header.big_endian);
    EXPECT_TRUE(header.fortran_order);
    EXPECT_EQ(header.shape, (std::vector<std::int64_t>{2, 3}));
  }
}

TEST(NpyHeader, ReadsWhatItWrites) {
  for (DType type : {DType::Bool, DType::I8, DType::U64, DType::F16, DType::F32, DType::F64})
    for (const std::vector<std::int64_t>& shape :
         {std::vector<std::int64_t>{}, {0}, {3}, {2, 1, 4}, {1, 1, 1, 1, 1, 1, 1}}) {
      std::string head = npy_header_text(type, shape);
      EXPECT_EQ(head.size() % 64, 0U);
      std::size_t count = size_of(type);
      for (std::int64_t dim : shape)
        count *= static_cast<std::size_t>(dim);
      NpyHeader header = read(head + std::string(count, 'x'));
      EXPECT_EQ(header.dtype, type);
      EXPECT_EQ(header.shape, shape);
      EXPECT_EQ(header.data_start, head.size());
      EXPECT_FALSE(header.big_endian);
    }
}

TEST(NpyHeader, AcceptsSpacesQuotesAndAnyOrderOfKeys) {
  NpyHeader header =
      read(npy("{\"shape\":(4,),'fortran_order':False,  'descr':'|u1'}   \n", "abcd"));
  EXPECT_EQ(header.shape, (std::vector<std::int64_t>{4}));
  EXPECT_EQ(header.dtype, DType::U8);
}

TEST(NpyErrors, MagicAndVersion) {
  expect_bad_npy("", "at byte 0: not an NPY file");
  expect_bad_npy("\x93NUMPX\1\0", "at byte 0: not an NPY file");
  expect_bad_npy(std::string("\x93NUMPY\4\0\0\0\0\0", 12),
                 "at byte 6: version 4 of the format is not known");
  expect_bad_npy(std::string("\x93NUMPY\2\0\0\0", 10), "the file ends in the header");
}

TEST(NpyErrors, HeaderLengthBeyondTheFile) {
  expect_bad_npy(std::string("\x93NUMPY\1\0\xff\xff", 10),
                 "a header of 65535 bytes in a file of 10");
  expect_bad_npy(std::string("\x93NUMPY\2\0\xff\xff\xff\xff", 12), "a header of 4294967295 bytes");
}

TEST(NpyErrors, Literal) {
  const char* rest = "'fortran_order': False, 'shape': (1,), }";
  auto with = [&](std::string descr) { return npy("{" + descr + ", " + rest, "abcd"); };
  expect_bad_npy(npy("[]", ""), "at byte 10: header: expected '{'");
  expect_bad_npy(with("'descr': '<f3'"), "the dtype '<f3' is not one that egret has");
  expect_bad_npy(with("'descr': '|O'"), "the dtype '|O'");
  expect_bad_npy(with("'descr': [('a', '<f4')]"), "an array of records");
  expect_bad_npy(with("'descr': '<f4', 'descr': '<f4'"), "'descr' is given twice");
  expect_bad_npy(with("'descr': '<f4', 'more': 1"), "unknown key 'more'");
  expect_bad_npy(npy("{'descr': '<f4', 'fortran_order': Maybe}", ""), "expected True or False");
  expect_bad_npy(npy("{'descr': '<f4', 'fortran_order': True}", ""), "'shape' is missing");
  expect_bad_npy(npy("{'descr': '<f4}", ""), "a quote that does not end");
  expect_bad_npy(npy("{'shape': (-1,)}", ""), "expected a size of at least 0");
  expect_bad_npy(npy("{'shape': (99999999999999999999,)}", ""), "expected a size of at least 0");
  expect_bad_npy(npy("{'shape': (1 2)}", ""), "expected ')'");
  std::string many = "{'shape': (";
  for (int i = 0; i < 65; ++i)
    many += "1,";
  expect_bad_npy(npy(many + ")}", ""), "more than 64 dims");
  expect_bad_npy(npy("{'descr': '<f4', 'fortran_order': False, 'shape': ()} x", "abcd"),
                 "goes on after '}'");
}

TEST(NpyErrors, DataThatDoesNotFitTheShape) {
  const char* head = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
  expect_bad_npy(npy(head, std::string(23, 'x')),
                 "(2, 3) of f32 takes 24 bytes, the file holds 23");
  expect_bad_npy(npy(head, std::string(25, 'x')), "the file holds 25");
  expect_bad_npy(
      npy("{'descr': '<f8', 'fortran_order': False, 'shape': (4611686018427387904, 2), }", ""),
      "is too large");
}

TEST(NpyErrors, RandomDamageGivesAnErrorOrAConsistentHeader) {
  std::string whole =
      npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", std::string(24, 'x'));
  std::mt19937 random(11);
  test::TempFolder folder;
  int refused = 0;
  for (int round = 0; round < 400; ++round) {
    std::string bytes = whole;
    for (unsigned n = random() % 3 + 1; n-- > 0;)
      bytes[random() % (bytes.size() - 24)] = static_cast<char>(random());
    test::write_file(folder / "a.npy", bytes);
    try {
      NpyHeader header = read_npy_header(InputFile("npy", folder / "a.npy"));
      std::uint64_t count = size_of(header.dtype);
      for (std::int64_t dim : header.shape)
        count *= static_cast<std::uint64_t>(dim);
      EXPECT_EQ(header.data_start + count, bytes.size());
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::File);
      ++refused;
    }
  }
  EXPECT_GT(refused, 200);
}

} // namespace
} // namespace egret::io
