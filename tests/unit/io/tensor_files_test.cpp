#include "egret/functional.h"
#include "egret/io.h"
#include "support/files.h"
#include "support/gzip.h"

#include <gtest/gtest.h>
#include <random>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace egret::io {
namespace {

TEST(Safetensors, RoundTripOfEveryDtypeAndShape) {
  test::TempFolder folder;
  TensorMap tensors;
  for (int i = 0; i < kDTypes; ++i) {
    auto type = static_cast<DType>(i);
    tensors.emplace(std::string("m.") + name_of(type), tensor({0, 1, 1, 0, 1, 1}, {2, 3}).to(type));
  }
  tensors.emplace("scalar", scalar(3.5));
  tensors.emplace("empty", zeros({0, 4}));
  tensors.emplace("view", tensor({{1, 2}, {3, 4}}).transpose());
  save_safetensors(folder / "a.safetensors", tensors, {{"step", "12"}});
  Metadata metadata;
  auto back = load_safetensors(folder / "a.safetensors", &metadata);
  EXPECT_EQ(metadata, (Metadata{{"step", "12"}}));
  ASSERT_EQ(back.size(), tensors.size());
  for (const auto& [name, value] : tensors) {
    EXPECT_EQ(back.at(name).dtype(), value.dtype()) << name;
    EXPECT_EQ(back.at(name).sizes(), value.sizes()) << name;
    EXPECT_EQ(back.at(name).to_bytes(), value.to_bytes()) << name;
  }
}

TEST(Safetensors, EqualContentGivesEqualBytes) {
  test::TempFolder folder;
  for (const char* name : {"a", "b"})
    save_safetensors(folder / name, {{"x", arange(5)}, {"w", ones({2, 2})}}, {{"k", "v"}});
  EXPECT_EQ(test::read_file(folder / "a"), test::read_file(folder / "b"));
}

TEST(Safetensors, EveryTensorStartsAtAMultipleOfItsElementSize) {
  test::TempFolder folder;
  save_safetensors(
      folder / "a",
      {{"a", ones({3}, DType::U8)}, {"b", ones({3}, DType::F16)}, {"c", ones({3}, DType::I64)}});
  const SafetensorsFile file(folder / "a");
  for (const auto& info : file.tensors())
    EXPECT_EQ(info.begin % size_of(info.dtype), 0U) << info.name;
}

TEST(Safetensors, ReadsOneTensorOrPartOfOne) {
  test::TempFolder folder;
  save_safetensors(folder / "a", {{"x", arange(10, DType::I32)}, {"y", ones({1000})}});
  SafetensorsFile file(folder / "a");
  EXPECT_EQ(file.read("x").to_vector<int>(), arange(10).to_vector<int>());
  std::int32_t two[2] = {};
  file.read_bytes("x", 12, std::as_writable_bytes(std::span(two)));
  EXPECT_EQ(two[0], 3);
  EXPECT_EQ(two[1], 4);
  EXPECT_TRUE(file.contains("y"));
  EXPECT_FALSE(file.contains("z"));
  EXPECT_NE(test::error_of(ErrorKind::Value, [&] { file.read("z"); })
                .find("no tensor 'z' among 2 (x, y)"),
            std::string::npos);
  EXPECT_NE(
      test::error_of(ErrorKind::Index,
                     [&] { file.read_bytes("x", 36, std::as_writable_bytes(std::span(two))); })
          .find("which has 40"),
      std::string::npos);
}

TEST(Safetensors, AFailedSaveKeepsTheOldFile) {
  test::TempFolder folder;
  save_safetensors(folder / "a", {{"x", ones({2})}});
  std::string before = test::read_file(folder / "a");
  EXPECT_THROW(save_safetensors(folder / "a", {{"\xff", ones({2})}}), Error);
  EXPECT_THROW(save_safetensors(folder / "a", {{"__metadata__", ones({2})}}), Error);
  EXPECT_EQ(test::read_file(folder / "a"), before);
}

TEST(SafetensorsErrors, LengthsThatTheFileCannotHold) {
  test::TempFolder folder;
  auto expect = [&](const std::string& bytes, std::string_view part) {
    test::write_file(folder / "a", bytes);
    test::expect_refused(
        folder / "a", [&] { SafetensorsFile file(folder / "a"); }, part);
  };
  expect("", "at byte 0: the file ends here, 8 bytes are missing");
  expect("1234567", "at byte 7: the file ends here, 1 bytes are missing");
  expect(test::little_endian(3, 8) + "{}", "a header of 3 bytes in a file of 10");
  expect(test::little_endian(UINT64_MAX, 8),
         "no safetensors file, or a damaged one: the first 8 bytes are those of a header of "
         "18446744073709551615 bytes, and the limit is 100000000");
  expect(test::little_endian(99'000'000, 8), "a header of 99000000 bytes in a file of 8");
  test::expect_refused(
      folder.path(), [&] { SafetensorsFile file(folder.path()); }, "not a regular file");
  test::expect_refused(
      folder / "none", [&] { SafetensorsFile file(folder / "none"); }, "No such file");
}

TEST(SafetensorsErrors, EveryTruncationIsRefused) {
  test::TempFolder folder;
  save_safetensors(folder / "a", {{"x", arange(4)}, {"y", ones({2, 2})}});
  std::string whole = test::read_file(folder / "a");
  for (std::size_t n = 0; n < whole.size(); ++n) {
    test::write_file(folder / "b", whole.substr(0, n));
    EXPECT_THROW(load_safetensors(folder / "b"), Error) << n;
  }
}

TEST(Npy, RoundTrip) {
  test::TempFolder folder;
  for (DType type :
       {DType::Bool, DType::I8, DType::I64, DType::U16, DType::F16, DType::F32, DType::F64})
    for (const Tensor& value :
         {tensor({{1, 0, 1}, {0, 1, 1}}).to(type), scalar(1).to(type), zeros({0, 2}, type)}) {
      save_npy(folder / "a.npy", value);
      Tensor back = load_npy(folder / "a.npy");
      EXPECT_EQ(back.dtype(), type);
      EXPECT_EQ(back.sizes(), value.sizes());
      EXPECT_EQ(back.to_bytes(), value.to_bytes());
    }
  EXPECT_NE(
      test::error_of(ErrorKind::DType, [&] { save_npy(folder / "a", ones({1}, DType::BF16)); })
          .find("bf16"),
      std::string::npos);
}

TEST(Npy, FortranOrderAndBigEndian) {
  test::TempFolder folder;
  std::string head = "{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }\n";
  std::string data;
  for (int column = 0; column < 3; ++column)
    for (int row = 0; row < 2; ++row)
      data += test::big_endian(static_cast<std::uint64_t>(row * 3 + column), 2);
  test::write_file(folder / "a.npy", std::string("\x93NUMPY\1\0", 8) +
                                         test::little_endian(head.size(), 2) + head + data);
  Tensor back = load_npy(folder / "a.npy");
  EXPECT_EQ(back.sizes(), (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(back.to_vector<int>(), (std::vector<int>{0, 1, 2, 3, 4, 5}));
}

std::string idx(int type, const std::vector<std::uint64_t>& shape, const std::string& data) {
  std::string bytes = {'\0', '\0', static_cast<char>(type), static_cast<char>(shape.size())};
  for (std::uint64_t dim : shape)
    bytes += test::big_endian(dim, 4);
  return bytes + data;
}

TEST(Idx, ReadsPlainAndPacked) {
  test::TempFolder folder;
  std::string bytes = idx(0x0B, {2, 2},
                          test::big_endian(1, 2) + test::big_endian(0xffff, 2) +
                              test::big_endian(258, 2) + test::big_endian(0, 2));
  test::write_file(folder / "a", bytes);
  test::write_file(folder / "a.gz", test::gzip(bytes));
  for (const char* name : {"a", "a.gz"}) {
    Tensor value = load_idx(folder / name);
    EXPECT_EQ(value.dtype(), DType::I16);
    EXPECT_EQ(value.sizes(), (std::vector<std::int64_t>{2, 2}));
    EXPECT_EQ(value.to_vector<int>(), (std::vector<int>{1, -1, 258, 0}));
  }
}

TEST(IdxErrors, Headers) {
  test::TempFolder folder;
  auto expect = [&](const std::string& bytes, std::string_view part) {
    test::write_file(folder / "a", bytes);
    test::expect_refused(
        folder / "a", [&] { load_idx(folder / "a"); }, part);
  };
  expect("", "the file ends here, 4 bytes are missing");
  expect(std::string("\0\0\3\4", 4), "no IDX type has the code 0x03");
  expect(std::string("\1\0\x08\1", 4), "does not start with two zero bytes");
  expect(idx(8, {3}, "ab"), "takes 3 bytes, the file holds 2 at the most");
  expect(idx(8, {3}, "abcd"), "the file goes on after the last element");
  expect(idx(8, {0xffffffff, 0xffffffff, 0xffffffff}, ""), "is too large");
  expect(idx(8, {0xffffffff, 0xffffffff, 0, 0xffffffff}, ""), "is too large"); // though empty
  expect(idx(8, {0xffffffff, 2}, ""), "more than the limit");
  expect(idx(8, {3}, "abc").substr(0, 6), "the file ends here");
  expect(test::gzip(idx(8, {3}, "ab")), "the unpacked content ends here, 1 bytes are missing");
  expect(test::gzip(idx(8, {3}, "abcd")), "the unpacked content goes on after the last element");
  expect(test::gzip(idx(8, {1 << 30}, "")), "the unpacked content holds");
}

// A child saves checkpoints in a loop and is killed at a random moment: the file must load, and all
// its tensors be of one step.
TEST(Safetensors, AKillWhileSavingLeavesAWholeCheckpoint) {
  test::TempFolder folder;
  auto state = [](int step) {
    return TensorMap{
        {"a", full({1000}, step)}, {"b", full({300, 100}, step)}, {"c", full({7}, step)}};
  };
  save_safetensors(folder / "a", state(0));
  std::vector<std::string> files; // made before the fork: the child only writes
  std::mt19937 random(1);
  for (int round = 0; round < 8; ++round) {
    pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      // Numbers made on this thread alone; the pool's threads did not survive the fork.
      for (int step = 1;; ++step) {
        std::vector<float> values(30000, static_cast<float>(step));
        TensorMap map;
        map.emplace("a", tensor(std::span<const float>(values).first(1000)));
        map.emplace("b", tensor(std::span<const float>(values)));
        map.emplace("c", tensor(std::span<const float>(values).first(7)));
        save_safetensors(folder / "a", map);
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(2000 + random() % 20000));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself";
    auto back = load_safetensors(folder / "a");
    ASSERT_EQ(back.size(), 3U);
    float step = back.at("a").to_vector()[0];
    for (const auto& [name, value] : back)
      for (float x : value.to_vector())
        ASSERT_EQ(x, step) << name;
  }
}

} // namespace
} // namespace egret::io
