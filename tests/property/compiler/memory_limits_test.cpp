// Whatever the graph and the limit: a plan keeps within it and gives the same bits, or is refused
// with a figure that can be met.
#include "backend/cpu/cpu_device.h"
#include "compiler/compile.h"
#include "compiler/recompute.h"
#include "support/arena_walk.h"
#include "support/plan_runner.h"
#include "support/random_graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

namespace egret::compiler {
namespace {

using backend::reference::HostArray;
using testing::Rng;

/// The last number in a message.
std::int64_t figure_in(const std::string& message) {
  const std::size_t end = message.rfind(" bytes"), begin = message.rfind(' ', end - 1) + 1;
  std::int64_t figure = 0;
  std::from_chars(message.data() + begin, message.data() + end, figure);
  return figure;
}

/// Lets outputs replace inputs of their type, as a training step does with its parameters.
std::vector<OutputSpec> some_states(const ir::Graph& graph, Rng& rng) {
  std::vector<OutputSpec> specs(graph.outputs.size());
  std::vector<bool> taken(graph.inputs().size(), false);
  for (std::size_t o = 0; o < specs.size(); ++o)
    for (std::size_t i = 0; i < taken.size() && specs[o].state_input < 0; ++i) {
      const ir::Node &in = graph[graph.inputs()[i]], &out = graph[graph.outputs[o]];
      if (taken[i] || in.attrs.by_value || in.dtype != out.dtype || !(in.shape == out.shape) ||
          in.shape.empty() || rng.chance(0.3))
        continue;
      taken[i] = true;
      specs[o].state_input = static_cast<std::int64_t>(i);
    }
  return specs;
}

class Limits {
public:
  explicit Limits(const testing::RandomGraphOptions& graphs) : graphs_(graphs) {}

  void run(std::uint64_t seed, bool fuse) {
    const ir::Graph graph = testing::random_graph(seed, graphs_);
    Rng rng(seed);
    Options options;
    options.fuse = fuse;
    options.outputs = some_states(graph, rng);
    const Compiled plain = compile_graph(graph, options, *device_, cache_);
    check_arena(plain);
    const auto expected = results(plain, graph, seed);
    const std::int64_t most = plain.report.arena_bytes;
    if (most == 0)
      return;
    std::optional<std::int64_t> least;
    for (const double share : {1.0, 0.8, 0.6, 0.4, 0.2, 0.0}) {
      options.memory_limit =
          std::max<std::int64_t>(1, static_cast<std::int64_t>(share * static_cast<double>(most)));
      std::optional<Compiled> limited = try_compile(graph, options, least);
      if (!limited)
        continue;
      expect_within(*limited, *options.memory_limit);
      EXPECT_TRUE(results(*limited, graph, seed) == expected);
      again_ += limited->report.memory->again.size();
    }
    ASSERT_TRUE(least) << "one byte sufficed";
    EXPECT_LE(*least, most);
    options.memory_limit = least;
    std::optional<std::int64_t> none;
    const std::optional<Compiled> at_least = try_compile(graph, options, none);
    ASSERT_TRUE(at_least) << "refused at the figure that it named, " << *least;
    expect_within(*at_least, *least);
    EXPECT_TRUE(results(*at_least, graph, seed) == expected);
    less_ += *least < most;
  }

  std::size_t again() const { return again_; }
  int less() const { return less_; }

private:
  std::optional<Compiled> try_compile(const ir::Graph& graph, const Options& options,
                                      std::optional<std::int64_t>& least) {
    try {
      return compile_graph(graph, options, *device_, cache_);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Memory) << error.what();
      const std::int64_t figure = figure_in(error.what());
      EXPECT_GT(figure, *options.memory_limit) << error.what();
      EXPECT_TRUE(!least || *least == figure) << error.what();
      least = figure;
      return std::nullopt;
    }
  }

  static void check_arena(const Compiled& compiled) {
    const testing::ArenaWalk walk = testing::walk_arena(compiled.plan);
    EXPECT_EQ(walk.problem, "") << kernel::print(compiled.plan);
    EXPECT_LE(walk.touched, compiled.report.arena_bytes);
    EXPECT_LE(static_cast<double>(compiled.report.arena_bytes),
              1.1 * static_cast<double>(compiled.report.liveness_bound_bytes));
  }

  static void expect_within(const Compiled& compiled, std::int64_t limit) {
    check_arena(compiled);
    EXPECT_LE(compiled.report.arena_bytes, limit);
    EXPECT_EQ(compiled.report.memory->after, compiled.report.arena_bytes);
  }

  std::vector<std::vector<std::byte>> results(const Compiled& compiled, const ir::Graph& graph,
                                              std::uint64_t seed) {
    std::vector<HostArray> inputs = testing::random_inputs(graph, seed);
    std::vector<std::vector<std::byte>> bytes;
    for (HostArray& array : run_plan(compiled, graph, inputs, device_.get()))
      bytes.push_back(std::move(array.bytes));
    return bytes;
  }

