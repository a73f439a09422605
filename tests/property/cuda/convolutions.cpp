// Convolutions of 16-bit floats with any padding, stride and dilation, and their gradients: matrix
// units multiply, results are those of the reference, and the text compiles.
#include "backend/cuda/nvrtc.h"
#include "backend/cuda/render.h"
#include "backend/cuda/target.h"
#include "compiler/compile.h"
#include "compiler/placed_products.h"
#include "egret/error.h"
#include "kernel/contraction_layouts.h"
#include "kernel/families.h"
#include "kernel/gpu_wgmma_side.h"
#include "support/convolution_graphs.h"
#include "support/null_device.h"
#include "support/nvrtc.h"
#include "support/random_graph.h"
#include "support/region_runner.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

namespace egret {
namespace {

using testing::Convolution;

/// Those of a ResNet, a U-Net, a text and a volume; with padding and without.
std::vector<Convolution> usual_convolutions() {
  return {{8, 64, 64, {56, 56}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
          {8, 64, 64, {56, 56}, {3, 3}, {1, 1}, {0, 0}, {1, 1}},
          {8, 64, 128, {56, 56}, {3, 3}, {2, 2}, {1, 1}, {1, 1}},
          {8, 16, 64, {64, 64}, {7, 7}, {2, 2}, {3, 3}, {1, 1}},
          {8, 64, 64, {56, 56}, {3, 3}, {1, 1}, {2, 2}, {2, 2}, DType::F16},
          {8, 64, 64, {56, 56}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, DType::BF16, true},
          {8, 128, 128, {512}, {5}, {1}, {2}, {1}},
          {2, 32, 32, {16, 16, 16}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}}};
}

compiler::Compiled planned(const ir::Graph& g) {
  testing::NullDevice device(backend::cuda::known_target(90));
  compiler::KernelCache cache;
  return compiler::compile_graph(g, {}, device, cache);
}

TEST(Convolutions, AndTheirGradientsAreMultipliedByMatrixUnits) {
  for (const Convolution& c : usual_convolutions()) {
    const compiler::Compiled compiled = planned(testing::convolution_graph(c, true));
    double by_units = 0, otherwise = 0;
    int products = 0;
    for (const compiler::KernelReport& k : compiled.report.kernels) {
      const bool unit = k.schedule.find("@mma=") != std::string::npos;
      products += unit;
      (unit ? by_units : otherwise) += k.flops;
    }
    EXPECT_GE(products, 3) << c.text() << "\n" << compiled.report.text();
    EXPECT_LT(otherwise, 0.1 * by_units) << c.text() << "\n" << compiled.report.text();
  }
}

TEST(Convolutions, CompileForTheGpusThereAre) {
  const auto compiler = testing::nvrtc();
  if (!compiler)
    GTEST_SKIP() << "NVRTC is not installed";
  const Convolution c = usual_convolutions()[0];
  for (const auto& entry : planned(testing::convolution_graph(c, true)).plan.kernels) {
    if (entry.schedule.mma.empty())
      continue;
    const auto target = backend::cuda::cuda_target(backend::cuda::known_target(90));
    const auto cubin = compiler->compile(
        render_cuda(entry.program, target),
        compiler->architecture_for(target.capability, target.specific), {}, "convolution");
    for (const auto& k : cubin.kernels)
      EXPECT_EQ(k.spill_stores, 0) << c.text() << "\n" << to_string(entry.schedule);
  }
}

Convolution random_convolution(testing::Rng& random) {
  Convolution c;
  c.batch = 1 + random.below(2);
  c.channels = 1 + random.below(9);
  c.outputs = 2 + random.below(8);
  c.dtype = random.chance(0.7) ? DType::BF16 : DType::F16;
  c.channels_last = random.chance(0.4);
  if (c.channels_last && random.chance(0.5))
    c.channels = 8; // copies of 16 bytes
  const std::int64_t spatial = 1 + random.below(3);
  for (std::int64_t i = 0; i < spatial; ++i) {
    const std::int64_t kernel = 1 + random.below(3), dilation = 1 + random.below(2),
                       padding = random.below(4), span = (kernel - 1) * dilation + 1;
    c.kernel.push_back(kernel);
    c.dilation.push_back(dilation);
    c.padding.push_back(padding);
    c.stride.push_back(1 + random.below(3));
    c.sizes.push_back(std::max<std::int64_t>(1, span - 2 * padding) +
                      random.below(spatial == 1 ? 40 : 6));
  }
  return c;
}

/// Runs each contraction's smallest tiles of every instruction on the interpreter.
int check_contractions(const ir::Graph& g, std::uint64_t seed, const std::string& what) {
  const kernel::Target target = testing::test_gpu();
  const kernel::Generator& generator = kernel::gpu_contraction_generator();
  int units = 0;
  for (const auto& original : testing::region_cases(g, testing::random_inputs(g, seed), target)) {
    const testing::RegionCase c = testing::aligned_for(original, target);
    std::map<std::string, kernel::Schedule> smallest;
    const auto size = [](const kernel::Schedule& s) { return s.knob("bm", 0) * s.knob("bn", 0); };
    for (const kernel::Schedule& s : generator.space(c.region, target))
      if (auto [it, fresh] = smallest.emplace(s.mma, s); !fresh && size(s) < size(it->second))
        it->second = s;
    for (const auto& [mma, schedule] : smallest) {
      units += !mma.empty();
      EXPECT_EQ(testing::check_schedule(c, generator, schedule, target, {}, true), "") << what;
    }
  }
  return units;
}

TEST(Convolutions, AreRightForRandomWindows) {
  int units = 0;
  for (std::uint64_t seed = 1; seed <= 24; ++seed) {
    testing::Rng random(seed);
    const Convolution c = random_convolution(random);
    units += check_contractions(testing::convolution_graph(c, seed % 3 == 0), seed,
                                fmt::format("seed {}: {}", seed, c.text()));
  }
  EXPECT_GE(units, 24);
}

/// Whether threads copy a side of the program's queued products.
bool copies_pieces(const kernel::KernelProgram& program) {
  return any_statement(program.body, [](const kernel::Stmt& s) {
    const auto* use = kernel::get_if<kernel::Intrinsic>(s);
    return use && use->id == kernel::IntrinsicId::MbarrierArriveCopies;
  });
}

/// Runs each contraction with each of these schedules on the interpreter; gives how many have a
/// side that threads copy.
int check_queued(const ir::Graph& g, std::uint64_t seed, const std::vector<std::string>& schedules,
                 const std::string& what) {
  const kernel::Target target = backend::cuda::known_target(90);
  const kernel::Generator& generator = kernel::gpu_contraction_generator();
  int copied = 0;
  for (const auto& original : testing::region_cases(g, testing::random_inputs(g, seed), target)) {
    const testing::RegionCase c = testing::aligned_for(original, target);
    for (const std::string& text : schedules) {
      const kernel::Schedule schedule = kernel::parse_schedule("gpu_contraction " + text);
      const kernel::Lowered lowered = generator.lower(c.region, schedule, target);
      if (!lowered.ok)
        continue;
      copied += copies_pieces(lowered.program);
      EXPECT_EQ(testing::check_schedule(c, generator, schedule, target, {}, true), "") << what;
    }
  }
  return copied;
}

TEST(Convolutions, WindowsAreCopiedForQueuedProducts) {
  int copied = 0;
  for (std::uint64_t seed = 1; seed <= 16; ++seed) {
    testing::Rng random(seed);
    Convolution c = random_convolution(random);
    c.channels = 8 * (1 + random.below(seed % 4 == 0 ? 12 : 3));
    c.outputs = 8 * (1 + random.below(12)) + (random.chance(0.3) ? 3 : 0);
    c.channels_last = c.weight_last = true;
    const std::vector<std::string> schedules = {
        seed % 2 ? "bm=64 bn=64 stages=2 wm=1 @mma=wgmma"
                 : "bm=64 bn=64 stages=3 staged=1 swap=1 wm=1 @mma=wgmma",
        seed % 3 ? "bm=128 bn=24 stages=2 wm=2 @mma=wgmma"
                 : "bm=64 bn=8 stages=2 swap=1 wm=1 @mma=wgmma"};
    const int now = check_queued(testing::convolution_graph(c, seed % 4 == 1), seed, schedules,
                                 fmt::format("seed {}: {}", seed, c.text()));
    EXPECT_GE(now, 1) << c.text();
    copied += now;
  }
  EXPECT_GE(copied, 32);
}

/// The gradient by the data as one sum of products.
ir::Graph data_gradient(const Convolution& c) {
  ir::Graph g = testing::convolution_graph(c, true);
  g.outputs = {g.outputs.at(1)};
  return compiler::with_placed_products(ir::without_dead_code(g), backend::cuda::known_target(90));
}

/// Of windows one apart and, by a batch of phases, of others.
TEST(Convolutions, GradientsByTheDataAreQueuedProductsOfWindows) {
  int copied = 0;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    testing::Rng random(seed);
    Convolution c = random_convolution(random);
    c.channels = 8 * (1 + random.below(5));
    c.outputs = 8 * (1 + random.below(5));
    c.channels_last = c.weight_last = true;
    for (std::size_t i = 0; i < c.kernel.size(); ++i) {
      c.kernel[i] = 2 + random.below(2);
      c.stride[i] = seed % 3 == 0 ? 2 : 1;
      c.dilation[i] = c.stride[i] > 1 ? 1 : c.dilation[i];
      c.padding[i] = random.below(2);
      c.sizes[i] += 3;
    }
    const ir::Graph g = data_gradient(c);
    copied += check_queued(g, seed,
                           {seed % 2 ? "bm=64 bn=64 stages=2 wm=1 @mma=wgmma"
                                     : "bm=64 bn=32 stages=3 staged=1 swap=1 wm=1 @mma=wgmma"},
                           fmt::format("seed {}: {}", seed, c.text()));
    if (seed % 4 == 0)
      check_contractions(g, seed, fmt::format("seed {}: {}", seed, c.text()));
  }
  EXPECT_GE(copied, 8);
}

/// Blocks share the depth, all places of the result; both sides go along their channels.
TEST(Convolutions, GradientsByTheWeightAreQueuedProductsOfSharedDepth) {
  int copied = 0;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    testing::Rng random(seed);
    Convolution c = random_convolution(random);
    c.channels = 8 * (1 + random.below(5));
    c.outputs = 8 * (1 + random.below(5));
    c.batch = 3;
    c.channels_last = c.weight_last = true;
    for (std::int64_t& size : c.sizes)
      size += 24 / std::int64_t(c.sizes.size() * c.sizes.size());
    ir::Graph g = testing::convolution_graph(c, true);
    g.outputs = {g.outputs.at(2)};
    copied += check_queued(ir::without_dead_code(g), seed,
                           {"bm=64 bn=64 stages=2 wm=1 @split_reduce=2 @mma=wgmma",
                            "bm=64 bn=64 stages=3 swap=1 wm=1 @split_reduce=3 @mma=wgmma"},
                           fmt::format("seed {}: {}", seed, c.text()));
  }
  EXPECT_GE(copied, 6);
}

