// Convolutions of any stride, padding and dilation, and their gradients, whose data is read from a
// copy of its windows: right for any sizes of tiles, by single elements and by pairs of bf16, on
// every CPU, by one worker and by several.
#include "egret/autodiff.h"
#include "kernel/contraction_tiles.h"
#include "kernel/contraction_window.h"
#include "kernel/families.h"
#include "support/convolution_graphs.h"
#include "support/random_graph.h"
#include "support/region_runner.h"
#include "support/targets.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace egret {
namespace {

using testing::Convolution;

Convolution random_convolution(testing::Rng& random) {
  Convolution c;
  c.dtype = random.chance(0.7) ? DType::F32 : DType::BF16;
  c.batch = 1 + random.below(3);
  c.channels = 1 + random.below(5);
  c.outputs = 2 + random.below(9);
  const std::int64_t spatial = 1 + random.below(3);
  for (std::int64_t i = 0; i < spatial; ++i) {
    const std::int64_t kernel = 1 + random.below(4), dilation = 1 + random.below(2),
                       padding = random.below(kernel + 1), span = (kernel - 1) * dilation + 1;
    c.kernel.push_back(kernel);
    c.dilation.push_back(dilation);
    c.padding.push_back(padding);
    c.stride.push_back(1 + random.below(3));
    c.sizes.push_back(span + random.below(spatial == 1 ? 60 : spatial == 2 ? 20 : 6));
  }
  return c;
}

std::vector<testing::RegionCase> cases_of(const Convolution& c, const kernel::Target& target,
                                          std::uint64_t seed, bool gradients = false) {
  const ir::Graph g = testing::convolution_graph(c, gradients);
  return testing::region_cases(g, testing::random_inputs(g, seed), target);
}

bool copies_windows(const kernel::KernelProgram& program) {
  return std::any_of(program.buffers.begin(), program.buffers.end(),
                     [](const kernel::Buffer& b) { return b.name == "window"; });
}

TEST(ConvolutionWindows, AreRightForAnyTiles) {
  const kernel::Generator& generator = kernel::contraction_generator();
  int copied = 0, paired = 0, refused = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    testing::Rng random(seed);
    const Convolution c = random_convolution(random);
    for (kernel::Target target : testing::test_targets()) {
      target.workers = static_cast<int>(1 + random.below(3));
      testing::set_units(target, true);
      for (const testing::RegionCase& each : cases_of(c, target, seed, seed % 3 == 0)) {
        const auto space = generator.space(each.region, target);
        if (space.empty())
          continue;
        kernel::Schedule s = space[0];
        s.mma = random.chance(0.5) ? kernel::kPairs : "";
        s.vector_bytes = random.chance(0.5) ? 0 : target.vector_bytes / 2;
        s.split_reduce = random.chance(0.3) ? 2 : 1;
        s.knobs = {{"window", 1},
                   {"mr", 1 + random.below(6)},
                   {"nr", 1 + random.below(64)},
                   {"kc", 1 + random.below(40)},
                   {"mc", 1 + random.below(12)},
                   {"nc", 1 + random.below(128)},
                   {"unroll", 1 + random.below(3)},
                   {"pack_left", random.below(2)},
                   {"pack_right", random.below(2)},
                   {"shared", random.below(3)}};
        const kernel::Lowered lowered = generator.lower(each.region, s, target);
        if (!lowered.ok) {
          EXPECT_NE(lowered.reason, "");
          ++refused;
          continue;
        }
        ++copied;
        paired += s.mma.empty() ? 0 : 1;
        ASSERT_TRUE(copies_windows(lowered.program));
        ASSERT_NO_THROW(kernel::verify(lowered.program)) << to_string(s);
        EXPECT_EQ(testing::run_and_compare(each, lowered.program), "")
            << seed << ": " << c.text() << "\n"
            << to_string(s);
      }
    }
  }
  EXPECT_GE(copied, 40);
  EXPECT_GE(paired, 5);
  EXPECT_GE(refused, 10); // of one place, or channels last
}

