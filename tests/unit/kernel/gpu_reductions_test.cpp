// Which template takes a reduction on a GPU with many multiprocessors, and how it shares it out:
// whatever the strides, no reduction of much is left to few threads.
#include "egret/autodiff.h"
#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/graph.h"
#include "kernel/analysis.h"
#include "kernel/code_length.h"
#include "kernel/generator.h"
#include "kernel/gpu_row_time.h"
#include "kernel/passes.h"
#include "support/random_graph.h"
#include "support/region_runner.h"
#include "support/targets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

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

/// What is chosen without a search for the only kernel of a program, one of so many of a launch.
Chosen chosen_for(const std::function<Tensor(egret::Graph&)>& make, int sharing = 1) {
  egret::Graph cx;
  Tensor y = make(cx);
  y.retrieve();
  const auto regions = testing::regions_of(ir::parse_graph(cx.text()), large_gpu());
  EXPECT_EQ(regions.size(), 1u);
  Target target = large_gpu();
  target.sharing = sharing;
  return lower_greedily(regions.at(0), target);
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

// What is read once for each term weighs more than what is stored once.
TEST(GpuReductions, LanesLieWhereTheTermsDoAndNotTheResults) {
  egret::Graph cx;
  Tensor y = max(cx.tensor({440, 202, 8}, DType::F16, "x").permute({2, 0, 1}), {2});
  y.retrieve();
  const auto regions = testing::regions_of(ir::parse_graph(cx.text()), large_gpu());
  ASSERT_EQ(regions.size(), 1u);
  const Region& r = regions[0];
  const Stage& stage = r.stages.at(0);
  const int axis = column_axis(r, plan_passes(r));
  EXPECT_EQ(stride_of(r, stage, stage.loads.at(0), axis), 1);
  EXPECT_EQ(stride_of(r, r.outputs.at(0), axis), 440);
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
    EXPECT_EQ(c.schedule.generator, "reduction_threads") << to_string(c.schedule);
    EXPECT_EQ(c.schedule.knob("online", 0), 2) << to_string(c.schedule);
    EXPECT_GT(c.schedule.split_reduce, 1) << to_string(c.schedule);
    EXPECT_GE(blocks_of(c), 132) << to_string(c.schedule);
  }
}

TEST(GpuReductions, SpreadsOfGatheredColumnsAreSharedByBlocks) {
  const Chosen c = chosen_for([](egret::Graph& g) {
    return var(index_select(g.tensor({524288, 4}, DType::F32, "x"), 0,
                            g.tensor({524288}, DType::I64, "places")),
               {0});
  });
  EXPECT_EQ(c.schedule.knob("online", 0), 2) << to_string(c.schedule);
  EXPECT_GE(blocks_of(c), 132) << to_string(c.schedule);
}

/// Means and spreads of few columns in one pass, by threads and blocks that combine theirs; the
/// mean is stored, too. Of rows, and of gathered rows.
TEST(GpuReductions, SpreadsOfColumnsGoAlongWithTheirMeans) {
  for (const bool gathered : {false, true}) {
    egret::Graph g;
    Tensor x = g.tensor({1100, 24}, DType::BF16, "x");
    if (gathered)
      x = index_select(x, 0, g.tensor({1100}, DType::I32, "places"));
    Tensor m = mean(x.to(DType::F32), {0}), v = mean(square(x.to(DType::F32) - m), {0});
    m.retrieve();
    v.retrieve();
    const ir::Graph graph = ir::parse_graph(g.text());
    const auto cases =
        testing::region_cases(graph, testing::random_inputs(graph, 1, {}), large_gpu());
    ASSERT_EQ(cases.size(), 1u);
    for (const char* schedule :
         {"reduction_threads across=2 down=64 online=2 @split_reduce=4",
          "reduction_threads across=1 down=32 copies=2 online=2 @split_reduce=17",
          "reduction_threads across=4 down=24 copies=1 online=2",
          "reduction_threads across=2 down=96"})
      EXPECT_EQ(testing::check_schedule(testing::aligned_for(cases[0], large_gpu()),
                                        testing::generator_named("reduction_threads", large_gpu()),
                                        parse_schedule(schedule), large_gpu(), {}, true),
                "")
          << schedule;
  }
}

