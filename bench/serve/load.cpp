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
#include <cstdio>
#include <exception>
#include <fmt/format.h>

using namespace egret;

namespace {

struct Options {
  test::LoadOptions load{.clients = 64};
  std::string model;
  std::int64_t context = 512, parallel = 16, known = 32;
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
  test::ServeProcess serve(EGRET_TEST_TOOL,
                           {"--model", o.model, "--context", std::to_string(o.context),
                            "--parallel", std::to_string(o.parallel), "--queue", "256"});
  const auto known = test::known_requests(alone, Tokenizer::load(o.model), serve.port(), draws,
                                          o.load.seed, static_cast<std::size_t>(o.known));
  const double fresh = serve.resident_mib();
  // Every number of texts at once has its kernels then, so that what grows later is held by
  // requests.
  const test::LoadReport warm = test::load_server(
      serve.port(), draws, known, {.clients = o.load.clients, .requests = 8, .seed = 77});
  const double begin = serve.resident_mib();
  const test::LoadReport report = test::load_server(serve.port(), draws, known, o.load);
  const double end = serve.resident_mib();
  fmt::print("warming up: {}\n{}resident: {:.1f} MiB fresh, {:.1f} warm, {:.1f} in the end\n",
             warm.text(), report.text(), fresh, begin, end);
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
