// Tensors that are read in parts, to where they stay.
#include "egret/functional.h"
#include "egret/io.h"
#include "egret/memory.h"
#include "egret/sharded_tensors.h"
#include "support/files.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace egret::io {
namespace {

/// Numbers that differ from their neighbours far away too.
Tensor scattered(std::int64_t count) {
  return (arange(count, DType::I32) * 77773) ^ (arange(count, DType::I32) >> 7);
}

/// Reads what is large by several threads, where there are several cores.
TEST(LargeTensors, AreReadWhole) {
  test::TempFolder folder;
  const Tensor large = scattered((40 << 20) / 4 + 3);
  save_safetensors(folder / "a", {{"large", large}, {"little", scattered(5)}});
  const SafetensorsFile file(folder / "a");
  EXPECT_EQ(file.read("large").to_bytes(), large.to_bytes());
  EXPECT_EQ(file.read("little").to_bytes(), scattered(5).to_bytes());
  // Where the file has become shorter, whichever thread finds out.
  ASSERT_EQ(::truncate((folder / "a").c_str(), 20 << 20), 0);
  test::expect_refused(
      folder / "a", [&] { (void)file.read("large"); }, "the file ends here");
}

TEST(LargeTensors, NothingElseIsAsLargeMeanwhile) {
  test::TempFolder folder;
  save_safetensors(folder / "a", {{"x", scattered(1 << 20)}});
  const SafetensorsFile file(folder / "a");
  const std::uint64_t before = memory_stats("cpu").in_use;
  reset_memory_peak("cpu");
  const Tensor x = file.read("x");
  EXPECT_EQ(memory_stats("cpu").peak, before + (4U << 20));
}

TEST(ShardedTensors, AreStackedInTheirOrder) {
  test::TempFolder folder;
  save_safetensors(folder / "one.safetensors", {{"a", scattered(6).reshape({2, 3})},
                                                {"c", scattered(6).reshape({2, 3}) + 1},
                                                {"other", ones({2, 3})},
                                                {"short", scattered(3)}});
  save_safetensors(folder / "two.safetensors", {{"b", scattered(6).reshape({2, 3}) + 2}});
  test::write_file(folder / "model.safetensors.index.json",
                   R"({"weight_map":{"a":"one.safetensors","c":"one.safetensors",
                       "other":"one.safetensors","short":"one.safetensors",
                       "b":"two.safetensors"}})");
  const ShardedTensors tensors(folder.path());
  const Tensor all = tensors.read_stacked({"c", "b", "a", "b"});
  EXPECT_EQ(all.sizes(), (std::vector<std::int64_t>{4, 2, 3}));
  EXPECT_EQ(all.to_bytes(),
            stack({tensors.read("c"), tensors.read("b"), tensors.read("a"), tensors.read("b")})
                .to_bytes());
  const auto refused = [&](const std::vector<std::string>& names, const char* part) {
    const std::string said =
        test::error_of(ErrorKind::Value, [&] { (void)tensors.read_stacked(names); });
    EXPECT_NE(said.find(part), std::string::npos) << said;
  };
  refused({}, "no tensors to stack");
  refused({"a", "other"}, "'other' is f32 [2,3], 'a' is i32 [2,3]");
  refused({"a", "short"}, "'short' is i32 [3]");
  refused({"a", "none"}, "no tensor 'none'");
}

} // namespace
} // namespace egret::io