/// What is normalized over few long columns is computed by a kernel of its own, which all
/// multiprocessors share.
TEST(GpuReductions, MapsBehindFewLongColumnsAreKernelsOfTheirOwn) {
  const auto kernels = [](const Shape& shape) {
    egret::Graph g;
    const Tensor x = g.tensor(shape, DType::BF16, "x");
    Tensor y = batch_norm(x.permute({0, 3, 1, 2}), {}, {}, ones({shape[3]}, DType::BF16),
                          zeros({shape[3]}, DType::BF16), {.training = true})
                   .permute({0, 2, 3, 1});
    y.retrieve();
    return testing::regions_of(ir::parse_graph(g.text()), large_gpu()).size();
  };
  EXPECT_EQ(kernels({32, 56, 56, 64}), 2u);
  EXPECT_EQ(kernels({8, 7, 7, 64}), 1u);
}

TEST(GpuReductions, ColumnsOfSeveralPassesFillTheMultiprocessors) {
  for (const Shape& shape : {Shape{32, 1024, 256}, Shape{8, 96, 3136}}) {
    const Chosen c =
        chosen_for([&](egret::Graph& g) { return softmax(g.tensor(shape, DType::F32, "x"), 1); });
    EXPECT_EQ(c.schedule.generator, "reduction_threads") << to_string(c.schedule);
    EXPECT_GE(blocks_of(c) * c.program.launch.threads, 132 * 512) << to_string(c.schedule);
  }
}

/// Heads of queries, keys and values beside each other, those of the keys turned, and their sum
/// over all positions, as a bias wants it.
egret::Graph heads_and_sum(std::int64_t batch, std::int64_t heads, std::int64_t places,
                           std::int64_t width) {
  egret::Graph g;
  const auto rows = [&](const Tensor& x) {
    return x.permute({0, 2, 1, 3}).reshape({batch * places, heads * width});
  };
  const auto input = [&](const char* name, std::int64_t rows, std::int64_t columns) {
    return g.tensor({batch, heads, rows, columns}, DType::BF16, name);
  };
  Tensor all =
      cat({rows(input("q", places, width)), rows(input("k", width, places).transpose(2, 3)),
           rows(input("v", places, width))},
          1);
  all.retrieve();
  Tensor total = sum(all, {0});
  total.retrieve();
  return g;
}

TEST(GpuReductions, HeadsBesideEachOtherAreColumns) {
  const auto regions =
      testing::regions_of(ir::parse_graph(heads_and_sum(32, 12, 1024, 64).text()), large_gpu());
  ASSERT_EQ(regions.size(), 1u);
  EXPECT_EQ(classify(regions[0]), Form::Column);
  const Chosen c = lower_greedily(regions[0], large_gpu());
  EXPECT_EQ(c.schedule.generator, "reduction_threads") << to_string(c.schedule);
  EXPECT_GE(blocks_of(c), 132) << "all is stored on the way, and the sum still shared out";
}

TEST(GpuReductions, BlocksThatShareColumnsStoreWhatTheyRead) {
  const ir::Graph g = ir::parse_graph(heads_and_sum(2, 3, 40, 8).text());
  const auto cases = testing::region_cases(g, testing::random_inputs(g, 1, {}), large_gpu());
  ASSERT_EQ(cases.size(), 1u);
  for (const char* schedule : {"reduction_threads across=4 down=8 @split_reduce=5",
                               "reduction_threads across=8 down=4 copies=1 @split_reduce=2"})
    EXPECT_EQ(testing::check_schedule(testing::aligned_for(cases[0], large_gpu()),
                                      testing::generator_named("reduction_threads", large_gpu()),
                                      parse_schedule(schedule), large_gpu(), {}, true),
              "");
}

