#include "egraph_command.h"

#include "egraph/interpreter.h"
#include "egraph/serialize.h"
#include "saturate/primitives.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <thread>

namespace {

using namespace egret::egraph;

struct Options {
  std::vector<std::string> files;
  std::string facts, json, dot;
  bool stats = false, to_json = false, to_dot = false, naive = false, tensors = false;
  std::uint32_t threads = 1;
  Budget budget;
  SerializeOptions serialize;
};

double since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void print_stats(const Engine& engine, const std::string& name, double seconds) {
  fmt::print(
      stderr,
      "{}: {:.3f} s (match {:.3f}, act {:.3f}, rebuild {:.3f}), {} rows, {} bytes in tables\n",
      name, seconds, engine.search_seconds, engine.apply_seconds, engine.rebuild_seconds,
      engine.live_rows(), engine.bytes());
  std::vector<const Rule*> rules;
  double spent = 0, idle = 0;
  for (const Rule& rule : engine.rules) {
    if (rule.stats.runs == 0)
      continue;
    rules.push_back(&rule);
    spent += rule.stats.match_seconds + rule.stats.apply_seconds;
    idle += rule.stats.matches == 0 ? rule.stats.match_seconds : 0;
  }
  auto cost = [](const Rule* rule) {
    return rule->stats.match_seconds + rule->stats.apply_seconds;
  };
  std::stable_sort(rules.begin(), rules.end(),
                   [&](const Rule* a, const Rule* b) { return cost(a) > cost(b); });
  fmt::print(stderr, "rules that never matched took {:.1f} % of the rules' {:.3f} s\n",
             spent > 0 ? 100 * idle / spent : 0, spent);
  fmt::print(stderr, "{:>10} {:>10} {:>10} {:>10} {:>10}  rule\n", "matches", "rows", "match s",
             "idle s", "act s");
  for (const Rule* rule : rules)
    fmt::print(stderr, "{:>10} {:>10} {:>10.5f} {:>10.5f} {:>10.5f}  {}\n", rule->stats.matches,
               rule->stats.rows_added, rule->stats.match_seconds, rule->stats.idle_seconds,
               rule->stats.apply_seconds,
               rule->name.substr(0, std::min<std::size_t>(100, rule->name.find('\n'))));
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  if (!(out << text))
    throw egret::Error(egret::ErrorKind::File, path + ": cannot be written");
}

/// FILE.egg -> FILE.json
std::string beside(const std::string& file, const char* extension) {
  return std::filesystem::path(file).replace_extension(extension).string();
}

void configure(Interpreter& interpreter, const Options& options) {
  interpreter.fact_directory = options.facts;
  interpreter.budget = options.budget;
  interpreter.engine.seminaive = !options.naive;
  std::uint32_t threads =
      options.threads != 0 ? options.threads : std::thread::hardware_concurrency();
  interpreter.engine.threads =
      std::clamp(static_cast<int>(std::min(threads, 1024u)), 1, egret::egraph::kMostThreads);
  interpreter.print = [](const std::string& line) { fmt::print("{}\n", line); };
}

int run_file(const Options& options, const std::string& file) {
  auto start = std::chrono::steady_clock::now();
  Interpreter interpreter;
  configure(interpreter, options);
  int code = 0;
  try {
    interpreter.run_file(file);
    if (options.to_json || !options.json.empty())
      write_text(options.json.empty() ? beside(file, ".json") : options.json,
                 to_json(interpreter.engine, options.serialize));
    if (options.to_dot || !options.dot.empty())
      write_text(options.dot.empty() ? beside(file, ".dot") : options.dot,
                 to_dot(interpreter.engine, options.serialize));
  } catch (const std::exception& error) {
    std::fflush(stdout);
    fmt::print(stderr, "[ERROR] {}\n", error.what());
    code = 1;
  }
  std::fflush(stdout);
  if (options.stats)
    print_stats(interpreter.engine, file, since(start));
  return code;
}

/// A program about tensors, as `egret compile --program` writes it: rules may call the functions
/// over attributes.
int run_tensors(const Options& options, const std::string& file) {
  try {
    EGraph egraph;
    egret::saturate::declare_primitives(egraph, std::make_shared<egret::saturate::Attributes>());
    egraph.set_budget(options.budget);
    egraph.set_fact_directory(options.facts);
    fmt::print("{}", egraph.run_file(file));
    if (options.to_json || !options.json.empty())
      write_text(options.json.empty() ? beside(file, ".json") : options.json, egraph.to_json());
    if (options.to_dot || !options.dot.empty())
      write_text(options.dot.empty() ? beside(file, ".dot") : options.dot, egraph.to_dot());
  } catch (const std::exception& error) {
    std::fflush(stdout);
    fmt::print(stderr, "[ERROR] {}\n", error.what());
    return 1;
  }
  return 0;
}

/// Whether a text leaves no parenthesis or string open, so that it can be run.
bool is_complete(const std::string& text) {
  int depth = 0;
  bool in_string = false, in_comment = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (in_comment)
      in_comment = c != '\n';
    else if (in_string && c == '\\')
      ++i;
    else if (c == '"')
      in_string = !in_string;
    else if (!in_string && c == ';')
      in_comment = true;
    else if (!in_string)
      depth += (c == '(') - (c == ')');
  }
  return depth <= 0 && !in_string;
}

