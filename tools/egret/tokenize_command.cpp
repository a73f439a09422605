// egret tokenize: text to ids and back.
#include "commands.h"
#include "console.h"
#include "language.h"

#include "egret/error.h"
#include "egret/tokenizer.h"
#include "support/read_text.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <unistd.h>
#include <vector>

namespace egret::tool {

namespace {

struct Options {
  std::string tokenizer;
  std::vector<std::string> words;
  bool decode = false, json = false, plain = false;
};

/// The arguments, joined by spaces, or else stdin.
std::string input(const Options& options) {
  if (options.words.empty())
    return read_text(STDIN_FILENO, "stdin");
  std::string text;
  for (const std::string& word : options.words)
    text += (text.empty() ? "" : " ") + word;
  return text;
}

void tokenize(const Options& options) {
  const Tokenizer tokenizer = load_tokenizer(options.tokenizer);
  const std::string text = input(options);
  if (options.decode) {
    const std::vector<std::int32_t> ids = read_ids(text, "tokenize --decode: the input");
    for (const std::int32_t id : ids)
      if (!tokenizer.token_of(id))
        throw Error(ErrorKind::Value,
                    fmt::format("tokenize --decode: {} is the id of no token", id));
    const std::string out = tokenizer.decode(ids, options.plain);
    if (options.json)
      fmt::print("{}\n", nlohmann::json{{"text", out}}.dump());
    else
      fmt::print("{}{}", out, stdout_is_terminal() ? "\n" : "");
    return;
  }
  const std::vector<std::int32_t> ids = tokenizer.encode(text, !options.plain);
  if (!options.json) {
    fmt::print("{}\n", fmt::join(ids, " "));
    return;
  }
  std::vector<std::string> tokens;
  for (const std::int32_t id : ids)
    tokens.push_back(tokenizer.token_of(id).value_or(""));
  fmt::print("{}\n", nlohmann::ordered_json{{"ids", ids}, {"tokens", tokens}}.dump());
}

} // namespace

void add_tokenize_command(CLI::App& app) {
  auto options = std::make_shared<Options>();
  auto* command = app.add_subcommand(
      "tokenize", "Turn text into the ids of a model's tokenizer, or ids into text");
  command
      ->add_option("--tokenizer", options->tokenizer,
                   "A tokenizer.json, a folder that has one, or a GGUF file")
      ->required();
  command->add_flag("--decode", options->decode, "The input is ids; print their text");
  command->add_flag("--plain", options->plain,
                    "Add no special tokens; with --decode, leave them out");
  command->add_flag("--json", options->json, "Print it as JSON, with the tokens");
  command->add_option("text", options->words, "The text, or ids; standard input without it");
  command->callback([options] { tokenize(*options); });
}

} // namespace egret::tool
