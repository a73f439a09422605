// Every form that regions come in: the text of its kernels compiles for the GPUs there are, without
// spills. NVRTC needs no GPU; where it is not installed there is nothing to test.
#include "backend/cuda/nvrtc.h"
#include "backend/cuda/render.h"
#include "backend/cuda/target.h"
#include "kernel/families.h"
#include "kernel/parts.h"
#include "support/nvrtc.h"
#include "support/region_forms.h"
#include "support/region_runner.h"
#include "support/update_graphs.h"

#include "egret/error.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace egret {
namespace {

using backend::cuda::Nvrtc;

class CudaForms : public ::testing::TestWithParam<testing::FormCase> {};

TEST_P(CudaForms, TextCompilesWithoutSpills) {
  auto compiler = testing::nvrtc();
  if (!compiler)
    GTEST_SKIP() << "NVRTC is not installed";
  auto [m, n] = GetParam().sizes.back();
  ir::Graph g;
  GetParam().make(g, m, n);
  const kernel::Target target = testing::test_gpu();
  std::vector<backend::cuda::CudaTarget> targets{{80, false}};
  if (GetParam().name[0] % 2 == 0)
    targets.push_back({90, true});
  else
    targets.push_back({compiler->architectures().back(), true});
  for (const auto& c : testing::region_cases(g, testing::inputs_of(g, 1, false)))
    for (const kernel::Generator* generator : kernel::generators(target)) {
      auto schedules = generator->space(c.region, target);
      if (schedules.empty())
        continue;
      auto lowered = generator->lower(c.region, schedules[0], target);
      if (!lowered.ok)
        continue;
      for (const auto& t : targets) {
        const std::string text = render_cuda(lowered.program, t);
        const auto cubin = compiler->compile(
            text, compiler->architecture_for(t.capability, t.specific), {}, "forms");
        for (const auto& k : cubin.kernels)
          EXPECT_EQ(k.spill_stores, 0) << to_string(schedules[0]) << "\n" << text;
      }
    }
}

INSTANTIATE_TEST_SUITE_P(All, CudaForms, ::testing::ValuesIn(testing::region_forms()),
                         [](const auto& info) { return std::string(info.param.name); });

/// Several independent regions in one grid: code of each form in the branches of one kernel.
TEST(CudaBatches, TextCompilesWithoutSpills) {
  auto compiler = testing::nvrtc();
  if (!compiler)
    GTEST_SKIP() << "NVRTC is not installed";
  const kernel::Target target = testing::test_gpu();
  kernel::Region whole;
  whole.name = "batch";
  for (const testing::FormCase& form : testing::region_forms()) {
    ir::Graph g;
    form.make(g, 24, 40);
    const kernel::Region part = testing::regions_of(g, target).back();
    if (!kernel::lower_part(part, target).ok)
      continue;
    std::vector<int> operands;
    for (const kernel::Operand& operand : part.operands) {
      operands.push_back(static_cast<int>(whole.operands.size()));
      whole.operands.push_back(operand);
    }
    kernel::add_part(whole, part, operands);
  }
  ASSERT_GT(kernel::parts_of(whole).size(), 5u);
  const kernel::Chosen chosen = kernel::lower_greedily(whole, target);
  ASSERT_EQ(chosen.schedule.generator, "batch");
  for (const backend::cuda::CudaTarget& t :
       {backend::cuda::CudaTarget{80, false}, backend::cuda::CudaTarget{90, true}}) {
    const std::string text = render_cuda(chosen.program, t);
    const auto cubin =
        compiler->compile(text, compiler->architecture_for(t.capability, t.specific), {}, "batch");
    for (const auto& k : cubin.kernels)
      EXPECT_EQ(k.spill_stores, 0) << text;
  }
}

/// Hundreds of problems of one code: tables of sizes, and more than 4 KB of pointers.
TEST(CudaGroups, TextCompilesWithoutSpillsAndIsOneCode) {
  auto compiler = testing::nvrtc();
  if (!compiler)
    GTEST_SKIP() << "NVRTC is not installed";
  const kernel::Target target = backend::cuda::known_target(90);
  const auto grouped = [&](int count) {
    kernel::Region whole;
    whole.name = "batch";
    for (int i = 0; i < count; ++i) {
      ir::Graph g;
      std::vector<compiler::OutputSpec> outputs;
      const Shape shape{2 + i * 2741 % 5000};
      testing::momentum_update(g, outputs, shape, g.input("g", DType::F32, shape));
      const kernel::Region part = testing::regions_of(g, target).back();
      std::vector<int> operands;
      for (const kernel::Operand& operand : part.operands) {
        operands.push_back(static_cast<int>(whole.operands.size()));
        whole.operands.push_back(operand);
      }
      kernel::add_part(whole, part, operands);
    }
    return kernel::lower_greedily(whole, target);
  };
  const kernel::Chosen chosen = grouped(300);
  ASSERT_EQ(chosen.schedule.generator, "batch");
  ASSERT_EQ(chosen.program.groups.size(), 1u);
  EXPECT_EQ(chosen.program.groups[0].problems(), 300u);
  const backend::cuda::CudaTarget t{90, true};
  const std::string text = render_cuda(chosen.program, t);
  const auto lines = [](const std::string& s) { return std::count(s.begin(), s.end(), '\n'); };
  EXPECT_LT(lines(text), lines(render_cuda(grouped(20).program, t)) + 10);
  const auto cubin =
      compiler->compile(text, compiler->architecture_for(t.capability, t.specific), {}, "groups");
  for (const auto& k : cubin.kernels)
    EXPECT_EQ(k.spill_stores, 0) << text;
}

/// Logits in bf16 to the gradient of their cross-entropy: rows of 100 KB, aligned or not.
TEST(CudaRows, LongRowsCompileWithoutSpills) {
  auto compiler = testing::nvrtc();
  if (!compiler)
    GTEST_SKIP() << "NVRTC is not installed";
  const kernel::Target target = backend::cuda::known_target(90);
  for (std::int64_t columns : {50304, 50257}) {
    ir::Graph g;
    const Shape shape{8192, columns};
    auto along = [&](ir::NodeId r) { return g.expand(g.reshape(r, {8192, 1}), shape); };
    const ir::NodeId x = g.cast(g.input("x", DType::BF16, shape), DType::F32);
    const ir::NodeId label = along(g.input("label", DType::I64, {8192}));
    const ir::NodeId place = g.expand(g.reshape(g.iota(columns), {1, columns}), shape);
    const ir::NodeId minus = g.broadcast(g.constant(DType::F32, -1.0), shape);
    const ir::NodeId top = along(g.reduce(Op::ReduceMax, x, {1}));
    const ir::NodeId e = g.unary(Op::Exp, g.binary(Op::Add, x, g.binary(Op::Mul, top, minus)));
    const ir::NodeId p = g.binary(Op::Div, e, along(g.reduce(Op::ReduceSum, e, {1})));
    const ir::NodeId hot = g.cast(g.binary(Op::Eq, label, place), DType::F32);
    g.outputs = {g.cast(g.binary(Op::Add, p, g.binary(Op::Mul, hot, minus)), DType::BF16)};
    const auto regions = testing::regions_of(g, target);
    ASSERT_EQ(regions.size(), 1u);
    const auto chosen = kernel::lower_greedily(regions[0], target);
    EXPECT_EQ(chosen.schedule.generator, "gpu_rows");
    EXPECT_EQ(chosen.schedule.knob("shift", 0), columns % 8 == 0 ? 0 : 1);
    const auto cubin =
        compiler->compile(render_cuda(chosen.program, backend::cuda::cuda_target(target)),
                          compiler->architecture_for(90, true), {}, "rows");
    for (const auto& k : cubin.kernels)
      EXPECT_EQ(k.spill_stores, 0) << to_string(chosen.schedule);
  }
}

} // namespace
} // namespace egret
