// Every form that regions come in: the text of its kernels compiles for the GPUs there are, without
// spills. NVRTC needs no GPU; where it is not installed there is nothing to test.
#include "backend/cuda/nvrtc.h"
#include "backend/cuda/render.h"
#include "support/region_forms.h"
#include "support/region_runner.h"

#include "egret/error.h"

#include <gtest/gtest.h>

namespace egret {
namespace {

using backend::cuda::Nvrtc;

std::shared_ptr<const Nvrtc> nvrtc() {
  try {
    return Nvrtc::instance();
  } catch (const Error&) {
    return nullptr;
  }
}

class CudaForms : public ::testing::TestWithParam<testing::FormCase> {};

TEST_P(CudaForms, TextCompilesWithoutSpills) {
  auto compiler = nvrtc();
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

} // namespace
} // namespace egret