TEST(GpuReductions, WindowsOfImagesInAnotherOrderWishForTheResults) {
  egret::Graph g;
  const Tensor x = g.tensor({8, 28, 28, 96}, DType::BF16, "x"),
               w = g.tensor({96, 1, 5, 5}, DType::BF16, "w");
  conv2d(x.permute({0, 3, 1, 2}), w, {}, {.padding = 2, .groups = 96}).retrieve();
  const auto regions = testing::regions_of(ir::parse_graph(g.text()), large_gpu());
  ASSERT_EQ(regions.size(), 1u);
  const Generator& points = testing::generator_named("gpu_points", large_gpu());
  const auto wishes = points.layouts(regions[0], large_gpu());
  ASSERT_EQ(wishes.size(), 1u) << "the image; weights do not vary along a line of results";
  EXPECT_EQ(to_string(wishes[0].layout), to_string(Layout{{8, 28, 28, 96}, {{0}, {3}, {1}, {2}}}));
  EXPECT_GT(wishes[0].seconds, 0);
  EXPECT_TRUE(points
                  .layouts(testing::regions_of(ir::parse_graph([] {
                                                 egret::Graph g;
                                                 matmul(g.tensor({256, 48}, DType::F32, "a"),
                                                        g.tensor({48, 256}, DType::F32, "b"))
                                                     .retrieve();
                                                 return g.text();
                                               }()),
                                               large_gpu())[0],
                           large_gpu())
                  .empty());
}

/// The weights of channels that lie beside each other.
TEST(GpuReductions, WhatResultsShareIsWishedForAlongThem) {
  egret::Graph g;
  const Tensor x = g.tensor({8, 28, 28, 96}, DType::BF16, "x"),
               w = g.tensor({96, 1, 3, 3}, DType::BF16, "w");
  relu(conv2d(x.permute({0, 3, 1, 2}), w, {}, {.padding = 1, .groups = 96}).permute({0, 2, 3, 1}))
      .retrieve();
  const auto regions = testing::regions_of(ir::parse_graph(g.text()), large_gpu());
  ASSERT_EQ(regions.size(), 1u);
  const auto wishes =
      testing::generator_named("gpu_points", large_gpu()).layouts(regions[0], large_gpu());
  ASSERT_EQ(wishes.size(), 1u);
  EXPECT_EQ(to_string(wishes[0].layout), to_string(Layout{{96, 3, 3}, {{1}, {2}, {0}}}));
  EXPECT_EQ(lower_greedily(regions[0], large_gpu()).schedule.generator, "gpu_points");
}

TEST(GpuReductions, BlocksAreNoWiderThanTheColumns) {
  const Chosen c = chosen_for([](egret::Graph& g) {
    return norm(g.tensor({131072, 1, 16}, DType::F16, "x"), {0, 1});
  });
  EXPECT_EQ(c.schedule.generator, "reduction_threads") << to_string(c.schedule);
  EXPECT_EQ(c.schedule.knob("across", 0), 2) << "two vectors of 8 a row";
}

TEST(GpuReductions, LongRowsOfSeveralPassesAreSharedByBlocks) {
  const Chosen c = chosen_for([&](egret::Graph& g) {
    const Tensor x = g.tensor({2, 1 << 20}, DType::F32, "x"), d = x - mean(x, {1}, true);
    return sum(d * d * d, {1});
  });
  EXPECT_GE(blocks_of(c), 64) << to_string(c.schedule);
  EXPECT_TRUE(c.program.launch.resident) << "blocks wait for each other between the passes";
}

/// Sums that wait for each other are shared by blocks in a kernel each.
TEST(GpuReductions, FewLongColumnsOfSeveralPassesAreKernelsOfTheirOwn) {
  egret::Graph g;
  const Tensor x = g.tensor({1 << 20, 8}, DType::F32, "x"), d = x - mean(x, {0}, true);
  Tensor y = sum(d * d * d, {0});
  y.retrieve();
  const auto regions = testing::regions_of(ir::parse_graph(g.text()), large_gpu());
  ASSERT_EQ(regions.size(), 2u);
  for (const Region& region : regions)
    EXPECT_GE(blocks_of(lower_greedily(region, large_gpu())), 64);
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

/// Offsets into windows are divided: neighbouring results read neighbours all the same, here of
/// what was pooled and of a table for all images.
TEST(GpuReductions, GradientsOfWindowsAreOfOneThreadAResult) {
  egret::Graph g;
  Tensor x = g.tensor({512, 1, 57, 57}, DType::F32, "x");
  x.set_requires_grad();
  const Tensor y =
      avg_pool2d(x, PerAxis{3, 5}, {.stride = PerAxis{2, 3}, .padding = PerAxis{1, 2}});
  const Tensor table = g.tensor({29, 19}, DType::F32, "table");
  grad((y * y / table).sum(), x).retrieve();
  const auto regions = testing::regions_of(ir::parse_graph(g.text()), large_gpu());
  const Chosen last = lower_greedily(regions.back(), large_gpu());
  EXPECT_EQ(last.schedule.generator, "gpu_points") << to_string(last.schedule);
}

std::int64_t count_of(std::string_view what, const std::string& text) {
  std::int64_t count = 0;
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size())
    ++count;
  return count;
}

