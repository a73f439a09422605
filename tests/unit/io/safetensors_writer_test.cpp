// Safetensors files that are written tensor by tensor.
#include "egret/functional.h"
#include "egret/io.h"
#include "egret/memory.h"
#include "support/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <thread>

namespace egret::io {
namespace {

const std::vector<TensorInfo> kInfos = {{"x", DType::I32, {4}, 0, 0},
                                        {"half", DType::F16, {2, 2}, 0, 0},
                                        {"bytes", DType::U8, {3}, 0, 0},
                                        {"none", DType::F32, {0, 5}, 0, 0}};
TensorMap values() {
  return {{"x", arange(4, DType::I32)},
          {"half", tensor({{1, 2}, {3, 4}}).transpose().to(DType::F16)},
          {"bytes", arange(3, DType::U8)},
          {"none", zeros({0, 5})}};
}

TEST(SafetensorsWriter, TakesTensorsInAnyOrder) {
  test::TempFolder folder;
  const TensorMap all = values();
  save_safetensors(folder / "whole", all, {{"k", "v"}});
  SafetensorsWriter writer(folder / "parts", kInfos, {{"k", "v"}});
  EXPECT_EQ(writer.tensors()[0].name, "none"); // of the widest, the first by name
  for (const char* name : {"bytes", "none", "x", "half"})
    writer.write(name, all.at(name));
  EXPECT_FALSE(std::filesystem::exists(folder / "parts"));
  writer.commit();
  EXPECT_EQ(test::read_file(folder / "parts"), test::read_file(folder / "whole"));
}

TEST(SafetensorsWriter, LeavesNothingWithoutCommit) {
  test::TempFolder folder;
  {
    SafetensorsWriter writer(folder / "a", kInfos);
    writer.write("x", arange(4, DType::I32));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(SafetensorsWriter, RefusesWhatWasNotGiven) {
  test::TempFolder folder;
  const auto refused = [&](ErrorKind kind, const std::function<void()>& run, const char* part) {
    const std::string said = test::error_of(kind, run);
    EXPECT_NE(said.find(part), std::string::npos) << said;
  };
  const std::vector<TensorInfo> twice = {kInfos[0], kInfos[0]};
  refused(
      ErrorKind::Value, [&] { SafetensorsWriter(folder / "a", twice); }, "'x' is given twice");
  SafetensorsWriter writer(folder / "a", kInfos);
  refused(
      ErrorKind::Value, [&] { writer.write("y", arange(4, DType::I32)); },
      "'y' was not given before");
  refused(
      ErrorKind::DType, [&] { writer.write("x", ones({4})); }, "'x' is f32, it was given as i32");
  refused(
      ErrorKind::Shape, [&] { writer.write("x", arange(5, DType::I32)); },
      "'x' is [5], it was given as [4]");
  writer.write("x", arange(4, DType::I32));
  refused(
      ErrorKind::Value, [&] { writer.write("x", arange(4, DType::I32)); },
      "'x' is written already");
  refused(
      ErrorKind::Value, [&] { writer.commit(); }, "'none' is not written yet");
}

TEST(SafetensorsWriter, APipeTakesTensorsInTheOrderOfTheFile) {
  test::TempFolder folder;
  const TensorMap all = values();
  save_safetensors(folder / "whole", all);
  const std::filesystem::path pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::string read;
  std::jthread reader([&] { read = test::read_file(pipe); });
  {
    SafetensorsWriter writer(pipe, kInfos);
    const std::string said =
        test::error_of(ErrorKind::File, [&] { writer.write("bytes", all.at("bytes")); });
    EXPECT_NE(said.find("cannot write out of order"), std::string::npos) << said;
    for (const TensorInfo& info : writer.tensors())
      writer.write(info.name, all.at(info.name));
    writer.commit();
  }
  reader.join();
  EXPECT_EQ(read, test::read_file(folder / "whole"));
}

TEST(SafetensorsWriter, OneTensorIsInMemoryAtATime) {
  test::TempFolder folder;
  constexpr std::int64_t kCount = 1 << 20, kTensors = 8;
  std::vector<TensorInfo> infos;
  for (std::int64_t i = 0; i < kTensors; ++i)
    infos.push_back({std::to_string(i), DType::I32, {kCount}, 0, 0});
  SafetensorsWriter writer(folder / "a", infos);
  const std::uint64_t before = memory_stats("cpu").in_use;
  reset_memory_peak("cpu");
  for (std::int64_t i = 0; i < kTensors; ++i)
    writer.write(std::to_string(i), arange(kCount, DType::I32) + i);
  writer.commit();
  EXPECT_LE(memory_stats("cpu").peak - before, 2U * 4 * kCount);
}

} // namespace
} // namespace egret::io
