// Products by cublasLt: right in every layout, bias and activation, at the places that a region
// names, and within recorded steps.
#include "backend/common/host_launch.h"
#include "backend/reference/kernel_check.h"
#include "gpu/gpu.h"
#include "kernel/families.h"
#include "kernel/gpu_library.h"
#include "support/contraction_regions.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace egret {
namespace {

using ir::Graph;
using ir::NodeId;
using testing::Einsum;
using testing::input;
using testing::sizes;

kernel::Target target() {
  kernel::Target target = testing::gpu().target();
  target.product_library = testing::gpu().product_library().version;
  return target;
}

kernel::KernelProgram program_of(const kernel::Region& region, int way = 0) {
  kernel::Schedule schedule;
  schedule.generator = "cublaslt";
  schedule.knobs = {{"way", way}};
  kernel::Lowered lowered = kernel::gpu_library_generator().lower(region, schedule, target());
  EXPECT_TRUE(lowered.ok) << lowered.reason;
  return std::move(lowered.program);
}

/// Each of the library's first ways against the region; gives how many there are.
int check(const kernel::Region& region) {
  backend::Device& gpu = testing::gpu();
  backend::reference::KernelChecker checker(region);
  int ways = 0;
  for (; ways < 4; ++ways) {
    const kernel::KernelProgram program = program_of(region, ways);
    std::shared_ptr<const backend::Artifact> artifact;
    try {
      artifact = gpu.compile(program);
    } catch (const Error& error) { // no more of them
      EXPECT_EQ(error.kind(), ErrorKind::Unsupported) << error.what();
      break;
    }
    const auto result =
        checker.check(program, [&](const kernel::KernelProgram& p, const kernel::ArgBlock& block) {
          backend::launch_on_host_memory(gpu, *artifact, p, block, 0, 1024);
        });
    EXPECT_TRUE(result.ok) << "way " << ways << ": " << result.message << print(region);
  }
  return ways;
}

class GpuLibrary : public ::testing::Test {
protected:
  void SetUp() override {
    if (const auto library = testing::gpu().product_library(); library.version == 0)
      GTEST_SKIP() << library.why_not;
  }
};

TEST_F(GpuLibrary, ProductsInEveryLayout) {
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16})
    for (const auto& [left, right] :
         {std::pair{"mk", "kn"}, {"mk", "nk"}, {"km", "kn"}, {"km", "nk"}})
      EXPECT_GT(check(testing::product_region(sizes(left, right, "mn", 72, 136, 64), dtype, 64)),
                0);
  EXPECT_GT(check(testing::product_region(sizes("bmk", "bkn", "bmn", 72, 40, 64, 3), DType::BF16)),
            0);
  EXPECT_GT(check(testing::product_region(sizes("mbk", "bnk", "bmn", 72, 40, 64, 3), DType::F32)),
            0);
  EXPECT_GT(check(testing::product_region(sizes("k", "nk", "n", 1, 304, 520), DType::BF16, 64)), 0);
}

TEST_F(GpuLibrary, BiasAndActivation) {
  const Einsum e = sizes("mk", "kn", "mn", 72, 136, 64);
  for (const bool gelu : {false, true})
    EXPECT_GT(
        check(testing::region_of(
            [&](Graph& g) {
              const NodeId product = testing::einsum(g, input(g, "a", e.left, e, DType::BF16),
                                                     input(g, "b", e.right, e, DType::BF16), e);
              const auto number = [&](double v) {
                return g.broadcast(g.constant(DType::BF16, v), g[product].shape);
              };
              const auto mul = [&](NodeId a, NodeId b) { return g.binary(Op::Mul, a, b); };
              const NodeId bias = g.input("bias", DType::BF16, {e.extent('n')});
              const NodeId x = g.binary(Op::Add, product, g.broadcast(bias, g[product].shape));
              if (!gelu)
                return std::vector{g.binary(Op::Max, x, number(0))};
              const NodeId inner =
                  mul(g.binary(Op::Add, x, mul(mul(mul(x, x), x), number(0.044715))),
                      number(0.7978845608));
              return std::vector{
                  mul(mul(x, number(0.5)), g.binary(Op::Add, g.unary(Op::Tanh, inner), number(1)))};
            },
            64)),
        0);
}