/// Compilers take more than linear time for straight code, most of all for operations with a path
/// for rare operands.
TEST(GpuReductions, CodeOfTermsIsBounded) {
  const auto text_of = [](const Chosen& c) {
    EXPECT_EQ(c.schedule.generator, "gpu_points") << to_string(c.schedule);
    return print(c.program);
  };
  const std::string spectrum = text_of(chosen_for([](egret::Graph& g) {
    const auto rows = [&](const char* name) { return g.tensor({512, 1, 32}, DType::F32, name); };
    const Tensor time = g.tensor({1024, 1}, DType::F32, "t"), turn = rows("w") * time;
    return (exp(rows("d") * time) * (rows("a") * cos(turn) + rows("b") * sin(turn))).sum(-1);
  }));
  EXPECT_LE(count_of("sin ", spectrum), 8) << "of 32 terms, whole and cut off";
  const std::string distances = text_of(chosen_for([](egret::Graph& g) {
    const Tensor x = g.tensor({20000, 1, 16}, DType::F32, "x"),
                 m = g.tensor({32, 16}, DType::F32, "m"), s = g.tensor({32, 16}, DType::F32, "s");
    return ((x - m) / s).square().sum(-1);
  }));
  EXPECT_LE(count_of("div ", distances), 96) << "of 16 terms of 8 results, whole and cut off";
  const std::string apart = text_of(chosen_for([](egret::Graph& g) {
    const Tensor x = g.tensor({32, 20000}, DType::F32, "x"), d = x.unsqueeze(0) - x.unsqueeze(1);
    return where(d < 0, -1.0, where(d > 0, 1.0, 0.0)).sum(0) + x;
  }));
  EXPECT_LE(count_of("\n", apart), 3000) << "of 32 terms of 8 results";
  const std::string depthwise = text_of(chosen_for([](egret::Graph& g) {
    const ConvOptions options{.padding = 3, .groups = 64};
    return conv2d(g.tensor({8, 64, 56, 56}, DType::F32, "x"),
                  g.tensor({64, 1, 7, 7}, DType::F32, "w"), {}, options);
  }));
  EXPECT_GE(count_of("fma ", depthwise), 7 * 8) << "a row of the window, for a strip";
}

/// The lanes of a GPU's vector are code of their own, and so are its vectors; of much arithmetic a
/// thread makes one element.
TEST(GpuReductions, CodeOfLanesOfAMapIsBounded) {
  const auto lines_of = [](int steps) {
    const Chosen c = chosen_for([&](egret::Graph& g) {
      const Tensor x = g.tensor({64, 4096}, DType::F32, "x"), y = g.tensor({64}, DType::F32, "y");
      Tensor value = x;
      for (int i = 0; i < steps; ++i)
        value = y[i] / (value + x * (i + 1.0));
      return value;
    });
    EXPECT_EQ(c.schedule.generator, "elementwise") << to_string(c.schedule);
    int widest = 1;
    for (const Type& value : c.program.values)
      widest = std::max(widest, value.lanes);
    return widest * count_of("div ", print(c.program));
  };
  EXPECT_GE(lines_of(2), 4 * 2) << "whole vectors";
  EXPECT_LE(lines_of(24), 2 * 24) << "of one lane, whole and cut off";
}