/// Few outputs do not pay for panels; many do, where rows leave half of a vector empty, and a copy
/// is what panels of overlapping windows are packed from.
TEST(ConvolutionWindows, AreTheFirstChoiceWherePanelsCostMore) {
  kernel::Target target = testing::test_targets().at(1);
  target.workers = 1;
  Convolution c{.batch = 2,
                .channels = 3,
                .outputs = 4,
                .sizes = {9, 28},
                .kernel = {3, 3},
                .stride = {1, 1},
                .padding = {1, 1},
                .dilation = {1, 1},
                .dtype = DType::F32};
  const auto first = [&] {
    const auto cases = cases_of(c, target, 3);
    EXPECT_EQ(cases.size(), 1u);
    const kernel::Chosen chosen = kernel::lower_greedily(cases[0].region, target);
    EXPECT_EQ(testing::run_and_compare(cases[0], chosen.program), "");
    return chosen;
  };
  const kernel::Schedule in_place = first().schedule;
  EXPECT_EQ(in_place.knob("window", 0), 1) << to_string(in_place);
  EXPECT_EQ(in_place.knob("pack_right", 0), 0) << to_string(in_place);
  c.stride = {2, 2};
  EXPECT_TRUE(copies_windows(first().program));
  c.outputs = 96;
  c.stride = {1, 1};
  c.sizes = {9, 9};
  const kernel::Schedule panels = first().schedule;
  EXPECT_EQ(panels.knob("window", 0), 1) << to_string(panels);
  EXPECT_EQ(panels.knob("pack_right", 0), 1) << to_string(panels);
  c.kernel = {1, 1};
  c.padding = {0, 0};
  c.outputs = 4;
  EXPECT_FALSE(copies_windows(first().program)) << "there are no windows";
}

/// Of the gradient by the weights, vectors of columns go along the channels: a window's places are
/// too few for one.
TEST(ConvolutionWindows, OfWeightGradientsHaveVectorsOfChannels) {
  kernel::Target target = testing::test_targets().at(1);
  target.workers = 1;
  const Convolution c{.batch = 2,
                      .channels = 32,
                      .outputs = 16,
                      .sizes = {14, 14},
                      .kernel = {3, 3},
                      .stride = {1, 1},
                      .padding = {1, 1},
                      .dilation = {1, 1},
                      .dtype = DType::F32};
  int by_channels = 0;
  for (const testing::RegionCase& each : cases_of(c, target, 3, true)) {
    const auto form = kernel::find_contraction(each.region);
    if (!form.ok || form.form.depth.extent != Expr(2 * 14 * 14))
      continue;
    const auto found = kernel::with_window(each.region, form.form, target, 16, true);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(each.region.axes[std::size_t(found->form.columns.axes.back())].extent, Expr(32));
    const kernel::Chosen chosen = kernel::lower_greedily(each.region, target);
    EXPECT_EQ(chosen.schedule.knob("window", 0), 1) << to_string(chosen.schedule);
    EXPECT_EQ(testing::run_and_compare(each, chosen.program), "");
    ++by_channels;
  }
  EXPECT_EQ(by_channels, 1);
}

/// A copy that is larger than the cache is made for one image at a time.
TEST(ConvolutionWindows, AreCopiedForAsMuchAsTheCacheHolds) {
  const kernel::Target target = testing::test_targets().at(1);
  Convolution c{.batch = 3,
                .channels = 2,
                .outputs = 3,
                .sizes = {20, 20},
                .kernel = {3, 3},
                .stride = {1, 1},
                .padding = {1, 1},
                .dilation = {1, 1},
                .dtype = DType::F32};
  const auto elements = [&](std::int64_t l2) {
    kernel::Target small = target;
    small.l2_bytes = l2;
    const auto cases = cases_of(c, small, 3);
    const auto form = kernel::find_contraction(cases.at(0).region);
    const auto found = kernel::with_window(cases[0].region, form.form, small, 8, false);
    return found ? found->window.elements() : 0;
  };
  EXPECT_EQ(elements(1 << 20), 3 * 2 * 22 * 22);
  EXPECT_EQ(elements(8 << 10), 2 * 22 * 22);
}

} // namespace
} // namespace egret
