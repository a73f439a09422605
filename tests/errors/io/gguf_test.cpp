// GGUF files that are not what they claim to be.
#include "egret/functional.h"
#include "egret/gguf.h"
#include "support/files.h"

#include <gtest/gtest.h>

namespace egret::io {
namespace {

using test::little_endian;

std::string text(std::string_view value) {
  return little_endian(value.size(), 8) + std::string(value);
}
std::string start(std::uint64_t tensors, std::uint64_t entries) {
  return "GGUF" + little_endian(3, 4) + little_endian(tensors, 8) + little_endian(entries, 8);
}
std::string tensor_entry(std::string_view name, std::vector<std::uint64_t> dims, unsigned type,
                         std::uint64_t offset) {
  std::string bytes = text(name) + little_endian(dims.size(), 4);
  for (const std::uint64_t dim : dims)
    bytes += little_endian(dim, 8);
  return bytes + little_endian(type, 4) + little_endian(offset, 8);
}
/// With so many bytes of data behind a header that is padded to 32.
std::string with_data(std::string header, std::size_t bytes) {
  header.resize((header.size() + 31) / 32 * 32 + bytes);
  return header;
}

TEST(GgufErrors, NameTheFileAndTheThing) {
  test::TempFolder folder;
  const auto path = folder / "bad.gguf";
  const auto expect = [&](const std::string& bytes, std::string_view part) {
    test::write_file(path, bytes);
    test::expect_refused(
        path, [&] { GgufFile file(path); }, part);
  };
  expect("", "the file ends here");
  expect("GGML" + start(0, 0), "does not begin with 'GGUF'");
  expect("GGUF" + little_endian(9, 4) + little_endian(0, 16), "version 9");
  expect(start(~0ULL, 0), "tensors, but");
  expect(start(0, 1 << 20), "metadata entries, but");
  expect(start(0, 1) + text("k") + little_endian(77, 4) + little_endian(0, 8), "unknown type 77");
  expect(start(0, 1) + text("k") + little_endian(8, 4) + little_endian(1ULL << 60, 8), "a text of");
  expect(start(0, 1) + text("k") + little_endian(9, 4) + little_endian(4, 4) +
             little_endian(~0ULL, 8),
         "elements of an array");
  expect(start(0, 1) + text("k") + little_endian(7, 4) + little_endian(2, 1) + little_endian(0, 8),
         "a bool is 2");
  const std::string entry = text("k") + little_endian(4, 4) + little_endian(1, 4);
  expect(start(0, 2) + entry + entry, "'k' is given twice");
  expect(start(0, 1) + text("general.alignment") + little_endian(4, 4) + little_endian(12, 4),
         "general.alignment");
  expect(with_data(start(1, 0) + tensor_entry("t", {32, 1, 1, 1, 1}, 0, 0), 128), "'t': 5 dims");
  expect(with_data(start(1, 0) + tensor_entry("t", {0}, 0, 0), 128), "a dim of 0");
  expect(with_data(start(1, 0) + tensor_entry("t", {1ULL << 40, 1ULL << 40}, 0, 0), 128),
         "too large");
  expect(with_data(start(1, 0) + tensor_entry("t", {32}, 99, 0), 128), "GGML type 99");
  expect(with_data(start(1, 0) + tensor_entry("t", {33}, 2, 0), 128), "Q4_0 has blocks of 32");
  expect(with_data(start(1, 0) + tensor_entry("t", {8}, 0, 8), 128), "not aligned to 32");
  expect(with_data(start(1, 0) + tensor_entry("t", {8}, 0, ~31ULL), 128), "beyond any file");
  expect(with_data(start(1, 0) + tensor_entry("t", {64}, 0, 0), 128), "'t' needs 128 bytes more");
  expect(with_data(start(2, 0) + tensor_entry("t", {8}, 0, 0) + tensor_entry("t", {8}, 0, 32), 128),
         "'t' is listed twice");
  expect(
      with_data(start(2, 0) + tensor_entry("t", {16}, 0, 0) + tensor_entry("u", {8}, 0, 32), 128),
      "'t' and 'u' overlap");
}

TEST(GgufErrors, OfWritingNameTheTensor) {
  test::TempFolder folder;
  const auto refused = [&](const std::vector<GgufTensor>& tensors, ErrorKind kind) {
    return test::error_of(kind, [&] { save_gguf(folder / "a.gguf", {}, tensors); });
  };
  const Tensor a = zeros({2, 32});
  EXPECT_NE(refused({{"a", a}, {"a", a}}, ErrorKind::Value).find("'a' is given twice"),
            std::string::npos);
  EXPECT_NE(
      refused({{"a", zeros({33}), GgmlType::Q8_0}}, ErrorKind::Shape).find("no multiple of 32"),
      std::string::npos);
  EXPECT_NE(refused({{"a", a, GgmlType::Q4_1}}, ErrorKind::Unsupported).find("Q4_1"),
            std::string::npos);
  const auto announced = [&](std::vector<std::int64_t> shape) {
    return test::error_of(ErrorKind::Shape, [&] {
      const GgufWriter writer(folder / "a.gguf", {}, {{"a", GgmlType::F32, std::move(shape)}});
    });
  };
  for (const auto& shape : {std::vector<std::int64_t>{-1, 32}, {1LL << 40, 1LL << 40, 32}})
    EXPECT_NE(announced(shape).find("'a' of [" + std::to_string(shape[0]) + ","),
              std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder / "a.gguf"));
}

} // namespace
} // namespace egret::io
