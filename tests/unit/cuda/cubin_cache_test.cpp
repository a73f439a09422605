// Compiled kernels on disk.
#include "backend/cuda/cubin_cache.h"
#include "backend/cuda/cuda_device.h"
#include "support/cuda_kernels.h"
#include "support/files.h"
#include "support/tuning.h"

#include <gtest/gtest.h>

#include <thread>

namespace egret::backend::cuda {
namespace {

namespace fs = std::filesystem;
using egret::testing::axpb_program;
using egret::testing::axpb_text;
using egret::testing::fake_cuda;
using egret::testing::FakeCuda;
using egret::testing::TemporaryFolder;

class CubinCacheTest : public ::testing::Test {
protected:
  CubinCacheTest()
      : fake(fake_cuda(EGRET_FAKE_CUDA)), nvrtc(Nvrtc::load({{}, {EGRET_FAKE_CUDA}})),
        cache(folder.path()) {}

  Cubin get(const std::string& text) { return cache.get(*nvrtc, text, "sm_90a"); }
  Hash128 key(const std::string& text) { return CubinCache::key_of(*nvrtc, text, "sm_90a", {}); }

  FakeCuda& fake;
  TemporaryFolder folder;
  std::shared_ptr<const Nvrtc> nvrtc;
  CubinCache cache;
};

TEST_F(CubinCacheTest, ASecondProcessCompilesNothing) {
  const Cubin first = get("text");
  EXPECT_FALSE(first.cached);
  CubinCache other(folder.path());
  const Cubin second = other.get(*nvrtc, "text", "sm_90a");
  EXPECT_TRUE(second.cached);
  EXPECT_EQ(second.code, first.code);
  EXPECT_EQ(second.log, first.log);
  EXPECT_EQ(second.kernels, first.kernels);
  EXPECT_EQ(second.seconds, first.seconds);
  EXPECT_EQ(fake.compilations_now(), 1u);
}

TEST_F(CubinCacheTest, ADeviceSaysWhichKernelsItFound) {
  const auto device =
      make_cuda_device(0, {axpb_text, {{EGRET_FAKE_CUDA}, {EGRET_FAKE_CUDA}}, &cache});
  EXPECT_FALSE(device->compile(axpb_program())->loaded());
  EXPECT_TRUE(device->compile(axpb_program())->loaded());
}

TEST_F(CubinCacheTest, EverythingThatCodeDependsOnIsPartOfTheName) {
  const Hash128 one = key("text");
  auto differs = [&](const Hash128& other) { return !(other == one); };
  EXPECT_TRUE(differs(key("texT")));
  EXPECT_TRUE(differs(key(std::string("text\0", 5))));
  EXPECT_TRUE(differs(CubinCache::key_of(*nvrtc, "text", "sm_80", {})));
  EXPECT_TRUE(differs(CubinCache::key_of(*nvrtc, "text", "sm_90a", {.max_registers = 64})));
  EXPECT_TRUE(differs(CubinCache::key_of(*nvrtc, "text", "sm_90a", {.line_info = true})));
  fake.nvrtc_version = 12;
  const auto other = Nvrtc::load({{}, {EGRET_FAKE_CUDA}});
  EXPECT_TRUE(differs(CubinCache::key_of(*other, "text", "sm_90a", {})));
}

TEST_F(CubinCacheTest, DamagedEntriesAreCompiledAgainWithOneWarning) {
  const egret::testing::Warnings warnings;
  const std::string code = get("text").code;
  const fs::path path = cache.objects().path_of(key("text"));
  const std::string whole = test::read_file(path);
  for (const std::size_t at : {std::size_t{0}, whole.size() / 2, whole.size() - 1}) {
    std::string bad = whole;
    bad[at] = static_cast<char>(bad[at] ^ 0x20);
    test::write_file(path, bad);
    const Cubin again = get("text");
    EXPECT_FALSE(again.cached) << "byte " << at;
    EXPECT_EQ(again.code, code);
  }
  // Whole files with nothing of use in them.
  std::string long_log(16, '\0');
  long_log[8] = 100;
  for (const std::string& bad : {std::string("short"), long_log}) {
    cache.objects().keep(key("text"), bad);
    EXPECT_FALSE(get("text").cached);
  }
  EXPECT_TRUE(get("text").cached); // what was damaged has been replaced
  EXPECT_EQ(warnings.all.size(), 1u);
}

TEST_F(CubinCacheTest, WithoutAFolderEachIsCompiled) {
  CubinCache none(std::nullopt);
  EXPECT_FALSE(none.get(*nvrtc, "text", "sm_90a").cached);
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
  EXPECT_EQ(cache.objects().stats().objects, 5);
  EXPECT_EQ(cache.objects().verify(), std::vector<std::string>());
}

} // namespace
} // namespace egret::backend::cuda
