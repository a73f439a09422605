// egret view: a record as pages in a browser, from a file or from this machine.
#include "commands.h"
#include "console.h"
#include "number_option.h"

#include "support/fail.h"
#include "support/output_file.h"
#include "support/read_text.h"
#include "view/page.h"
#include "view/server.h"

#include <CLI/CLI.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include <csignal>
#include <memory>
#include <thread>

namespace egret::tool {

namespace {

/// A browser holds the page's record as one text, of 512 MiB at the most in Chromium, and escapes
/// lengthen it.
constexpr std::uint64_t kMostRecord = std::uint64_t{256} << 20;

struct ViewOptions {
  std::string record, out;
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

void show(const ViewOptions& options) {
  if (!options.out.empty())
    output_target("view --out", options.out);
  std::string page = view::page_of_record(options.record, read_text(options.record, kMostRecord));
  if (options.out.empty())
    serve(std::move(page), options.port);
  else
    write_output("view --out", options.out, page);
}

} // namespace

void add_view_command(CLI::App& app) {
  auto options = std::make_shared<ViewOptions>();
  auto* command = app.add_subcommand(
      "view", "Show in a browser what a program was compiled to (docs/seeing.md)");
  command->footer("For example\n"
                  "  egret compile graph.txt --effort search --record graph.jsonl\n"
                  "  egret view graph.jsonl                     served on 127.0.0.1\n"
                  "  egret view graph.jsonl --out graph.html    one file that needs nothing else");
  command->add_option("record", options->record, "What --record or egret::Record wrote")
      ->required()
      ->type_name("FILE")
      ->check(CLI::ExistingFile);
  auto* out = command->add_option("-o,--out", options->out, "Write the page to this file");
  command->add_option("--port", options->port, "Of 127.0.0.1; by default one that is free")
      ->check(whole_within(1, 65535))
      ->excludes(out);
  command->callback([options] { show(*options); });
}

} // namespace egret::tool
