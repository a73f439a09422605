// Compiled kernels on disk.
#include "backend/cuda/cubin_cache.h"
#include "support/cuda_kernels.h"

#include <gtest/gtest.h>

#include <fstream>
#include <thread>

namespace egret::backend::cuda {
namespace {

namespace fs = std::filesystem;
using egret::testing::axpb_text;
using egret::testing::fake_cuda;
using egret::testing::FakeCuda;
using egret::testing::TemporaryFolder;

class CubinCacheTest : public ::testing::Test {
protected:
  CubinCacheTest()
      : fake(fake_cuda(EGRET_FAKE_CUDA)), nvrtc(Nvrtc::load({{}, {EGRET_FAKE_CUDA}})),
        cache(folder.path() / "cubin") {}

  Cubin get(const std::string& text) { return cache.get(*nvrtc, text, "sm_90a"); }
  fs::path path(const std::string& text) { return cache.path_of(*nvrtc, text, "sm_90a", {}); }

  FakeCuda& fake;
  TemporaryFolder folder;
  std::shared_ptr<const Nvrtc> nvrtc;
  CubinCache cache;
};

TEST_F(CubinCacheTest, ASecondProcessCompilesNothing) {
  const Cubin first = get("text");
  EXPECT_FALSE(first.cached);
  CubinCache other(folder.path() / "cubin");
  const Cubin second = other.get(*nvrtc, "text", "sm_90a");
  EXPECT_TRUE(second.cached);
  EXPECT_EQ(second.code, first.code);
  EXPECT_EQ(second.log, first.log);
  EXPECT_EQ(second.kernels, first.kernels);
  EXPECT_EQ(second.seconds, first.seconds);
  EXPECT_EQ(fake.compilations, 1u);
}

TEST_F(CubinCacheTest, EverythingThatCodeDependsOnIsPartOfTheName) {
  const fs::path one = path("text");
  EXPECT_NE(path("texT"), one);
  EXPECT_NE(path(std::string("text\0", 5)), one);
  EXPECT_NE(cache.path_of(*nvrtc, "text", "sm_80", {}), one);
  EXPECT_NE(cache.path_of(*nvrtc, "text", "sm_90a", {.max_registers = 64}), one);
  EXPECT_NE(cache.path_of(*nvrtc, "text", "sm_90a", {.line_info = true}), one);
  fake.nvrtc_version = 12;
  EXPECT_NE(cache.path_of(*Nvrtc::load({{}, {EGRET_FAKE_CUDA}}), "text", "sm_90a", {}), one);
}

TEST_F(CubinCacheTest, DamagedEntriesAreCompiledAgain) {
  const std::string code = get("text").code;
  const auto size = fs::file_size(path("text"));
  // Every byte in turn; then every length.
  std::ifstream file(path("text"), std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(file)), {});
  auto put = [&](const std::string& bytes) {
    std::ofstream(path("text"), std::ios::binary) << bytes;
  };
  for (std::size_t i = 0; i < size; ++i) {
    std::string bad = whole;
    bad[i] = static_cast<char>(bad[i] ^ 0x20);
    put(bad);
    const Cubin again = get("text");
    ASSERT_FALSE(again.cached) << "byte " << i;
    ASSERT_EQ(again.code, code);
  }
  for (std::size_t cut = 0; cut < size; ++cut) {
    put(whole.substr(0, cut));
    ASSERT_FALSE(get("text").cached) << "cut at " << cut;
  }
  EXPECT_TRUE(get("text").cached); // what was damaged has been replaced
}

TEST_F(CubinCacheTest, TheLeastRecentlyUsedEntriesLeaveWhenThereAreTooManyBytes) {
  for (const char* text : {"a", "b", "c"})
    get(text);
  std::uint64_t bytes = 0;
  auto used = fs::file_time_type::clock::now() - std::chrono::hours(1);
  for (const char* text : {"b", "c", "a"}) {
    bytes += fs::file_size(path(text));
    fs::last_write_time(path(text), used += std::chrono::minutes(1));
  }
  CubinCache(folder.path() / "cubin", bytes - 1).prune();
  EXPECT_FALSE(fs::exists(path("b")));
  EXPECT_TRUE(fs::exists(path("a")));
  EXPECT_TRUE(fs::exists(path("c")));
}

TEST_F(CubinCacheTest, AFolderThatCannotBeWrittenIsNoError) {
  std::ofstream(folder.path() / "file") << "a file stands where the folder would be";
  CubinCache blocked(folder.path() / "file");
  EXPECT_FALSE(blocked.get(*nvrtc, "text", "sm_90a").cached);
  CubinCache none(std::nullopt);
  EXPECT_FALSE(none.get(*nvrtc, "text", "sm_90a").cached);
}

TEST_F(CubinCacheTest, ManyThreadsShareAFolder) {
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        const std::string text = "text " + std::to_string(i % 5);
        EXPECT_EQ(get(text).code, text);
      }
    });
  threads.clear();
  for (const auto& entry : fs::directory_iterator(folder.path() / "cubin"))
    EXPECT_EQ(entry.path().extension(), ".cubin") << entry.path(); // no half-written files
}

} // namespace
} // namespace egret::backend::cuda