/// Of a map that leaves threads idle these take the points that would be lanes.
TEST(GpuReductions, SmallMapsOfMuchCodeHaveAThreadAPoint) {
  const auto map_of = [](std::int64_t rows, int steps, int maps = 1) {
    return chosen_for(
        [&](egret::Graph& g) {
          const Tensor x = g.tensor({rows, 256}, DType::F32, "x");
          const Tensor y = g.tensor({rows, 256}, DType::F32, "y");
          Tensor value = x;
          for (int i = 0; i < steps; ++i)
            value = y * value + x * (i + 1.0);
          return value;
        },
        maps);
  };
  const auto lanes_of = [](const Chosen& c) {
    EXPECT_EQ(c.schedule.generator, "elementwise") << to_string(c.schedule);
    return std::ranges::max_element(c.program.values, {}, &Type::lanes)->lanes;
  };
  EXPECT_EQ(lanes_of(map_of(16, 100)), 1);
  EXPECT_EQ(lanes_of(map_of(16, 2)), 4) << "of little code";
  EXPECT_EQ(lanes_of(map_of(16384, 100)), 4) << "of many points";
  EXPECT_EQ(lanes_of(map_of(16, 100, 1024)), 4) << "beside others in a launch";
}

/// Copies of an iteration are there for loads in flight, of which much code has enough.
TEST(GpuReductions, CodeOfCopiesIsBounded) {
  const auto length_of = [](int steps) {
    const Chosen c = chosen_for([&](egret::Graph& g) {
      std::vector<Tensor> read;
      for (int i = 0; i < 8; ++i)
        read.push_back(g.tensor({65536, 128}, DType::F32, "x"));
      Tensor value = read[0];
      for (int i = 0; i < steps; ++i)
        value = read[std::size_t(i)] * value + sin(read[0] * (i + 1.0));
      return value.sum(0);
    });
    EXPECT_EQ(c.schedule.generator, "reduction_threads") << to_string(c.schedule);
    return code_length(c.program);
  };
  EXPECT_LT(length_of(8), 2 * length_of(2)) << "fewer copies of much code";
}

/// The schedules of a graph's regions have the reference's values.
void expect_right(const ir::Graph& g, const char* generator,
                  std::initializer_list<const char*> schedules) {
  for (const auto& each : testing::region_cases(g, testing::random_inputs(g, 3, {})))
    for (const char* schedule : schedules) {
      const std::string wrong = testing::check_schedule(
          testing::aligned_for(each, testing::test_gpu()),
          testing::generator_named(generator, testing::test_gpu()), parse_schedule(schedule),
          testing::test_gpu(), testing::RunOptions{.workers = 2}, /*must_lower=*/true);
      EXPECT_TRUE(wrong.empty()) << schedule << ": " << wrong;
    }
}

/// Of a buffer, in the code.
int loads_of(const Chosen& c, const std::string& buffer) {
  const std::string text = print(c.program), wanted = " = load " + buffer + "[";
  int loads = 0;
  for (std::size_t at = 0; (at = text.find(wanted, at)) != std::string::npos; ++at)
    ++loads;
  return loads;
}

/// Windows that overlap along an axis which neighbouring threads do not follow.
TEST(GpuReductions, OverlappingWindowsAreOfStrips) {
  const auto depthwise = [](std::int64_t kernel, std::int64_t side) {
    return chosen_for([&](egret::Graph& g) {
      const ConvOptions options{.padding = kernel / 2, .groups = 96};
      return conv2d(g.tensor({32, 96, side, side}, DType::F32, "x"),
                    g.tensor({96, 1, kernel, kernel}, DType::F32, "w"), {}, options);
    });
  };
  const Chosen seven = depthwise(7, 56);
  EXPECT_EQ(seven.schedule.knob("strip", 1), 8) << to_string(seven.schedule);
  EXPECT_EQ(loads_of(seven, "w"), 7) << "a column of weights";
  EXPECT_EQ(loads_of(seven, "x"), 14) << "what 8 results read of it";
  EXPECT_GT(depthwise(3, 56).schedule.knob("strip", 1), 1);
  const Chosen apart = chosen_for([](egret::Graph& g) {
    return max_pool2d(g.tensor({32, 96, 56, 56}, DType::F32, "x"), 2);
  });
  EXPECT_EQ(apart.schedule.knob("strip", 1), 1) << "nothing is read twice";
}

