#include "egraph_command.h"

#include "egraph/interpreter.h"
#include "egraph/serialize.h"
#include "saturate/primitives.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <thread>

namespace {

using namespace egret::egraph;

/// How many functions and rows of each the files written beside a program show at most, unless told
/// otherwise; as egglog.
constexpr std::size_t kMostShown = 40;

struct Options {
  std::vector<std::string> files;
  std::string facts, json, dot, report;
  std::string mode = "normal";
  bool stats = false, to_json = false, to_dot = false, to_svg = false;
  bool naive = false, tensors = false, strict = false, no_decomp = false;
  std::uint32_t threads = 1;
  Budget budget;
  std::optional<std::size_t> max_functions, max_calls;
  SerializeOptions serialize;

  /// What goes into the file named by --json or --dot, or else beside the program.
  SerializeOptions exported(bool beside) const {
    SerializeOptions out = serialize;
    out.max_functions = max_functions.value_or(beside ? kMostShown : out.max_functions);
    out.max_calls_per_function =
        max_calls.value_or(beside ? kMostShown : out.max_calls_per_function);
    return out;
  }
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

/// FILE.egg -> FILE.json, or FILE-split.json where primitives are split off.
std::string beside(const Options& options, const std::string& file, const char* extension) {
  std::filesystem::path path(file);
  std::string stem = path.stem().string() + (options.serialize.split_primitives ? "-split" : "");
  return path.replace_filename(stem + extension).string();
}

/// Has Graphviz draw a graph. Throws where it is not installed or fails.
void write_svg(const std::string& path, const std::string& graph) {
  const std::string source = path + ".dot.part";
  write_text(source, graph);
  std::string words[] = {"dot", "-Tsvg", "-o", path, source};
  char* arguments[] = {words[0].data(), words[1].data(), words[2].data(),
                       words[3].data(), words[4].data(), nullptr};
  pid_t process = 0;
  int status = 0;
  int failed = posix_spawnp(&process, "dot", nullptr, nullptr, arguments, environ);
  if (failed == 0)
    waitpid(process, &status, 0);
  std::error_code ignored;
  std::filesystem::remove(source, ignored);
  if (failed == ENOENT || (WIFEXITED(status) && WEXITSTATUS(status) == 127))
    throw egret::Error(egret::ErrorKind::Unsupported,
                       path + ": drawing an SVG takes Graphviz, and there is no program dot");
  if (failed != 0 || status != 0)
    throw egret::Error(egret::ErrorKind::File, path + ": Graphviz's dot could not draw it");
}

/// The files that were asked for, of the e-graph as it is after a program.
void export_graph(const Options& options, const Engine& engine, const std::string& file) {
  if (!options.json.empty())
    write_text(options.json, to_json(engine, options.exported(false)));
  if (!options.dot.empty())
    write_text(options.dot, to_dot(engine, options.exported(false)));
  if (!options.to_json && !options.to_dot && !options.to_svg)
    return;
  const SerializeOptions what = options.exported(true);
  if (std::string missing = left_out(engine, what); !missing.empty())
    fmt::print(stderr, "[WARN] {}: {} (--max-functions, --max-calls-per-function)\n", file,
               missing);
  if (options.to_json)
    write_text(beside(options, file, ".json"), to_json(engine, what));
  if (options.to_dot)
    write_text(beside(options, file, ".dot"), to_dot(engine, what));
  if (options.to_svg)
    write_svg(beside(options, file, ".svg"), to_dot(engine, what));
}

/// Times and matches of every rule that ran, as JSON.
void save_report(const Options& options, const Engine& engine) {
  if (options.report.empty())
    return;
  nlohmann::json rules = nlohmann::json::array();
  for (const Rule& rule : engine.rules) {
    if (rule.stats.runs != 0)
      rules.push_back({{"name", rule.name},
                       {"runs", rule.stats.runs},
                       {"matches", rule.stats.matches},
                       {"rows_added", rule.stats.rows_added},
                       {"search_seconds", rule.stats.match_seconds},
                       {"apply_seconds", rule.stats.apply_seconds}});
  }
  nlohmann::json report = {{"search_seconds", engine.search_seconds},
                           {"apply_seconds", engine.apply_seconds},
                           {"rebuild_seconds", engine.rebuild_seconds},
                           {"rows", engine.live_rows()},
                           {"rules", std::move(rules)}};
  write_text(options.report,
             report.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

void configure(Interpreter& interpreter, const Options& options) {
  interpreter.fact_directory = options.facts;
  interpreter.budget = options.budget;
  interpreter.strict_globals = options.strict;
  interpreter.engine.seminaive = !options.naive;
  std::uint32_t threads =
      options.threads != 0 ? options.threads : std::thread::hardware_concurrency();
  interpreter.engine.threads =
      std::clamp(static_cast<int>(std::min(threads, 1024u)), 1, egret::egraph::kMostThreads);
  if (options.mode != "no-messages")
    interpreter.print = [](const std::string& line) { fmt::print("{}\n", line); };
}

/// Does what may fail, and says so. Whoever drives the session in the mode `interactive` reads a
/// line after every answer.
bool attempt(const Options& options, const std::function<void()>& body) {
  bool done = true;
  try {
    body();
  } catch (const std::exception& error) {
    std::fflush(stdout);
    fmt::print(stderr, "[ERROR] {}\n", error.what());
    done = false;
  }
  if (options.mode == "interactive")
    fmt::print("{}\n", done ? "(done)" : "(error)");
  std::fflush(stdout);
  return done;
}

/// Runs programs one after the other on one e-graph, until one fails.
int run_files(const Options& options) {
  auto start = std::chrono::steady_clock::now();
  Interpreter interpreter;
  configure(interpreter, options);
  bool done = true;
  for (const std::string& file : options.files) {
    done = attempt(options, [&] { interpreter.run_file(file); }) &&
           attempt({}, [&] { export_graph(options, interpreter.engine, file); });
    if (!done)
      break;
  }
  if (options.stats)
    print_stats(interpreter.engine, options.files.back(), since(start));
  return attempt({}, [&] { save_report(options, interpreter.engine); }) && done ? 0 : 1;
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
      write_text(options.json.empty() ? beside(options, file, ".json") : options.json,
                 egraph.to_json());
    if (options.to_dot || !options.dot.empty())
      write_text(options.dot.empty() ? beside(options, file, ".dot") : options.dot,
                 egraph.to_dot());
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
    bool done = attempt(options, [&] { interpreter.run_text("(input)", std::exchange(text, {})); });
    if (!done && !terminal && options.mode != "interactive")
      code = 1;
  };
  for (prompt(); std::getline(std::cin, line); prompt()) {
    text += line + "\n";
    if (is_complete(text))
      run();
  }
  if (text.find_first_not_of(" \t\n") != std::string::npos)
    run();
  return attempt({}, [&] { save_report(options, interpreter.engine); }) ? code : 1;
}

/// Options of egglog's that are understood and not there.
void refuse(CLI::App& run) {
  for (const char* option : {"--proofs", "--proof-testing", "--term-encoding", "--timing-summary"})
    run.add_flag_callback(option,
                          [option] {
                            throw CLI::ValidationError(
                                option, "is not supported: there are no proofs here and no term "
                                        "encoding; for times there is --save-report");
                          })
        ->group("");
}

std::string only_if(bool known, const std::string& value, const char* instead) {
  return known ? "" : fmt::format("{} is not supported: {}", value, instead);
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
  run->add_flag("--to-svg", options->to_svg, "write FILE.svg beside each program (takes Graphviz)");
  run->add_option("--max-functions", options->max_functions,
                  "export at most so many functions (40 beside a program)");
  run->add_option("--max-calls-per-function", options->max_calls,
                  "export at most so many rows of each (40 beside a program)");
  run->add_flag("--serialize-split-primitive-outputs", options->serialize.split_primitives,
                "export each row with a primitive value in a class of its own; FILE-split.json");
  run->add_option("--serialize-n-inline-leaves", options->serialize.inline_leaves,
                  "so many times, write leaves into their parents");
  run->add_option("--mode", options->mode,
                  "normal, no-messages, or interactive: (done) or (error) after each answer")
      ->check([](const std::string& mode) {
        return only_if(mode == "normal" || mode == "no-messages" || mode == "interactive", mode,
                       "normal, no-messages or interactive");
      });
  run->add_option("--save-report", options->report,
                  "write times and matches of every rule as JSON");
  run->add_option("--report-level", "how much is reported: time-only")
      ->check([](const std::string& level) {
        return only_if(level == "time-only", level, "reports are time-only");
      });
  run->add_flag("--strict-mode", options->strict, "the names of globals must start with $");
  run->add_flag("--no-decomp", options->no_decomp, "for egglog's sake: plans are not decomposed");
  run->add_option("--threads,-j", options->threads,
                  "threads for matching (0: one for each processor); results do not depend on it");
  run->add_flag("--tensors", options->tensors,
                "the programs are about tensors (docs/search.md): declare their primitives");
  run->add_flag("--naive", options->naive, "match all rows in every iteration");
  run->add_option("--time-limit", options->budget.seconds, "seconds for each run");
  run->add_option("--row-limit", options->budget.rows, "rows at which a run stops");
  run->add_option("--iteration-limit", options->budget.iterations, "iterations for each run");
  refuse(*run);
  run->callback([options] {
    int code = 0;
    if (options->files.empty())
      code = run_repl(*options);
    else if (!options->tensors)
      code = run_files(*options);
    else
      for (const std::string& file : options->files)
        code = std::max(code, run_tensors(*options, file));
    if (code != 0)
      throw CLI::RuntimeError(code);
  });
}
