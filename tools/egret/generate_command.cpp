// egret generate: a trained model continues a text.
#include "commands.h"
#include "console.h"
#include "effort_options.h"
#include "language.h"
#include "number_option.h"

#include "egret/text_model.h"
#include "support/fail.h"
#include "support/path_status.h"
#include "support/read_text.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <unistd.h>

namespace egret::tool {

namespace {

struct GenerateOptions {
  LanguageOptions language{.model = "text.safetensors"};
  models::SampleOptions sample; ///< of models that egret train text made
  std::optional<std::string> prompt, ids;
};

std::string dumped(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

/// With a model over characters.
void generate_characters(const GenerateOptions& o) {
  const models::TextModel model = models::load_text_model(o.language.model);
  models::SampleOptions sample = o.sample;
  sample.length = o.language.max_new.value_or(sample.length);
  sample.temperature = o.language.temperature.value_or(sample.temperature);
  sample.top_k = o.language.top_k.value_or(sample.top_k);
  sample.seed = o.language.seed.value_or(sample.seed);
  const std::string prompt = o.prompt.value_or("");
  std::string text;
  bool started = false;
  models::continue_text(model, prompt, sample, [&](char c) {
    text += c;
    if (o.language.json)
      return;
    if (!started)
      fmt::print("{}", prompt);
    started = true;
    std::fputc(c, stdout);
    if (stdout_is_terminal())
      std::fflush(stdout); // a reader sees each character as it comes
  });
  if (o.language.json)
    fmt::print("{}\n", dumped({{"prompt", prompt}, {"text", text}}));
  else
    fmt::print("{}\n", started ? "" : prompt);
}

/// From ids to ids, without a tokenizer.
void generate_ids(const LanguageOptions& o, const std::string& ids) {
  const std::vector<int> prompt = read_ids(ids, "--ids");
  if (!o.schema.empty() || !o.grammar.empty())
    throw UsageError("generate: --json-schema and --grammar need the tokenizer, which --ids does "
                     "without");
  if (o.context > 0)
    require_fits(prompt.size(), o.context); // before gigabytes are read
  models::LanguageModel model = load_language_model(o);
  const char* between = "";
  const Answer answer = write_on(model, prompt, generation_of(o, model, nullptr), [&](int token) {
    if (!o.json)
      show(between + std::to_string(token));
    between = " ";
  });
  if (o.json)
    fmt::print("{}\n", dumped({{"prompt_ids", prompt},
                               {"ids", answer.generated.tokens},
                               {"reason", name_of(answer.generated.reason)}}));
  else
    fmt::print("\n");
  if (o.stats)
    answer.log_stats();
}

void generate_text(const LanguageOptions& o, const std::string& text) {
  const Tokenizer tokenizer = tokenizer_of(o);
  const std::vector<int> prompt = tokenizer.encode(text);
  const auto grammar = grammar_of(o, tokenizer);
  if (o.context > 0)
    require_fits(prompt.size(), o.context); // before gigabytes are read
  models::LanguageModel model = load_language_model(o);
  // The prompt goes through it too: what a token reads as may depend on those before it.
  StreamingDetokenizer stream(tokenizer);
  for (const int token : prompt)
    stream.push(token);
  std::string written;
  bool started = false;
  const auto add = [&](const std::string& part) {
    written += part;
    if (!o.json)
      show(started ? part : text + part);
    started = true;
  };
  models::GenerateOptions generation = generation_of(o, model, &tokenizer);
  generation.grammar = grammar;
  const Answer answer =
      write_on(model, prompt, generation, [&](int token) { add(stream.push(token)); });
  add(stream.finish());
  if (o.json)
    fmt::print("{}\n", dumped({{"prompt", text},
                               {"text", written},
                               {"prompt_ids", prompt},
                               {"ids", answer.generated.tokens},
                               {"reason", name_of(answer.generated.reason)}}));
  else
    fmt::print("\n");
  if (o.stats)
    answer.log_stats();
}

void generate(const GenerateOptions& o) {
  if (!path_exists(o.language.model))
    fail(ErrorKind::File, "{}: there is no such folder or file; egret downloads no models",
         o.language.model);
  if (!is_language_model(o.language.model))
    generate_characters(o);
  else if (o.ids)
    generate_ids(o.language, *o.ids);
  else
    generate_text(o.language, o.prompt ? *o.prompt : read_text(STDIN_FILENO, "stdin"));
}

} // namespace

void add_generate_command(CLI::App& app) {
  auto options = std::make_shared<GenerateOptions>();
  LanguageOptions& language = options->language;
  auto* command = app.add_subcommand("generate", "Let a trained model continue a text");
  command->footer(
      "The model is a folder with config.json and safetensors, a GGUF file, or what\n"
      "egret train text --data FILE --out MODEL made. Sampling is as the folder's\n"
      "generation_config.json proposes, else the likeliest token (temperature 0.8 for MODEL).\n"
      "Equal options give equal text.");
  command->add_option("--model", language.model, "The checkpoint")->capture_default_str();
  auto* prompt =
      command->add_option("--prompt", options->prompt,
                          "What the text starts with (default: standard input; nothing for MODEL)");
  command
      ->add_option("--max-new,--length", language.max_new,
                   "Tokens to write (default: 256), or characters (200)")
      ->check(whole_within(0, 100000000));
  add_sampling_options(*command, language);
  std::vector<std::string> of_language = add_language_options(*command, language);
  command
      ->add_option("--ids", options->ids,
                   "A prompt of token ids, as in 1,2,3; ids are written, no tokenizer is needed")
      ->excludes(prompt);
  of_language.push_back("--ids");
  command
      ->add_option("--keep", options->sample.keep,
                   "Characters that begin a new context when one is full; 0: half of it")
      ->check(whole_within(0, 1 << 20))
      ->capture_default_str();
  command->add_flag("!--no-cache", options->sample.cache,
                    "Read the whole context again for each character");
  command->add_flag("--json", language.json, "Print prompt and text as JSON");
  add_computation(*command, [options, command, of_language] {
    const bool tokens = is_language_model(options->language.model);
    const std::vector<std::string> of_characters = {"--keep", "--no-cache"};
    for (const std::string& name : tokens ? of_characters : of_language)
      if (command->count(name) > 0)
        throw UsageError(fmt::format("generate: {} is for {}", name,
                                     tokens ? "models that egret train text made"
                                            : "folders and GGUF files of language models"));
    generate(*options);
  });
}

} // namespace egret::tool
