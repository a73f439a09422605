// Products of matrices on the GPU, with the kernels that its generators choose first: by the copy
// engine and wgmma where the GPU has them.
#include "backend/reference/reference.h"
#include "compiler/compile.h"
#include "gpu/gpu.h"
#include "support/contractions.h"
#include "support/convolution_graphs.h"
#include "support/plan_runner.h"
#include "support/random_graph.h"
#include "support/region_runner.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <initializer_list>
#include <stdexcept>

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

const kernel::Generator& contraction_generator(const kernel::Target& target) {
  return testing::generator_named("gpu_contraction", target);
}

/// Runs the contractions of a graph with each of these tiles; gives how many ran.
int check_queued(const ir::Graph& g, std::initializer_list<const char*> tiles,
                 const std::string& what) {
  const kernel::Target target = testing::gpu().target();
  const kernel::Generator& generator = contraction_generator(target);
  int ran = 0;
  for (const auto& original : testing::region_cases(g, testing::random_inputs(g, 3), target)) {
    const testing::RegionCase c = testing::aligned_for(original, target);
    for (const char* tile : tiles) {
      const auto s = kernel::parse_schedule(fmt::format("gpu_contraction {} @mma=wgmma", tile));
      if (!generator.lower(c.region, s, target).ok)
        continue;
      ++ran;
      EXPECT_EQ(testing::check_schedule(c, generator, s, target, {.device = &testing::gpu()}, true),
                "")
          << what;
    }
  }
  return ran;
}

TEST(GpuContractions, QueuedProductsTakeWhatThreadsCopy) {
  if (testing::gpu().target().unit(kernel::FragmentLayout::SwizzledSharedRows) == nullptr)
    GTEST_SKIP() << "wgmma is of compute capability 9.0";
  const std::initializer_list<const char*> tiles = {"bm=64 bn=64 stages=3 wm=1",
                                                    "bm=128 bn=256 staged=1 stages=4 wm=2",
                                                    "bm=256 bn=64 staged=1 stages=4 wm=2",
                                                    "bm=64 bn=256 staged=1 stages=4 swap=1 wm=1",
                                                    "bm=128 bn=128 staged=1 stages=5 wm=2",
                                                    "bm=128 bn=16 stages=4 swap=1 wm=2"};
  using testing::Convolution;
  for (const Convolution& c :
       {Convolution{2, 64, 72, {12, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, DType::BF16, true, true},
        Convolution{1, 40, 264, {9, 10}, {3, 2}, {2, 1}, {1, 0}, {1, 2}, DType::F16, true, true},
        Convolution{2, 8, 24, {15, 18}, {7, 7}, {2, 2}, {3, 3}, {1, 1}, DType::BF16, true, true},
        Convolution{1,
                    16,
                    40,
                    {5, 6, 7},
                    {3, 3, 3},
                    {1, 1, 1},
                    {1, 1, 1},
                    {1, 1, 1},
                    DType::BF16,
                    true,
                    true},
        Convolution{2, 96, 128, {80}, {5}, {1}, {2}, {1}, DType::BF16, true, true}})
    EXPECT_GE(check_queued(testing::convolution_graph(c, true), tiles, c.text()), 6) << c.text();
  for (const std::int64_t k : {204, 330}) // rows at multiples of 8 and of 4 bytes
    for (const char* right : {"nk", "kn"}) {
      const Einsum e{"mk", right, "mn", {{'m', 300}, {'n', 260}, {'k', k}}};
      ir::Graph g;
      g.outputs = {testing::einsum(g, g.input("a", DType::BF16, e.shape_of("mk")),
                                   g.input("b", DType::BF16, e.shape_of(right)), e)};
      EXPECT_GE(check_queued(g, tiles, fmt::format("mk,{} {}", right, k)), 3);
    }
}

/// Also infinities, NaN and numbers that are infinite in bf16.
TEST(GpuContractions, ProductsOfF32AreSumsOfBf16) {
  if (testing::gpu().target().unit(kernel::FragmentLayout::SwizzledSharedRows) == nullptr)
    GTEST_SKIP() << "wgmma is of compute capability 9.0";
  const std::initializer_list<const char*> tiles = {
      "bm=128 bn=128 stages=2 split_parts=1 wm=2",
      "bm=64 bn=128 stages=3 split_parts=1 swap=1 wm=1",
      "bm=128 bn=64 stages=3 split_parts=1 wm=2 @split_reduce=2",
      "bm=64 bn=64 stages=4 split_parts=1 streamk=4 wm=1"};
  for (const auto& [left, right] : {std::pair{"mk", "nk"}, {"mk", "kn"}, {"km", "kn"}})
    for (const std::int64_t k : {256, 333}) {
      const Einsum e{left, right, "mn", {{'m', 300}, {'n', 270}, {'k', k}}};
      ir::Graph g;
      g.outputs = {testing::einsum(g, g.input("a", DType::F32, e.shape_of(left)),
                                   g.input("b", DType::F32, e.shape_of(right)), e)};
      EXPECT_EQ(check_queued(g, tiles, fmt::format("{},{} {}", left, right, k)), 4);
    }
}

TEST(GpuContractions, TilesThatAreCutAlongTheDepthHaveTheSameBitsTwice) {
  const kernel::Target target = testing::gpu().target();
  if (target.unit(kernel::FragmentLayout::SwizzledSharedRows) == nullptr)
    GTEST_SKIP() << "wgmma is of compute capability 9.0";
  const Einsum e{"mk", "kn", "mn", {{'m', 200}, {'n', 264}, {'k', 640}}};
  ir::Graph g;
  g.outputs = {testing::einsum(g, g.input("a", DType::BF16, e.shape_of("mk")),
                               g.input("b", DType::BF16, e.shape_of("kn")), e)};
  const auto inputs = testing::random_inputs(g, 7, {.special = false});
  const auto cases = testing::region_cases(g, inputs);
  ASSERT_EQ(cases.size(), 1u);
  const testing::RegionCase region = testing::aligned_for(cases[0], target);
  const kernel::Generator* const contraction = &contraction_generator(target);
  for (const char* tile : {"bm=128 bn=256 stages=4 staged=1 wm=2", "bm=64 bn=128 stages=8 wm=1"})
    for (const char* cut : {"streamk=132", "streamk=13", "streamk=7"}) {
      const auto s =
          kernel::parse_schedule(fmt::format("gpu_contraction bk=64 {} {} @mma=wgmma", tile, cut));
      const testing::RunOptions options{.device = &testing::gpu()};
      const std::string wrong =
          testing::check_schedule(region, *contraction, s, target, options, true);
      ASSERT_TRUE(wrong.empty()) << wrong;
      const auto program = contraction->lower(region.region, s, target).program;
      const auto once = testing::run_region(region, program, options);
      for (int i = 0; i < 5; ++i)
        ASSERT_EQ(once[0].bytes, testing::run_region(region, program, options)[0].bytes)
            << to_string(s);
    }
}

} // namespace
} // namespace egret
