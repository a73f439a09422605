// Attention in bf16 on CPUs with AMX: scores and sums by tiles agree with the reference.
#include "kernel/families.h"
#include "support/amx.h"
#include "support/attention_graphs.h"
#include "support/random_graph.h"
#include "support/region_runner.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace egret {
namespace {

using testing::Attention;
using testing::Mask;

std::vector<Attention> forms() {
  std::vector<Attention> list;
  for (Attention f : testing::attentions()) {
    f.type = DType::BF16;
    list.push_back(f);
  }
  return list;
}

/// So small a cache that no product is stored for its smallness.
kernel::Target target() {
  kernel::Target t = testing::target_with_tiles();
  t.l2_bytes = 64;
  return t;
}

class StreamTiles : public ::testing::TestWithParam<Attention> {};

TEST_P(StreamTiles, AgreeWithTheReference) {
  const Attention& f = GetParam();
  const ir::Graph graph = attention_graph(f);
  const bool special = f.mask == Mask::None || f.mask == Mask::Given;
  const auto inputs = testing::random_inputs(graph, 3, {.special = special, .range = 1});
  const kernel::Generator& generator = kernel::stream_generator();
  int streams = 0;
  for (const auto& c : testing::region_cases(graph, inputs, target())) {
    const auto space = generator.space(c.region, target());
    if (space.empty() || space[0].mma != "bf16_tiles")
      continue;
    ++streams;
    std::vector<kernel::Schedule> schedules{
        space[0], kernel::parse_schedule("stream mr=16 nv=1 places=32 rows=16 @mma=bf16_tiles"),
        kernel::parse_schedule("stream mr=32 nv=2 places=64 rows=32 @mma=bf16_tiles")};
    for (const kernel::Schedule& schedule : schedules) {
      ASSERT_EQ(testing::check_schedule(c, generator, schedule, target(), {.workers = 2}, true),
                "");
      const auto program = generator.lower(c.region, schedule, target()).program;
      EXPECT_NE(testing::assembly_with_tiles(program).find("tdpbf16ps"), std::string::npos);
      if (!testing::has_tiles_here())
        continue;
      backend::Device& cpu = testing::cpu_at("native");
      ASSERT_EQ(testing::run_and_compare(c, program, {.device = &cpu}), "") << to_string(schedule);
    }
  }
  if (!f.gradients) {
    EXPECT_EQ(streams, 1);
  }
}

INSTANTIATE_TEST_SUITE_P(All, StreamTiles, ::testing::ValuesIn(forms()),
                         [](const auto& info) { return std::string(info.param.name); });

} // namespace
} // namespace egret
