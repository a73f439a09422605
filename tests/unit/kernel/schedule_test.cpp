#include "kernel/schedule.h"

#include <gtest/gtest.h>

namespace egret::kernel {
namespace {

TEST(Schedule, PlainOneIsItsGeneratorsName) {
  Schedule s;
  s.generator = "generic";
  EXPECT_EQ(to_string(s), "generic");
  EXPECT_EQ(parse_schedule("generic"), s);
}

TEST(Schedule, EveryFieldReadsBack) {
  Schedule s;
  s.generator = "contraction";
  s.knobs = {{"kc", 256}, {"mr", 6}, {"nr", 64}};
  s.tree = "i:0/core";
  s.vector_bytes = 32;
  s.split_reduce = 4;
  s.order = WorkOrder::Drawn;
  s.order_group = 8;
  s.load_policy = CachePolicy::EvictFirst;
  s.store_policy = CachePolicy::Streaming;
  s.mma = "amx_bf16";
  s.blocks_per_core = 3;
  s.least_shared = 4096;
  std::string text = to_string(s);
  EXPECT_EQ(parse_schedule(text), s) << text;
  EXPECT_EQ(to_string(parse_schedule(text)), text);
}

TEST(Schedule, OnlyWhatDiffersIsWritten) {
  Schedule s;
  s.generator = "rows";
  s.knobs["rows"] = 2;
  s.store_policy = CachePolicy::Streaming;
  EXPECT_EQ(to_string(s), "rows rows=2 @store=streaming");
}

TEST(Schedule, KnobOrItsDefault) {
  Schedule s = parse_schedule("rows rows=2");
  EXPECT_EQ(s.knob("rows", 7), 2);
  EXPECT_EQ(s.knob("copies", 7), 7);
}

} // namespace
} // namespace egret::kernel
