#include "egraph_session.h"

#include "console.h"
#include "egraph/api_impl.h"
#include "interrupts.h"
#include "saturate/primitives.h"
#include "support/output_file.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <iterator>
#include <memory>
#include <ostream>
#include <streambuf>
#include <string_view>
#include <thread>

namespace egret::tool {
namespace {

using namespace egret::egraph;

/// Set by control-C: the run in progress ends at its next look at its limits.
const std::atomic<bool>& control_c = Interrupts::requested();

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

/// A buffered stream into an OutputFile, whose errors it passes on.
class OutputBuffer : public std::streambuf {
public:
  explicit OutputBuffer(OutputFile& file) : file_(file) {
    setp(bytes_.data(), bytes_.data() + bytes_.size());
  }

protected:
  int_type overflow(int_type symbol) override {
    sync();
    if (!traits_type::eq_int_type(symbol, traits_type::eof()))
      sputc(traits_type::to_char_type(symbol));
    return traits_type::not_eof(symbol);
  }
  int sync() override {
    file_.write(std::string_view(pbase(), static_cast<std::size_t>(pptr() - pbase())));
    setp(bytes_.data(), bytes_.data() + bytes_.size());
    return 0;
  }

private:
  OutputFile& file_;
  std::vector<char> bytes_ = std::vector<char>(1 << 16);
};

/// Writes to the file, pipe or device at `path`; what could not be written is an error.
void write_file(const std::string& path, const std::function<void(std::ostream&)>& write) {
  OutputFile file("egraph", path);
  OutputBuffer buffer(file);
  std::ostream out(&buffer);
  out.exceptions(std::ios::badbit); // what the buffer throws comes through
  write(out);
  out.flush();
  file.commit();
}

/// FILE.egg -> FILE.json, or FILE-split.json where primitives are split off.
std::string beside(const EgraphOptions& options, const std::string& file, const char* extension) {
  std::filesystem::path path(file);
  std::string stem = path.stem().string() + (options.serialize.split_primitives ? "-split" : "");
  return path.replace_filename(stem + extension).string();
}

/// Has Graphviz draw a graph. Throws where it is not installed or fails.
void write_svg(const std::string& path, const Engine& engine, const SerializeOptions& what) {
  const std::string source = path + ".dot.part";
  write_file(source, [&](std::ostream& out) { write_dot(engine, what, out); });
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
    throw Error(ErrorKind::Unsupported,
                path + ": drawing an SVG takes Graphviz, and there is no program dot");
  if (failed != 0 || status != 0)
    throw Error(ErrorKind::File, path + ": Graphviz's dot could not draw it");
}

/// The files that were asked for, of the e-graph as it is after a program.
void export_graph(const EgraphOptions& options, const Engine& engine, const std::string& file) {
  const auto json = [&](const std::string& path, bool beside) {
    write_file(path, [&](std::ostream& out) { write_json(engine, options.exported(beside), out); });
  };
  const auto dot = [&](const std::string& path, bool beside) {
    write_file(path, [&](std::ostream& out) { write_dot(engine, options.exported(beside), out); });
  };
  if (!options.json.empty())
    json(options.json, false);
  if (!options.dot.empty())
    dot(options.dot, false);
  if ((!options.to_json && !options.to_dot && !options.to_svg) || file == "-")
    return;
  if (std::string missing = left_out(engine, options.exported(true)); !missing.empty())
    fmt::print(stderr, "[WARN] {}: {} (--max-functions, --max-calls-per-function)\n", file,
               missing);
  if (options.to_json)
    json(beside(options, file, ".json"), true);
  if (options.to_dot)
    dot(beside(options, file, ".dot"), true);
  if (options.to_svg)
    write_svg(beside(options, file, ".svg"), engine, options.exported(true));
}

/// Times and matches of every rule that ran, as JSON.
void save_report(const EgraphOptions& options, const Engine& engine) {
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
  write_file(options.report, [&](std::ostream& out) {
    out << report.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  });
}

/// An e-graph as the options want it.
class Session {
public:
  explicit Session(const EgraphOptions& options) : options_(options) {
    // A program about tensors, as `egret compile --program` writes it, calls functions over
    // attributes.
    if (options.tensors)
      saturate::declare_primitives(egraph_, std::make_shared<saturate::Attributes>());
    Interpreter& to = interpreter();
    to.fact_directory = options.facts;
    to.budget = options.budget;
    to.budget.cancel = &control_c;
    to.strict_globals = options.strict;
    to.engine.seminaive = !options.naive;
    std::uint32_t threads =
        options.threads != 0 ? options.threads : std::thread::hardware_concurrency();
    to.engine.threads = std::clamp(static_cast<int>(std::min(threads, 1024u)), 1, kMostThreads);
    to.warn = [](const std::string& text) { fmt::print(stderr, "[WARN] {}\n", text); };
    if (options.mode != "no-messages") {
      to.print = [](const std::string& line) { // at once: what runs next may be interrupted
        fmt::print("{}\n", line);
        std::fflush(stdout);
      };
    }
  }
  Interpreter& interpreter() { return EGraphAccess::interpreter(egraph_); }
  Engine& engine() { return interpreter().engine; }

