// Searches by the command: what must hold between processes that share a database.
#pragma once

#include "compiler/search/tuner.h"
#include "egret/functional.h"
#include "egret/io.h"
#include "egret/random.h"
#include "support/files.h"
#include "support/scale.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <signal.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace egret::testing {

struct Ran {
  int code = -1;
  std::string out, err;
};
inline Ran egret_command(const std::string& arguments, const std::filesystem::path& cache) {
  test::TempFolder folder;
  const std::string line = "EGRET_OBJECTS_MB=512 EGRET_CACHE=" + cache.string() + " " +
                           EGRET_TEST_TOOL + " " + arguments + " >" + (folder / "out").string() +
                           " 2>" + (folder / "err").string();
  const int status = std::system(line.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, test::read_file(folder / "out"),
          test::read_file(folder / "err")};
}

/// softmax(x w) and a sum of products: kernels of several families, large enough to be worth a
/// search.
inline std::string searched_graph(std::int64_t rows) {
  const std::string n = std::to_string(rows);
  return "%x: f32[" + n +
         ",96] = input \"x\"\n%w: f32[96,160] = input \"w\"\n" //
         "%x1: f32[" +
         n + ",96,1] = reshape(%x)\n%xe: f32[" + n +
         ",96,160] = expand(%x1)\n"
         "%w1: f32[1,96,160] = reshape(%w)\n%we: f32[" +
         n +
         ",96,160] = expand(%w1)\n"
         "%m: f32[" +
         n + ",96,160] = mul(%xe, %we)\n%p: f32[" + n +
         ",160] = sum(%m) axes=[1]\n"
         "%e: f32[" +
         n + ",160] = exp(%p)\n%s: f32[" + n +
         "] = sum(%e) axes=[1]\n"
         "%s1: f32[" +
         n + ",1] = reshape(%s)\n%se: f32[" + n +
         ",160] = expand(%s1)\n"
         "%y: f32[" +
         n +
         ",160] = div(%e, %se)\n%c: f32[96] = sum(%x) axes=[0]\n"
         "outputs %y, %c\n";
}

/// Processes with a frozen database make the same plan, byte for byte, and give the same bits,
/// while others go on searching.
inline void run_frozen(int runs) {
  const test::TempFolder folder;
  const auto cache = folder / "cache", graph = folder / "graph.txt", other = folder / "other.txt";
  test::write_file(graph, searched_graph(256));
  test::write_file(other, searched_graph(192));
  Generator generator(1);
  io::save_npy((folder / "x.npy").string(), uniform({256, 96}, -1, 1, generator));
  io::save_npy((folder / "w.npy").string(), uniform({96, 160}, -1, 1, generator));
  const std::string searching = " --effort search --budget 4";
  ASSERT_EQ(egret_command("compile " + graph.string() + searching, cache).code, 0);
  std::string plan, result;
  for (int i = 0; i < runs; ++i) {
    const auto at = folder / "plan.txt", y = folder / "y.npy";
    const Ran compiled = egret_command("compile " + graph.string() +
                                           " --effort search --frozen --json --plan " + at.string(),
                                       cache);
    ASSERT_EQ(compiled.code, 0) << compiled.err;
    const auto report = nlohmann::json::parse(compiled.out);
    EXPECT_EQ(report["search"]["measurements"], 0);
    const Ran ran = egret_command("run " + graph.string() + " -i x=" + (folder / "x.npy").string() +
                                      " -i w=" + (folder / "w.npy").string() +
                                      " -o y=" + y.string() + " --json --effort search --frozen",
                                  cache);
    ASSERT_EQ(ran.code, 0) << ran.err;
    const std::string now = test::read_file(at), values = test::read_file(y) + ran.out;
    EXPECT_GT(now.size(), 1000u);
    if (i > 0) {
      EXPECT_EQ(now, plan) << "run " << i;
      EXPECT_EQ(values, result) << "run " << i;
    }
    plan = now;
    result = values;
    if (i == 0) {
      ASSERT_EQ(egret_command("compile " + other.string() + searching, cache).code, 0);
    }
  }
}

/// Starts a search; -1 when it could not be.
inline pid_t start_search(const std::filesystem::path& graph, const std::filesystem::path& cache,
                          const char* budget) {
  std::fflush(nullptr); // the child is not to write it again
  const pid_t child = fork();
  if (child != 0)
    return child;
  setenv("EGRET_CACHE", cache.c_str(), 1);
  setenv("EGRET_OBJECTS_MB", "512", 1);
  if (!std::freopen("/dev/null", "w", stdout) || !std::freopen("/dev/null", "w", stderr))
    _exit(9);
  execl(EGRET_TEST_TOOL, "egret", "compile", graph.c_str(), "--effort", "search", "--budget",
        budget, static_cast<char*>(nullptr));
  _exit(9);
}