/// Stored are the results alone: neither all windows nor what they add up to.
TEST(Convolutions, GradientsByTheDataStoreNoWindows) {
  for (Convolution c : usual_convolutions()) {
    ir::Graph g = testing::convolution_graph(c, true);
    g.outputs = {g.outputs.at(1)};
    double written = 0, result = 2;
    for (const Expr& e : g[g.outputs[0]].shape)
      result *= double(e.value());
    const compiler::Compiled compiled = planned(ir::without_dead_code(g));
    for (const compiler::KernelReport& k : compiled.report.kernels)
      if (k.schedule.find("@mma=") != std::string::npos)
        written += double(k.bytes_written);
    EXPECT_LE(written, 1.5 * result) << c.text() << "\n" << compiled.report.text();
    EXPECT_GT(written, 0) << c.text();
  }
}

/// Takes a kind of intrinsic out of a program.
void take_out(kernel::Block& block, kernel::IntrinsicId id) {
  std::erase_if(block, [&](const kernel::Stmt& s) {
    const auto* use = kernel::get_if<kernel::Intrinsic>(s);
    return use && use->id == id;
  });
  for (kernel::Stmt& s : block)
    each_block(s, [&](kernel::Block& inner) { take_out(inner, id); });
}

TEST(Convolutions, CopiesThatNoFenceOrdersAreFound) {
  const Convolution c{1, 8, 8, {6, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, DType::BF16, true, true};
  const ir::Graph g = testing::convolution_graph(c, false);
  const kernel::Target target = backend::cuda::known_target(90);
  const auto cases = testing::region_cases(g, testing::random_inputs(g, 1), target);
  ASSERT_EQ(cases.size(), 1u);
  const testing::RegionCase aligned = testing::aligned_for(cases[0], target);
  kernel::Lowered lowered = kernel::gpu_contraction_generator().lower(
      aligned.region,
      kernel::parse_schedule("gpu_contraction bm=64 bn=64 stages=2 wm=1 @mma=wgmma"), target);
  ASSERT_TRUE(lowered.ok) << lowered.reason;
  EXPECT_EQ(testing::run_and_compare(aligned, lowered.program), "");
  take_out(lowered.program.body, kernel::IntrinsicId::CopyFence);
  EXPECT_NE(testing::run_and_compare(aligned, lowered.program).find("without a copy_fence"),
            std::string::npos);
}

TEST(Convolutions, ArrivalsThatAreMissingOrTooManyAreFound) {
  const Convolution c{1, 8, 8, {6, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, DType::BF16, true, true};
  const ir::Graph g = testing::convolution_graph(c, false);
  const kernel::Target target = backend::cuda::known_target(90);
  const testing::RegionCase region = testing::aligned_for(
      testing::region_cases(g, testing::random_inputs(g, 1), target).at(0), target);
  for (const std::int64_t more : {-1, 1}) {
    kernel::KernelProgram program =
        kernel::gpu_contraction_generator()
            .lower(region.region,
                   kernel::parse_schedule("gpu_contraction bm=64 bn=64 stages=2 wm=1 @mma=wgmma"),
                   target)
            .program;
    each_statement(program.body, [&](kernel::Stmt& s) {
      auto* use = kernel::get_if<kernel::Intrinsic>(s);
      if (use && use->id == kernel::IntrinsicId::MbarrierInit && use->numbers[0] > 2)
        use->numbers[0] += more;
    });
    EXPECT_NE(testing::run_and_compare(region, program), "") << more;
  }
}

TEST(Convolutions, CopiedSidesCompileWithoutSpills) {
  const auto compiler = testing::nvrtc();
  if (!compiler)
    GTEST_SKIP() << "NVRTC is not installed";
  const kernel::Target target = backend::cuda::known_target(90);
  const auto cuda = backend::cuda::cuda_target(target);
  const kernel::Generator& generator = kernel::gpu_contraction_generator();
  const Convolution c{8, 64, 64, {56, 56}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, DType::BF16, true, true};
  int compiled = 0;
  std::vector<kernel::Region> regions =
      testing::regions_of(testing::convolution_graph(c, true), target);
  Convolution apart = c;
  apart.stride = {2, 2};
  for (const Convolution& of : {c, apart})
    for (kernel::Region& region : testing::regions_of(data_gradient(of), target))
      regions.push_back(std::move(region));
  for (kernel::Region region : regions) {
    for (kernel::Operand& operand : region.operands)
      operand.alignment = 64;
    for (const char* tile :
         {"bm=128 bn=256 staged=1 stages=4 wm=2", "bm=256 bn=64 staged=1 stages=4 wm=2",
          "bm=64 bn=256 staged=1 stages=5 swap=1 wm=1"}) {
      const auto lowered = generator.lower(
          region, kernel::parse_schedule(fmt::format("gpu_contraction {} @mma=wgmma", tile)),
          target);
      if (!lowered.ok || !copies_pieces(lowered.program))
        continue;
      ++compiled;
      const auto cubin = compiler->compile(
          render_cuda(lowered.program, cuda),
          compiler->architecture_for(cuda.capability, cuda.specific), {}, "convolution");
      for (const auto& k : cubin.kernels)
        EXPECT_EQ(k.spill_stores, 0) << region.name << " " << tile;
    }
  }
  EXPECT_GE(compiled, 8);
}

/// Data and weight's gradient have their channels innermost, whatever the batch is. So has the
/// gradient of the result in the data's gradient, whose lines of 100 pixels are not aligned; the
/// weight of that product is copied as it lies.
TEST(Convolutions, EachSideIsLaidOutAlongItsChannels) {
  const Convolution c{8, 16, 24, {10, 10}, {3, 3}, {1, 1}, {1, 1}, {1, 1}};
  int pairs = 0, as_they_are = 0;
  for (const kernel::Region& region :
       testing::regions_of(testing::convolution_graph(c, true), backend::cuda::known_target(90))) {
    const auto found = kernel::find_contraction(region);
    const auto axes = found.ok ? kernel::axes_to_copy_sides_along(region, found.form)
                               : std::optional<std::array<int, 2>>();
    if (!axes)
      continue;
    ++pairs;
    for (const int axis : *axes) {
      if (axis < 0) {
        ++as_they_are;
        continue;
      }
      const std::int64_t extent = region.axes[std::size_t(axis)].extent.value();
      EXPECT_TRUE(extent == c.channels || extent == c.outputs) << print(region);
    }
  }
  EXPECT_EQ(pairs, 3); // the result and both gradients
  EXPECT_EQ(as_they_are, 1);
}

TEST(Convolutions, QueuedProductsThatThreadsCopyForComeFirst) {
  const kernel::Target target = backend::cuda::known_target(90);
  const Convolution c{8, 64, 64, {56, 56}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, DType::BF16, true, true};
  for (const kernel::Region& region :
       testing::regions_of(testing::convolution_graph(c, false), target)) {
    kernel::Region aligned = region;
    for (kernel::Operand& operand : aligned.operands)
      operand.alignment = 64;
    const kernel::Generator& generator = kernel::gpu_contraction_generator();
    const auto space = generator.space(aligned, target);
    ASSERT_GE(space.size(), 2u);
    const auto copies = [&](const kernel::Schedule& s) {
      return copies_pieces(generator.lower(aligned, s, target).program);
    };
    EXPECT_TRUE(copies(space[0])) << to_string(space[0]);
  }
}

/// Holes with any filling, on both sides, behind arithmetic.
TEST(PaddedProducts, AreRightWhateverTheHolesAreFilledWith) {
  for (const double fill : {0.0, 1.5, -1.0})
    for (const bool computed : {false, true}) {
      ir::Graph g;
      ir::NodeId a = g.input("a", DType::BF16, {Expr(20), Expr(30)});
      const ir::NodeId b = g.input("b", DType::BF16, {Expr(36), Expr(24)});
      if (computed)
        a = g.binary(Op::Add, a, a);
      const auto padded = [&](ir::NodeId x, std::int64_t rows, std::int64_t columns) {
        return g.pad(g.cast(x, DType::F32), {Expr(rows), Expr(columns)}, {Expr(1), Expr(2)},
                     Scalar::of(DType::F32, fill));
      };
      const ir::NodeId left = padded(a, 3, 4), right = padded(b, 0, 1); // [24, 36], [37, 27]
      const ir::NodeId trimmed = g.shrink(right, {Expr(0), Expr(0)}, {Expr(36), Expr(27)});
      const Shape box{Expr(24), Expr(36), Expr(27)};
      const ir::NodeId product =
          g.binary(Op::Mul, g.expand(g.reshape(left, {Expr(24), Expr(36), Expr(1)}), box),
                   g.expand(g.reshape(trimmed, {Expr(1), Expr(36), Expr(27)}), box));
      g.outputs = {g.reduce(Op::ReduceSum, product, {1})};
      EXPECT_GE(check_contractions(g, 7, fmt::format("filled with {}", fill)), 1) << fill;
    }
}

} // namespace
} // namespace egret