TEST(GpuReductions, StripsThatShareNothingAreRefused) {
  egret::Graph g;
  max_pool2d(g.tensor({8, 16, 32, 32}, DType::F32, "x"), 2).retrieve();
  const Region region = testing::regions_of(ir::parse_graph(g.text()), large_gpu()).at(0);
  const auto reason = [&](const char* schedule) {
    return testing::generator_named("gpu_points", large_gpu())
        .lower(region, parse_schedule(schedule), large_gpu())
        .reason;
  };
  EXPECT_EQ(reason("gpu_points results=1 strip=4 threads=128"),
            "no strip of its results reads less than single ones");
  EXPECT_EQ(reason("gpu_points results=2 strip=4 threads=128"),
            "a thread makes one strip of results");
}

TEST(GpuReductions, StripsHaveTheValuesOfSingleResults) {
  const auto check = [](const std::function<Tensor(egret::Graph&)>& make) {
    egret::Graph cx;
    make(cx).retrieve();
    const ir::Graph g = ir::parse_graph(cx.text());
    expect_right(
        g, "gpu_points",
        {"gpu_points results=1 threads=32 strip=8", "gpu_points results=1 threads=64 strip=3"});
  };
  for (const std::int64_t side : {8, 11, 13})
    for (const DType dtype : {DType::F32, DType::BF16})
      for (const std::int64_t kernel : {3, 5}) {
        const ConvOptions options{
            .padding = kernel / 2, .dilation = kernel == 3 ? 2 : 1, .groups = 4};
        check([&](egret::Graph& g) {
          return conv2d(g.tensor({2, 4, side, side}, dtype, "x"),
                        g.tensor({4, 1, kernel, kernel}, dtype, "w"), {}, options);
        });
        check([&](egret::Graph& g) {
          return conv2d(g.tensor({2, side, side, 4}, dtype, "x").permute({0, 3, 1, 2}),
                        g.tensor({4, 1, kernel, kernel}, dtype, "w"), {}, options)
              .permute({0, 2, 3, 1});
        });
        check([&](egret::Graph& g) {
          return max_pool2d(g.tensor({2, 4, side, side}, dtype, "x"), 3,
                            {.stride = 1, .padding = 1});
        });
      }
}

/// The gradient of a depthwise convolution's weights, whose windows overlap.
ir::Graph depthwise_gradient(DType dtype, const Shape& sizes, std::int64_t kernel, bool last) {
  egret::Graph g;
  const auto image = [&](const char* name) {
    const Shape in_memory = {sizes[0], sizes[2], sizes[3], sizes[1]};
    return last ? g.tensor(in_memory, dtype, name).permute({0, 3, 1, 2})
                : g.tensor(sizes, dtype, name);
  };
  const Tensor x = image("x"), w = g.tensor({sizes[1], 1, kernel, kernel}, dtype, "w");
  conv2d(x, w, {}, {.padding = kernel / 2, .groups = sizes[1].value()}).retrieve();
  ir::Graph graph = ir::parse_graph(g.text());
  const std::vector<ir::NodeId> y = graph.outputs;
  const ir::NodeId stored =
      graph.input("dy", dtype, last ? Shape{sizes[0], sizes[2], sizes[3], sizes[1]} : sizes);
  const ir::NodeId dy = last ? graph.permute(stored, {0, 3, 1, 2}) : stored;
  graph.outputs = gradients(graph, y, std::vector{dy}, std::vector{graph.inputs()[1]});
  return graph;
}

TEST(GpuReductions, SumsOverWindowsAreOfThreadsThatHaveAllWindows) {
  for (const bool last : {false, true}) {
    const auto regions =
        testing::regions_of(depthwise_gradient(DType::F32, {32, 96, 56, 56}, 7, last), large_gpu());
    ASSERT_EQ(regions.size(), 1u);
    const Chosen c = lower_greedily(regions[0], large_gpu());
    EXPECT_EQ(c.schedule.generator, "gpu_window_sums") << to_string(c.schedule);
    EXPECT_EQ(loads_of(c, "dy"), 8) << "the points of a strip";
    EXPECT_EQ(loads_of(c, "x"), 7 * 14) << "what they read, for 7 windows a column";
    EXPECT_GE(blocks_of(c), 132);
  }
}

