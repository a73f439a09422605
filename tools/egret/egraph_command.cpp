#include "egraph_command.h"

#include "console.h"
#include "egraph_session.h"
#include "number_option.h"
#include "support/sizes.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <limits>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

namespace {

using namespace egret::tool;

constexpr const char* kExample = R"(Example: write this to sum.egg, then: egret egraph run sum.egg
  (datatype Math (Num i64) (Add Math Math))
  (rewrite (Add a b) (Add b a))
  (rewrite (Add (Num a) (Num b)) (Num (+ a b)))
  (let $t (Add (Num 1) (Num 2)))
  (run 3)
  (extract $t)                     ; prints (Num 3)

What programs print goes to stdout; --json and --dot write the e-graph to a file.
Exit code: 0 done, 1 failed, 2 wrong usage, 3 a limit ended a run before it was done, 130 interrupted.)";

std::uint64_t half_of_memory() {
  const long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);
  return pages <= 0 || bytes <= 0
             ? egret::egraph::Budget::kNoLimit
             : static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(bytes) / 2;
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
  auto options = std::make_shared<EgraphOptions>();
  CLI::App* egraph = app.add_subcommand("egraph", "Equality saturation: the rule engine by itself");
  egraph->footer(kExample);
  CLI::App* run = egraph->add_subcommand(
      "run",
      "Run programs in egglog's language; without a file, read commands from standard input");
  run->footer(kExample);
  // Anything but a subcommand is a misspelt one.
  egraph->allow_extras();
  egraph->callback([egraph] {
    if (!egraph->get_subcommands().empty())
      return;
    const std::vector<std::string> rest = egraph->remaining();
    if (rest.empty())
      throw UsageError("egraph: a subcommand is missing: egret egraph run FILE.egg");
    throw UsageError(fmt::format("egraph: there is no subcommand {} (did you mean run?)", rest[0]));
  });
  run->add_option("files", options->files, "programs; - is standard input");
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
  constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
  run->add_option("--max-functions", options->max_functions,
                  "export at most so many functions (40 beside a program)")
      ->check(whole_within(0, kAny));
  run->add_option("--max-calls-per-function", options->max_calls,
                  "export at most so many rows of each (40 beside a program)")
      ->check(whole_within(0, kAny));
  run->add_flag("--serialize-split-primitive-outputs", options->serialize.split_primitives,
                "export each row with a primitive value in a class of its own; FILE-split.json");
  run->add_option("--serialize-n-inline-leaves", options->serialize.inline_leaves,
                  "so many times, write leaves into their parents")
      ->check(whole_within(0, 1 << 20));
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
                  "threads for matching (0: one for each processor); results do not depend on it")
      ->check(whole_within(0, 4096));
  run->add_flag("--tensors", options->tensors,
                "the programs are about tensors (docs/search.md): declare their primitives");
  run->add_flag("--naive", options->naive, "match all rows in every iteration");
  run->add_option("--time-limit", options->budget.seconds, "seconds for each run")
      ->check(number_from(0));
  run->add_option("--row-limit", options->budget.rows, "rows at which a run stops")
      ->check(whole_within(0, kAny));
  run->add_option("--match-limit", options->budget.matches, "matches that a run may find")
      ->check(whole_within(0, kAny));
  options->budget.bytes = half_of_memory();
  run->add_option_function<std::string>(
         "--memory-limit",
         [options](const std::string& text) {
           try {
             options->budget.bytes =
                 static_cast<std::uint64_t>(egret::parse_bytes(text, "--memory-limit"));
           } catch (const egret::Error& error) {
             throw CLI::ValidationError(error.what());
           }
         },
         "size of the e-graph at which a run stops, such as 500MB (default: half of the machine's "
         "memory)")
      ->type_name("SIZE");
  run->add_option("--iteration-limit", options->budget.iterations, "iterations for each run")
      ->check(whole_within(0, kAny));
  refuse(*run);
  run->callback([options] {
    const int code = options->files.empty() ? run_session(*options) : run_programs(*options);
    if (code != 0)
      throw CLI::RuntimeError(code);
  });
}