// tf32 would lose what follows the eleventh bit of a factor.
TEST_F(GpuLibrary, FactorsOfF32AreNotShortened) {
  const kernel::Region region =
      testing::product_region(sizes("mk", "kn", "mn", 64, 64, 64), DType::F32, 64);
  backend::Device& gpu = testing::gpu();
  const kernel::KernelProgram program = program_of(region);
  const auto artifact = gpu.compile(program);
  std::vector<float> a(64 * 64, 0), b(64 * 64, 0), c(64 * 64, 0);
  for (int i = 0; i < 64; ++i) {
    a[static_cast<std::size_t>(64 * i + i)] = 1 + 0x1p-20f;
    b[static_cast<std::size_t>(64 * i + i)] = 1;
  }
  std::vector<std::byte> workspace(
      static_cast<std::size_t>(program.buffers.back().elements.value()));
  void* pointers[] = {a.data(), b.data(), c.data(), workspace.data()};
  backend::launch_on_host_memory(gpu, *artifact, program, {pointers, nullptr, nullptr});
  for (int i = 0; i < 64; ++i)
    EXPECT_EQ(c[static_cast<std::size_t>(64 * i + i)], 1 + 0x1p-20f);
}

// y = a b, twice in one step, with other memory at each run: as one submission, patched.
TEST_F(GpuLibrary, StandsInRecordedSteps) {
  backend::Device& gpu = testing::gpu();
  constexpr std::int64_t kSize = 64;
  const kernel::Region region =
      testing::product_region(sizes("mk", "kn", "mn", kSize, kSize, kSize), DType::F32, 64);
  const kernel::KernelProgram program = program_of(region);
  const auto artifact = gpu.compile(program);
  constexpr std::size_t kBytes = kSize * kSize * 4;
  const auto workspace_bytes = static_cast<std::size_t>(program.buffers.back().elements.value());
  void* workspace = gpu.allocate(workspace_bytes);
  std::vector<void*> all; // each run has memory of its own
  std::unique_ptr<backend::Recording> recording;
  for (int run = 0; run < 3; ++run) {
    std::vector<float> identity(kSize * kSize, 0), values(kSize * kSize);
    for (std::int64_t i = 0; i < kSize; ++i)
      identity[static_cast<std::size_t>(i * kSize + i)] = 2;
    std::iota(values.begin(), values.end(), static_cast<float>(run));
    void* memory[4];
    for (void*& m : memory)
      all.push_back(m = gpu.allocate(kBytes));
    gpu.copy_in(memory[0], identity.data(), kBytes);
    gpu.copy_in(memory[1], values.data(), kBytes);
    void* first[] = {memory[0], memory[1], memory[2], workspace};
    void* second[] = {memory[0], memory[2], memory[3], workspace};
    backend::Work work[3];
    work[0].artifact = work[1].artifact = artifact.get();
    work[0].program = work[1].program = &program;
    work[0].block = {first, nullptr, nullptr};
    work[1].block = {second, nullptr, nullptr};
    work[2].to = memory[1];
    work[2].from = memory[3];
    work[2].bytes = kBytes;
    EXPECT_EQ(gpu.submit(work, &recording), 1);
    std::vector<float> got(kSize * kSize);
    gpu.copy_out(got.data(), memory[1], kBytes);
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_EQ(got[i], 4 * values[i]) << "run " << run << ", element " << i;
  }
  recording.reset();
  for (void* m : all)
    gpu.release(m, kBytes);
  gpu.release(workspace, workspace_bytes);
}

} // namespace
} // namespace egret
