#include "io/safetensors_header.h"
#include "support/files.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <random>

namespace egret::io {
namespace {

void expect_bad(std::string_view json, std::uint64_t data, std::string_view part) {
  std::filesystem::path path = "model.st";
  test::expect_refused(
      path, [&] { parse_safetensors_header(json, data, path); }, part);
}

std::string entry(std::string_view name, std::string_view fields) {
  return fmt::format("\"{}\":{{{}}}", name, fields);
}
std::string f32(std::string_view name, int count, int begin) {
  return entry(name, fmt::format(R"("dtype":"F32","shape":[{}],"data_offsets":[{},{}])", count,
                                 begin, begin + 4 * count));
}

TEST(SafetensorsHeader, ReadsTensorsInTheOrderOfTheirData) {
  auto header = parse_safetensors_header("{" + f32("b", 2, 4) + "," + f32("a", 1, 0) + "," +
                                             entry("__metadata__", R"("k":"v")") + "}  ",
                                         12, "model.st");
  ASSERT_EQ(header.tensors.size(), 2U);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.tensors[1].name, "b");
  EXPECT_EQ(header.tensors[1].begin, 4U);
  EXPECT_EQ(header.metadata, (Metadata{{"k", "v"}}));
}

TEST(SafetensorsHeader, AByteOfZeroIsNotTheEnd) {
  const std::string json = "{" + f32("a", 1, 0) + "}";
  expect_bad(json + std::string("\0\0", 2), 4, "byte 54 is 0");
  expect_bad(json + std::string("\0{", 2), 4, "byte 54 is 0");
}

TEST(SafetensorsHeader, ReadsWhatItWrites) {
  SafetensorsHeader header;
  header.metadata = {{"format", "pt"}, {"quote\"", "\n\u00e9"}};
  std::uint64_t at = 0;
  for (DType type : {DType::I64, DType::F64, DType::F32, DType::BF16, DType::U8, DType::Bool}) {
    header.tensors.push_back(
        {std::string("t.") + name_of(type), type, {2, 3}, at, at + 6 * size_of(type)});
    at = header.tensors.back().end;
  }
  header.tensors.push_back({"empty", DType::F32, {0, 5}, at, at});
  header.tensors.push_back({"scalar", DType::F32, {}, at, at + 4});
  std::string text = safetensors_header_text(header);
  EXPECT_EQ(text.size() % 8, 0U);
  EXPECT_EQ(text.substr(0, 8), test::little_endian(text.size() - 8, 8));
  auto back = parse_safetensors_header(text.substr(8), at + 4, "model.st");
  EXPECT_EQ(back.metadata, header.metadata);
  ASSERT_EQ(back.tensors.size(), header.tensors.size());
  for (std::size_t i = 0; i < back.tensors.size(); ++i) {
    EXPECT_EQ(back.tensors[i].name, header.tensors[i].name);
    EXPECT_EQ(back.tensors[i].dtype, header.tensors[i].dtype);
    EXPECT_EQ(back.tensors[i].shape, header.tensors[i].shape);
    EXPECT_EQ(back.tensors[i].begin, header.tensors[i].begin);
    EXPECT_EQ(back.tensors[i].end, header.tensors[i].end);
  }
}

TEST(SafetensorsErrors, NotAnObject) {
  expect_bad("", 0, "at byte 8: the header does not start with '{'");
  expect_bad("[]", 0, "does not start with '{'");
  expect_bad(" {}", 0, "does not start with '{'");
}

TEST(SafetensorsErrors, BrokenJson) {
  expect_bad("{", 0, "the header is not JSON");
  expect_bad("{}x", 0, "the header is not JSON");
  expect_bad("{\"a\":{\"dtype\":\"F\xff\"}}", 0, "ill-formed UTF-8 byte");
  expect_bad(std::string("{\0}", 3), 0, "the header is not JSON");
  expect_bad("{\"a\":{\"shape\":[01]}}", 0, "the header is not JSON");
}

TEST(SafetensorsErrors, DepthIsBounded) {
  expect_bad("{\"a\":" + std::string(100000, '['), 0, "'a' is a list, not an object");
  std::string deep = "{";
  for (int i = 0; i < 100000; ++i)
    deep += "\"a\":{";
  expect_bad(deep, 0, "unknown field 'a'");
  expect_bad("{\"a\":{\"shape\":[[1]]}}", 0, "a list in the list 'shape'");
}

TEST(SafetensorsErrors, ValuesOfTheWrongKind) {
  expect_bad(R"({"a":1})", 0, "'a' is a number, not an object");
  expect_bad(R"({"a":null})", 0, "'a' is null, not an object");
  expect_bad(R"({"__metadata__":{"k":1}})", 0, "'k' is a number, not a string");
  expect_bad(R"({"a":{"dtype":4}})", 0, "field 'dtype' cannot be a number");
  expect_bad(R"({"a":{"dtype":["F32"]}})", 0, "field 'dtype' cannot be a list");
  expect_bad(R"({"a":{"shape":"x"}})", 0, "field 'shape' cannot be a string");
  expect_bad(R"({"a":{"shape":[-1]}})", 0, "-1 where a number of at least 0 was expected");
  expect_bad(R"({"a":{"shape":[1.5]}})", 0, "1.5 where an integer was expected");
  expect_bad(R"({"a":{"shape":[18446744073709551615]}})", 0, "18446744073709551615 is too large");
  expect_bad(R"({"a":{"shape":[99999999999999999999]}})", 0, "where an integer was expected");
  expect_bad(R"({"a":{"shape":[true]}})", 0, "true in the list 'shape'");
}

TEST(SafetensorsErrors, FieldsOnceAndComplete) {
  expect_bad("{" + f32("a", 1, 0) + "," + f32("a", 1, 4) + "}", 8, "'a' is listed twice");
  expect_bad(R"({"a":{"dtype":"F32","dtype":"F32"}})", 0, "field 'dtype' is given twice");
  expect_bad(R"({"__metadata__":{"k":"1","k":"2"}})", 0, "'k' is listed twice");
  expect_bad(R"({"a":{"dtype":"F32","shape":[1]}})", 4, "field 'data_offsets' is missing");
  expect_bad(R"({"a":{"strides":[1]}})", 4, "unknown field 'strides'");
  expect_bad(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4,
             "must hold 2 numbers, not 1");
  expect_bad(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})", 4, "too many numbers");
}