  testing::RandomGraphOptions graphs_;
  std::unique_ptr<backend::Device> device_ = backend::cpu::make_cpu_device(2);
  KernelCache cache_;
  std::size_t again_ = 0;
  int less_ = 0;
};

TEST(MemoryLimits, OfRandomGraphsOpByOp) {
  Limits limits({.ops = 24});
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    limits.run(seed, false);
  }
  EXPECT_GT(limits.again(), 20U); // the mechanism is at work
  EXPECT_GT(limits.less(), 10);
}
TEST(MemoryLimits, OfLargerGraphsFused) {
  Limits limits({.ops = 60, .dtypes = {DType::F32, DType::I32}});
  for (std::uint64_t seed = 1001; seed <= 1030; ++seed) {
    SCOPED_TRACE(seed);
    limits.run(seed, true);
  }
}
TEST(MemoryLimits, OfSymbolicSizes) {
  Limits limits({.ops = 16, .symbolic = true});
  for (std::uint64_t seed = 2001; seed <= 2020; ++seed) {
    SCOPED_TRACE(seed);
    limits.run(seed, false);
  }
}

/// Launches without code: values of random sizes, some of which overwrite what others read.
LaunchGraph random_launches(std::uint64_t seed, int size) {
  Rng rng(seed);
  LaunchGraph graph;
  for (int k = 0; k < size; ++k) {
    LaunchGraph::Launch launch;
    launch.seconds = rng.uniform(1, 10);
    for (std::int64_t n = rng.below(4); n > 0 && !graph.values.empty(); --n) {
      // Near values more often than far ones.
      const auto count = static_cast<std::int64_t>(graph.values.size());
      const auto v = static_cast<int>(
          count - 1 - rng.below(rng.chance(0.7) ? std::min<std::int64_t>(count, 6) : count));
      if (std::find(launch.reads.begin(), launch.reads.end(), v) == launch.reads.end())
        launch.reads.push_back(v);
    }
    for (std::int64_t n = 1 + rng.below(2); n > 0; --n) {
      launch.writes.push_back(static_cast<int>(graph.values.size()));
      graph.values.push_back({rng.chance(0.1) ? 0 : 64 * (1 + rng.below(20)), k});
    }
    for (const int v : launch.reads)
      if (const auto bytes = graph.values[static_cast<std::size_t>(v)].bytes;
          bytes > 0 && bytes == graph.values[static_cast<std::size_t>(launch.writes[0])].bytes)
        launch.may_take.emplace_back(0, v);
    if (rng.chance(0.2))
      launch.workspaces.push_back(64 * (1 + rng.below(10)));
    launch.again = !rng.chance(0.1);
    if (k > 0 && rng.chance(0.15))
      launch.after.push_back(static_cast<int>(rng.below(k)));
    graph.launches.push_back(std::move(launch));
  }
  return graph;
}

/// What is wrong with a sequence; nothing when it may run.
std::string problem(const LaunchGraph& graph, const Scheduled& s) {
  std::vector<int> times(graph.launches.size(), 0);
  std::vector<bool> written(graph.values.size(), false);
  for (const int k : s.sequence) {
    const auto& launch = graph.launches[static_cast<std::size_t>(k)];
    if (times[static_cast<std::size_t>(k)]++ > 0 && !launch.again)
      return fmt::format("{} ran again", k);
    for (const int v : launch.reads)
      if (!written[static_cast<std::size_t>(v)])
        return fmt::format("{} reads {} too soon", k, v);
    for (const int v : launch.writes)
      written[static_cast<std::size_t>(v)] = true;
    for (std::size_t w = 0; w < graph.launches.size(); ++w)
      if (const auto& after = graph.launches[w].after;
          times[w] > 0 && std::find(after.begin(), after.end(), k) != after.end())
        return fmt::format("{} ran after {}, which overwrites what it reads", k, w);
  }
  for (std::size_t k = 0; k < times.size(); ++k)
    if (times[k] == 0)
      return fmt::format("{} never ran", k);
  for (std::size_t a = 0; a < s.lives.blocks.size(); ++a)
    for (std::size_t b = 0; b < a; ++b) {
      const ArenaBlock &p = s.lives.blocks[a], &q = s.lives.blocks[b];
      if (p.first <= q.last && q.first <= p.last && p.offset < q.offset + q.bytes &&
          q.offset < p.offset + p.bytes)
        return fmt::format("blocks {} and {} overlap", a, b);
      if (p.offset + p.bytes > s.arena)
        return fmt::format("block {} is outside", a);
    }
  return {};
}

TEST(MemoryLimits, OfRandomLaunches) {
  int tighter = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(seed);
    const LaunchGraph graph = random_launches(seed, 10 + static_cast<int>(seed % 50));
    const Scheduled plain = scheduled(graph);
    EXPECT_EQ(problem(graph, plain), "");
    EXPECT_EQ(added_seconds(graph, plain.sequence), 0);
    std::optional<std::int64_t> least;
    for (const double share : {0.9, 0.75, 0.6, 0.45, 0.3, 0.01}) {
      const auto limit = static_cast<std::int64_t>(share * static_cast<double>(plain.arena));
      const auto within = scheduled_within(graph, plain, limit);
      if (const auto* s = std::get_if<Scheduled>(&within)) {
        EXPECT_EQ(problem(graph, *s), "");
        EXPECT_LE(s->arena, limit);
        continue;
      }
      const std::int64_t figure = std::get<OverLimit>(within).least;
      EXPECT_TRUE(!least || *least == figure);
      least = figure;
      EXPECT_GT(*least, limit);
    }
    ASSERT_TRUE(least);
    if (*least < plain.arena) {
      const auto s = std::get<Scheduled>(scheduled_within(graph, plain, *least));
      EXPECT_EQ(problem(graph, s), "");
      EXPECT_LE(s.arena, *least);
      ++tighter;
    }
  }
  EXPECT_GT(tighter, 75);
}

} // namespace
} // namespace egret::compiler
