// Which template takes a reduction on a GPU with many multiprocessors, and how it shares it out:
// whatever the strides, no reduction of much is left to few threads.
#include "egret/functional.h"
#include "egret/graph.h"
#include "kernel/generator.h"
#include "support/region_runner.h"
#include "support/targets.h"

#include <gtest/gtest.h>

#include <functional>

namespace egret::kernel {
namespace {

Target large_gpu() {
  Target t = testing::test_gpu();
  testing::set_architecture(t, 90);
  t.workers = 132;
  t.threads = 2048;
  t.blocks = 32;
  t.block_shared_bytes = t.shared_bytes = 227 << 10;
  t.l2_bytes = t.l3_bytes = 50 << 20;
  return t;
}

/// What is chosen without a search for the only kernel of a program.
Chosen chosen_for(const std::function<Tensor(egret::Graph&)>& make) {
  egret::Graph cx;
  Tensor y = make(cx);
  y.retrieve();
  const auto regions = testing::regions_of(ir::parse_graph(cx.text()), large_gpu());
  EXPECT_EQ(regions.size(), 1u);
  return lower_greedily(regions.at(0), large_gpu());
}

std::int64_t blocks_of(const Chosen& c) {
  return c.program.launch.workers.value();
}

TEST(GpuReductions, AllOfAStridedVectorIsSharedByBlocks) {
  const Chosen c = chosen_for([](egret::Graph& g) {
    return norm(g.tensor({1847684}, DType::F32, "x")[Slice{0, std::nullopt, 2}], {0});
  });
  EXPECT_EQ(c.schedule.generator, "gpu_rows") << to_string(c.schedule);
  EXPECT_GE(blocks_of(c), 132) << to_string(c.schedule);
}

TEST(GpuReductions, RowsWithAStrideAreReadAsRows) {
  const Chosen c = chosen_for([](egret::Graph& g) {
    const Tensor x = g.tensor({4096, 11074}, DType::BF16, "x");
    return mean(x[{Slice{}, Slice{3, 11074, 2}}], {1});
  });
  EXPECT_EQ(c.schedule.generator, "gpu_rows") << to_string(c.schedule);
}

TEST(GpuReductions, ColumnsOfEveryMonoidAreSharedByBlocks) {
  for (const Shape& shape : {Shape{524288, 32}, Shape{3481, 9384}})
    for (const auto& reduce : std::vector<std::function<Tensor(const Tensor&)>>{
             [](const Tensor& x) { return argmax(x, 0); },
             [](const Tensor& x) { return argmin(x, 0); },
             [](const Tensor& x) { return sum(x, {0}); },
             [](const Tensor& x) { return max(x, {0}); }}) {
      const Chosen c =
          chosen_for([&](egret::Graph& g) { return reduce(g.tensor(shape, DType::BF16, "x")); });
      EXPECT_EQ(c.schedule.generator, "reduction_threads") << to_string(c.schedule);
      EXPECT_GT(c.schedule.split_reduce, 1) << to_string(c.schedule);
      EXPECT_GE(blocks_of(c), 132) << to_string(c.schedule);
    }
}

TEST(GpuReductions, ColumnsOfSeveralPassesAreSharedByBlocks) {
  for (const Shape& shape : {Shape{524288, 32}, Shape{3481, 9384}}) {
    const Chosen c =
        chosen_for([&](egret::Graph& g) { return var(g.tensor(shape, DType::BF16, "x"), {0}); });
    EXPECT_EQ(c.schedule.generator, "gpu_columns") << to_string(c.schedule);
    EXPECT_GT(c.schedule.split_reduce, 1) << to_string(c.schedule);
    EXPECT_GE(blocks_of(c), 132) << to_string(c.schedule);
  }
}

TEST(GpuReductions, BlocksAreNoWiderThanTheColumns) {
  const Chosen c = chosen_for([](egret::Graph& g) {
    return norm(g.tensor({131072, 1, 16}, DType::F16, "x"), {0, 1});
  });
  EXPECT_EQ(c.schedule.generator, "reduction_threads") << to_string(c.schedule);
  EXPECT_EQ(c.schedule.knob("across", 0), 2) << "two vectors of 8 a row";
}

TEST(GpuReductions, LongRowsAndColumnsOfSeveralPassesAreSharedByBlocks) {
  for (const auto& [shape, axis] :
       {std::pair{Shape{2, 1 << 20}, std::int64_t(1)}, {Shape{1 << 20, 8}, std::int64_t(0)}}) {
    const Chosen c = chosen_for([&](egret::Graph& g) {
      const Tensor x = g.tensor(shape, DType::F32, "x"), d = x - mean(x, {axis}, true);
      return sum(d * d * d, {axis});
    });
    EXPECT_GE(blocks_of(c), 64) << to_string(c.schedule);
    EXPECT_TRUE(c.program.launch.resident) << "blocks wait for each other between the passes";
  }
}

TEST(GpuReductions, FewTermsAreOfOneThread) {
  const auto pooled = [](const Shape& shape, DType dtype, std::int64_t kernel,
                         std::int64_t stride) {
    return chosen_for([&](egret::Graph& g) {
      const MaxPoolOptions options{.stride = stride, .padding = 1};
      return max_pool1d(g.tensor(shape, dtype, "x"), kernel, options);
    });
  };
  for (const Chosen& c : {pooled({4, 4, 131072}, DType::F32, 4, 1),
                          pooled({3, 16, 9248}, DType::BF16, 3, 3), chosen_for([](egret::Graph& g) {
                            const ConvOptions options{.stride = 2, .padding = PerAxis{1, 0}};
                            return conv2d(g.tensor({1, 1, 1091, 4096}, DType::BF16, "x"),
                                          g.tensor({1, 1, 3, 3}, DType::BF16, "w"), {}, options);
                          })})
    EXPECT_EQ(c.schedule.generator, "gpu_points") << to_string(c.schedule);
}

TEST(GpuReductions, WindowsOfManyChannelsAreOfOneThreadAResult) {
  for (const bool channels_last : {false, true}) {
    const auto image = [&](egret::Graph& g, std::int64_t channels) {
      return channels_last ? g.tensor({8, 56, 56, channels}, DType::F32, "x").permute({0, 3, 1, 2})
                           : g.tensor({8, channels, 56, 56}, DType::F32, "x");
    };
    const auto stored = [&](const Tensor& y) {
      return channels_last ? y.permute({0, 2, 3, 1}) : y;
    };
    const Chosen depthwise = chosen_for([&](egret::Graph& g) {
      const ConvOptions options{.padding = 3, .groups = 64};
      return stored(conv2d(image(g, 64), g.tensor({64, 1, 7, 7}, DType::F32, "w"), {}, options));
    });
    const Chosen pooled = chosen_for([&](egret::Graph& g) {
      const MaxPoolOptions options{.stride = 2, .padding = 1};
      return stored(max_pool2d(image(g, 64), 3, options));
    });
    for (const Chosen& c : {depthwise, pooled})
      EXPECT_EQ(c.schedule.generator, "gpu_points") << to_string(c.schedule);
  }
}

TEST(GpuReductions, TilesAndRowsKeepWhatSuitsThem) {
  const auto taker = [](const std::function<Tensor(egret::Graph&)>& make) {
    return chosen_for(make).schedule.generator;
  };
  EXPECT_EQ(taker([](egret::Graph& g) {
              return sum(g.tensor({65536, 23}, DType::BF16, "x"), {1});
            }),
            "gpu_rows")
      << "neighbouring results lie apart in memory";
  EXPECT_EQ(
      taker([](egret::Graph& g) {
        return matmul(g.tensor({4096, 16}, DType::F32, "x"), g.tensor({16, 4096}, DType::F32, "y"));
      }),
      "gpu_contraction");
  EXPECT_EQ(taker([](egret::Graph& g) {
              return sum(g.tensor({64, 128}, DType::F32, "x"), {0});
            }),
            "reduction_threads")
      << "64 terms of few results";
}

} // namespace
} // namespace egret::kernel