TEST(SafetensorsErrors, MessagesArePrintableAndShort) {
  std::string message = test::error_of(
      ErrorKind::File, [] { parse_safetensors_header(R"({"\u001b[31m":1})", 0, "model.st"); });
  EXPECT_EQ(message, "safetensors: model.st: at byte 24: '\\x1b[31m' is a number, not an object");
  expect_bad("{\"" + std::string(100000, 'n') + "\":1}", 0, "nnn...");
}

TEST(SafetensorsErrors, DtypeNames) {
  expect_bad(R"({"a":{"dtype":"F8_E8M0","shape":[4],"data_offsets":[0,4]}})", 4,
             "dtype 'F8_E8M0' is not one");
  expect_bad(R"({"a":{"dtype":"f32","shape":[1],"data_offsets":[0,4]}})", 4,
             "dtype 'f32' is not one");
}

TEST(SafetensorsErrors, RangesAgainstShapesAndData) {
  expect_bad(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4,
             "f32 [2] takes 8 bytes, data_offsets [0,4] hold 4");
  expect_bad(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4,
             "are in the wrong order");
  expect_bad(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0,
             "is too large");
  expect_bad("{" + f32("a", 2, 0) + "," + f32("b", 2, 4) + "}", 12, "tensors 'a' and 'b' overlap");
  expect_bad("{" + f32("a", 1, 0) + "," + f32("b", 1, 8) + "}", 12,
             "4 bytes before tensor 'b' belong to none");
  expect_bad("{" + f32("a", 1, 0) + "}", 8, "4 bytes after the last tensor belong to none");
  expect_bad("{" + f32("a", 4, 0) + "}", 12, "the file ends here, tensor 'a' needs 4 bytes more");
  expect_bad("{}", 3, "3 bytes after the last tensor");
}

TEST(SafetensorsErrors, OffsetsPointIntoTheFile) {
  std::string json = "{" + f32("a", 1, 0) + "," + f32("b", 1, 8) + "}";
  expect_bad(json, 12, fmt::format("at byte {}:", 8 + json.size() + 4));
  std::string twice = "{" + f32("a", 1, 0) + ",\"a\"";
  expect_bad(twice, 4, fmt::format("at byte {}:", 8 + twice.size()));
}

TEST(SafetensorsErrors, RandomDamageGivesAnErrorOrAConsistentHeader) {
  std::string whole = "{" + entry("__metadata__", R"("k":"v")") + "," +
                      f32("layer.0.weight", 3, 0) + "," + f32("layer.0.bias", 2, 12) + "}";
  std::mt19937 random(5);
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string json = whole;
    for (unsigned n = random() % 3 + 1; n-- > 0;)
      json[random() % json.size()] =
          random() % 2 != 0 ? static_cast<char>(random()) : "{}[]\",:0123456789"[random() % 17];
    try {
      auto header = parse_safetensors_header(json, 20, "model.st");
      std::uint64_t sum = 0;
      for (const auto& info : header.tensors) {
        EXPECT_EQ(bytes_of(info.dtype, info.shape), info.end - info.begin);
        sum += info.end - info.begin;
      }
      EXPECT_EQ(sum, 20U);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::File);
      ++refused;
    }
  }
  EXPECT_GT(refused, 10000);
}

} // namespace
} // namespace egret::io
