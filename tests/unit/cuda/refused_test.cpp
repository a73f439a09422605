// A kernel that NVRTC refuses: another schedule takes its place, and the report says why.
#include "compiler/compile.h"
#include "support/contractions.h"
#include "support/cpu_levels.h"
#include "support/cuda_kernels.h"

#include <gtest/gtest.h>

namespace egret::backend::cuda {
namespace {

using egret::testing::error_of;
using egret::testing::fake_cuda;
using egret::testing::FakeCuda;
using egret::testing::ScopedEnvironment;

constexpr const char* kLog =
    R"(p.cu(3): warning #177-D: variable "unused" was declared but never referenced
p.cu(4): warning #177-D: variable "unused" was declared but never referenced
p.cu(5): warning #177-D: variable "unused" was declared but never referenced
p.cu(6): warning #177-D: variable "unused" was declared but never referenced
ptxas error   : (C7602) Insufficient registers (64) for wgmma; a target of 70 or higher is needed
ptxas fatal   : Ptx assembly aborted due to errors
)";

class RefusedKernels : public ::testing::Test {
protected:
  RefusedKernels() : fake(fake_cuda(EGRET_FAKE_CUDA)) {
    device = make_cuda_device(0, {rendered_text, {{EGRET_FAKE_CUDA}, {EGRET_FAKE_CUDA}}, nullptr});
    fake.compile_error = kLog;
  }
  ~RefusedKernels() override { fake.compile_error = fake.only_texts_with = nullptr; }
  /// A product of bf16 matrices, for which matrix units come first.
  compiler::Compiled compiled() {
    const egret::testing::Einsum e{"mk", "kn", "mn", {{'m', 512}, {'n', 512}, {'k', 256}}};
    ir::Graph g;
    const ir::NodeId a = g.input("a", DType::BF16, e.shape_of("mk")),
                     b = g.input("b", DType::BF16, e.shape_of("kn"));
    g.outputs = {egret::testing::einsum(g, a, b, e)};
    compiler::KernelCache cache;
    return compiler::compile_graph(g, {}, *device, cache);
  }

  egret::testing::TemporaryFolder folder;
  ScopedEnvironment cache{"EGRET_CACHE", folder.path().c_str()}; // of the texts that are kept
  FakeCuda& fake;
  std::unique_ptr<Device> device;
};

TEST_F(RefusedKernels, TheNextScheduleOfTheFamilyTakesTheirPlace) {
  const ScopedEnvironment strict("EGRET_STRICT", "0");
  fake.only_texts_with = "wgmma.mma_async";
  const compiler::Compiled c = compiled();
  ASSERT_EQ(c.plan.kernels.size(), 1u);
  const kernel::Schedule& taken = c.plan.kernels[0].schedule;
  EXPECT_EQ(taken.generator, "gpu_contraction");
  EXPECT_EQ(taken.mma, "m16n8k16");
  ASSERT_EQ(c.artifacts.size(), 1u);
  EXPECT_TRUE(c.artifacts[0]);
  ASSERT_FALSE(c.report.refused.empty());
  for (const compiler::RefusedKernel& r : c.report.refused) {
    EXPECT_NE(r.schedule.find("@mma=wgmma"), std::string::npos) << r.schedule;
    EXPECT_NE(r.reason.find("Insufficient registers (64)"), std::string::npos) << r.reason;
    EXPECT_EQ(r.reason.find("warning"), std::string::npos) << r.reason;
  }
  EXPECT_EQ(c.report.refused.back().instead, to_string(taken));
  const std::string text = c.report.text();
  EXPECT_NE(text.find("refused: kernel "), std::string::npos) << text;
  EXPECT_NE(text.find("Insufficient registers"), std::string::npos) << text;
}

TEST_F(RefusedKernels, WhereAFamilyHasNoneLeftAnotherGeneratorTakesThem) {
  const ScopedEnvironment strict("EGRET_STRICT", "0");
  fake.only_texts_with = "__shared__"; // every tile is there
  const compiler::Compiled c = compiled();
  EXPECT_NE(c.plan.kernels.at(0).schedule.generator, "gpu_contraction");
  EXPECT_FALSE(c.report.refused.empty());
}

TEST_F(RefusedKernels, AreAnErrorWhenAllAreRefusedOrInStrictMode) {
  const auto reason = [&] { return error_of(ErrorKind::Unsupported, [&] { compiled(); }); };
  {
    const ScopedEnvironment strict("EGRET_STRICT", "0");
    EXPECT_NE(reason().find("Insufficient registers (64)"), std::string::npos) << reason();
  }
  const ScopedEnvironment strict("EGRET_STRICT", "1");
  fake.only_texts_with = "wgmma.mma_async";
  EXPECT_NE(reason().find("Insufficient registers (64)"), std::string::npos) << reason();
}

TEST(ReasonOfLog, IsWhatTheLastErrorsSay) {
  const std::string reason = reason_of_log(kLog);
  EXPECT_EQ(reason.find("warning"), std::string::npos);
  EXPECT_NE(reason.find("Insufficient registers (64)"), std::string::npos);
  EXPECT_NE(reason.find("ptxas fatal"), std::string::npos);
  EXPECT_EQ(reason_of_log("one\n\ntwo\n"), "one\ntwo");
  EXPECT_EQ(reason_of_log(""), "");
}

} // namespace
} // namespace egret::backend::cuda
