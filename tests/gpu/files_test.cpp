// Files to and from the memory of the GPU, in parts.
#include "egret/borders.h"
#include "egret/functional.h"
#include "egret/io.h"
#include "egret/sharded_tensors.h"
#include "support/files.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace egret {
namespace {

/// More than is on the way at once, and no whole number of parts.
TEST(GpuFiles, LargeTensorsAreReadAndWrittenWhole) {
  test::TempFolder folder;
  std::vector<std::int32_t> values((150 << 20) / 4 + 3);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<std::int32_t>(i * 77773U ^ i >> 7U);
  const Tensor large = tensor(values, Shape{std::ssize(values)});
  io::save_safetensors(folder / "model.safetensors", {{"a", large}, {"b", large + 1}});
  const io::SafetensorsFile file(folder / "model.safetensors");
  test::error_of(ErrorKind::Device, [&] { (void)view_bytes(file.read("a")); });
  EXPECT_EQ(file.read("a").to_vector<std::int32_t>(), values);
  const io::ShardedTensors tensors(folder.path());
  EXPECT_EQ(tensors.read_stacked({"b", "a"}).to_bytes(),
            stack({tensors.read("b"), tensors.read("a")}).to_bytes());
}

} // namespace
} // namespace egret
