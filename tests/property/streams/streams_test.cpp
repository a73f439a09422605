// Attention from its naive formula, and its gradients, on a CPU: programs of streams agree with the
// reference, by the interpreter and as machine code, and store no scores.
#include "kernel/families.h"
#include "kernel/stream_form.h"
#include "support/attention_graphs.h"
#include "support/cpu_levels.h"
#include "support/random_graph.h"
#include "support/region_runner.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace egret {
namespace {

using kernel::StreamTakes;
using testing::Attention;
using testing::Mask;

/// So small a cache that no product is stored for its smallness.
kernel::Target streaming(kernel::Target target) {
  target.l2_bytes = 64;
  return target;
}

bool is_stream(const kernel::Region& region) {
  return kernel::find_stream(region, StreamTakes::Vectors).ok;
}

struct Variant {
  Attention form;
  std::size_t seed; ///< by which machine and schedule are chosen
};

std::vector<Variant> variants() {
  std::vector<Variant> list;
  for (Attention f : testing::attentions()) {
    list.push_back({f, list.size()});
    f.type = DType::F32;
    list.push_back({f, list.size()});
  }
  return list;
}

/// One of the space, another for each `seed`, and small blocks and tiles, so that there are several
/// of each.
std::vector<kernel::Schedule> schedules_for(const kernel::Region& region,
                                            const kernel::Target& target, std::size_t seed) {
  const auto space = kernel::stream_generator().space(region, target);
  return {space.at(7 * seed % space.size()),
          kernel::parse_schedule(
              fmt::format("stream mr=3 nv=1 places={} rows=12 unroll=3", target.vector_bytes / 4))};
}

class CpuStreams : public ::testing::TestWithParam<Variant> {};

TEST_P(CpuStreams, AgreeWithTheReferenceAndStoreNoScores) {
  const auto& [f, seed] = GetParam();
  const ir::Graph graph = attention_graph(f);
  const bool special = f.mask == Mask::None || f.mask == Mask::Given;
  const auto inputs = testing::random_inputs(graph, 3, {.special = special, .range = 1});
  const std::int64_t scores = f.batch * f.heads * f.shared * f.queries * f.keys;
  const auto machines = testing::test_targets();
  const kernel::Target target = streaming(machines[seed % machines.size()]);
  int streams = 0;
  for (const auto& c : testing::region_cases(graph, inputs, target, {.stored_scores = false})) {
    for (const kernel::Output& out : c.region.outputs)
      EXPECT_LT(element_count(out.shape).value(), scores) << print(c.region);
    if (!is_stream(c.region))
      continue;
    ++streams;
    for (const kernel::Schedule& schedule : schedules_for(c.region, target, seed)) {
      const std::string wrong = testing::check_schedule(c, kernel::stream_generator(), schedule,
                                                        target, {.workers = 1 + streams}, true);
      ASSERT_TRUE(wrong.empty()) << wrong;
    }
  }
  EXPECT_EQ(streams, f.gradients ? 2 : 1); // by queries; by keys and values
}

TEST_P(CpuStreams, RunOnTheCpu) {
  const auto& [f, seed] = GetParam();
  const ir::Graph graph = attention_graph(f);
  const auto inputs = testing::random_inputs(graph, 5, {.special = false, .range = 1});
  const auto levels = testing::cpu_levels();
  backend::Device& device = testing::cpu_at(levels[seed % levels.size()]);
  const kernel::Target target = streaming(device.target());
  for (const auto& c : testing::region_cases(graph, inputs, target, {.stored_scores = false}))
    if (is_stream(c.region))
      for (const kernel::Schedule& schedule : schedules_for(c.region, target, seed)) {
        const std::string wrong = testing::check_schedule(c, kernel::stream_generator(), schedule,
                                                          target, {.device = &device}, true);
        ASSERT_TRUE(wrong.empty()) << wrong;
      }
}

INSTANTIATE_TEST_SUITE_P(All, CpuStreams, ::testing::ValuesIn(variants()), [](const auto& info) {
  return info.param.form.name + std::string(name_of(info.param.form.type));
});

/// A CPU with 16 vectors of 8 floats.
kernel::Target few_vectors() {
  kernel::Target target;
  target.vector_bytes = 32;
  target.vector_registers = 16;
  return target;
}

/// The stream of attention's forward pass on it.
kernel::Region forward(DType type, Mask mask) {
  const Attention f{"", 1, 1, 1, 256, 256, 32, 32, type, mask, false, false, false};
  const auto regions = testing::regions_of(attention_graph(f), streaming(few_vectors()));
  for (const kernel::Region& region : regions)
    if (is_stream(region))
      return region;
  ADD_FAILURE() << "there is no stream";
  return regions.at(0);
}

kernel::Schedule first_schedule(const kernel::Region& region) {
  return kernel::stream_generator().space(region, few_vectors()).at(0);
}

// Chances that are rounded to bf16 once they are divided would wait for the sum of all.
TEST(StreamsOf16Bits, MakeTheScoresOnceAsThoseOf32Do) {
  const auto exponentials = [](DType type) {
    const kernel::Region region = forward(type, Mask::None);
    const auto lowered =
        kernel::stream_generator().lower(region, first_schedule(region), few_vectors());
    EXPECT_TRUE(lowered.ok) << lowered.reason;
    const std::string text = print(lowered.program);
    int count = 0;
    for (std::size_t at = 0; (at = text.find("= exp ", at)) != std::string::npos; ++at)
      ++count;
    return count;
  };
  EXPECT_GT(exponentials(DType::F32), 0);
  EXPECT_EQ(exponentials(DType::BF16), exponentials(DType::F32));
}

TEST(StreamsOf16Bits, TakeOnePassWhereTheyMayBeRoundedBeforeTheyAreDivided) {
  const kernel::Region region = forward(DType::BF16, Mask::None);
  const auto found =
      kernel::find_stream(kernel::prepared_for_stream(region, StreamTakes::RoundedVectors),
                          StreamTakes::RoundedVectors);
  ASSERT_TRUE(found.ok) << found.reason;
  EXPECT_EQ(found.form.passes, 1);
  const auto exact = kernel::find_stream(kernel::prepared_for_stream(region, StreamTakes::Vectors),
                                         StreamTakes::Vectors);
  ASSERT_TRUE(exact.ok) << exact.reason;
  EXPECT_EQ(exact.form.passes, 2);
}

TEST(StreamTilesOfVectors, HaveFewerPlacesWhereSomeAreMasked) {
  EXPECT_EQ(first_schedule(forward(DType::F32, Mask::None)).knob("places", 0), 64);
  EXPECT_EQ(first_schedule(forward(DType::F32, Mask::Causal)).knob("places", 0), 32);
}

/// What is wrong with the streams of a graph on a target; counts them.
std::string check_streams(const ir::Graph& graph, std::uint64_t seed, const kernel::Target& target,
                          StreamTakes takes, const testing::RunOptions& options, int& count) {
  const bool gpu = takes == StreamTakes::MatrixUnits;
  const kernel::Generator& generator =
      gpu ? kernel::gpu_stream_generator() : kernel::stream_generator();
  const auto inputs = testing::random_inputs(graph, seed, {.special = false, .range = 1});
  for (const auto& c0 : testing::region_cases(graph, inputs, target, {.stored_scores = false})) {
    if (!kernel::find_stream(c0.region, takes).ok)
      continue;
    ++count;
    const auto c = testing::aligned_for(c0, target);
    const auto schedule = gpu ? generator.space(c.region, target).at(0)
                              : schedules_for(c.region, target, seed).back();
    if (auto wrong = testing::check_schedule(c, generator, schedule, target, options, true);
        !wrong.empty())
      return wrong;
  }
  return "";
}

TEST(StreamCompositions, AgreeWithTheReference) {
  const auto machines = testing::test_targets();
  int count = 0, without = 0;
  for (std::uint64_t seed = 1; seed <= 160; ++seed) {
    const ir::Graph graph = testing::random_attention(seed);
    const int before = count;
    const std::string wrong =
        check_streams(graph, seed, streaming(machines[seed % 3]), StreamTakes::Vectors,
                      {.workers = int(1 + seed % 3)}, count);
    ASSERT_TRUE(wrong.empty()) << "seed " << seed << "\n" << ir::print(graph) << wrong;
    without += count == before;
  }
  EXPECT_GE(count, 160); // gradients have several
  EXPECT_LE(without, 32);
}

TEST(StreamCompositions, AgreeWithTheReferenceAsMachineCode) {
  backend::Device& device = testing::cpu_at(testing::cpu_levels()[0]);
  int count = 0;
  for (std::uint64_t seed = 1001; seed <= 1012; ++seed) {
    const ir::Graph graph = testing::random_attention(seed);
    const std::string wrong = check_streams(graph, seed, streaming(device.target()),
                                            StreamTakes::Vectors, {.device = &device}, count);
    ASSERT_TRUE(wrong.empty()) << "seed " << seed << "\n" << ir::print(graph) << wrong;
  }
  EXPECT_GE(count, 6);
}

TEST(StreamCompositions, AgreeWithTheReferenceOnAGpusTarget) {
  int count = 0;
  for (std::uint64_t seed = 2001; seed <= 2040; ++seed) {
    const ir::Graph graph = testing::random_attention(seed);
    const std::string wrong = check_streams(graph, seed, testing::test_gpu(),
                                            StreamTakes::MatrixUnits, {.workers = 3}, count);
    ASSERT_TRUE(wrong.empty()) << "seed " << seed << "\n" << ir::print(graph) << wrong;
  }
  EXPECT_GE(count, 10);
}

} // namespace
} // namespace egret
