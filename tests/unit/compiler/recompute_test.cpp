// Sequences of launches: lives, places, orders, and what a limit changes.
#include "compiler/recompute.h"

#include "egret/error.h"

#include <gtest/gtest.h>

namespace egret::compiler {
namespace {

/// Forward k makes value k of the one before, backward k reads value k and what came back so far:
/// 2n launches, of which n values of 64 bytes wait at the turn.
LaunchGraph there_and_back(int n) {
  LaunchGraph graph;
  for (int k = 0; k < 2 * n; ++k) {
    LaunchGraph::Launch launch;
    if (k > 0)
      launch.reads.push_back(k - 1);
    if (k >= n && 2 * n - 1 - k != k - 1)
      launch.reads.push_back(2 * n - 1 - k);
    launch.writes = {k};
    launch.seconds = 1;
    graph.values.push_back({64, k});
    graph.launches.push_back(launch);
  }
  graph.values.back().bytes = 0; // the result
  return graph;
}

TEST(Lives, EndWithTheLastReadOfEachVersion) {
  LaunchGraph graph = there_and_back(2);
  const Lives lives = lives_of(graph, {0, 1, 0, 2, 3});
  ASSERT_EQ(lives.versions.size(), 5U);
  EXPECT_EQ(lives.versions[0].last, 1);
  EXPECT_EQ(lives.versions[2].first, 2); // value 0, recomputed
  EXPECT_EQ(lives.versions[2].last, 4);
  EXPECT_EQ(lives.reads[4], (std::vector<int>{3, 2}));
}

TEST(Lives, FollowEachOtherInOnePlaceWhereTheyMay) {
  LaunchGraph graph = there_and_back(1);
  graph.values[1].bytes = 64;
  EXPECT_EQ(lives_of(graph, {0, 1}).peak, 128);
  graph.launches[1].may_take = {{0, 0}};
  const Lives lives = lives_of(graph, {0, 1});
  EXPECT_EQ(lives.peak, 64);
  EXPECT_EQ(lives.versions[1].over, 0);
  EXPECT_EQ(lives.blocks.size(), 1U);
}

TEST(Places, ReachTheBoundWhereOneOrderDoes) {
  std::vector<ArenaBlock> blocks = {{128, 0, 0, 1}, {64, 0, 0, 3}, {128, 0, 2, 3}, {64, 0, 2, 2}};
  EXPECT_EQ(assign_offsets(blocks), 256);
  std::vector<ArenaBlock> none;
  EXPECT_EQ(assign_offsets(none), 0);
}

TEST(Orders, TheOneWithTheLeastPeakIsFirst) {
  // Two arms, each large in the middle: one after the other needs less than side by side.
  LaunchGraph graph;
  const auto add = [&](std::vector<int> reads, std::int64_t bytes) {
    LaunchGraph::Launch launch;
    launch.reads = std::move(reads);
    launch.writes = {static_cast<int>(graph.values.size())};
    graph.values.push_back({bytes, static_cast<int>(graph.launches.size())});
    graph.launches.push_back(launch);
    return graph.launches.back().writes[0];
  };
  const int a = add({}, 640), b = add({}, 640), c = add({a}, 64), d = add({b}, 64);
  add({c, d}, 0);
  const Scheduled s = scheduled(graph);
  EXPECT_EQ(s.lives.peak, 640 + 64 + 64);
  EXPECT_EQ(s.arena, s.lives.peak);
}

bool is_met(const std::variant<Scheduled, OverLimit>& within) {
  return std::holds_alternative<Scheduled>(within);
}
Scheduled met(const std::variant<Scheduled, OverLimit>& within) {
  return std::get<Scheduled>(within);
}

TEST(Limit, MakesAgainWhatDoesNotFit) {
  const LaunchGraph graph = there_and_back(16);
  const Scheduled plain = scheduled(graph);
  EXPECT_EQ(plain.arena, 64 * 17);
  double before = 0;
  for (const std::int64_t values : {16, 12, 8, 6}) {
    const Scheduled s = met(scheduled_within(graph, plain, 64 * values));
    EXPECT_LE(s.arena, 64 * values);
    const double added = added_seconds(graph, s.sequence);
    EXPECT_GT(added, 0);
    EXPECT_GE(added, before);
    EXPECT_LE(added, 32); // a chain of 16 in the room of 6 needs each value again twice at most
    before = added;
  }
}

TEST(Limit, LeavesWhatIsDearWhereTheCheapWillDo) {
  LaunchGraph graph = there_and_back(8);
  const Scheduled plain = scheduled(graph);
  graph.launches[0].seconds = 100;
  graph.launches[1].seconds = 100;
  const Scheduled s = met(scheduled_within(graph, plain, plain.arena - 64));
  EXPECT_LT(added_seconds(graph, s.sequence), 100);
}

TEST(Limit, NothingRunsAgainThatOverwritesOrWasOverwritten) {
  LaunchGraph graph = there_and_back(6);
  const Scheduled plain = scheduled(graph);
  for (auto& launch : graph.launches)
    launch.again = false;
  EXPECT_FALSE(is_met(scheduled_within(graph, plain, plain.arena - 64)));
  for (auto& launch : graph.launches)
    launch.again = true;
  // At the turn something overwrites what all launches of the way there read.
  graph.launches[6].after = {0, 1, 2, 3, 4, 5};
  EXPECT_FALSE(is_met(scheduled_within(graph, plain, plain.arena - 64)));
}

TEST(Limit, IsRefusedWithAFigureThatCanBeMet) {
  const LaunchGraph graph = there_and_back(8);
  const Scheduled plain = scheduled(graph);
  const auto refused = scheduled_within(graph, plain, 1);
  ASSERT_FALSE(is_met(refused));
  const OverLimit over = std::get<OverLimit>(refused);
  EXPECT_EQ(over.plain, plain.arena);
  EXPECT_LT(over.least, plain.arena);
  EXPECT_LE(met(scheduled_within(graph, plain, over.least)).arena, over.least);
  const LimitError error(1, over.least, over.plain);
  EXPECT_EQ(error.kind(), ErrorKind::Memory);
  EXPECT_NE(std::string(error.what()).find(std::to_string(over.least)), std::string::npos);
}

} // namespace
} // namespace egret::compiler
