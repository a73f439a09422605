// Products of matrices for the GPUs there are: the text of every kind of kernel compiles without
// spills. NVRTC needs no GPU; where it is not installed there is nothing to test.
#include "backend/cuda/nvrtc.h"
#include "backend/cuda/render.h"
#include "compiler/compile.h"
#include "egret/error.h"
#include "kernel/families.h"
#include "support/contractions.h"
#include "support/null_device.h"
#include "support/nvrtc.h"
#include "support/sliced_products.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

namespace egret {
namespace {

using backend::cuda::Nvrtc;
using testing::Einsum;

TEST(CudaContractions, TextCompilesWithoutSpills) {
  const auto compiler = testing::nvrtc();
  if (!compiler)
    GTEST_SKIP() << "NVRTC is not installed";
  const Einsum e{"mk", "kn", "mn", {{'m', 1024}, {'n', 1024}, {'k', 128}}};
  for (const DType dtype : {DType::F32, DType::BF16}) {
    ir::Graph g;
    const ir::NodeId a = g.input("a", dtype, e.shape_of("mk")),
                     b = g.input("b", dtype, e.shape_of("kn"));
    g.outputs = {testing::einsum(g, a, b, e)};
    testing::NullDevice device;
    compiler::KernelCache cache;
    kernel::Region region = compiler::compile_graph(g, {}, device, cache).plan.kernels.at(0).region;
    for (kernel::Operand& operand : region.operands)
      operand.alignment = 64; // as on a GPU
    for (const int capability : {80, 90, compiler->architectures().back()}) {
      const kernel::Target target = backend::cuda::known_target(capability);
      std::set<std::string> seen; // one schedule of each instruction
      for (const auto& s : kernel::gpu_contraction_generator().space(region, target)) {
        if (!seen.insert(s.mma).second)
          continue;
        const auto lowered = kernel::gpu_contraction_generator().lower(region, s, target);
        ASSERT_TRUE(lowered.ok) << lowered.reason;
        const auto cuda = backend::cuda::cuda_target(target);
        const auto cubin =
            compiler->compile(render_cuda(lowered.program, cuda),
                              compiler->architecture_for(cuda.capability, cuda.specific));
        for (const auto& k : cubin.kernels) {
          EXPECT_EQ(k.spill_stores, 0) << capability << " " << to_string(s);
          RecordProperty(to_string(s) + " " + cuda.arch(), k.registers);
        }
      }
    }
  }
}

/// Sizes that all chunks divide, and sizes that none does: some of the addresses and guards of
/// those do not stay in registers.
TEST(CudaContractions, SplitFactorsCompileWithoutSpills) {
  constexpr std::int64_t kOfOddSizes = 128;
  const auto compiler = testing::nvrtc();
  if (!compiler)
    GTEST_SKIP() << "NVRTC is not installed";
  const kernel::Target target = backend::cuda::known_target(90);
  const auto cuda = backend::cuda::cuda_target(target);
  for (const auto& [left, right] :
       {std::pair{"mk", "nk"}, {"mk", "kn"}, {"km", "nk"}, {"km", "kn"}})
    for (const bool odd : {false, true}) {
      const Einsum e{left,
                     right,
                     "mn",
                     {{'m', odd ? 1003 : 1024}, {'n', odd ? 997 : 1024}, {'k', odd ? 517 : 512}}};
      ir::Graph g;
      g.outputs = {testing::einsum(g, g.input("a", DType::F32, e.shape_of(left)),
                                   g.input("b", DType::F32, e.shape_of(right)), e)};
      testing::NullDevice device;
      compiler::KernelCache cache;
      kernel::Region region =
          compiler::compile_graph(g, {}, device, cache).plan.kernels.at(0).region;
      for (kernel::Operand& operand : region.operands)
        operand.alignment = 64;
      for (const char* tiles :
           {"bm=128 bn=128 stages=2 wm=2", "bm=64 bn=128 stages=3 swap=1 wm=1"}) {
        const kernel::Schedule s = kernel::parse_schedule(
            fmt::format("gpu_contraction {} split_parts=1 @mma=wgmma", tiles));
        const auto lowered = kernel::gpu_contraction_generator().lower(region, s, target);
        ASSERT_TRUE(lowered.ok) << lowered.reason;
        const auto cubin =
            compiler->compile(render_cuda(lowered.program, cuda),
                              compiler->architecture_for(cuda.capability, cuda.specific));
        for (const auto& k : cubin.kernels)
          EXPECT_LE(k.spill_stores, odd ? kOfOddSizes : 0)
              << left << "," << right << " " << odd << " " << tiles;
      }
    }
}

TEST(CudaContractions, SlicesOfAProductAreCombinedWithoutSpills) {
  const auto compiler = testing::nvrtc();
  if (!compiler)
    GTEST_SKIP() << "NVRTC is not installed";
  const testing::SlicedProduct cells[] = {
      {.rows = 16, .length = 128, .depth = 128},
      {.rows = 512, .length = 512, .depth = 512},
      {.rows = 56, .length = 97, .depth = 97, .slices = 3, .dtype = DType::BF16},
      {.rows = 512, .length = 512, .depth = 512, .slices = 4, .dtype = DType::BF16},
      {.rows = 6, .length = 113, .depth = 113},
      {.rows = 1, .length = 512, .depth = 512, .slices = 2, .dtype = DType::BF16},
  };
  for (const testing::SlicedProduct& cell : cells) {
    const kernel::Region region = testing::region_of_slices(cell);
    for (const int capability : {80, 90}) {
      const kernel::Target target = backend::cuda::known_target(capability);
      for (const kernel::Generator* generator :
           {&kernel::gpu_skinny_generator(), &kernel::gpu_contraction_generator()}) {
        std::size_t tried = 0;
        for (const auto& s : generator->space(region, target)) {
          if (++tried > 3)
            break;
          const auto lowered = generator->lower(region, s, target);
          ASSERT_TRUE(lowered.ok) << lowered.reason;
          const auto cuda = backend::cuda::cuda_target(target);
          const auto cubin =
              compiler->compile(render_cuda(lowered.program, cuda),
                                compiler->architecture_for(cuda.capability, cuda.specific));
          for (const auto& k : cubin.kernels)
            EXPECT_EQ(k.spill_stores, 0) << cell.name() << " " << capability << " " << to_string(s);
        }
      }
    }
  }
}

} // namespace
} // namespace egret
