#include "egraph_command.h"

#include "egraph/interpreter.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <memory>

namespace {

using namespace egret::egraph;

struct Options {
  std::vector<std::string> files;
  std::string facts;
  bool stats = false;
};

int run_files(const Options& options) {
  for (const std::string& file : options.files) {
    auto start = std::chrono::steady_clock::now();
    Interpreter interpreter;
    interpreter.fact_directory = options.facts;
    interpreter.print = [](const std::string& line) { fmt::print("{}\n", line); };
    try {
      interpreter.run_file(file);
    } catch (const std::exception& error) {
      std::fflush(stdout);
      fmt::print(stderr, "[ERROR] {}\n", error.what());
      return 1;
    }
    if (options.stats) {
      double seconds =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      const Engine& engine = interpreter.engine;
      fmt::print(stderr,
                 "{}: {:.3f} s (search {:.3f}, apply {:.3f}, rebuild {:.3f}), {} rows, {} bytes\n",
                 file, seconds, engine.search_seconds, engine.apply_seconds, engine.rebuild_seconds,
                 engine.live_rows(), engine.bytes());
      for (const Rule& rule : engine.rules)
        if (rule.stats.runs != 0)
          fmt::print(stderr, "{:>10} matches {:>9.5f} match {:>9.5f} idle {:>9.5f} apply  {}\n",
                     rule.stats.matches, rule.stats.match_seconds, rule.stats.idle_seconds,
                     rule.stats.apply_seconds, rule.name);
    }
  }
  return 0;
}

} // namespace

void add_egraph_command(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* egraph = app.add_subcommand("egraph", "Equality saturation: the rule engine by itself");
  CLI::App* run = egraph->add_subcommand("run", "Runs programs in egglog's language");
  run->add_option("files", options->files, "programs");
  run->add_option("--facts", options->facts, "folder in which (input ...) finds its files");
  run->add_flag("--stats", options->stats, "times and matches of every rule, on standard error");
  run->callback([options] {
    if (int code = run_files(*options); code != 0)
      throw CLI::RuntimeError(code);
  });
}
