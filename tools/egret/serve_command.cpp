// egret serve: a language model behind OpenAI's interface.
#include "commands.h"
#include "console.h"
#include "effort_options.h"
#include "interrupts.h"
#include "language.h"
#include "number_option.h"

#include "egret/chat_template.h"
#include "egret/error.h"
#include "egret/serve.h"
#include "support/fail.h"
#include "support/read_text.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <thread>

namespace egret::tool {

namespace {

struct ServeCommandOptions {
  LanguageOptions language;
  serve::ServeOptions server;
  std::string key_file;
  std::int64_t port = 8080, parallel = 4, queue = 64, body_kb = 1024;
  double grace = 30;
};

/// The last part of a path that is not empty, without ".gguf".
std::string name_of_model(const std::filesystem::path& path) {
  std::string name = std::filesystem::absolute(path).lexically_normal().filename().string();
  if (name.empty())
    name = std::filesystem::absolute(path).lexically_normal().parent_path().filename().string();
  return name.ends_with(".gguf") ? name.substr(0, name.size() - 5) : name;
}

/// The first line of a file.
std::string read_key(const std::string& path) {
  std::string text = read_text(path);
  text.resize(std::min(text.find_first_of("\r\n"), text.size()));
  if (text.empty())
    fail(ErrorKind::File, "{}: the first line, which is the key, is empty", path);
  return text;
}

void serve_model(ServeCommandOptions o) {
  if (!o.key_file.empty())
    o.server.api_key = read_key(o.key_file);
  const Tokenizer tokenizer = tokenizer_of(o.language);
  if (o.server.model_name.empty())
    o.server.model_name = name_of_model(o.language.model);
  o.server.port = static_cast<std::uint16_t>(o.port);
  o.server.queue = static_cast<std::size_t>(o.queue);
  o.server.body_bytes = static_cast<std::size_t>(o.body_kb) << 10U;
  o.server.max_tokens = o.language.max_new.value_or(0);
  o.language.sequences = o.parallel;
  serve::require_servable(o.server, tokenizer); // before weights are read

  const Interrupts interrupts(Interrupts::Reads::GoOn, Interrupts::Also::Terminate);
  Interrupts::clear();
  const bool encoder = is_text_encoder(o.language.model);
  const auto server_of = [&] { // guaranteed elision: a server cannot be moved
    return encoder ? serve::Server(load_text_encoder(o.language, "serve"), tokenizer, o.server)
                   : serve::Server(load_language_model(o.language), tokenizer, o.server);
  };
  serve::Server server = server_of();
  const bool v6 = o.server.host.find(':') != std::string::npos;
  log("{} at http://{}{}{}:{}/v1, {}; Ctrl-C ends", o.server.model_name, v6 ? "[" : "",
      o.server.host, v6 ? "]" : "", server.port(),
      encoder ? "embeddings only" : fmt::format("{} requests at once", o.parallel));
  if (!o.server.host.starts_with("127.") && o.server.host != "::1" && o.server.api_key.empty())
    log("anyone who reaches {} may use it: there is no --api-key-file", o.server.host);
  while (!Interrupts::requested())
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  log("waits up to {} for requests under way; Ctrl-C twice more ends at once",
      seconds_text(o.grace));
  server.stop(o.grace);
}

} // namespace

void add_serve_command(CLI::App& app) {
  auto options = std::make_shared<ServeCommandOptions>();
  LanguageOptions& language = options->language;
  serve::ServeOptions& server = options->server;
  auto* command = app.add_subcommand("serve", "Answer HTTP requests with a language model");
  command->footer(
      "Clients of OpenAI's interface connect to http://HOST:PORT/v1 (docs/serving.md).\n"
      "Ctrl-C ends it when the requests under way are answered.");
  command
      ->add_option("--model", language.model,
                   "A folder, or a GGUF file; a folder of an encoder serves embeddings")
      ->required();
  command->add_option("--host", server.host, "Address to listen on; others reach 0.0.0.0 and ::")
      ->capture_default_str();
  command->add_option("--port", options->port, "Port; 0: one that is free")
      ->check(whole_within(0, 65535))
      ->capture_default_str();
  command->add_option("--name", server.model_name,
                      "What requests call the model (default: the folder's name)");
  command->add_option("--api-key-file", options->key_file,
                      "A file whose first line is the key that requests must have");
  command
      ->add_option("--parallel", options->parallel,
                   "Requests that are written at once, if the cache holds them (--cache-mb)")
      ->check(whole_within(1, 4096))
      ->capture_default_str();
  command->add_option("--queue", options->queue, "Requests that may wait beyond those; then 429")
      ->check(whole_within(0, 1 << 20))
      ->capture_default_str();
  command->add_option("--connections", server.connections, "Connections that may be open at a time")
      ->check(whole_within(1, 1 << 20))
      ->capture_default_str();
  command
      ->add_option("--max-new", language.max_new,
                   "Most tokens of an answer (default: what the context holds)")
      ->check(whole_within(1, 100000000));
  command->add_option("--body-kb", options->body_kb, "Most KiB of a request")
      ->check(whole_within(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--request-seconds", server.request_seconds, "Most time of a request")
      ->check(is_seconds())
      ->capture_default_str();
  command
      ->add_option(
          "--client-seconds", server.client_seconds,
          "Most time until a request's header is there, for its body, for a part of an answer")
      ->check(is_seconds())
      ->capture_default_str();
  command->add_option("--grace", options->grace, "Seconds for requests under way at the end")
      ->check(number_from(0))
      ->capture_default_str();
  add_load_options(*command, language);
  add_computation(*command, [options] { serve_model(*options); });
}

} // namespace egret::tool
