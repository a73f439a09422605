// Products of matrices on the GPU, with the kernels that its generators choose first: by the copy
// engine and wgmma where the GPU has them.
#include "backend/reference/reference.h"
#include "compiler/compile.h"
#include "gpu/gpu.h"
#include "support/contractions.h"
#include "support/plan_runner.h"
#include "support/random_graph.h"

#include <gtest/gtest.h>

namespace egret {
namespace {

using testing::Einsum;

struct Case {
  const char *left, *right, *result;
  std::int64_t m, n, k, b;
  DType dtype;
};

TEST(GpuContractions, AgreeWithTheReference) {
  const Case cases[] = {
      {"mk", "kn", "mn", 256, 264, 136, 1, DType::BF16},
      {"mk", "nk", "mn", 200, 128, 192, 1, DType::BF16},
      {"km", "nk", "mn", 72, 136, 128, 1, DType::F16},
      {"bmk", "bkn", "bmn", 72, 136, 64, 3, DType::BF16},
      {"mk", "nk", "mn", 16, 512, 256, 1, DType::BF16},
      {"mk", "kn", "mn", 4, 264, 100, 1, DType::BF16},
      {"mk", "kn", "mn", 100, 70, 33, 1, DType::BF16},
      {"mk", "kn", "mn", 130, 100, 65, 1, DType::F32},
      {"k", "nk", "n", 1, 300, 520, 1, DType::F32},
      {"k", "kn", "n", 1, 300, 520, 1, DType::BF16},
  };
  compiler::KernelCache cache;
  for (const Case& c : cases) {
    const Einsum e{c.left, c.right, c.result, {{'m', c.m}, {'n', c.n}, {'k', c.k}, {'b', c.b}}};
    ir::Graph g;
    const ir::NodeId a = g.input("a", c.dtype, e.shape_of(c.left)),
                     b = g.input("b", c.dtype, e.shape_of(c.right));
    const ir::NodeId product = testing::einsum(g, a, b, e);
    const ir::NodeId zero = g.broadcast(g.constant(c.dtype, 0.0), e.shape_of(c.result));
    g.outputs = {g.binary(Op::Max, product, zero)};
    auto inputs = testing::random_inputs(g, 7);
    const auto expected = backend::reference::expect(g, inputs);
    const auto compiled = compiler::compile_graph(g, {}, testing::gpu(), cache);
    const auto actual = testing::run_plan(compiled, g, inputs, &testing::gpu());
    const auto result = backend::reference::compare(actual[0], expected[0], "product");
    EXPECT_TRUE(result.ok) << c.left << " " << c.right << " "
                           << to_string(compiled.plan.kernels[0].schedule) << "\n"
                           << result.message;
    std::string schedule = to_string(compiled.plan.kernels[0].schedule);
    RecordProperty("schedule", schedule);
  }
}

} // namespace
} // namespace egret