/// Reads commands from standard input until its end. An error is shown and the session goes on.
int run_repl(const Options& options) {
  Interpreter interpreter;
  configure(interpreter, options);
  bool terminal = isatty(STDIN_FILENO) != 0;
  if (terminal)
    fmt::print("egret egraph: commands in egglog's language; end with control-D\n");
  std::string text, line;
  auto prompt = [&] {
    if (terminal)
      fmt::print("{} ", text.empty() ? ">" : "...");
    std::fflush(stdout);
  };
  int code = 0;
  auto run = [&] {
    try {
      interpreter.run_text("(input)", std::exchange(text, {}));
    } catch (const std::exception& error) {
      std::fflush(stdout);
      fmt::print(stderr, "[ERROR] {}\n", error.what());
      code = terminal ? 0 : 1;
    }
  };
  for (prompt(); std::getline(std::cin, line); prompt()) {
    text += line + "\n";
    if (is_complete(text))
      run();
  }
  if (text.find_first_not_of(" \t\n") != std::string::npos)
    run();
  return code;
}

} // namespace

void add_egraph_command(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* egraph = app.add_subcommand("egraph", "Equality saturation: the rule engine by itself");
  egraph->require_subcommand(1);
  CLI::App* run = egraph->add_subcommand(
      "run",
      "Run programs in egglog's language; without a file, read commands from standard input");
  run->add_option("files", options->files, "programs");
  run->add_flag("--stats", options->stats,
                "show times and matches of every rule (on standard error)");
  run->add_option("--json", options->json,
                  "write the e-graph in the form of egraph-serialize to this file");
  run->add_option("--dot", options->dot, "write the e-graph as a Graphviz graph to this file");
  run->add_option("--facts,-F,--fact-directory", options->facts,
                  "folder in which (input ...) finds its files");
  run->add_flag("--to-json", options->to_json, "write FILE.json beside each program");
  run->add_flag("--to-dot", options->to_dot, "write FILE.dot beside each program");
  run->add_option("--max-functions", options->serialize.max_functions,
                  "export at most so many functions");
  run->add_option("--max-calls-per-function", options->serialize.max_calls_per_function,
                  "export at most so many rows of each");
  run->add_option("--threads,-j", options->threads,
                  "threads for matching (0: one for each processor); results do not depend on it");
  run->add_flag("--tensors", options->tensors,
                "the programs are about tensors (docs/search.md): declare their primitives");
  run->add_flag("--naive", options->naive, "match all rows in every iteration");
  run->add_option("--time-limit", options->budget.seconds, "seconds for each run");
  run->add_option("--row-limit", options->budget.rows, "rows at which a run stops");
  run->add_option("--iteration-limit", options->budget.iterations, "iterations for each run");
  run->callback([options] {
    int code = 0;
    if (options->files.empty())
      code = run_repl(*options);
    for (const std::string& file : options->files)
      code =
          std::max(code, options->tensors ? run_tensors(*options, file) : run_file(*options, file));
    if (code != 0)
      throw CLI::RuntimeError(code);
  });
}
