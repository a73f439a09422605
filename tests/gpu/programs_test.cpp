// Whatever the graph, what the GPU computes with generated kernels is what the reference says: ops
// in every dtype and layout, random graphs, fused and op by op.
#include "backend/reference/reference.h"
#include "compiler/compile.h"
#include "gpu/gpu.h"
#include "support/op_cases.h"
#include "support/plan_runner.h"
#include "support/random_graph.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

namespace egret {
namespace {

namespace reference = backend::reference;

struct Task {
  std::string name;
  ir::Graph graph;
  std::uint64_t seed = 0;
  bool fuse = true;
};

/// Empty when right; else what is wrong.
std::string check(const Task& task, compiler::KernelCache& cache) {
  try {
    auto inputs = testing::random_inputs(task.graph, task.seed);
    const auto expected = reference::expect(task.graph, inputs);
    compiler::Options options;
    options.fuse = task.fuse;
    const auto compiled = compiler::compile_graph(task.graph, options, testing::gpu(), cache);
    const auto actual = testing::run_plan(compiled, task.graph, inputs, &testing::gpu());
    for (std::size_t o = 0; o < actual.size(); ++o) {
      const auto result = reference::compare(actual[o], expected[o], fmt::format("output {}", o));
      if (!result.ok)
        return result.message;
    }
  } catch (const std::exception& e) {
    return e.what();
  }
  return {};
}

/// All tasks, on as many threads as there are cores: most of the time goes into compiling. Kernels
/// that several tasks have in common are compiled once.
void check_all(const std::vector<Task>& tasks) {
  compiler::KernelCache cache;
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::map<std::string, int> failures; // messages without their numbers, with counts
  int wrong = 0;
  auto worker = [&] {
    for (std::size_t i; (i = next++) < tasks.size();) {
      const std::string problem = check(tasks[i], cache);
      if (problem.empty())
        continue;
      std::lock_guard lock(mutex);
      ++failures[problem.substr(0, 60)];
      if (++wrong > 10)
        continue;
      ADD_FAILURE() << tasks[i].name << ": " << problem;
    }
  };
  {
    std::vector<std::jthread> threads;
    for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t)
      threads.emplace_back(worker);
  }
  if (wrong == 0)
    return;
  std::string summary = fmt::format("{} of {} are wrong:\n", wrong, tasks.size());
  for (const auto& [message, count] : failures)
    summary += fmt::format("{:6} {}\n", count, message);
  ADD_FAILURE() << summary;
}

std::vector<Task> random_tasks(std::uint64_t first, std::uint64_t count,
                               const testing::RandomGraphOptions& options, bool fuse) {
  std::vector<Task> tasks;
  for (std::uint64_t seed = first; seed < first + count; ++seed)
    tasks.push_back(
        {fmt::format("seed {}", seed), testing::random_graph(seed, options), seed, fuse});
  return tasks;
}

TEST(GpuPrograms, EveryOpInEveryDTypeAndLayout) {
  std::vector<Task> tasks;
  for (testing::OpCase& c : testing::op_cases())
    tasks.push_back({c.name, std::move(c.graph), static_cast<std::uint64_t>(c.op)});
  check_all(tasks);
}
TEST(GpuPrograms, RandomGraphs) {
  check_all(random_tasks(1, 250, {.ops = 16}, true));
}
TEST(GpuPrograms, LargerGraphs) {
  check_all(random_tasks(20001, 40, {.ops = 60}, true));
}
TEST(GpuPrograms, FloatsOnly) {
  check_all(random_tasks(30001, 150, {.ops = 20, .dtypes = {DType::F32}}, true));
}
TEST(GpuPrograms, OpByOp) {
  check_all(random_tasks(40001, 60, {.ops = 10}, false));
}
TEST(GpuPrograms, SymbolicSizes) {
  check_all(random_tasks(50001, 60, {.ops = 12, .symbolic = true}, true));
}

} // namespace
} // namespace egret
