// egret view: a record as pages in a browser, from a file, from this machine or of a program that
// it runs; and its graphs as pictures.
#include "commands.h"
#include "console.h"
#include "number_option.h"

#include "support/child_process.h"
#include "support/fail.h"
#include "support/output_file.h"
#include "support/path_status.h"
#include "support/printable.h"
#include "support/read_text.h"
#include "view/drawing.h"
#include "view/page.h"
#include "view/server.h"

#include <CLI/CLI.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace egret::tool {

namespace {

/// A browser holds the page's record as one text, of 512 MiB at the most in Chromium, and escapes
/// lengthen it.
constexpr std::uint64_t kMostRecord = std::uint64_t{256} << 20;

struct ViewOptions {
  std::vector<std::string> words; ///< the record; or with `run`, the program's arguments
  std::string run, out, draw;
  int program = 0;
  std::uint16_t port = 0;
};

void serve(std::string page, std::uint16_t port) {
  view::ViewServer server(std::move(page), port);
  boost::asio::io_context signals;
  boost::asio::signal_set ends(signals, SIGINT, SIGTERM);
  ends.async_wait([&](const boost::system::error_code& error, int) {
    if (!error)
      server.stop();
  });
  std::thread waits([&] { signals.run(); });
  fmt::print("{}\n", server.address());
  flush_stdout();
  log_line("Open this address in a browser of this machine. Control-C ends it.");
  server.run();
  signals.stop();
  waits.join();
}

/// The record of a program that is run to its end, with this terminal's input and output. One that
/// fails is shown as far as it came.
std::string record_of_run(const ViewOptions& options) {
  const TemporaryFolder folder("view --run", "egret-view");
  const auto record = folder / "record.jsonl";
  std::vector<std::string> command{options.run};
  command.insert(command.end(), options.words.begin(), options.words.end());
  const Ended ended = run_process(command, {{}, {"EGRET_RECORD=" + record.string()}});
  if (ended.error != 0)
    fail(ErrorKind::File, "view --run: {} cannot be run: {}", printable(options.run),
         ended.why_not_run());
  if (ended.signal != 0 || ended.code != 0)
    log("view --run: {} {}", printable(options.run),
        ended.signal != 0 ? "failed: " + ended.why_not_run()
                          : fmt::format("ended with exit code {}", ended.code));
  if (!path_exists(record))
    fail(ErrorKind::File,
         "view --run: {} left no record: it does not use egret, or did not come to its end",
         printable(options.run));
  return read_text(record.string(), kMostRecord);
}

std::string picture(const std::string& file, const std::string& record,
                    const ViewOptions& options) {
  const std::string form = std::filesystem::path(options.out).extension().string();
  if (form == ".json" && options.draw == "egraph")
    return view::serialized_egraph(file, record, options.program);
  const view::Drawing drawing =
      view::drawing_of_record(file, record, options.draw, options.program);
  return form == ".svg"   ? view::svg_of(drawing)
         : form == ".dot" ? view::dot_of(drawing)
                          : view::json_of(drawing);
}

void show(const ViewOptions& options) {
  if (options.run.empty() && options.words.size() != 1)
    throw UsageError(options.words.empty() ? "view: wants a record, or a program with --run"
                                           : "view: one record at a time");
  if (!options.draw.empty()) {
    const std::string form = std::filesystem::path(options.out).extension().string();
    if (form != ".svg" && form != ".dot" && form != ".json")
      throw UsageError("view --draw: wants --out NAME.svg, NAME.dot or NAME.json");
  }
  if (!options.out.empty())
    output_target("view --out", options.out);
  const std::string file = options.run.empty() ? options.words.front() : options.run;
  const std::string record =
      options.run.empty() ? read_text(file, kMostRecord) : record_of_run(options);
  std::string made =
      options.draw.empty() ? view::page_of_record(file, record) : picture(file, record, options);
  if (options.out.empty())
    serve(std::move(made), options.port);
  else
    write_output("view --out", options.out, made);
}

} // namespace

void add_view_command(CLI::App& app) {
  auto options = std::make_shared<ViewOptions>();
  auto* command = app.add_subcommand(
      "view", "Show in a browser what a program was compiled to (docs/seeing.md)");
  command->footer("For example\n"
                  "  egret compile graph.txt --effort search --record graph.jsonl\n"
                  "  egret view graph.jsonl                     served on 127.0.0.1\n"
                  "  egret view graph.jsonl --out graph.html    one file that needs nothing else\n"
                  "  egret view --run ./program -- its arguments\n"
                  "  egret view graph.jsonl --draw launches --out launches.svg");
  command->add_option("record", options->words,
                      "What --record or egret::Record wrote; with --run, the program's arguments");
  command->add_option("--run", options->run, "Run this program and show what it compiled and ran")
      ->type_name("PROGRAM");
  command
      ->add_option("--draw", options->draw,
                   "Instead of the page, write a graph as .svg, .dot or .json: graph, graph:N, "
                   "launches, egraph or tree:N")
      ->type_name("WHAT");
  command->add_option("--program", options->program, "Which program of the record --draw means")
      ->check(whole_within(0, 1000000));
  auto* out = command->add_option("-o,--out", options->out, "Write the page to this file");
  command->add_option("--port", options->port, "Of 127.0.0.1; by default one that is free")
      ->check(whole_within(1, 65535))
      ->excludes(out);
  command->callback([options] { show(*options); });
}

} // namespace egret::tool
