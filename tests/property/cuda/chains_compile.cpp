// Steps of recurrent cells in one kernel: its text compiles, and factors that stay in registers do
// not leave them.
#include "backend/cuda/render.h"
#include "backend/cuda/target.h"
#include "compiler/compile.h"
#include "support/null_device.h"
#include "support/nvrtc.h"
#include "support/recurrent_graphs.h"

#include <gtest/gtest.h>

namespace egret {
namespace {

using testing::RecurrentKind;
using testing::RecurrentProgram;

TEST(CudaChains, TextCompilesWithoutSpills) {
  auto compiler = testing::nvrtc();
  if (!compiler)
    GTEST_SKIP() << "NVRTC is not installed";
  for (const RecurrentProgram& p :
       {RecurrentProgram{.kind = RecurrentKind::Tanh, .batch = 40, .width = 6},
        RecurrentProgram{.kind = RecurrentKind::Gru, .batch = 20, .width = 50},
        RecurrentProgram{.kind = RecurrentKind::Lstm, .batch = 200, .width = 113},
        RecurrentProgram{.kind = RecurrentKind::Lstm, .batch = 16, .width = 128},
        RecurrentProgram{.kind = RecurrentKind::ResetInside, .batch = 9, .width = 64},
        RecurrentProgram{.kind = RecurrentKind::Tanh, .batch = 100, .width = 200},
        RecurrentProgram{.kind = RecurrentKind::Lstm, .batch = 16, .width = 128, .inputs = 64},
        RecurrentProgram{.kind = RecurrentKind::Lstm, .batch = 16, .width = 256},
        RecurrentProgram{.kind = RecurrentKind::ResetInside, .batch = 3, .width = 230}}) {
    testing::NullDevice device(backend::cuda::known_target(90));
    compiler::KernelCache cache;
    compiler::Options options;
    options.chains = true;
    const auto compiled = compiler::compile_graph(graph_of(p), options, device, cache);
    ASSERT_EQ(compiled.chains.size(), 1u) << p.name() << "\n" << print(compiled.plan);
    const std::string text = backend::cuda::render_cuda(compiled.chains[0].program, {90, true});
    const auto cubin = compiler->compile(text, compiler->architecture_for(90, true), {}, "chains");
    for (const auto& k : cubin.kernels) {
      EXPECT_EQ(k.spill_stores, 0) << p.name() << "\n" << text;
    }
  }
}

} // namespace
} // namespace egret