/// Searches that are killed at random moments lose no measurement that they had finished; the one
/// that is left alone ends, and the next measures nothing.
inline void kill_searches(int kills) {
  const test::TempFolder folder;
  const auto cache = folder / "cache", graph = folder / "graph.txt";
  test::write_file(graph, searched_graph(256));
  std::mt19937 random(5);
  std::int64_t trials = 0;
  for (int i = 0; i < kills; ++i) {
    const pid_t child = start_search(graph, cache, "60");
    ASSERT_GT(child, 0);
    usleep(20000 + random() % 1000000);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    if (!std::filesystem::exists(compiler::TuningDatabase::file_in(cache)))
      continue;
    compiler::TuningDatabase database(cache);
    EXPECT_EQ(database.verify(), std::vector<std::string>()) << "kill " << i;
    const auto stats = database.stats(compiler::tuning_version());
    EXPECT_GE(stats.trials, trials) << "kill " << i;
    trials = stats.trials;
  }
  const std::string compile = fmt::format("compile {} --effort search --budget {} --json",
                                          graph.string(), 60 * test::scale());
  const Ran last = egret_command(compile, cache);
  EXPECT_EQ(last.err.find("egret:"), std::string::npos) << last.err; // no warnings
  const auto report = nlohmann::json::parse(egret_command(compile, cache).out);
  EXPECT_EQ(report["search"]["measurements"], 0);
  EXPECT_EQ(report["search"]["cache_hits"], report["search"]["regions"].size());
  EXPECT_EQ(report["kernels_compiled"], 0);
  EXPECT_EQ(report["kernels_loaded"], report["kernels"].size());
}

/// Processes search the same kernels at the same time in one database that none of them has made.
inline void search_together(int processes) {
  const test::TempFolder folder;
  const auto cache = folder / "cache", graph = folder / "graph.txt";
  test::write_file(graph, searched_graph(128));
  std::vector<pid_t> children;
  for (int i = 0; i < processes; ++i)
    children.push_back(start_search(graph, cache, "3"));
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_GT(child, 0);
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  EXPECT_EQ(egret_command("cache verify", cache).code, 0);
  const Ran checked = egret_command(
      "compile " + graph.string() + " --effort search --frozen --checked --json", cache);
  EXPECT_EQ(checked.code, 0) << checked.err;
  EXPECT_EQ(checked.err, "");
  EXPECT_EQ(nlohmann::json::parse(checked.out)["search"]["measurements"], 0);
}

/// Processes run one graph at the same time with a cache of machine code that is empty, and then
/// with one that is damaged: right results, one warning from each at most. The next makes nothing.
inline void load_together(int processes) {
  const test::TempFolder folder;
  const auto cache = folder / "cache", graph = folder / "graph.txt";
  test::write_file(graph, searched_graph(64));
  Generator generator(1);
  io::save_npy((folder / "x.npy").string(), uniform({64, 96}, -1, 1, generator));
  io::save_npy((folder / "w.npy").string(), uniform({96, 160}, -1, 1, generator));
  const std::string inputs =
      " -i x=" + (folder / "x.npy").string() + " -i w=" + (folder / "w.npy").string() + " -o y=";
  auto run_all = [&](int round) {
    std::vector<Ran> ran(static_cast<std::size_t>(processes));
    std::vector<std::string> results(ran.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < ran.size(); ++i)
      threads.emplace_back([&, i] {
        const auto y = folder / fmt::format("y{}-{}.npy", round, i);
        ran[i] = egret_command("run " + graph.string() + inputs + y.string(), cache);
        results[i] = test::read_file(y);
      });
    for (std::thread& thread : threads)
      thread.join();
    for (std::size_t i = 0; i < ran.size(); ++i) {
      EXPECT_EQ(ran[i].code, 0) << ran[i].err;
      EXPECT_LE(std::count(ran[i].err.begin(), ran[i].err.end(), '\n'), round == 0 ? 0 : 1)
          << ran[i].err;
      EXPECT_EQ(results[i], results[0]);
    }
    return results[0];
  };
  const std::string right = run_all(0);
  EXPECT_GT(right.size(), 64u * 160u * 4u);
  for (int round = 1; round <= 3; ++round) {
    int number = 0;
    for (const auto& entry : std::filesystem::directory_iterator(cache / "objects" / "cpu")) {
      std::string bytes = test::read_file(entry.path());
      const std::size_t at = bytes.size() * static_cast<std::size_t>(round) / 4;
      if (number++ % 2 == 0)
        bytes.resize(at);
      else
        bytes[at] ^= 4;
      test::write_file(entry.path(), bytes);
    }
    EXPECT_GT(number, 0);
    EXPECT_EQ(egret_command("cache verify", cache).code, 1);
    EXPECT_EQ(run_all(round), right) << "round " << round;
  }
  EXPECT_EQ(egret_command("cache verify", cache).code, 0);
  egret_command("compile " + graph.string(), cache);
  const auto warm =
      nlohmann::json::parse(egret_command("compile " + graph.string() + " --json", cache).out);
  EXPECT_EQ(warm["kernels_compiled"], 0);
  EXPECT_EQ(warm["kernels_loaded"], warm["kernels"].size());
}

} // namespace egret::testing