  /// Does what may fail, and says so. Whoever drives the session in the mode `interactive` reads a
  /// line after every answer.
  bool attempt(const std::function<void()>& body, bool answers = false) {
    bool done = true;
    try {
      body();
    } catch (const std::exception& error) {
      std::fflush(stdout);
      fmt::print(stderr, "[ERROR] {}\n", error.what());
      done = false;
    }
    if (answers && options_.mode == "interactive")
      fmt::print("{}\n", done ? "(done)" : "(error)");
    std::fflush(stdout);
    return done;
  }
  /// What is written at the end. The exit code, given whether all went well so far.
  int finish(bool done, const std::string& name, double seconds) {
    if (options_.stats)
      print_stats(engine(), name, seconds);
    done = attempt([&] { save_report(options_, engine()); }) && done;
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
      fmt::print(stderr, "[ERROR] cannot write to standard output\n");
      done = false;
    }
    return !done ? 1 : interpreter().cut_runs != 0 ? kCutShort : 0;
  }

private:
  const EgraphOptions& options_;
  EGraph egraph_;
};

constexpr const char* kHelp =
    R"(A command is an expression in parentheses, over any number of lines:
  (datatype Math (Num i64) (Add Math Math))      declares terms
  (rewrite (Add a b) (Add b a))                  declares a rule
  (let $t (Add (Num 1) (Num 2)))                 builds a term and names it
  (run 5)                                        runs the rules five times
  (check (= $t (Add (Num 2) (Num 1))))           fails unless the facts hold
  (extract $t)                                   prints the cheapest equal term; so does $t alone
  (print-size)                                   rows of every table
Control-C ends a run, or drops the line; control-D ends the session. The language: docs/egraph.md)";

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

/// What a line means: a session also takes the name of a global, which it shows, and `help`.
std::string command_of(const std::string& text) {
  constexpr const char* kBlank = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string::npos)
    return "";
  const std::string word = text.substr(begin, text.find_last_not_of(kBlank) + 1 - begin);
  const bool bare = word.find_first_of(" \t\r\n();\"") == std::string::npos;
  return !bare || word == "help" ? word : "(extract " + word + ")";
}

/// Reads a line of standard input with its end. False at the end of the input, or, with
/// `control_c` set, where control-C came first.
bool read_line(std::string& line) {
  line.clear();
  for (int c = 0; (c = std::fgetc(stdin)) != EOF;) {
    line += static_cast<char>(c);
    if (c == '\n')
      return true;
  }
  if (control_c)
    std::clearerr(stdin);
  return !line.empty() && !control_c;
}

} // namespace

int run_programs(const EgraphOptions& options) {
  auto start = std::chrono::steady_clock::now();
  Session session(options);
  const Interrupts interrupts(Interrupts::Reads::ReturnEarly);
  bool done = true;
  for (const std::string& file : options.files) {
    done = session.attempt(
        [&] {
          if (file == "-")
            session.interpreter().run_text(
                "(stdin)", std::string(std::istreambuf_iterator<char>(std::cin), {}));
          else
            session.interpreter().run_file(file);
        },
        true);
    // What was interrupted is exported too: it shows what grew.
    if (done || control_c)
      done = session.attempt([&] { export_graph(options, session.engine(), file); }) && done;
    if (!done)
      break;
  }
  const int code = session.finish(done, options.files.back(), seconds_since(start));
  return control_c ? kInterrupted : code;
}

int run_session(const EgraphOptions& options) {
  auto start = std::chrono::steady_clock::now();
  Session session(options);
  const Interrupts interrupts(Interrupts::Reads::ReturnEarly);
  const bool terminal = isatty(STDIN_FILENO) != 0;
  if (terminal)
    fmt::print("egret egraph: commands in egglog's language; help, or control-D to end\n");
  std::string text, line;
  std::uint32_t lines = 0, first_line = 1;
  auto prompt = [&] {
    if (terminal)
      fmt::print("{} ", text.empty() ? ">" : "...");
    std::fflush(stdout);
  };
  bool failed = false;
  auto run = [&] {
    const std::string command = terminal ? command_of(text) : text;
    if (terminal && command == "help") {
      fmt::print("{}\n", kHelp);
    } else {
      bool done = session.attempt(
          [&] { session.interpreter().run_text("(input)", command, first_line); }, true);
      failed |= !done && !terminal && options.mode != "interactive";
    }
    text.clear();
    first_line = lines + 1;
    if (terminal)
      Interrupts::clear(); // the session goes on with what it has
  };
  for (prompt(); !(control_c && !terminal); prompt()) {
    if (!read_line(line)) {
      if (!control_c || !terminal)
        break;
      fmt::print("\n");
      text.clear();
      Interrupts::clear();
      continue;
    }
    text += line;
    ++lines;
    if (is_complete(text))
      run();
  }
  if (text.find_first_not_of(" \t\n") != std::string::npos && !control_c)
    run();
  failed = !session.attempt([&] { export_graph(options, session.engine(), "-"); }) || failed;
  const int code = session.finish(!failed, "(input)", seconds_since(start));
  return control_c ? kInterrupted : terminal && code == kCutShort ? 0 : code;
}

} // namespace egret::tool