TEST(GpuReductions, SumsOverWindowsHaveTheValuesOfTheReference) {
  for (const Shape& sizes : {Shape{2, 3, 5, 6}, Shape{2, 40, 8, 7}, Shape{1, 4, 11, 9}})
    for (const DType dtype : {DType::F32, DType::BF16})
      for (const bool last : {false, true})
        expect_right(depthwise_gradient(dtype, sizes, 3, last), "gpu_window_sums",
                     {"gpu_window_sums threads=32", "gpu_window_sums threads=64 @split_reduce=3"});
}

/// Terms that lie side by side in the result, and neighbouring results in what is read: neither is
/// read or stored by lanes that lie apart.
TEST(GpuReductions, ResultsOfOtherOrderThanTheirOperandAreExchangedByWarps) {
  for (const std::int64_t channels : {8, 20, 64}) {
    egret::Graph cx;
    softmax(cx.tensor({16, channels, 56, 56}, DType::F32, "x").permute({0, 2, 3, 1})).retrieve();
    const Region region = testing::regions_of(ir::parse_graph(cx.text()), large_gpu()).at(0);
    const Chosen c = lower_greedily(region, large_gpu());
    ASSERT_EQ(c.schedule.generator, "gpu_points") << to_string(c.schedule);
    EXPECT_NE(print(c.program).find("shared turned0"), std::string::npos) << print(c.program);
  }
  const auto small = [](const std::function<Tensor(const Tensor&)>& make, std::int64_t channels,
                        DType dtype) {
    egret::Graph cx;
    make(cx.tensor({2, channels, 7, 6}, dtype, "x").permute({0, 2, 3, 1})).retrieve();
    const ir::Graph g = ir::parse_graph(cx.text());
    SCOPED_TRACE(channels);
    expect_right(g, "gpu_points",
                 {"gpu_points results=1 threads=32", "gpu_points results=2 threads=64"});
  };
  for (const std::int64_t channels : {4, 7, 24, 45})
    for (const DType dtype : {DType::F32, DType::BF16}) {
      small([](const Tensor& x) { return softmax(x, -1); }, channels, dtype);
      small([](const Tensor& x) { return x - mean(x, {-1}, true); }, channels, dtype);
    }
}

/// Reductions of rows, each of which needs a different number of passes.
const std::vector<std::function<std::vector<Tensor>(const Tensor&)>>& row_reductions() {
  static const std::vector<std::function<std::vector<Tensor>(const Tensor&)>> all{
      [](const Tensor& x) {
        return std::vector{sum(x, {1}), max(x, {1})};
      },
      [](const Tensor& x) { return std::vector{var(x, {1}, false, 0)}; },
      [](const Tensor& x) { return std::vector{argmax(x, 1)}; },
      [](const Tensor& x) { return std::vector{logsumexp(x, 1)}; },
      [](const Tensor& x) { return std::vector{softmax(x, 1)}; },
      [](const Tensor& x) { return std::vector{layer_norm(x, x[{0}], x[{1}])}; }};
  return all;
}

Region rows_region(const std::function<std::vector<Tensor>(const Tensor&)>& reduce, DType dtype,
                   std::int64_t length) {
  egret::Graph cx;
  const Tensor x = cx.tensor({(1 << 24) / length, length}, dtype, "x");
  for (Tensor& y : reduce(x))
    y.retrieve();
  return testing::regions_of(ir::parse_graph(cx.text()), large_gpu()).at(0);
}

TEST(GpuReductions, ManyShortRowsOfAnyLengthShareABlock) {
  for (const auto& reduce : row_reductions())
    for (DType dtype : {DType::F32, DType::BF16, DType::F64})
      for (std::int64_t length : {7, 16, 33, 35, 64, 100, 127, 129, 255, 257, 500, 1000, 1023}) {
        const Chosen c = lower_greedily(rows_region(reduce, dtype, length), large_gpu());
        if (c.schedule.generator == "gpu_points")
          continue; // a thread a row
        ASSERT_EQ(c.schedule.generator, "gpu_rows") << to_string(c.schedule);
        const std::int64_t threads = c.schedule.knob("threads", 256);
        const std::int64_t group = c.schedule.knob("group", threads);
        EXPECT_LE(group, std::min<std::int64_t>(32, length))
            << name_of(dtype) << " rows of " << length << ": " << to_string(c.schedule);
        EXPECT_LE(group * 4, threads) << to_string(c.schedule);
      }
}

