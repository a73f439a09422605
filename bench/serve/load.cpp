// Loads egret serve, as a process of its own, with clients that ask, read and leave at random, and
// checks every answer and what the server holds in the end.
//
//   build/release/bin/serve_load --seconds 600 [--clients 64] [--model FOLDER] ...
//
// Without a model it is a small one with random weights. Status 1 where anything was wrong.
#include "support/files.h"
#include "support/language_models.h"
#include "support/serve_load.h"
#include "support/serve_process.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <thread>
#include <vector>

using namespace egret;

namespace {

struct Options {
  test::LoadOptions load{.clients = 64, .killed = 2};
  std::string model;
  std::int64_t context = 512, parallel = 16, queue = 256, known = 32;
};

int run(Options o) {
  test::TempFolder folder;
  if (o.model.empty()) {
    nlohmann::json model = test::golden_language("llama");
    model["config"]["max_position_embeddings"] = o.context;
    test::write_served_folder(folder.path(), model);
    o.model = folder.path().string();
  }
  models::LanguageModel alone = models::LanguageModel::load(o.model, {.context = o.context});
  const test::LoadDraws draws{.vocabulary = static_cast<int>(alone.config().vocabulary),
                              .first_token = 8,
                              .context = static_cast<std::size_t>(o.context)};
  test::ServeProcess serve(
      EGRET_TEST_TOOL, {"--model", o.model, "--context", std::to_string(o.context), "--parallel",
                        std::to_string(o.parallel), "--queue", std::to_string(o.queue)});
  const auto known = test::known_requests(alone, Tokenizer::load(o.model), serve.port(), draws,
                                          o.load.seed, static_cast<std::size_t>(o.known));
  const double fresh = serve.resident_mib();
  // Every number of texts at once has its kernels then, so that what grows later is held by
  // requests.
  const test::LoadReport warm = test::load_server(
      serve.port(), draws, known, {.clients = o.load.clients, .requests = 8, .seed = 77});
  fmt::print("warming up: {}\nresident: {:.1f} MiB fresh, {:.1f} warm\n", warm.text(), fresh,
             serve.resident_mib());
  std::fflush(stdout);
  std::vector<double> resident; // a tenth of the time each
  test::LoadReport report;
  {
    const std::jthread sampler([&](const std::stop_token& done) {
      const auto tenth = std::chrono::duration<double>(std::max(o.load.seconds / 10, 1.0));
      auto next = std::chrono::steady_clock::now() + tenth;
      while (!done.stop_requested()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        if (std::chrono::steady_clock::now() < next)
          continue;
        resident.push_back(serve.resident_mib());
        next += tenth;
      }
    });
    report = test::load_server(serve.port(), draws, known, o.load);
  }
  fmt::print("{}resident: {:.1f} MiB in the end; before: {:.1f}\n", report.text(),
             serve.resident_mib(), fmt::join(resident, ", "));
  const bool ended = serve.interrupt();
  if (!ended)
    fmt::print("the server did not end in order: {}\n", serve.said());
  return warm.faults.empty() && report.faults.empty() && ended ? 0 : 1;
}

} // namespace

int main(int argc, char** argv) {
  CLI::App app("Loads egret serve and checks what it answers");
  Options o;
  app.add_option("--clients", o.load.clients, "Clients at once")->capture_default_str();
  auto* seconds = app.add_option("--seconds", o.load.seconds, "How long clients begin requests");
  auto* requests = app.add_option("--requests", o.load.requests, "Of each client, instead");
  seconds->excludes(requests);
  app.add_option("--leaving", o.load.leaving, "Part of the requests whose client leaves")
      ->capture_default_str();
  app.add_option("--killed", o.load.killed,
                 "Client processes beside these, which are killed as they ask")
      ->capture_default_str();
  app.add_option("--queue", o.queue, "Requests that may wait; more get 429")->capture_default_str();
  app.add_option("--seed", o.load.seed, "Of what clients do")->capture_default_str();
  app.add_option("--model", o.model, "A folder, with its tokenizer");
  app.add_option("--context", o.context, "Tokens of a text")->capture_default_str();
  app.add_option("--parallel", o.parallel, "Texts that the server writes at once")
      ->capture_default_str();
  app.add_option("--known", o.known, "Requests whose texts are compared with the library's")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    return run(o);
  } catch (const std::exception& error) {
    fmt::print(stderr, "serve_load: {}\n", error.what());
    return 1;
  }
}