TEST(GpuReductions, TheFirstScheduleOfRowsIsEstimatedToBeAmongTheBest) {
  const Target target = large_gpu();
  for (const auto& reduce : row_reductions())
    for (std::int64_t length : {35, 257, 1024, 4097, 32768}) {
      const Region region = rows_region(reduce, DType::BF16, length);
      const RowTime time(region, RowFacts(region), target);
      const Generator& rows = *find_generator("gpu_rows", target);
      double first = 0;
      for (const Schedule& s : rows.space(region, target)) {
        if (s.knob("online", 0) != 0)
          continue; // of another region, with other sums
        const double seconds = time.seconds(s);
        first = first == 0 ? seconds : first;
        EXPECT_LE(first, 1.05 * seconds) << to_string(s) << " for rows of " << length;
      }
    }
}

TEST(GpuReductions, TheEstimateOfRowsCountsThreadsThatHaveNothingToDo) {
  const Target target = large_gpu();
  const Region region = rows_region(row_reductions()[1], DType::F32, 35);
  const RowTime time(region, RowFacts(region), target);
  const auto seconds = [&](const char* text) { return time.seconds(parse_schedule(text)); };
  // A block of 256 threads a row took 0.57 ms on an H200 where the memory takes 0.01.
  EXPECT_GT(seconds("gpu_rows copies=2 group=256 keep=2 shift=1 threads=256"),
            10 * seconds("gpu_rows group=8 keep=0 threads=128"));
  EXPECT_GT(seconds("gpu_rows group=32 keep=0 threads=128"),
            seconds("gpu_rows group=8 keep=0 threads=128"));
}

/// Layer norm of `rows` of bf16 with a weight and a bias of each column.
Region weighted_rows(std::int64_t rows, std::int64_t columns) {
  egret::Graph cx;
  const Tensor x = cx.tensor({rows, columns}, DType::BF16, "x");
  layer_norm(x, cx.tensor({columns}, DType::BF16, "w"), cx.tensor({columns}, DType::BF16, "b"))
      .retrieve();
  return testing::regions_of(ir::parse_graph(cx.text()), large_gpu()).at(0);
}

TEST(GpuReductions, TheEstimateOfRowsCountsTheRegistersOfWeights) {
  const Target target = large_gpu();
  const Region region = weighted_rows(4096, 32768);
  const RowTime time(region, RowFacts(region), target);
  const auto seconds = [&](const char* text) { return time.seconds(parse_schedule(text)); };
  // Straight code spills: 0.229 ms on an H200, for 0.147 in a loop.
  EXPECT_GT(seconds("gpu_rows group=512 keep=0 run=32 threads=512"),
            1.3 * seconds("gpu_rows group=512 keep=1 roll=4 run=32 threads=512"));
  EXPECT_GT(find_generator("gpu_rows", target)->space(region, target).at(0).knob("roll", 0), 0);
}

TEST(GpuReductions, TheEstimateOfRowsCountsWhatAWorkQueueTakes) {
  const Target target = large_gpu();
  const Region region = weighted_rows(65536, 1024);
  const RowTime time(region, RowFacts(region), target);
  const auto seconds = [&](const char* text) { return time.seconds(parse_schedule(text)); };
  // 0.130 ms on an H200, for 0.066.
  EXPECT_GT(seconds("gpu_rows group=64 keep=0 threads=64 @order=drawn/1"),
            seconds("gpu_rows group=64 keep=0 threads=64"));
  // Blocks by themselves are as quick: the queue is not tried first.
  const Region longer = weighted_rows(16384, 4096);
  EXPECT_EQ(find_generator("gpu_rows", target)->space(longer, target).at(0).order,
            WorkOrder::Fixed);
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
